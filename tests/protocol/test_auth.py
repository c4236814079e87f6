"""The password scramble and who may log in."""

from __future__ import annotations

import pytest

from canal_server.protocol.auth import Credentials, scramble, stored_form, verify

SEED = bytes.fromhex("0102030405060708")
STORED = "e3619321c1a937c46a0d8bd1dac39f93b27d4458"
TOKEN = b"7de44690d8e53782cb61804a2455c284a3bbfb06"


@pytest.mark.parametrize(
    ("password", "stored"),
    [
        ("canal", STORED),
        ("admin", "4acfe3202a5ff5cf467898fc58aab1d615029441"),
        ("123456", "6bb4837eb74329105ee4568dda7dc67ed2ca2ad9"),
    ],
)
def test_stored_form(password, stored):
    """Passwords have the stored forms that existing configurations hold."""
    assert stored_form(password) == stored


def test_scramble():
    """The token is the one that existing clients send."""
    assert scramble("canal", SEED) == TOKEN


@pytest.mark.parametrize(
    ("token", "stored", "right"),
    [
        (TOKEN, STORED, True),
        (TOKEN.upper(), STORED.upper(), True),
        (TOKEN + b"00ff", STORED, True),  # what is longer is ignored
        (TOKEN[:-1] + b"7", STORED, False),
        (TOKEN[:-2], STORED, False),
        (b"canal", STORED, False),  # old clients send the password as it is
        (b"", STORED, False),
        (TOKEN[:20] + b" " + TOKEN[20:], STORED, False),
        ("ä".encode() * 20, STORED, False),
        ("٣".encode() * 40, STORED, False),
        (TOKEN, "", False),
        (TOKEN, "no hex", False),
    ],
)
def test_verify(token, stored, right):
    """Only the token of this password and seed is right; nothing raises."""
    assert verify(token, stored, SEED) is right


def test_verify_depends_on_the_seed():
    """A token that was overheard does not work with another seed."""
    assert not verify(TOKEN, STORED, b"12345678")


def test_odd_number_of_digits():
    """A missing leading zero is added, as in the stored form."""
    password, seed = next(
        (f"p{n}", SEED) for n in range(1000) if scramble(f"p{n}", SEED)[:1] == b"0"
    )
    token = scramble(password, seed)
    assert verify(token[1:], stored_form(password), seed)


@pytest.mark.parametrize(
    ("user", "passwd", "username", "password", "allowed"),
    [
        ("", "", "anybody", b"anything", True),
        ("", "", "", b"", True),
        ("", STORED, "anybody", b"", False),
        ("", STORED, "anybody", TOKEN, True),
        ("", STORED, "anybody", b"00" * 20, False),
        ("canal", STORED, "canal", TOKEN, True),
        ("canal", STORED, "canal", b"", False),
        ("canal", STORED, "Canal", TOKEN, False),
        ("canal", STORED, "", TOKEN, False),
        ("canal", "", "canal", TOKEN, False),
        ("canal", "", "canal", b"", False),
    ],
)
def test_decisions(user, passwd, username, password, allowed):
    """Log-ins are decided as the table says."""
    assert Credentials(user, passwd).allow(username, password, SEED) is allowed


def test_secrets_are_not_shown():
    """The stored form is not in the text of the credentials."""
    assert STORED not in repr(Credentials("canal", STORED))
