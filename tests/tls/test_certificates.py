"""Until when certificates are valid."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

import pytest

from canal_server.tls.certificates import (
    check_expiry_of,
    expiry_of_der,
    expiry_of_pem,
)


def test_both_forms(authority):
    """The end is the same in PEM and in DER."""
    cert, _ = authority.issue("a", days=10)
    ends = expiry_of_pem(cert.read_bytes())
    assert timedelta(days=9) < ends - datetime.now(UTC) <= timedelta(days=10)
    assert expiry_of_der(ssl.PEM_cert_to_DER_cert(cert.read_text())) == ends


def test_what_is_no_certificate():
    """What a source sends may be anything; a file is the operator's."""
    assert expiry_of_der(b"nonsense") is None
    with pytest.raises(ValueError, match="PEM"):
        expiry_of_pem(b"nonsense")


@pytest.mark.parametrize(
    ("days", "message"),
    [
        (40, "a.pem: the certificate is valid until {ends}"),
        (20, "a.pem: the certificate is valid until {ends}; replace it"),
        (-2, "a.pem: the certificate expired at {ends}; replace it"),
    ],
)
def test_a_check(days, message):
    """It warns within the limit, and fails afterwards."""
    ends = datetime.now(UTC) + timedelta(days=days)
    found = check_expiry_of("tls", "a.pem", ends, 30, "replace it")
    assert found.message == message.format(ends=f"{ends:%Y-%m-%d}")
    assert found.outcome == {40: "ok", 20: "warn", -2: "fail"}[days]
