"""Which binary logs a server has, where they end, and which GTIDs they hold.

GTID sets are text here, without line breaks; `canal_server.core` parses them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.errors import SourceRefused
from canal_server.mysql.server_answers import reads_answers

if TYPE_CHECKING:
    from canal_server.mysql.control_connection import ControlConnection
    from canal_server.mysql.flavour import ServerInfo

# "SHOW BINARY LOG STATUS was added in MySQL 8.2.0, SHOW MASTER STATUS was removed in
# 8.4.0" (MySQL manual, 15.7.7.1). MariaDB keeps the old name.
BINARY_LOG_STATUS_SINCE = (8, 2, 0)


@dataclass(frozen=True, slots=True)
class BinlogEnd:
    """Where the server will write next, and what it has executed up to there."""

    file: str
    position: int
    gtids: str  # empty when the server has no GTIDs


@dataclass(frozen=True, slots=True)
class BinaryLog:
    """One file of the server's binary log, its size in bytes."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class LoggedSchemas:
    """The schemas of `binlog_do_db`, empty: all, and of `binlog_ignore_db`."""

    only: frozenset[str]
    ignored: frozenset[str]

    def __contains__(self, schema: str) -> bool:
        """Return whether changes of a schema's tables are logged."""
        if self.only:
            return schema in self.only
        return schema not in self.ignored


@reads_answers("the end of its binary log")
def current_end(connection: ControlConnection, info: ServerInfo) -> BinlogEnd:
    """Return the end of the newest binary log.

    Raises SourceRefused when the server writes none, or hides it from this account.
    """
    # Before the position: a set that contains later transactions would have them
    # skipped for ever. MySQL reads the two in this order as well.
    logged = executed_gtids(connection, info) if info.is_mariadb else ""
    row = _status(connection, info)
    gtids = _gtid_set(row[4], info) if len(row) > 4 else ""  # noqa: PLR2004
    return BinlogEnd(str(row[0]), int(row[1]), logged or gtids)


@reads_answers("the first event of a binary log")
def writer_of(connection: ControlConnection, file: str) -> int | None:
    """Return the id of the server that wrote a file that it has; None: unknown.

    That is the server's id at that time. Raises SourceError.
    """
    rows = connection.query("SHOW BINLOG EVENTS IN %s LIMIT 1", (file,))
    return int(rows[0][3]) if rows else None


@reads_answers("the schemas that it logs")
def logged_schemas(connection: ControlConnection, info: ServerInfo) -> LoggedSchemas:
    """Return which schemas the server logs. Raises SourceRefused as `current_end`."""
    row = _status(connection, info)
    only, ignored = (
        frozenset(filter(None, str(row[number] or "").split(","))) for number in (2, 3)
    )
    return LoggedSchemas(only, ignored)


def _status(connection: ControlConnection, info: ServerInfo) -> tuple[Any, ...]:
    """Return the file, its size, two lists of schemas, since MySQL 5.6 the GTID set."""
    old = info.is_mariadb or info.version < BINARY_LOG_STATUS_SINCE
    rows = connection.query("SHOW MASTER STATUS" if old else "SHOW BINARY LOG STATUS")
    if not rows:
        raise SourceRefused(
            f"server {connection.access.address} writes no binary log: "
            "set log_bin and restart it"
        )
    return tuple(rows[0])


@reads_answers("its binary logs")
def binary_logs(connection: ControlConnection) -> list[BinaryLog]:
    """Return the server's binary logs, the oldest first."""
    rows = connection.query("SHOW BINARY LOGS")
    return [BinaryLog(str(row[0]), int(row[1])) for row in rows]


def executed_gtids(connection: ControlConnection, info: ServerInfo) -> str:
    """Return the GTID set that the server has executed, or (MariaDB) logged."""
    name = "gtid_binlog_pos" if info.is_mariadb else "gtid_executed"
    return _asked(connection, info, name)


@reads_answers("its clock")
def server_time_s(connection: ControlConnection) -> int:
    """Return the server's clock, in seconds since 1970."""
    return int(connection.query("SELECT UNIX_TIMESTAMP()")[0][0])


def purged_gtids(connection: ControlConnection, info: ServerInfo) -> str:
    """Return the GTID set that is no longer in the binary logs.

    Always empty for MariaDB, which does not report it.
    """
    if info.is_mariadb:
        return ""
    return _asked(connection, info, "gtid_purged")


@reads_answers("GTIDs")
def _asked(connection: ControlConnection, info: ServerInfo, name: str) -> str:
    """Return the GTID set of a variable."""
    return _gtid_set(connection.query(f"SELECT @@global.{name}")[0][0], info)


def _gtid_set(gtids: object, info: ServerInfo) -> str:
    """Return a GTID set as one line: the server breaks it after each UUID.

    Raises ValueError when the value is not text.
    """
    text = "".join(str(gtids or "").split())
    (MariaGtidSet if info.is_mariadb else GtidSet).parse(text)
    return text
