"""Java's key stores: PKCS #12 is read; for others, errors name how to convert them.

Java calls both kinds of file a key store: one with trusted certificates, and one with a
private key and its certificate.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import pkcs12

STORE_BYTES_MAX: Final = 16 * 1024 * 1024
_FORMATS: Final = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}
_PEM: Final = b"-----"


@dataclass(frozen=True, slots=True)
class ClientStore:
    """A private key and its certificates, as PEM."""

    pem: bytes = field(repr=False)
    expires_at: datetime


def trusted_of(path: Path, password: str) -> str:
    """Return the certificates of a key store as PEM. Raises ValueError, OSError.

    The text of an error does not name the file.
    """
    store = _loaded(path, password)
    found = [each.certificate for each in store.additional_certs]
    if store.cert is not None:
        found.append(store.cert.certificate)
    if not found:
        raise ValueError("has no certificate; import the authority's with keytool")
    return b"".join(map(_pem, found)).decode("ascii")


def client_of_store(path: Path, password: str) -> ClientStore:
    """Return the key of a key store with its certificates. Raises ValueError, OSError.

    The text of an error does not name the file.
    """
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    store = _loaded(path, password)
    if store.key is None or store.cert is None:
        raise ValueError(
            "has no private key with a certificate; export one with openssl pkcs12"
            " -export -inkey key.pem -in cert.pem"
        )
    key = store.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    chain = [each.certificate for each in store.additional_certs]
    certificates = b"".join(map(_pem, [store.cert.certificate, *chain]))
    return ClientStore(key + certificates, store.cert.certificate.not_valid_after_utc)


def problem_of_format(path: Path) -> str:
    """Return why a file cannot be a PKCS #12 store, with the remedy; empty: it may be.

    Raises OSError.
    """
    with path.open("rb") as file:
        head = file.read(len(_PEM))
    if kind := _FORMATS.get(head[:4]):
        source = shlex.quote(str(path))
        target = shlex.quote(str(path.with_suffix(".p12")))
        return (
            f"a key store in Java's own format {kind}; convert it with: keytool"
            f" -importkeystore -srckeystore {source} -srcstoretype {kind}"
            f" -destkeystore {target} -deststoretype PKCS12"
        )
    if head == _PEM:
        return (
            "a PEM file, no key store; set it as sslCa, or as sslCert and sslKey,"
            " instead"
        )
    return ""


def _loaded(path: Path, password: str) -> pkcs12.PKCS12KeyAndCertificates:
    # 8 MB, for key stores only.
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        pkcs12,
    )

    if problem := problem_of_format(path):
        raise ValueError(problem)
    with path.open("rb") as file:
        data = file.read(STORE_BYTES_MAX + 1)
    if len(data) > STORE_BYTES_MAX:
        raise ValueError(f"larger than {STORE_BYTES_MAX} bytes; set a key store")
    try:
        return pkcs12.load_pkcs12(data, password.encode() if password else None)
    except ValueError:
        # Not chained: the text of the library says less.
        raise ValueError(
            "cannot be opened: no key store in PKCS #12, or its password is not the"
            " configured one; check both with keytool -list -keystore"
        ) from None
    except Exception as error:  # noqa: BLE001  # of any kind, by algorithms it lacks
        raise ValueError(
            f"cannot be opened ({type(error).__name__}); write it again with keytool"
            " -importkeystore -deststoretype PKCS12"
        ) from None


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    return certificate.public_bytes(serialization.Encoding.PEM)
