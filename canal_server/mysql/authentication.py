"""How a password is sent to a server: what each plugin may receive, and how.

MySQL's SHA-256 plugins need the password itself when the server has not cached it. Over
TLS it is sent in clear text, over a plain connection encrypted with RSA: with the
pinned key, and with a key that the server sends only where that is allowed, because
anyone in between can send a key of their own. Leaves out the rest of the login.
"""

from __future__ import annotations

import ipaddress
import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from canal_server.doors.pymysql_driver import scramble_caching_sha2
from canal_server.errors import ConnectionLost, SourceRefused
from canal_server.messages import source_messages
from canal_server.mysql.source_settings import KeyRetrieval
from canal_server.tls.rsa_passwords import encrypted_password

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

STEPS_MAX: Final = 8  # of one login; a server needs three
PEM_BYTES_MAX: Final = 64 * 1024
_SHOWN_MAX: Final = 40

_warned: set[str] = set()  # addresses; each is warned about once per process


def plugins(access: Access) -> dict[str, Callable[[Any], object]]:
    """Return the replacements of PyMySQL's plugins, by plugin name."""
    found: dict[str, Callable[[Any], object]] = {
        name: partial(_Sha2, access, name) for name in (CACHING_SHA2, SHA256)
    }
    found[_OUTDATED] = partial(
        _Refused,
        f"{access.address}: the server asks for the password in the MySQL 4.0 hash, "
        "which anyone can reverse; give the account the plugin "
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
    """Refuses a plugin that would reveal the password."""

    def __init__(self, reason: str, _connection: object) -> None:
        self._reason = reason

    def authenticate(self, _packet: object) -> NoReturn:
        raise SourceRefused(self._reason)


class _Sha2:
    """One login by caching_sha2_password or sha256_password.

    PyMySQL passes in the server's packets, one after another, and expects the next one:
    next one: https://dev.mysql.com/doc/dev/mysql-server/latest/page_caching_sha2_authentication_exchanges.html
    """

    def __init__(self, access: Access, plugin: str, connection: Any) -> None:
        self._connection = connection
        self._access = access
        self._plugin = plugin
        self._steps = 0

    def authenticate(self, packet: Any) -> Any:
        """Answer a packet and return the next one."""
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise self._not_understood(f"{self._steps} requests in one login")
        connection = self._connection
        kind = packet.get_all_data()[:1]
        if kind == bytes([_AUTH_SWITCH]):
            connection.salt = packet.read_all().removesuffix(b"\0")
            return self._answer(self._first())
        assert kind == bytes([_MORE_DATA]), "PyMySQL passes on no other packets"
        reply = packet.get_all_data()[1:]
        if self._plugin == CACHING_SHA2:
            if reply == _CACHED:
                return self._next()
            if reply != _NOT_CACHED:
                raise self._not_understood(f"{reply[:_SHOWN_MAX]!r}")
            return self._answer(self._whole())
        # Sent without a request, because PyMySQL asks for the key first.
        return self._answer(self._whole(reply))

    def _first(self) -> bytes:
        """Return the first reply after the server has named the plugin."""
        if not self._password:
            return b"" if self._plugin == CACHING_SHA2 else b"\0"
        if self._plugin == CACHING_SHA2:
            proof: bytes = scramble_caching_sha2(self._password, self._connection.salt)
            return proof
        return self._whole()

    def _whole(self, offered: bytes = b"") -> bytes:
        """Return the whole password; encrypted, unless the connection is.

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
            reply = self._answer(_ASK_KEY[self._plugin]).get_all_data()
            if reply[:1] != bytes([_MORE_DATA]):
                raise self._not_understood(f"{reply[:_SHOWN_MAX]!r} instead of a key")
            offered = reply[1:]
        return self._encrypted(offered, f"sent by {self._access.address}")

    def _check_retrieval(self) -> None:
        """Check that a key sent by the server may be used. Raises SourceRefused."""
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
            f"{address}: the server requests the password encrypted with a key that it "
            "sends, which anyone in between could replace; set sslMode=REQUIRED, set "
            "serverPublicKey to the server's key (its public_key.pem), or set "
            "allowPublicKeyRetrieval=true"
        )

    def _is_loopback(self) -> bool:
        """Return whether the other end of the socket is on this machine."""
        host = str(self._connection._sock.getpeername()[0])  # noqa: SLF001
        address = ipaddress.ip_address(host.partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        return (mapped or address).is_loopback

    def _encrypted(self, key: bytes, which: str) -> bytes:
        try:
            sealed = encrypted_password(self._password, self._connection.salt, key)
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
            f"{self._access.address} does not implement {self._plugin} correctly: "
            f"{what}"
        )


def _pem(path: str) -> bytes:
    """Read a pinned key. Raises SourceRefused when it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(PEM_BYTES_MAX)
    except OSError as error:
        raise SourceRefused(
            f"the server's public key {path} cannot be read: {error.strerror}; set "
            "serverPublicKey to a PEM file"
        ) from error
