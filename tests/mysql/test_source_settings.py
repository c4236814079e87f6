"""Addresses, accounts and TLS options."""

from __future__ import annotations

import ssl

import pytest

from canal_server.errors import SourceRefused
from canal_server.mysql.source_settings import Access, Address, Credentials
from canal_server.tls.source_tls import TlsMode, TlsOptions


def test_the_password_is_in_no_text_form():
    """Neither the account nor what contains it shows its passwords."""
    access = Access(
        address=Address("db"),
        credentials=Credentials("canal", "s3cret"),
        tls=TlsOptions(key_password="s3cret"),
    )

    assert "s3cret" not in repr(access)
    assert "s3cret" not in str(access)
    assert "canal" in repr(access)


@pytest.mark.parametrize(
    ("host", "text"), [("db.example", "db.example:3306"), ("::1", "[::1]:3306")]
)
def test_an_address_as_text(host: str, text: str):
    """An IPv6 address is in brackets before its port."""
    assert str(Address(host)) == text


@pytest.mark.parametrize(
    ("mode", "verify", "names"),
    [
        (TlsMode.REQUIRED, ssl.CERT_NONE, False),
        (TlsMode.VERIFY_CA, ssl.CERT_REQUIRED, False),
        (TlsMode.VERIFY_IDENTITY, ssl.CERT_REQUIRED, True),
    ],
)
def test_what_each_mode_verifies(mode: TlsMode, verify: ssl.VerifyMode, names: bool):
    """REQUIRED verifies nothing, VERIFY_CA the chain, VERIFY_IDENTITY the name, too."""
    context = TlsOptions(mode).context()

    assert context.verify_mode is verify
    assert context.check_hostname is names
    assert TlsOptions(mode).required


@pytest.mark.parametrize("mode", [TlsMode.DISABLED, TlsMode.PREFERRED])
def test_modes_that_do_without(mode: TlsMode):
    """DISABLED and PREFERRED do not insist on TLS."""
    assert not TlsOptions(mode).required


def test_files_that_cannot_be_used_are_named(tmp_path):
    """A missing file and an invalid certificate are refused with their path."""
    bad = tmp_path / "bad.pem"
    bad.write_text("nonsense")
    for options in (
        TlsOptions(TlsMode.VERIFY_CA, ca="/nowhere/ca.pem"),
        TlsOptions(TlsMode.REQUIRED, cert=str(bad)),
    ):
        with pytest.raises(SourceRefused, match=options.ca or "bad.pem"):
            options.context()
