"""A session of PyMySQL: log in, ask, send commands, give the socket away.

Reaches into PyMySQL's private parts, because it has no public way to send a command of
the replication protocol or to part with its socket; `authentication` does so, too, and
no other module.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, NoReturn

import pymysql
from pymysql.connections import Connection
from pymysql.protocol import FieldDescriptorPacket, MysqlPacket

from canal_server.errors import (
    ConnectionLost,
    SourceError,
    SourceRefused,
)
from canal_server.model.quoted import printable
from canal_server.mysql import authentication
from canal_server.mysql.server_errors import is_for_want_of_a_right, source_error
from canal_server.mysql.sockets import Breaker, connect_tcp
from canal_server.mysql.source_settings import TlsMode

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from canal_server.mysql.source_settings import Access
    from canal_server.runtime.lifecycle import Stop

Row = tuple[Any, ...]
_Connection: Any = Connection  # the stubs leave out what we override

LOGIN_BYTES_MAX = 1 << 20  # of each answer until we are logged in
ANSWER_BYTES_MAX = 1 << 30  # of one with all its rows; MySQL's own limit of a packet
# What a packet and each value of a row take in memory beside their bytes, at least.
# They count as well: the smallest row is sent in six bytes.
PACKET_BYTES = 64
VALUE_BYTES = 8
COLUMNS_MAX = 4_096  # of an answer, as MySQL and MariaDB allow


class _BoundedConnection(_Connection):  # type: ignore[misc]
    """A connection whose answers have a limit: packets may be chained without end."""

    answer_bytes_max = LOGIN_BYTES_MAX
    _answer_bytes = 0
    _answer_columns = 0

    def _execute_command(self, command: int, sql: str | bytes) -> None:
        self._answer_bytes = self._answer_columns = 0
        super()._execute_command(command, sql)

    def _read_packet(self, packet_type: Any = MysqlPacket) -> Any:
        found = super()._read_packet(packet_type)
        self._count(PACKET_BYTES + VALUE_BYTES * self._answer_columns)
        if packet_type is FieldDescriptorPacket:
            self._answer_columns += 1
            if self._answer_columns > COLUMNS_MAX:
                self._refuse(f"an answer of more than {COLUMNS_MAX} columns")
        return found

    def _read_bytes(self, num_bytes: int) -> bytes:
        self._count(num_bytes)
        data: bytes = super()._read_bytes(num_bytes)
        return data

    def _count(self, size: int) -> None:
        self._answer_bytes += size
        if self._answer_bytes > self.answer_bytes_max:
            self._refuse(f"an answer of more than {self.answer_bytes_max} bytes")

    def _refuse(self, what: str) -> NoReturn:
        self._force_close()
        raise pymysql.err.InternalError(what)


class Session:
    """One logged-in connection. For one thread, but for its breaker."""

    def __init__(self, access: Access, breaker: Breaker, stop: Stop | None) -> None:
        """Connect and log in; raises SourceError in its kinds."""
        self._access = access
        self._breaker = breaker
        self._logged_in = self._asks_account = False
        sock = connect_tcp(access, stop)
        try:
            breaker.hold(sock, access.address)
            self._pymysql = _unconnected(access)
            self._guarded(self._pymysql.connect, sock)
        except BaseException:
            sock.close()
            breaker.release()
            raise
        self._logged_in = True
        self._pymysql.answer_bytes_max = ANSWER_BYTES_MAX
        self.server_version = str(self._pymysql.server_version)
        self.connection_id = int(self._pymysql.thread_id())

    @property
    def is_mariadb(self) -> bool:
        """Whether the server's greeting says that it is a MariaDB."""
        return "mariadb" in self.server_version.lower()

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run a statement and return its rows; `%s` stands for a parameter."""
        rows: list[Row] = self._guarded(self._query, sql, parameters)
        return rows

    def _query(self, sql: str, parameters: Sequence[object]) -> list[Row]:
        with self._pymysql.cursor() as cursor:
            cursor.execute(sql, tuple(parameters) or None)
            return list(cursor.fetchall())

    def query_named(self, sql: str) -> list[dict[str, object]]:
        """Run a statement and return its rows by the names of their columns."""
        rows: list[dict[str, object]] = self._guarded(self._query_named, sql)
        return rows

    def _query_named(self, sql: str) -> list[dict[str, object]]:
        with self._pymysql.cursor() as cursor:
            cursor.execute(sql)
            names = [str(column[0]) for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def command(self, number: int, payload: bytes) -> None:
        """Send a command whose answer is OK."""
        self._guarded(self._pymysql._execute_command, number, payload)  # noqa: SLF001
        self._guarded(self._pymysql._read_ok_packet)  # noqa: SLF001

    def command_and_part(self, number: int, payload: bytes) -> socket.socket:
        """Send a command and hand over the socket, from which its answer comes.

        The socket (TLS or plain) is the caller's, in non-blocking mode, and so is
        the breaker; this session is over.
        """
        inner = self._pymysql
        sock: socket.socket = inner._sock  # noqa: SLF001
        reader = inner._rfile  # noqa: SLF001
        sock.settimeout(0)
        try:
            # Bytes that PyMySQL read ahead would be missing from the stream.
            unread = reader.peek(1)
        except ssl.SSLWantReadError:
            unread = b""
        if unread:
            inner._force_close()  # noqa: SLF001
            raise ConnectionLost(
                f"{self._access.address}: {len(unread)} bytes that nobody asked for"
            )
        # PyMySQL believes that the time-out is still the one it set.
        sock.settimeout(self._access.io_timeout_s)
        self._guarded(inner._execute_command, number, payload)  # noqa: SLF001
        inner._sock = inner._rfile = None  # noqa: SLF001
        reader.close()
        sock.settimeout(0)
        return sock

    def account(self) -> tuple[str, str]:
        """Return name and host of the account that the server took us for.

        A name may be that of several accounts, each for a host of its own; a GRANT that
        names another one fails.
        """
        self._asks_account = True
        try:
            rows = self.query("SELECT CURRENT_USER()")
        except SourceError:
            rows = []  # what it was asked for is told all the same
        finally:
            self._asks_account = False
        user, _, host = str(rows[0][0]).rpartition("@") if rows else ("", "", "")
        return (user, host) if user else (self._access.credentials.user, "%")

    def close(self) -> None:
        """Take leave of the server and close; idempotent."""
        if self._pymysql.open:
            self._pymysql.close()
        self._breaker.release()

    def _guarded(self, call: Any, *arguments: Any) -> Any:
        """Call PyMySQL and turn its errors into ours."""
        try:
            return call(*arguments)
        except pymysql.err.Error as error:
            raise self._translated(error) from error
        except SourceError:
            raise
        except OSError as error:
            self._pymysql._force_close()  # noqa: SLF001
            raise ConnectionLost(
                f"the connection to {self._access.address} broke: {error}"
            ) from error
        except Exception as error:
            # Of any kind, when the other side's bytes are not MySQL's: PyMySQL takes
            # them apart without looking, and 0xfb for the wish to read a file of ours.
            self._pymysql._force_close()  # noqa: SLF001
            raise SourceError(
                f"{self._access.address} does not speak as MySQL does: {error!r:.200}"
            ) from error

    def _translated(self, error: pymysql.err.Error) -> SourceError:
        address = str(self._access.address)
        cause = getattr(error, "original_exception", None)
        if isinstance(cause, ssl.SSLCertVerificationError):
            return SourceRefused(
                f"{address}: the server's certificate is not accepted: "
                f"{cause.verify_message}; check the CA file and sslMode"
            )
        errno = error.args[0] if error.args else 0
        if not isinstance(errno, int):
            # PyMySQL's own words about packets that it did not expect.
            if not self._logged_in:
                return ConnectionLost(
                    f"{address} does not speak as MySQL does: {printable(str(error))}"
                )
            return ConnectionLost(f"{address}: {printable(str(error))}")
        if errno == 0:
            return ConnectionLost(f"{address}: the connection is closed")
        text = str(error.args[1]) if len(error.args) > 1 else ""
        user = self._access.credentials.user
        host = "%"
        can_ask = self._logged_in and not self._asks_account
        if can_ask and is_for_want_of_a_right(errno):
            user, host = self.account()
        found = source_error(
            errno, text, address=address, user=user, host=host,
            logged_in=self._logged_in,
        )  # fmt: skip
        if isinstance(found, ConnectionLost):
            found.unreachable = not self._logged_in
            # PyMySQL raises its own error while it handles that of the socket.
            if isinstance(error.__context__, TimeoutError):
                found.heard_s = 0.0
        return found


def login_options(access: Access) -> dict[str, Any]:
    """Return what PyMySQL is to be told about the account and the way to the server."""
    options: dict[str, Any] = {
        "host": access.address.host,
        "port": access.address.port,
        "user": access.credentials.user,
        # As bytes: PyMySQL would encode text as Latin-1.
        "password": access.credentials.password.encode(),
        "auth_plugin_map": authentication.plugins(access),
    }
    if access.tls.required:
        options["ssl"] = access.tls.context()
    else:
        # PyMySQL takes TLS whenever the server offers it, unless told otherwise.
        options["ssl_disabled"] = access.tls.mode is TlsMode.DISABLED
    return options


def _unconnected(access: Access) -> Any:  # the stubs leave out what we need
    return _BoundedConnection(
        charset="utf8mb4",
        autocommit=True,
        connect_timeout=access.connect_timeout_s,
        read_timeout=access.io_timeout_s,
        write_timeout=access.io_timeout_s,
        program_name="canal-server",
        defer_connect=True,
        **login_options(access),
    )
