"""Reading only the statements that may change tables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pymysql
import pytest
from fix_servers import FLAVOURS
from fix_source_access import access_of

from canal_server.config.schema import InstanceConfig
from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.errors import BinlogPurged
from canal_server.model.positions import EntryPosition
from canal_server.runtime.lifecycle import Stop
from canal_server.source.read.ddl_scan import DdlScanner
from canal_server.source.read.start_position import StartPosition
from canal_server.tablemeta.model.session_context import Context
from canal_server.tablemeta.tables.memory_tables import MemoryTableMeta

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from servers import PrivateServer, Server


@pytest.fixture
def scanner(source_server: Server) -> DdlScanner:
    """Yield a scanner of the MySQL, then of the MariaDB."""
    config = InstanceConfig(destination="ddl-scan")
    return DdlScanner(config, access_of(source_server), Stop())


def here(server: Server) -> EntryPosition:
    """Return the end of the server's binlog."""
    return EntryPosition(*server.binlog_position())


def texts(scanner: DdlScanner, start: EntryPosition, stop: EntryPosition) -> list[str]:
    """Return the statements between two positions, without server comments."""
    return [event.ddl.split(" /*")[0] for event in scanner.between(start, stop)]


def test_an_alter_that_is_logged_twice(mariadb_server: Server, database: str) -> None:
    """MariaDB logs the start and the end of an ALTER; the end counts."""
    scanner = DdlScanner(
        InstanceConfig(destination="ddl-scan"), access_of(mariadb_server), Stop()
    )
    start = here(mariadb_server)
    swap = f"ALTER TABLE {database}.t RENAME COLUMN a TO b, RENAME COLUMN b TO a"
    mariadb_server.execute(
        f"CREATE TABLE {database}.t (a INT, b INT)",
        f"INSERT INTO {database}.t VALUES (1, 1), (1, 2)",
        "SET SESSION binlog_alter_two_phase = 1",
        swap,
    )
    with pytest.raises(pymysql.err.IntegrityError):
        mariadb_server.execute(
            "SET SESSION binlog_alter_two_phase = 1",
            f"ALTER TABLE {database}.t ADD UNIQUE KEY (b)",
        )
    found = scanner.between(start, here(mariadb_server))
    assert [event.ddl for event in found][1:] == [swap]
    received = mariadb_server.execute(
        f"SHOW BINLOG EVENTS IN '{start.journal_name}' FROM {start.position}"
    )
    words = " ".join(str(row[5]) for row in received)
    assert words.count("START ALTER") == 2
    assert words.count("COMMIT ALTER") == words.count("ROLLBACK ALTER") == 1


def test_statements_of_several_files(
    source_server: Server, scanner: DdlScanner, database: str
) -> None:
    """DDL of all files is found in order; rows and other statements are not."""
    start = here(source_server)
    source_server.execute(
        f"CREATE TABLE {database}.t (a INT)",
        f"INSERT INTO {database}.t VALUES (1)",
        "FLUSH BINARY LOGS",
        f"ALTER TABLE {database}.t ADD b INT",
        "FLUSH BINARY LOGS",
        f"INSERT INTO {database}.t VALUES (1, 2)",
        f"ALTER TABLE {database}.t ADD c INT",
    )
    stop = here(source_server)
    source_server.execute(f"ALTER TABLE {database}.t ADD d INT")
    assert texts(scanner, start, stop) == [
        f"CREATE TABLE {database}.t (a INT)",
        f"ALTER TABLE {database}.t ADD b INT",
        f"ALTER TABLE {database}.t ADD c INT",
    ]


def test_the_bounds(source_server: Server, scanner: DdlScanner, database: str) -> None:
    """A statement at the start is found, a statement at the end is not."""
    start = here(source_server)
    source_server.execute(f"CREATE TABLE {database}.t (a INT)")
    middle = here(source_server)
    source_server.execute(f"ALTER TABLE {database}.t ADD b INT")
    first = scanner.between(start, middle)
    assert [event.ddl for event in first] == [f"CREATE TABLE {database}.t (a INT)"]
    assert texts(scanner, first[0].position, first[0].position) == []
    assert texts(scanner, first[0].position, here(source_server)) == [
        f"CREATE TABLE {database}.t (a INT)",
        f"ALTER TABLE {database}.t ADD b INT",
    ]
    assert texts(scanner, middle, here(source_server)) == [
        f"ALTER TABLE {database}.t ADD b INT"
    ]


def executed(server: Server) -> Any:
    """Return the set that a server has executed."""
    mysql = server.flavour == "mysql"
    variable = "gtid_executed" if mysql else "gtid_binlog_pos"
    text = str(server.execute(f"SELECT @@global.{variable}")[0][0])
    return (GtidSet if mysql else MariaGtidSet).parse("".join(text.split()))


def test_between_sets(
    source_server: Server, scanner: DdlScanner, database: str
) -> None:
    """The statement that completes a set is found, also right after rows."""
    start = executed(source_server)
    source_server.execute(
        f"CREATE TABLE {database}.t (a INT)",
        f"INSERT INTO {database}.t VALUES (1)",
        f"ALTER TABLE {database}.t ADD b INT",
    )
    expected = executed(source_server)
    position = StartPosition("", 0, start, by_gtid=True).dump_start()
    found = scanner.between_sets(position, start, expected)
    assert [event.ddl.split(" /*")[0] for event in found] == [
        f"CREATE TABLE {database}.t (a INT)",
        f"ALTER TABLE {database}.t ADD b INT",
    ]


