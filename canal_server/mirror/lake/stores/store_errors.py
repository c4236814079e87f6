"""What an object store's errors mean, and what to do about them.

Stores answer with their own codes, in XML that may repeat the request; delta-rs and
Arrow pass these on in texts of their own.
"""

from __future__ import annotations

import re
from typing import Final

_XML: Final = re.compile(r"<\?xml.*?(?:</Error>|\Z)", re.DOTALL)
_CODE: Final = re.compile(r"<Code>([^<]*)</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]*)</Message>")

_OPTIONS: Final = "lake.storage_options"
_DENIED: Final = "ACCESS_DENIED|AccessDenied|403 Forbidden"
# By what the texts have: the first that is found counts.
_MEANINGS: Final = (
    (
        "StorageFull|InsufficientStorage|QuotaExceeded|507 Insufficient",
        "the store is full: make room there",
    ),
    (
        "NO_SUCH_BUCKET|NoSuchBucket|ContainerNotFound",
        f"there is no such bucket: create it, or correct lake.path or {_OPTIONS}",
    ),
    (
        (
            "SIGNATURE_DOES_NOT_MATCH|SignatureDoesNotMatch|INVALID_ACCESS_KEY_ID"
            "|InvalidAccessKeyId|INVALID_CLIENT_TOKEN_ID|InvalidToken|ExpiredToken"
            "|TOKEN_EXPIRED|401 Unauthorized"
        ),
        (
            "the store does not accept the key: check aws_access_key_id and "
            f"aws_secret_access_key in {_OPTIONS} or in the environment"
        ),
    ),
    (
        "failed to authenticate the request|AuthenticationFailed",  # Azure's
        (
            "the store does not accept the key: check azure_storage_account_key in "
            f"{_OPTIONS} or AZURE_STORAGE_ACCOUNT_KEY in the environment"
        ),
    ),
    (
        _DENIED,
        (
            "the store denies access: check the key, and its rights to list, read, "
            "write and delete there"
        ),
    ),
    (
        "InternalError|INTERNAL_FAILURE|500 Internal|502 Bad|SlowDown|503 Service",
        "the store fails: check whether it is full or overloaded, and its own log",
    ),
    (
        "NETWORK_CONNECTION|error sending request",
        f"the store cannot be reached: check endpoint_url and allow_http in {_OPTIONS}",
    ),
)


def without_request(text: str) -> str:
    """Return an error's text with the code and message instead of the XML.

    The rest of it repeats the request and how it was signed.
    """
    return _XML.sub(_short, text)


def meaning(text: str) -> str:
    """Return what an error of a store means and what to do; "" if that is unknown."""
    for pattern, found in _MEANINGS:
        if re.search(pattern, text):
            return found
    return ""


def denies_access(text: str) -> bool:
    """Check whether an error of a store says that a right is missing."""
    return re.search(_DENIED, text) is not None


def _short(xml: re.Match[str]) -> str:
    found = (_CODE.search(xml[0]), _MESSAGE.search(xml[0]))
    return ": ".join(each[1] for each in found if each is not None)
