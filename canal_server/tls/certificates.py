"""Until when certificates are valid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cryptography import x509

if TYPE_CHECKING:
    from datetime import datetime


def expiry_of_pem(data: bytes) -> datetime:
    """Return when the first certificate in PEM expires. Raises ValueError."""
    return x509.load_pem_x509_certificate(data).not_valid_after_utc


def expiry_of_der(data: bytes) -> datetime | None:
    """Return when a certificate expires, None: what the other side sent is none."""
    try:
        return x509.load_der_x509_certificate(data).not_valid_after_utc
    except ValueError:
        return None