def test_what_is_known_of_a_statement(
    source_server: Server, scanner: DdlScanner, database: str
) -> None:
    """A statement carries default schema, mode, thread and GTID of its session."""
    start = here(source_server)
    source_server.execute(
        f"USE {database}", "SET sql_mode = 'ANSI_QUOTES'", 'CREATE TABLE "t" (a INT)'
    )
    (event,) = scanner.between(start, here(source_server))
    assert event.schema == database
    context = Context.from_json(event.extra)
    assert context.sql_mode & 4
    assert context.thread_id > 0
    assert context.mariadb == (source_server.flavour == "mariadb")
    assert event.position.timestamp
    executed = source_server.execute(
        "SELECT @@global.gtid_binlog_pos"
        if context.mariadb
        else "SELECT @@global.gtid_executed"
    )[0][0]
    kind: Any = MariaGtidSet if context.mariadb else GtidSet
    assert event.position.gtid
    whole = kind.parse("".join(str(executed).split()))
    assert whole.contains(kind.parse(event.position.gtid))


def test_purged_files(source_server: Server, scanner: DdlScanner) -> None:
    """A purged file is a separate error, not an empty answer."""
    with pytest.raises(BinlogPurged):
        scanner.between(EntryPosition("gone.000001", 4), here(source_server))


def test_first_position(
    source_server: Server, scanner: DdlScanner, database: str
) -> None:
    """By GTID the server starts after the executed set; at the end it sends nothing."""
    mariadb = source_server.flavour == "mariadb"
    name = "gtid_binlog_pos" if mariadb else "gtid_executed"

    def position() -> StartPosition:
        text = str(source_server.execute(f"SELECT @@global.{name}")[0][0])
        kind = MariaGtidSet if mariadb else GtidSet
        return StartPosition("", 0, kind.parse("".join(text.split())), by_gtid=True)

    source_server.execute(f"CREATE TABLE {database}.t (a INT)")
    before = position()
    end = here(source_server)
    assert scanner.first_position(before.dump_start()) is None
    source_server.execute(f"ALTER TABLE {database}.t ADD b INT")
    found = scanner.first_position(before.dump_start())
    assert found is not None
    assert end.order() <= found.order() < here(source_server).order()


def test_from_amid_a_transaction(
    source_server: Server, scanner: DdlScanner, database: str
) -> None:
    """Reading may start at any event of a transaction, also between map and rows."""
    source_server.execute(
        f"USE {database}",
        "CREATE TABLE a (x INT PRIMARY KEY)",
        "CREATE TABLE b (x INT PRIMARY KEY)",
        "INSERT INTO a VALUES (1)",
        "INSERT INTO b VALUES (1)",
    )
    start = here(source_server)
    source_server.execute(
        f"USE {database}",
        "UPDATE a JOIN b USING (x) SET a.x = 2, b.x = 3",
        "CREATE TABLE c (x INT)",
    )
    stop = here(source_server)
    events = source_server.execute(
        f"SHOW BINLOG EVENTS IN '{start.journal_name}' FROM {start.position}"
    )
    maps = [offset for _, offset, kind, *_ in events if kind == "Table_map"]
    assert len(maps) == 2
    for offset in (events[0][1], *maps):
        position = EntryPosition(start.journal_name, offset)
        assert texts(scanner, position, stop) == ["CREATE TABLE c (x INT)"]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_restarted_server(
    own_server: Callable[[str, Sequence[str]], PrivateServer], flavour: str
) -> None:
    """Temporary tables from before a crash no longer hide anything."""
    server = own_server(flavour, ["--binlog-format=STATEMENT"])
    server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (a INT)")
    start = here(server)
    config = InstanceConfig(destination="restart")
    session = server.connect(database="shop")
    with session.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE t (x INT)")
        cursor.execute("CREATE TABLE other (a INT)")
        thread = session.thread_id()
        server.kill()
        server.restart()
        server.execute("ALTER TABLE shop.t ADD b INT", "ALTER TABLE shop.t ADD c INT")
        scanner = DdlScanner(config, access_of(server), Stop())
        events = scanner.between(start, here(server))
    shown = [
        (event.ddl.split()[0], Context.from_json(event.extra).restarted)
        for event in events
    ]
    assert shown == [
        *(("CREATE", False), ("CREATE", False)),
        *(("ALTER", True), ("ALTER", False)),
    ]
    model = MemoryTableMeta(mariadb=flavour == "mariadb")
    model.load("shop", "CREATE TABLE `t` (`a` int)")
    for event in events:
        # As if the sessions had the same id, which is likely after a restart.
        context = replace(Context.from_json(event.extra), thread_id=thread)
        model.apply(event.position, event.schema, event.ddl, context)
    found = model.find("shop", "t")
    assert found is not None
    assert [column.name for column in found.columns] == ["a", "b", "c"]
