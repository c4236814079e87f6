"""A PyMySQL session: log in, query, send commands, hand over the socket.

Uses PyMySQL's private parts, because it has no public way to send a command of the
replication protocol or to hand over its socket. `authentication` and the door to it do
so as well; no other module does.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, NoReturn

from canal_server.doors.pymysql_driver import (
    Connection,
    FieldDescriptorPacket,
    MysqlPacket,
    pymysql,
)
from canal_server.errors import (
    ConnectionLost,
    SourceError,
    SourceRefused,
)
from canal_server.model.quoted import printable
from canal_server.mysql import authentication
from canal_server.mysql.server_errors import is_missing_privilege, source_error
from canal_server.mysql.sockets import Breaker, connect_tcp
from canal_server.tls.certificates import expiry_of_der
from canal_server.tls.source_tls import TlsMode

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from datetime import datetime

    from canal_server.mysql.source_settings import Access
    from canal_server.runtime.lifecycle import Stop

Row = tuple[Any, ...]
_Connection: Any = Connection  # the stubs omit what is overridden here

LOGIN_BYTES_MAX = 1 << 20  # of each reply before the login is complete
ANSWER_BYTES_MAX = 1 << 30  # of a reply with all its rows; MySQL's packet limit
# Minimum memory of a packet and of each value of a row, on top of their bytes. It
# counts as well: the smallest row is sent in six bytes.
PACKET_BYTES = 64
VALUE_BYTES = 8
COLUMNS_MAX = 4_096  # of a reply, as MySQL and MariaDB allow
# OpenSSL's words where the sides have no version of TLS in common.
_OTHER_VERSION = (
    "WRONG_VERSION_NUMBER",
    "UNSUPPORTED_PROTOCOL",
    "TLSV1_ALERT_PROTOCOL_VERSION",
    "SSLV3_ALERT_HANDSHAKE_FAILURE",  # what WolfSSL says then
)
_UNSAFE_RENEGOTIATION = "UNSAFE_LEGACY_RENEGOTIATION_DISABLED"


class _BoundedConnection(_Connection):  # type: ignore[misc]
    """A connection with a limit on replies: packets may be chained without end."""

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
                self._refuse(f"a reply of more than {COLUMNS_MAX} columns")
        return found

    def _read_bytes(self, num_bytes: int) -> bytes:
        self._count(num_bytes)
        data: bytes = super()._read_bytes(num_bytes)
        return data

    def _count(self, size: int) -> None:
        self._answer_bytes += size
        if self._answer_bytes > self.answer_bytes_max:
            self._refuse(f"a reply of more than {self.answer_bytes_max} bytes")

    def _refuse(self, what: str) -> NoReturn:
        self._force_close()
        raise pymysql.err.InternalError(what)


class Session:
    """One logged-in connection. For one thread, except its breaker."""

    def __init__(self, access: Access, breaker: Breaker, stop: Stop | None) -> None:
        """Connect and log in; raises the subclasses of SourceError."""
        self._access = access
        self._breaker = breaker
        self._logged_in = self._asks_account = False
        # First, because the server does not wait long for a login.
        options = login_options(access, stop)
        sock = connect_tcp(access, stop)
        try:
            breaker.hold(sock, access.address)
            self._pymysql = _unconnected(access, options)
            self._guarded(self._pymysql.connect, sock)
        except BaseException:
            sock.close()
            breaker.release()
            raise
        self._logged_in = True
        self._pymysql.answer_bytes_max = ANSWER_BYTES_MAX
        self.server_version = str(self._pymysql.server_version)
        self.connection_id = int(self._pymysql.thread_id())
        self.certificate_expires_at = _expiry_of(self._pymysql._sock)  # noqa: SLF001

    @property
    def is_mariadb(self) -> bool:
        """Whether the server's greeting identifies a MariaDB."""
        return "mariadb" in self.server_version.lower()

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run a statement and return its rows; `%s` is a placeholder."""
        rows: list[Row] = self._guarded(self._query, sql, parameters)
        return rows

    def _query(self, sql: str, parameters: Sequence[object]) -> list[Row]:
        with self._pymysql.cursor() as cursor:
            cursor.execute(sql, tuple(parameters) or None)
            return list(cursor.fetchall())

    def query_named(self, sql: str) -> list[dict[str, object]]:
        """Run a statement and return its rows by column name."""
        rows: list[dict[str, object]] = self._guarded(self._query_named, sql)
        return rows

    def _query_named(self, sql: str) -> list[dict[str, object]]:
        with self._pymysql.cursor() as cursor:
            cursor.execute(sql)
            names = [str(column[0]) for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def command(self, number: int, payload: bytes) -> None:
        """Send a command that is answered with OK."""
        self._guarded(self._pymysql._execute_command, number, payload)  # noqa: SLF001
        self._guarded(self._pymysql._read_ok_packet)  # noqa: SLF001

    def command_and_part(self, number: int, payload: bytes) -> socket.socket:
        """Send a command and hand over the socket that receives the reply.

        The socket (TLS or plain, in non-blocking mode) and the breaker then belong to
        the caller; this session is closed.
        """
        inner = self._pymysql
        sock: socket.socket = inner._sock  # noqa: SLF001
        reader = inner._rfile  # noqa: SLF001
        sock.settimeout(0)
        try:
            # Bytes that PyMySQL has read ahead would be missing from the stream.
            unread = reader.peek(1)
        except ssl.SSLWantReadError:
            unread = b""
        if unread:
            inner._force_close()  # noqa: SLF001
            raise ConnectionLost(
                f"{self._access.address}: received {len(unread)} unexpected bytes"
            )
        # PyMySQL assumes that its own timeout is still set.
        sock.settimeout(self._access.io_timeout_s)
        self._guarded(inner._execute_command, number, payload)  # noqa: SLF001
        inner._sock = inner._rfile = None  # noqa: SLF001
        reader.close()
        sock.settimeout(0)
        return sock

    def account(self) -> tuple[str, str]:
        """Return name and host of the account that the server matched.

        Several accounts may share a name, each with its own host; a GRANT with another
        host fails.
        """
        self._asks_account = True
        try:
            rows = self.query("SELECT CURRENT_USER()")
        except SourceError:
            rows = []  # the message is shown without it
        finally:
            self._asks_account = False
        user, _, host = str(rows[0][0]).rpartition("@") if rows else ("", "", "")
        return (user, host) if user else (self._access.credentials.user, "%")

    def close(self) -> None:
        """Send the quit command and close; idempotent."""
        if self._pymysql.open:
            self._pymysql.close()
        self._breaker.release()

    def _guarded(self, call: Any, *arguments: Any) -> Any:
        """Call PyMySQL and translate its errors."""
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
            # Of any kind, when the bytes are not MySQL's protocol: PyMySQL parses them
            # unchecked, and treats 0xfb as a request to read a local file.
            self._pymysql._force_close()  # noqa: SLF001
            raise SourceError(
                f"{self._access.address} does not speak the MySQL protocol:"
                f" {error!r:.200}"
            ) from error

    def _translated(self, error: pymysql.err.Error) -> SourceError:
        address = str(self._access.address)
        cause = getattr(error, "original_exception", None)
        if isinstance(cause, ssl.SSLError) and (problem := _tls_problem(cause)):
            return SourceRefused(f"{address}: {problem}")
        errno = error.args[0] if error.args else 0
        if not isinstance(errno, int):
            # PyMySQL's errors about unexpected packets.
            if not self._logged_in:
                return ConnectionLost(
                    f"{address} does not speak the MySQL protocol:"
                    f" {printable(str(error))}"
                )
            return ConnectionLost(f"{address}: {printable(str(error))}")
        if errno == 0:
            return ConnectionLost(f"{address}: the connection is closed")
        text = str(error.args[1]) if len(error.args) > 1 else ""
        user = self._access.credentials.user
        host = "%"
        can_ask = self._logged_in and not self._asks_account
        if can_ask and is_missing_privilege(errno):
            user, host = self.account()
        found = source_error(
            errno, text, address=address, user=user, host=host,
            logged_in=self._logged_in,
        )  # fmt: skip
        if isinstance(found, ConnectionLost):
            found.unreachable = not self._logged_in
            # PyMySQL raises its own error while it handles the socket's.
            if isinstance(error.__context__, TimeoutError):
                found.heard_s = 0.0
        return found


def _tls_problem(error: ssl.SSLError) -> str:
    """Return what is wrong and what to do, if another try would not change it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the server's certificate was rejected: {error.verify_message}; check the"
            " CA file and sslMode"
        )
    if error.reason in _OTHER_VERSION:
        return (
            "there is no version of TLS that both sides allow; upgrade a server that"
            " knows no TLS 1.2, or set sslMode = DISABLED where the network is trusted"
        )
    if error.reason == _UNSAFE_RENEGOTIATION:
        return (
            "the server's TLS has no secure renegotiation (RFC 5746); use a build of"
            " the server with OpenSSL, or set sslMode = DISABLED where the network is"
            " trusted"
        )
    return ""


