"""Passwords that druid's ConfigTools encrypted."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from druid_samples import DEFAULT_TEXT, JAVA_KEY, JAVA_TEXT

from canal_server.passwords.druid_password import (
    DEFAULT_PUBLIC_KEY,
    check_key,
    decrypted,
)

PAIR = rsa.generate_private_key(public_exponent=65537, key_size=1024)


def public(key=None) -> str:
    """Return a public key as ConfigTools prints it."""
    der = (
        (key or PAIR)
        .public_key()
        .public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return base64.b64encode(der).decode()


def sealed(block: bytes) -> str:
    """Return a padded block encrypted with the private key."""
    numbers = PAIR.private_numbers()
    modulus = numbers.public_numbers.n
    found = pow(int.from_bytes(block), numbers.d, modulus)
    return base64.b64encode(found.to_bytes(128)).decode()


def padded(password: bytes, kind: int = 1, byte: bytes = b"\xff") -> bytes:
    """Return a block of PKCS #1 v1.5."""
    return b"\0" + bytes([kind]) + byte * (125 - len(password)) + b"\0" + password


@pytest.mark.parametrize(
    ("key", "text", "password"),
    [(JAVA_KEY, JAVA_TEXT, "canal"), (DEFAULT_PUBLIC_KEY, DEFAULT_TEXT, "root")],
    ids=["own key", "druid's key"],
)
def test_what_java_encrypted(key, text, password):
    """What ConfigTools wrote on a JDK is decrypted, lines wrapped or not."""
    assert decrypted(key, text) == password
    assert decrypted(f" {key[:40]}\n{key[40:]}", f"{text[:40]}\n{text[40:]}\n") == (
        password
    )


@pytest.mark.parametrize("password", ["", "s", "pä$s wörd", "x" * 100])
def test_any_password(password):
    """Any password that fits into the block comes back."""
    assert decrypted(public(), sealed(padded(password.encode()))) == password


def test_of_the_jdk_of_ibm():
    """There druid encrypts with a public key in disguise, whose padding differs."""
    assert decrypted(public(), sealed(padded(b"geheim", 2, b"\x7a"))) == "geheim"


@pytest.mark.parametrize(
    "block",
    [
        padded(b"geheim", 1, b"\x7a"),
        padded(b"geheim", 3),
        b"\0\1\xff\xff\xff\0geheim".ljust(128, b"\1"),
        b"\0\1" + b"\xff" * 126,
        b"\1" + padded(b"geheim")[1:],
    ],
    ids=["padding", "type", "short padding", "no end", "first byte"],
)
def test_wrong_blocks(block):
    """A block that no encryption pads like this belongs to another key."""
    with pytest.raises(ValueError, match="private key that belongs to"):
        decrypted(public(), sealed(block))


@pytest.mark.parametrize(
    ("key", "text", "problem"),
    [
        (JAVA_KEY, DEFAULT_TEXT, "not encrypted with the private key that belongs"),
        (JAVA_KEY, "geheim", "set canal.instance.enableDruid to false"),
        (JAVA_KEY, "gehei", "set canal.instance.enableDruid to false"),
        (JAVA_KEY, base64.b64encode(b"\xff" * 64).decode(), "belongs to"),
        (JAVA_KEY, base64.b64encode(b"x" * 65).decode(), "belongs to"),
        ("retl", JAVA_TEXT, "pwdPublicKey is not an RSA public key"),
        ("ä", JAVA_TEXT, "pwdPublicKey is not an RSA public key"),
        (JAVA_KEY[:40], JAVA_TEXT, "pwdPublicKey is not an RSA public key"),
    ],
)
def test_problems_name_the_setting(key, text, problem):
    """A wrong key, a text that is not encrypted and a broken key differ."""
    with pytest.raises(ValueError, match=problem) as caught:
        decrypted(key, text)
    assert text not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_key_of_another_kind():
    """A key that is not of RSA is refused."""
    with pytest.raises(ValueError, match="not an RSA public key"):
        check_key(public(ec.generate_private_key(ec.SECP256R1())))


def test_each_truncated_key_is_refused():
    """No part of a key is accepted as a key, and none ends in another error."""
    whole = base64.b64decode(JAVA_KEY)
    check_key(JAVA_KEY)
    for end in range(len(whole)):
        with pytest.raises(ValueError, match="not an RSA public key"):
            check_key(base64.b64encode(whole[:end]).decode())
