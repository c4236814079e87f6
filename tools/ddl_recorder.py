"""One server that runs scripts, and what its binlog and its tables say after each step.

Leaves out the scripts' language (`mysqltest_script`) and files (`record_ddl`).
"""

from __future__ import annotations

import contextlib
import re
import time
from typing import TYPE_CHECKING, Any, Final

import pymysql
from binlog_tail import BinlogTail
from ddl_truth import OWN_SCHEMAS, Changes, Observer, Tables
from pymysql.constants import CLIENT
from servers import PrivateServer

from canal_server.mysql.flavour import version_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from canal_server.source.read.python_events import Query

STATEMENT_S = 5  # after which a statement is given up
LOCK_S = 1  # that a statement waits for another connection of its script
CONNECTIONS_MAX = 20
OPTIONS_OF: Final = {
    "mysql": ("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"),
    "mariadb": (),
}

# Statements that would hide DDL from the binlog, stop the server or change its tables.
_REFUSED: Final = re.compile(
    r"\s*(/\*.*?\*/\s*)*(reset|shutdown|restart|purge|kill|clone|import|change|"
    r"(start|stop)\s+(slave|replica|group_replication|all)|(un)?install|"
    r"alter\s+instance|flush\s+.*with\s+read\s+lock|backup|lock\s+instance)\b|"
    r".*\b(sql_log_bin|gtid_next|event_scheduler|binlog_transaction_compression|"
    r"log_bin_compress|binlog_format|debug|skip_replication|sql_slave_skip_counter)\b|"
    r"\s*(drop|alter|create|rename|truncate|use|repair|optimize)\b"
    r"[^'\"(]*\b(mysql|performance_schema|sys)\b(\s*\.|`\.|\s*$)",
    re.IGNORECASE | re.DOTALL,
)
# Events that mark transactions, write rows or manage accounts.
_NO_DDL: Final = re.compile(
    r"\s*(/\*[^!M].*?\*/\s*)*(begin|commit|rollback|savepoint|release|xa|insert|update|"
    r"delete|replace|load|call|grant|revoke|flush|use|"
    r"(create|alter|drop|rename)\s+(or\s+replace\s+)?(user|role)|with|"
    r"set\s+(password|default|role|global|session|@))\b",
    re.IGNORECASE | re.DOTALL,
)


class Unwell(Exception):  # noqa: N818  # the caller starts another server
    """The server does not answer, or could not be cleaned."""


