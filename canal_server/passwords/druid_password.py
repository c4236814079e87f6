"""Passwords as the tool of Alibaba's druid encrypts them.

`ConfigTools` of druid encrypts with the *private* key of an RSA pair, and the settings
have the public key: whoever can read the settings can read the password. Druid's usual
keys have 512 bits, which libraries refuse more and more, so the arithmetic is here.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

# The public key that druid uses when none is given. Its private key is part of druid.
DEFAULT_PUBLIC_KEY: Final = (
    "MFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBAKHGwq7q2RmwuRgKxBypQHw0mYu4BQZ3eMsTrdK8E6ig"
    "RcxsobUC7uT0SoxIjl1WveWniCASejoQtn/BY6hVKWsCAwEAAQ=="
)
MODULUS_BYTES_MAX: Final = 2048
EXPONENT_BYTES_MAX: Final = 8

_SEQUENCE, _INTEGER, _BIT_STRING, _OBJECT_ID = 0x30, 0x02, 0x03, 0x06
_RSA: Final = bytes.fromhex("2a864886f70d010101")  # 1.2.840.113549.1.1.1
_LONG: Final = 0x80  # of a length: the number of bytes that have it

# Padding of PKCS #1 v1.5 (RFC 8017): 00, the type, at least 8 bytes, 00, the password.
# Encryption with a private key pads with type 1, all bytes ff. In the JDK of IBM, druid
# pretends that the private key is a public one, so the padding there has type 2, any
# bytes but 00.
_PRIVATE, _PUBLIC = b"\0\1", b"\0\2"
_PADDING_BYTES_MIN: Final = 8

_KEY_REMEDY: Final = (
    "canal.instance.pwdPublicKey is not an RSA public key in base64; write the"
    " publicKey that druid's ConfigTools printed"
)


def decrypted(public_key: str, encrypted: str) -> str:
    """Return a password; both texts are in base64, as druid prints them.

    Raises ValueError with the problem and the remedy, without the password.
    """
    modulus, exponent = _rsa_key(public_key)
    cipher = _base64(
        encrypted,
        "not encrypted as canal.instance.enableDruid = true expects, which is base64;"
        " write the password that druid's ConfigTools printed, or set"
        " canal.instance.enableDruid to false",
    )
    number = int.from_bytes(cipher)
    size = (modulus.bit_length() + 7) // 8
    block = b""
    if len(cipher) <= size and number < modulus:
        block = pow(number, exponent, modulus).to_bytes(size)
    padding, end, password = block[2:].partition(b"\0")
    is_padded = end and len(padding) >= _PADDING_BYTES_MIN
    is_private = block[:2] == _PRIVATE and not padding.strip(b"\xff")
    if not is_padded or not (is_private or block[:2] == _PUBLIC):
        raise ValueError(
            "not encrypted with the private key that belongs to"
            " canal.instance.pwdPublicKey; write the password and the publicKey of the"
            " same run of druid's ConfigTools"
        )
    try:
        return password.decode()
    except UnicodeDecodeError:
        raise ValueError(
            "the decrypted password is not valid UTF-8; encrypt it again as UTF-8"
        ) from None


def check_key(public_key: str) -> None:
    """Check that a public key can be used. Raises ValueError with the remedy."""
    _rsa_key(public_key)


def _rsa_key(text: str) -> tuple[int, int]:
    """Return modulus and exponent of a SubjectPublicKeyInfo (RFC 5280) in base64."""
    info = _Der(_base64(text, _KEY_REMEDY)).inner(_SEQUENCE)
    algorithm = info.inner(_SEQUENCE)
    if algorithm.bytes_of(_OBJECT_ID) != _RSA:
        raise ValueError(_KEY_REMEDY)
    # The first byte of a bit string counts unused bits; there are none.
    key = _Der(info.bytes_of(_BIT_STRING)[1:]).inner(_SEQUENCE)
    modulus, exponent = key.bytes_of(_INTEGER), key.bytes_of(_INTEGER)
    if len(modulus) > MODULUS_BYTES_MAX or len(exponent) > EXPONENT_BYTES_MAX:
        raise ValueError(_KEY_REMEDY)
    found = int.from_bytes(modulus), int.from_bytes(exponent)
    if not all(found):
        raise ValueError(_KEY_REMEDY)
    return found


def _base64(text: str, problem: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        # Not chained: it may contain the text.
        raise ValueError(problem) from None


class _Der:
    """Reads elements of DER one after another. Raises ValueError."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def inner(self, tag: int) -> _Der:
        """Return a reader of what the next element contains."""
        return _Der(self.bytes_of(tag))

    def bytes_of(self, tag: int) -> bytes:
        """Return the content of the next element, which must have this tag."""
        if self._next(1)[0] != tag:
            raise ValueError(_KEY_REMEDY)
        length = self._next(1)[0]
        if length >= _LONG:
            length = int.from_bytes(self._next(length - _LONG))
        return self._next(length)

    def _next(self, count: int) -> bytes:
        found = self._data[self._at : self._at + count]
        if len(found) < count or not count:
            raise ValueError(_KEY_REMEDY)
        self._at += count
        return found
