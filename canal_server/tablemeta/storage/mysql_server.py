"""The MySQL or MariaDB server of a table history: queries, transactions and errors.

A broken connection is reopened once, and the current operation is repeated. The content
of the tables is left to `mysql_storage`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, TypeVar

from canal_server.errors import ConnectionLost, SourceError, TableMetaStoreError
from canal_server.mysql.control_connection import ControlConnection

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canal_server.mysql.login_session import Row
    from canal_server.mysql.source_settings import Access
    from canal_server.tablemeta.storage.mysql_lock import HistoryLock

Result = TypeVar("Result")

_OVERHEAD_BYTES: Final = 4096  # of a statement in addition to its values
_ESCAPED: Final = "\\'\"\n\r\0\x1a"

_LOCK_WAIT, _DEADLOCK = 1205, 1213
_PACKET_TOO_LARGE: Final = 1153

_ACCOUNT: Final = (
    "check canal.instance.tsdb.dbUsername and canal.instance.tsdb.dbPassword"
)
_RIGHTS: Final = (
    "have an administrator run: GRANT CREATE, SELECT, INSERT, UPDATE, DELETE ON"
    " {database}.* TO {account}"
)
_ROOM: Final = "free disk space on that server"
_PRIMARY: Final = "set a writable server in canal.instance.tsdb.url"
_REMEDIES: Final = {
    **dict.fromkeys((1045, 1130, 1251, 1698, 1820, 1862, 3118, 3955), _ACCOUNT),
    **dict.fromkeys((1044, 1142, 1143, 1227, 1370), _RIGHTS),
    **dict.fromkeys((1021, 1114, 1041), _ROOM),
    **dict.fromkeys((1290, 1792, 1836), _PRIMARY),
    1040: "raise max_connections on that server",
    1049: "have an administrator run: CREATE DATABASE {database}",
    1054: "a table with that name has a different structure: use another database",
    1146: "the table was dropped: a running server creates it again and starts a new"
    " history",
    _PACKET_TOO_LARGE: "raise max_allowed_packet on that server",
    _LOCK_WAIT: "check which sessions lock the history tables on that server",
    3159: "add sslMode=REQUIRED to canal.instance.tsdb.url",
    2026: "add sslMode=DISABLED to canal.instance.tsdb.url or enable TLS on that "
    "server",
}


class HistoryServer:
    """One connection to the database; for one thread at a time.

    All methods raise TableMetaStoreError with server, database and remedy.
    """

    def __init__(
        self, access: Access, database: str, lock: HistoryLock | None = None
    ) -> None:
        """Store the access; without `lock`, it is read-only."""
        self._access = access
        self._database = database
        self._lock = lock
        self._connection = ControlConnection(access)
        self._packet_bytes_max = 0
        self._in_transaction = False

    def open(self) -> None:
        """Connect and select the database; does nothing if open."""
        try:
            self._connect()
        except SourceError as error:
            raise self._with_remedy(error) from error

    def close(self) -> None:
        """Close the connection; idempotent."""
        self._connection.close()

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Execute a statement and return its rows; `%s` marks a parameter."""
        self._check_size(parameters)
        if self._in_transaction:
            return self._connection.query(sql, parameters)
        return self._twice(lambda: self._connection.query(sql, parameters))

    def transaction(self, work: Callable[[], Result]) -> Result:
        """Make the writes of `work` durable, or none of them.

        `work` may be called twice: if the connection breaks, it is unknown whether the
        first call was committed, so `work` must check that itself.
        """
        return self._twice(lambda: self._in_one(work))

    def error(self, text: str) -> TableMetaStoreError:
        """Return an error about the history itself."""
        return TableMetaStoreError(f"{self} {text}")

    def __str__(self) -> str:
        return f"the table history in {self._database} on {self._access.address}"

    def _in_one(self, work: Callable[[], Result]) -> Result:
        self._connection.query("START TRANSACTION")
        self._in_transaction = True
        try:
            result = work()
            self._connection.query("COMMIT")
        except BaseException:
            # If this fails, the connection is lost, and with it the transaction.
            with contextlib.suppress(SourceError):
                self._connection.query("ROLLBACK")
            raise
        finally:
            self._in_transaction = False
        return result

    def _twice(self, call: Callable[[], Result]) -> Result:
        """Call, and repeat once after an error that a repetition may resolve."""
        try:
            try:
                self._connect()
                return call()
            except ConnectionLost:
                self._connection.close()
                self._connect()
                return call()
            except SourceError as error:
                if error.errno not in (_LOCK_WAIT, _DEADLOCK):
                    raise
                return call()
        except SourceError as error:
            raise self._with_remedy(error) from error

    def _connect(self) -> None:
        if self._connection.is_open:
            return
        self._connection.open()
        try:
            self._prepare()
        except BaseException:
            # Without the lock it must not be used.
            self._connection.close()
            raise

    def _prepare(self) -> None:
        name = self._database.replace("`", "``")
        self._connection.query(f"USE `{name}`")
        # Strict, as nothing may be truncated; times are UTC on any server.
        self._connection.query(
            "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION',"
            " time_zone = '+00:00'"
        )
        ((packet,),) = self._connection.query("SELECT @@max_allowed_packet")
        self._packet_bytes_max = int(packet)
        holder = self._lock and self._lock.take(self._connection)
        if holder:
            raise self.error(
                f"is in use by another server ({holder}); stop that server, or use"
                " another database"
            )
        if self._lock and not self._lock.is_ours():
            raise self.error(
                "cannot be written by this server now: another server may run the"
                " destination"
            )

    def _check_size(self, parameters: Sequence[object]) -> None:
        size = _OVERHEAD_BYTES + sum(
            escaped_bytes(each) for each in parameters if isinstance(each, str)
        )
        if size > self._packet_bytes_max > 0:
            raise self.error(
                f"cannot store {size} bytes at once, its max_allowed_packet is"
                f" {self._packet_bytes_max}; raise that on the server, or keep the"
                " history in a file (leave canal.instance.tsdb.url empty)"
            )

    def _with_remedy(self, error: SourceError) -> TableMetaStoreError:
        """Return the error with a remedy for the history, not for a source."""
        text = str(error)
        remedy = _REMEDIES.get(error.errno or 0)
        if remedy is not None:
            number = f"(error {error.errno})"
            text = text.partition(number)[0] + number
            remedy = remedy.format(
                database=self._database,
                account=f"'{self._access.credentials.user}'@'%'",
            )
        elif isinstance(error, ConnectionLost):
            remedy = "check that the server of canal.instance.tsdb.url is running"
        return self.error(
            f"cannot be read or written: {text}{'; ' if remedy else ''}{remedy or ''}"
        )


def escaped_bytes(text: str) -> int:
    """Return the length of a text in a statement."""
    return len(text.encode()) + sum(text.count(each) for each in _ESCAPED)