class RecordingServer:
    """A private server that scripts run on; `lines` is what they left in the binlog.

    Serves `mysqltest_script.Runner`. Raises Unwell when another one is needed.
    """

    def __init__(self, flavour: str, options: Sequence[str] = ()) -> None:
        self.mariadb = flavour == "mariadb"
        self._server = PrivateServer(flavour, [*OPTIONS_OF[flavour], *options])
        self._server.start()
        self._admin = self._server.connect(read_timeout=60)
        self._version = version_number(".".join(map(str, self._server.version)))
        self._say("SET sql_log_bin = 0")
        self._say("SET lock_wait_timeout = 3")
        self._say("SET foreign_key_checks = 0")  # for `_clean`
        self._settings = dict(self._ask("SHOW GLOBAL VARIABLES"))
        self._accounts = self._account_names()
        self._collations = self._collation_names()
        self._connections: dict[str, pymysql.Connection[Any]] = {}
        self._current = "default"
        self._give_up_at = 0.0
        self.lines_max = 0
        self.lines: list[dict[str, Any]] = []

    def stop(self) -> None:
        """End the server."""
        self._server.stop()

    def begin(self, *, seconds: float, lines_max: int) -> None:
        """Begin a stream: a server without schemas, then the database `test`."""
        try:
            self._clean()
        except pymysql.err.MySQLError as error:
            raise Unwell(f"cannot be cleaned: {error}") from error
        self._tail = BinlogTail(self._server.data_folder)
        self._observer = Observer(self._admin)
        if self._observer.look():
            raise Unwell("tables are left")
        self._give_up_at = time.monotonic() + seconds
        self.lines_max = lines_max
        self.lines = []
        self._current = "default"
        self._connections["default"] = self._open("")
        self.run("create database test")
        with contextlib.suppress(pymysql.err.MySQLError):
            self._connections["default"].select_db("test")

    # What a script's Runner calls:

    def connect(self, name: str, schema: str) -> None:
        """Open a connection of that name, and make it the current one."""
        self.disconnect(name)
        if len(self._connections) < CONNECTIONS_MAX:
            self._connections[name] = self._open(schema or "test")
            self._current = name

    def use(self, name: str) -> None:
        """Make a connection the current one, opening it when there is none."""
        if name not in self._connections:
            self.connect(name, "test")
        if name in self._connections:
            self._current = name

    def disconnect(self, name: str) -> None:
        """Close a connection; the default one becomes the current one."""
        if name in self._connections and name != "default":
            self._close(self._connections.pop(name))
            self._record()  # temporary tables end with their connection
        self._current = "default"

    def run(self, statement: str) -> None:
        """Run a statement, and record what it wrote to the binlog."""
        if len(self.lines) >= self.lines_max or time.monotonic() > self._give_up_at:
            raise EndOfStream
        if not _REFUSED.match(statement):
            self._send(statement)
            self._record()

    def run_text(self, statement: str) -> None:
        """Run a statement that is given as text, in the connection's character set."""
        self.run(statement.encode("utf-8").decode("latin-1"))

    def tables(self) -> Tables:
        """Return the columns of all tables after the last statement."""
        return self._observer.seen

    def value(self, query: str, column: str = "", row: int = 1) -> str:
        """Return a value of a query's result; empty when there is none."""
        if _REFUSED.match(query):
            return ""
        result = self._send(query)
        self._record()
        rows = (result.rows or ()) if result is not None else ()
        if not 0 < row <= len(rows):
            return ""
        names = [name[0] for name in result.description or ()]
        value = rows[row - 1][names.index(column) if column in names else 0]
        return value.decode("latin-1") if isinstance(value, bytes) else str(value or "")

    # Inside:

    def _send(self, statement: str) -> Any:
        """Run one statement on the current connection; returns its first result."""
        connection: Any = self._connections[self._current]
        first: Any = None
        try:
            connection.query(statement.encode("latin-1"))
            first = connection._result  # noqa: SLF001
            while connection._result.has_next:  # noqa: SLF001
                connection.next_result()
        except (pymysql.err.OperationalError, pymysql.err.InterfaceError, OSError):
            if not connection.open:
                self._reopen(connection)
        except pymysql.err.MySQLError:
            pass  # a script may try what the server refuses
        return first

    def _reopen(self, connection: Any) -> None:
        """Put a new connection instead of one that broke or takes too long."""
        with contextlib.suppress(pymysql.err.MySQLError):
            self._say(f"KILL {connection.thread_id()}")
        self._close(connection)
        self._connections[self._current] = self._open("test")

    def _record(self) -> None:
        """Add the statements that are new in the binlog, the last with the tables."""
        new = [query for query in self._tail.statements() if _is_ddl(query)]
        if not new:
            return
        try:
            changes = self._observer.changes()
        except (pymysql.err.MySQLError, OSError) as error:
            raise Unwell(f"does not say what its tables are: {error}") from error
        self.lines.extend(self._line(query, None) for query in new[:-1])
        self.lines.append(self._line(new[-1], changes))

    def _line(self, query: Query, changes: Changes | None) -> dict[str, Any]:
        variables = query.variables
        collations = [self._collations.get(n, "") for n in variables.collations]
        line: dict[str, Any] = {
            "schema": query.schema,
            "version": self._version,
            "sql_mode": query.sql_mode,
            "charset": {
                "client": query.charset or "utf8mb4",
                "connection": collations[1],
                "server": collations[2],
            },
        }
        if (explicit := query.explicit_timestamp(mariadb=self.mariadb)) is not None:
            line["explicit_ts"] = int(explicit)
        if variables.collation_database:
            line["db_collation"] = self._collations[variables.collation_database]
        if variables.collation_utf8mb4:
            name = self._collations[variables.collation_utf8mb4]
            if name != "utf8mb4_0900_ai_ci":
                line["utf8mb4_collation"] = name
        if query.error:
            line["error"] = query.error
        return {**line, "sql": query.sql, "tables_changed": changes}

    def _open(self, schema: str) -> pymysql.Connection[Any]:
        try:
            connection = self._server.connect(
                use_unicode=False,
                client_flag=CLIENT.MULTI_STATEMENTS,
                read_timeout=STATEMENT_S,
                local_infile=True,
            )
        except (pymysql.err.MySQLError, OSError) as error:
            raise Unwell(f"lets nobody in: {error}") from error
        connection.encoding = "latin1"  # names in results may be of any bytes
        connection.decoders = {}
        with contextlib.suppress(pymysql.err.MySQLError), connection.cursor() as cursor:
            cursor.execute(
                f"SET lock_wait_timeout = {LOCK_S}, innodb_lock_wait_timeout = {LOCK_S}"
            )
            if schema:
                connection.select_db(schema)
        return connection

    def _close(self, connection: pymysql.Connection[Any]) -> None:
        with contextlib.suppress(pymysql.err.MySQLError, OSError):
            connection.close()

    def _clean(self) -> None:
        """Undo what a script has left. Raises pymysql's errors."""
        for connection in self._connections.values():
            self._close(connection)
        self._connections.clear()
        now = dict(self._ask("SHOW GLOBAL VARIABLES"))
        for name, value in self._settings.items():
            if now.get(name) != value:
                self._set_back(name, value)
        for (schema,) in self._ask("SHOW DATABASES"):
            if schema.lower() not in OWN_SCHEMAS:
                name = f"`{schema.replace('`', '``')}`"
                if not self.mariadb:
                    with contextlib.suppress(pymysql.err.ProgrammingError):  # of 5.7
                        self._say(f"ALTER DATABASE {name} READ ONLY = 0")
                self._say(f"DROP DATABASE {name}")
        for account in self._account_names() - self._accounts:
            with contextlib.suppress(pymysql.err.MySQLError):
                self._say(f"DROP USER {account}")
        if self._server.can("general tablespaces"):
            for (name,) in self._ask(
                "SELECT name FROM information_schema.innodb_tablespaces "
                "WHERE space_type = 'General' AND name <> 'mysql'"
            ):
                self._say(f"DROP TABLESPACE `{name}`")

    def _set_back(self, name: str, value: str) -> None:
        texts = (value, "'" + value.replace("\\", "\\\\").replace("'", "''") + "'")
        for text in texts:
            with contextlib.suppress(pymysql.err.MySQLError):
                self._say(f"SET GLOBAL {name} = {text}")
                return

    def _account_names(self) -> set[str]:
        rows = self._ask("SELECT user, host FROM mysql.user")
        return {f"{_quoted(user)}@{_quoted(host)}" for user, host in rows}

    def _collation_names(self) -> dict[int, str]:
        if self._server.can("full_collation_name"):
            return dict(
                self._ask(
                    "SELECT id, full_collation_name FROM "
                    "information_schema.collation_character_set_applicability"
                )
            )
        return dict(
            self._ask("SELECT id, collation_name FROM information_schema.collations")
        )

    def _say(self, statement: str) -> None:
        with self._admin.cursor() as cursor:
            cursor.execute(statement)

    def _ask(self, query: str) -> Iterator[Any]:
        with self._admin.cursor() as cursor:
            cursor.execute(query)
            return iter(cursor.fetchall())


class EndOfStream(Exception):  # noqa: N818  # not an error
    """The stream has as many lines, or has taken as long, as is allowed."""


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _is_ddl(query: Query) -> bool:
    return not _NO_DDL.match(query.sql)
