"""Password authentication without sending the password: the scramble of MySQL 4.1.

The server stores hex(H(H(password))) with H = SHA-1; the client sends
H(password) XOR H(seed + H(H(password))), as hexadecimal text.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

SEED_BYTES = 8
TOKEN_BYTES = 20  # SHA-1 size


def _hash(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()  # defined by the protocol


def _xor(a: bytes, b: bytes) -> bytes:
    return bytes(x ^ y for x, y in zip(a, b, strict=True))


def stored_form(password: str) -> str:
    """Return the value of `canal.passwd` for a password: 40 hexadecimal digits."""
    return _hash(_hash(password.encode())).hex()


def scramble(password: str, seed: bytes) -> bytes:
    """Return the hexadecimal token for a password and a seed."""
    once = _hash(password.encode())
    return _xor(once, _hash(seed + _hash(once))).hex().encode()


def verify(token: bytes, stored: str, seed: bytes) -> bool:
    """Return whether a token matches the password with the stored form `stored`.

    Both texts may be in upper or lower case; excess bytes of the token are ignored.
    Text that is not hexadecimal never matches.
    """
    try:
        given = _decode_hex(token.decode("ascii"))
        expected = _decode_hex(stored)
    except ValueError:  # includes UnicodeDecodeError
        return False
    if len(given) < TOKEN_BYTES or len(expected) != TOKEN_BYTES:
        return False
    once = _xor(_hash(seed + expected), given[:TOKEN_BYTES])
    return hmac.compare_digest(_hash(once), expected)


def _decode_hex(text: str) -> bytes:
    """Decode digits only; an odd number implies a leading zero."""
    if not text.isalnum():  # fromhex accepts blanks
        raise ValueError("not hexadecimal")
    return bytes.fromhex("0" + text if len(text) % 2 else text)


Account_co = TypeVar("Account_co", covariant=True)


class Accounts(Protocol[Account_co]):
    """Who may log in. An account is whatever the server needs to know of a user."""

    def by_token(self, name: str, token: bytes, seed: bytes) -> Account_co | None:
        """Return the account of a user who proves the password, or None."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who may log in: a user name and the stored form of the password, or empty."""

    user: str = ""
    passwd: str = field(default="", repr=False)

    def allow(self, username: str, password: bytes, seed: bytes) -> bool:
        """Return whether a login is valid; `password` is the token as received.

        ========  ========  ===========  ==============================
        our user  our form  client's     result
        ========  ========  ===========  ==============================
        empty     empty     anything     allowed
        empty     set       any user     if the token proves the password
        set       set       the user     if the token proves the password
        set       any       other user   refused
        set       empty     anything     refused: no password matches
        ========  ========  ===========  ==============================
        """
        if not self.user and not self.passwd:
            return True
        if self.user and not hmac.compare_digest(username.encode(), self.user.encode()):
            return False
        return bool(password) and verify(password, self.passwd, seed)
