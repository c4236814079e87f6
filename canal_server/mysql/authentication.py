"""How a password goes to a server: what each plugin may be given, and over which way.

MySQL's SHA-256 plugins want the password itself when the server has not cached it.
Over TLS it is sent as it is, over a plain connection encrypted with RSA: to the key
that is pinned, and to one that the other side sends only where that is allowed, as
whoever is in between can send a key of his own. Leaves out the log-in around it.
"""

from __future__ import annotations

import ipaddress
import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pymysql._auth import scramble_caching_sha2, sha2_rsa_encrypt

from canal_server.errors import ConnectionLost, SourceRefused
from canal_server.messages import source_messages
from canal_server.mysql.source_settings import KeyRetrieval

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.mysql.source_settings import Access

_log = logging.getLogger(__name__)

CACHING_SHA2, SHA256 = "caching_sha2_password", "sha256_password"
_IN_CLEAR_TEXT: Final = ("mysql_clear_password", "dialog")
_OUTDATED: Final = "mysql_old_password"

_AUTH_SWITCH: Final = 0xFE  # first byte of a packet
_MORE_DATA: Final = 0x01
# What follows `_MORE_DATA` of caching_sha2_password.
_CACHED, _NOT_CACHED = b"\x03", b"\x04"
_ASK_KEY: Final = {CACHING_SHA2: b"\x02", SHA256: b"\x01"}

STEPS_MAX: Final = 8  # of one log-in; a server needs three
PEM_BYTES_MAX: Final = 64 * 1024
_SHOWN_MAX: Final = 40

_warned: set[str] = set()  # addresses; each is warned of once in a process


def plugins(access: Access) -> dict[str, Callable[[Any], object]]:
    """Return what answers in PyMySQL's place, by the name of the plugin."""
    found: dict[str, Callable[[Any], object]] = {
        name: partial(_Sha2, access, name) for name in (CACHING_SHA2, SHA256)
    }
    found[_OUTDATED] = partial(
        _Refused,
        f"{access.address}: the server asks for the password's hash in the form of "
        "MySQL 4.0, which anybody can undo; give the account the plugin "
        "caching_sha2_password",
    )
    if not access.tls.required:
        in_clear_text = partial(
            _Refused,
            f"{access.address}: the server asks for the password in clear text; "
            "set sslMode=REQUIRED or give the account another plugin",
        )
        found |= dict.fromkeys(_IN_CLEAR_TEXT, in_clear_text)
    return found


class _Refused:
    """Answers nothing to a plugin that would give the password away."""

    def __init__(self, reason: str, _connection: object) -> None:
        self._reason = reason

    def authenticate(self, _packet: object) -> NoReturn:
        raise SourceRefused(self._reason)


class _Sha2:
    """One log-in by caching_sha2_password or sha256_password.

    PyMySQL hands over the server's packets, one after another, and takes back the
    next one: https://dev.mysql.com/doc/dev/mysql-server/latest/page_caching_sha2_authentication_exchanges.html
    """

    def __init__(self, access: Access, plugin: str, connection: Any) -> None:
        self._connection = connection
        self._access = access
        self._plugin = plugin
        self._steps = 0

    def authenticate(self, packet: Any) -> Any:
        """Answer a packet and return the one that comes next."""
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise self._not_understood(f"{self._steps} questions in one log-in")
        connection = self._connection
        kind = packet.get_all_data()[:1]
        if kind == bytes([_AUTH_SWITCH]):
            connection.salt = packet.read_all().removesuffix(b"\0")
            return self._answer(self._first())
        assert kind == bytes([_MORE_DATA]), "PyMySQL passes on no other packets"
        told = packet.get_all_data()[1:]
        if self._plugin == CACHING_SHA2:
            if told == _CACHED:
                return self._next()
            if told != _NOT_CACHED:
                raise self._not_understood(f"{told[:_SHOWN_MAX]!r}")
            return self._answer(self._whole())
        # What comes unasked, as PyMySQL begins with the question for a key.
        return self._answer(self._whole(told))

    def _first(self) -> bytes:
        """Return what is sent right after the server has named the plugin."""
        if not self._password:
            return b"" if self._plugin == CACHING_SHA2 else b"\0"
        if self._plugin == CACHING_SHA2:
            proof: bytes = scramble_caching_sha2(self._password, self._connection.salt)
            return proof
        return self._whole()

    def _whole(self, offered: bytes = b"") -> bytes:
        """Return the whole password; encrypted, where the connection is not.

        `offered` is a key that the server has sent, empty for none so far.
        """
        clear = self._password + b"\0"
        if self._connection._secure or not self._password:  # noqa: SLF001
            return clear
        pinned = self._access.server_key.pinned
        if pinned:
            return self._encrypted(_pem(pinned), f"in {pinned}")
        self._check_retrieval()
        if not offered:
            told = self._answer(_ASK_KEY[self._plugin]).get_all_data()
            if told[:1] != bytes([_MORE_DATA]):
                raise self._not_understood(f"{told[:_SHOWN_MAX]!r} instead of a key")
            offered = told[1:]
        return self._encrypted(offered, f"that {self._access.address} has sent")

    def _check_retrieval(self) -> None:
        """See that a key of the other side's may be used. Raises SourceRefused."""
        retrieval = self._access.server_key.retrieval
        address = str(self._access.address)
        if retrieval is KeyRetrieval.ALLOWED:
            return
        if retrieval is not KeyRetrieval.REFUSED and self._is_loopback():
            return
        if retrieval is KeyRetrieval.WARNED:
            if address not in _warned:
                _warned.add(address)
                source_messages.PASSWORD_WITHOUT_TLS.log(
                    _log, self._access.credentials.user, address
                )
            return
        raise SourceRefused(
            f"{address}: the server wants the password encrypted with a key that it "
            "sends, which anybody in between could replace; set sslMode=REQUIRED, "
            "name the server's key (its public_key.pem) in serverPublicKey, or say "
            "allowPublicKeyRetrieval=true"
        )

    def _is_loopback(self) -> bool:
        """Tell whether the other end of the socket is on this machine."""
        host = str(self._connection._sock.getpeername()[0])  # noqa: SLF001
        address = ipaddress.ip_address(host.partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        return (mapped or address).is_loopback

    def _encrypted(self, key: bytes, which: str) -> bytes:
        try:
            sealed: bytes = sha2_rsa_encrypt(self._password, self._connection.salt, key)
        except (ValueError, TypeError, AttributeError) as error:
            raise SourceRefused(
                f"{self._access.address}: the key {which} cannot be used: it must be "
                "a public RSA key in the PEM format, of 2048 bits or more for a "
                "long password"
            ) from error
        return sealed

    @property
    def _password(self) -> bytes:
        password: bytes = self._connection.password
        return password

    def _answer(self, payload: bytes) -> Any:
        self._connection.write_packet(payload)
        return self._next()

    def _next(self) -> Any:
        packet = self._connection._read_packet()  # noqa: SLF001
        packet.check_error()
        return packet

    def _not_understood(self, what: str) -> ConnectionLost:
        return ConnectionLost(
            f"{self._access.address} does not speak {self._plugin} as MySQL does: "
            f"{what}"
        )


def _pem(path: str) -> bytes:
    """Read a pinned key. Raises SourceRefused when there is none."""
    try:
        with Path(path).open("rb") as file:
            return file.read(PEM_BYTES_MAX)
    except OSError as error:
        raise SourceRefused(
            f"the server's public key {path} cannot be read: {error.strerror}; name "
            "a PEM file"
        ) from error
