"""Until when certificates are valid."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from canal_server.model.check_results import fail, ok, warn

if TYPE_CHECKING:
    from canal_server.model.check_results import CheckResult


def expiry_of_pem(data: bytes) -> datetime:
    """Return when the first certificate in PEM expires. Raises ValueError."""
    from cryptography import x509  # noqa: PLC0415  # 8 MB, for TLS only

    return x509.load_pem_x509_certificate(data).not_valid_after_utc


def expiry_of_der(data: bytes) -> datetime | None:
    """Return when a certificate expires, None: what the other side sent is none."""
    from cryptography import x509  # noqa: PLC0415

    try:
        return x509.load_der_x509_certificate(data).not_valid_after_utc
    except ValueError:
        return None


def check_expiry_of(
    check: str, shown: str, ends: datetime, warning_days: int, remedy: str
) -> CheckResult:
    """Check for how long a certificate is valid; `shown` is where it is."""
    days = (ends - datetime.now(UTC)).days
    if days < 0:
        text = f"{shown}: the certificate expired at {ends:%Y-%m-%d}"
        return fail(check, text, remedy)
    text = f"{shown}: the certificate is valid until {ends:%Y-%m-%d}"
    return warn(check, text, remedy) if days < warning_days else ok(check, text)
