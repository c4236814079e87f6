"""The names that a certificate proves, as texts that settings can name.

The subject as RFC 4514 writes it (`CN=reader,O=Example`), and the alternative names
with their kind: `dns:`, `email:`, `uri:` and `ip:`.
"""

from __future__ import annotations

import ipaddress
import re
from datetime import UTC, datetime
from typing import Final

_KINDS: Final = ("dns", "email", "uri", "ip")
_PRINTED: Final = "subject="  # what `openssl x509` prints before it
_BLANKS: Final = re.compile(r"(?<!\\),\s+")  # after a comma that is not escaped


def names_of(der: bytes) -> tuple[str, ...]:
    """Return the names in a certificate, the subject first; without those it lacks.

    The caller has verified the certificate. It proves nothing if it has expired
    meanwhile, and malformed extensions give no names.
    """
    from cryptography import x509  # noqa: PLC0415  # 8 MB, for TLS only

    if has_expired(der):
        return ()
    try:
        found = x509.load_der_x509_certificate(der)
        subject = found.subject.rfc4514_string()
        names = [subject] if subject else []
        other = found.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return tuple(names)
    except ValueError:  # OpenSSL accepts some things that this library does not
        return ()
    for each in other.value:
        match each:
            case x509.DNSName(value=value):
                names.append(f"dns:{value.lower()}")
            case x509.RFC822Name(value=value):
                names.append(f"email:{value}")
            case x509.UniformResourceIdentifier(value=value):
                names.append(f"uri:{value}")
            case x509.IPAddress(value=value):
                names.append(f"ip:{value}")
    return tuple(names)


def has_expired(der: bytes) -> bool:
    """Return whether a verified certificate is not valid any more.

    A client that resumes a session of TLS is not verified again by OpenSSL, for as long
    as the session lives.
    """
    from cryptography import x509  # noqa: PLC0415

    try:
        found = x509.load_der_x509_certificate(der)
    except ValueError:  # OpenSSL accepts some things that this library does not
        return False
    return found.not_valid_after_utc <= datetime.now(UTC)


def checked_name(text: str) -> str:
    """Return a name in the form of `names_of`. Raises ValueError with the remedy."""
    from cryptography import x509  # noqa: PLC0415

    kind, colon, value = text.partition(":")
    kind, value = kind.strip().lower(), value.strip()
    if colon and kind in _KINDS:
        if not value:
            raise ValueError(f"{text!r} has no name after the colon")
        if kind == "ip":
            return f"ip:{ipaddress.ip_address(value)}"
        return f"{kind}:{value.lower() if kind == 'dns' else value}"
    try:
        plain = _BLANKS.sub(",", text.strip().removeprefix(_PRINTED))
        subject = x509.Name.from_rfc4514_string(plain).rfc4514_string()
    except ValueError:
        subject = ""
    if not subject:
        raise ValueError(
            f"{text!r} is no name of a certificate; write its subject as"
            " `openssl x509 -noout -subject -nameopt RFC2253` prints it, or dns:NAME,"
            " email:ADDRESS, uri:URI or ip:ADDRESS"
        )
    return subject