def _expiry_of(sock: socket.socket) -> datetime | None:
    """Return when the server's certificate expires, None: it has shown none."""
    if not isinstance(sock, ssl.SSLSocket):
        return None
    certificate = sock.getpeercert(binary_form=True)
    return expiry_of_der(certificate) if certificate else None


def login_options(access: Access, stop: Stop | None = None) -> dict[str, Any]:
    """Return PyMySQL's options for the account and the connection.

    Passwords and files are read now; blocks while the command of a password runs.
    Raises SourceRefused.
    """
    options: dict[str, Any] = {
        "host": access.address.host,
        "port": access.address.port,
        "user": access.credentials.user,
        # As bytes: PyMySQL would encode text as Latin-1.
        "password": access.credentials.password_bytes(stop),
        "auth_plugin_map": authentication.plugins(access),
    }
    if access.tls.required:
        options["ssl"] = access.tls.context(stop)
    else:
        # PyMySQL uses TLS whenever the server offers it, unless it is disabled.
        options["ssl_disabled"] = access.tls.mode is TlsMode.DISABLED
    return options


def _unconnected(access: Access, options: dict[str, Any]) -> Any:
    """Return a connection of PyMySQL, whose stubs omit what is used here."""
    found = _BoundedConnection(
        charset="utf8mb4",
        autocommit=True,
        connect_timeout=access.connect_timeout_s,
        read_timeout=access.io_timeout_s,
        write_timeout=access.io_timeout_s,
        program_name="canal-server",
        defer_connect=True,
        **options,
    )
    if access.tls.mode is TlsMode.PREFERRED:
        # Given as an option, it would make TLS required.
        found.ctx = access.tls.context()
    return found
