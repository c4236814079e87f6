"""Base dumps of real servers, whose tables change while they are read."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from fix_source_access import access_of

from canal_server.config.schema import InstanceConfig
from canal_server.errors import TableMetaError
from canal_server.model.positions import EntryPosition
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.flavour import read_server_info
from canal_server.runtime.lifecycle import Stop
from canal_server.source.read.ddl_scan import DdlScanner
from canal_server.source.schema.base_dump import BaseDumper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from servers import PrivateServer, Server

    from canal_server.mysql.login_session import Row
    from canal_server.source.schema.base_dump import BaseDump

CONFIG = InstanceConfig(destination="base-dump")


class DisturbedDumper(BaseDumper):
    """A dumper whose tables are altered before each query of the binlog's end."""

    disturb: Callable[[], None]

    def _end(self) -> tuple[EntryPosition, str]:
        self.disturb()
        return super()._end()


class Dumping:
    """A schema that is dumped while statements change it."""

    def __init__(self, server: Server, schema: str) -> None:
        self.server = server
        self.schema = schema

    def run(self, *statements: str) -> None:
        """Run statements in the schema."""
        self.server.execute(f"USE {self.schema}", *statements)

    def take(self, disturb: Callable[[], None]) -> BaseDump:
        """Read a dump; `disturb` is called before each query of the binlog's end."""
        access = access_of(self.server)
        with ControlConnection(access) as control:
            scanner = DdlScanner(CONFIG, access, Stop())
            dumper = DisturbedDumper(control, read_server_info(control), scanner)
            dumper.disturb = disturb
            return dumper.take()

    def columns(self, dump: BaseDump) -> dict[str, str]:
        """Return the names of each table's columns."""
        (schema,) = (each for each in dump.schemas if each.name == self.schema)
        return {
            table: " ".join(
                line.split("`")[1] for line in text.splitlines() if line[2:3] == "`"
            )
            for table, text in schema.tables
        }


@pytest.fixture
def dumping(source_server: Server, database: str) -> Dumping:
    """Yield a schema of a MySQL, then of a MariaDB, with two tables."""
    made = Dumping(source_server, database)
    made.run("CREATE TABLE t (a VARCHAR(9))", "CREATE TABLE s (a INT)")
    return made


def test_tables_that_change_meanwhile(dumping: Dumping) -> None:
    """Tables altered while tables are read are read again, until none was."""
    rounds = iter(
        [
            (),  # before everything
            (
                "ALTER TABLE t ADD b INT",
                "DROP TABLE s",
                "CREATE TABLE new (x INT)",
                "INSERT INTO t VALUES (1, 2)",
            ),
            ("RENAME TABLE t TO u",),
            ("ALTER TABLE u RENAME COLUMN a TO z",),
        ]
    )
    dump = dumping.take(lambda: dumping.run(*next(rounds, ())))
    assert dumping.columns(dump) == {"u": "z b", "new": "x"}
    end = EntryPosition(*dumping.server.binlog_position())
    assert dump.position.order() == end.order()
    assert next(rounds, None) is None


class Hiding(ControlConnection):
    """A connection whose first list of tables is of the wrong moment.

    A table that a copying ALTER TABLE replaces then has no name.
    """

    hidden = ""

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Leave the table out once."""
        rows = super().query(sql, parameters)
        if "information_schema.TABLES" in sql and self.hidden:
            rows = [row for row in rows if row[1] != self.hidden]
            self.hidden = ""
        return rows


def test_a_table_that_is_replaced(mariadb_server: Server, database: str) -> None:
    """A table that is missing for the moment of its replacement is in the dump."""
    mariadb_server.execute(f"CREATE TABLE {database}.replaced (a INT)")
    access = access_of(mariadb_server)
    with Hiding(access) as control:
        control.hidden = "replaced"
        scanner = DdlScanner(CONFIG, access, Stop())
        dump = BaseDumper(control, read_server_info(control), scanner).take()
        assert not control.hidden
    (schema,) = (each for each in dump.schemas if each.name == database)
    assert [table for table, _ in schema.tables] == ["replaced"]


def test_tables_that_are_copied_meanwhile(dumping: Dumping) -> None:
    """While statements copy a table, each dump has it."""
    for charset in ("latin1", "utf8mb4") * 5:
        copying = threading.Thread(
            target=dumping.run,
            args=(f"ALTER TABLE t CONVERT TO CHARACTER SET {charset}",),
        )
        copying.start()
        dump = dumping.take(lambda: None)
        copying.join()
        assert dumping.columns(dump) == {"t": "a", "s": "a"}


def test_schemas_that_come_and_go(dumping: Dumping) -> None:
    """A schema that is dropped and recreated meanwhile is as it is at the end."""
    rounds = iter(
        [
            (),
            (
                f"DROP DATABASE {dumping.schema}",
                f"CREATE DATABASE {dumping.schema} CHARACTER SET latin1",
                f"CREATE TABLE {dumping.schema}.other (x INT)",
            ),
        ]
    )
    dump = dumping.take(lambda: dumping.run(*next(rounds, ())))
    assert dumping.columns(dump) == {"other": "x"}
    (schema,) = (each for each in dump.schemas if each.name == dumping.schema)
    assert schema.collation.startswith("latin1_")


def test_tables_that_never_rest(dumping: Dumping) -> None:
    """After many rounds it fails, and says that another attempt may succeed."""

    def alter() -> None:
        dumping.run("ALTER TABLE t COMMENT = ''")

    with pytest.raises(TableMetaError, match="altered faster than they can be read"):
        dumping.take(alter)


def test_names_without_case(
    own_server: Callable[[str, Sequence[str]], PrivateServer],
) -> None:
    """Where the server ignores the case of names, names in statements match as well."""
    server = own_server("mariadb", ["--lower-case-table-names=1"])
    server.execute("CREATE DATABASE shop")
    dumping = Dumping(server, "shop")
    dumping.run("CREATE TABLE T (a INT)", "CREATE TABLE s (a INT)")
    rounds = iter([(), ("ALTER TABLE SHOP.T ADD b INT", "DROP TABLE S")])
    dump = dumping.take(lambda: dumping.run(*next(rounds, ())))
    assert dumping.columns(dump) == {"t": "a b"}
