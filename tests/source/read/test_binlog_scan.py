"""Scanning a server's binlog files for what a start needs."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from fix_pipeline import POLL_S, UNIT_S
from fix_source_access import access_of

from canal_server.config.schema import InstanceConfig
from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.errors import BinlogPurged, ConnectionLost
from canal_server.mysql.replication import FileStart, GtidStart, MariaGtidStart
from canal_server.runtime.lifecycle import Stop
from canal_server.source.read.binlog_scan import Scanner
from canal_server.source.read.temporary_dump import StatementCollector, TemporaryDump

if TYPE_CHECKING:
    from servers import Server

    from canal_server.mysql.replication import DumpStart

EARLY, LATE = 1_500_000_000, 1_500_001_000  # s; older than any test


@pytest.fixture
def scanner(source_server: Server) -> Scanner:
    """Yield a scanner of the MySQL, then of the MariaDB."""
    return Scanner(InstanceConfig(destination="scan"), access_of(source_server), Stop())


def new_file(server: Server) -> str:
    """Start a binlog file that only changes extend; return its name."""
    server.execute("FLUSH BINARY LOGS")
    file = server.binlog_position()[0]
    if server.flavour == "mariadb":
        # In the background MariaDB records in the file where its recovery would start:
        # that is not a change, but is after them if it is written late.
        give_up_at = time.monotonic() + 3 * UNIT_S
        while not any(
            (row[2], row[5]) == ("Binlog_checkpoint", file)
            for row in server.execute(f"SHOW BINLOG EVENTS IN '{file}'")
        ):
            assert time.monotonic() < give_up_at, "it was not noted"
            time.sleep(POLL_S)
    return file


def beside_rows(server: Server) -> str:
    """Return the statement that logs texts of statements with their rows."""
    if server.flavour == "mysql":
        return "SET SESSION binlog_rows_query_log_events = ON"
    return "SET SESSION binlog_annotate_row_events = ON"


def test_first_event(source_server: Server, scanner: Scanner) -> None:
    """The first event has the time at which the server created the file."""
    file = new_file(source_server)
    now = int(source_server.execute("SELECT UNIX_TIMESTAMP()")[0][0])
    assert (now - 100) * 1000 <= scanner.first_event_ms(file) <= (now + 1) * 1000


def test_boundaries(source_server: Server, scanner: Scanner, database: str) -> None:
    """The last transaction before a time ends at the server's position at that time."""
    source_server.execute(f"CREATE TABLE {database}.t (a INT) ENGINE=InnoDB")
    file = new_file(source_server)
    source_server.execute(
        f"SET timestamp = {EARLY}", f"INSERT INTO {database}.t VALUES (1)"
    )
    _, end = source_server.binlog_position()
    source_server.execute(
        f"SET timestamp = {LATE}", f"INSERT INTO {database}.t VALUES (2)"
    )
    assert scanner.boundary_before(file, (EARLY + 1) * 1000) == end
    assert scanner.boundary_before(file, LATE * 1000) == end
    assert scanner.boundary_before(file, EARLY * 1000) is None
    _, last = source_server.binlog_position()
    assert scanner.boundary_before(file, (LATE + 1) * 1000) == last


def test_no_boundary_inside_of_a_transaction(
    source_server: Server, scanner: Scanner, database: str
) -> None:
    """A statement's text next to rows is not a start position, whatever its time."""
    source_server.execute(f"CREATE TABLE {database}.t (a INT) ENGINE=InnoDB")
    file = new_file(source_server)
    source_server.execute(
        beside_rows(source_server),
        f"SET timestamp = {EARLY}",
        "BEGIN",
        f"INSERT INTO {database}.t VALUES (1)",
        f"SET timestamp = {LATE}",
        f"INSERT INTO {database}.t VALUES (2)",
        "COMMIT",
    )
    assert scanner.boundary_before(file, (EARLY + 1) * 1000) is None


def test_ddl_is_a_boundary_of_its_own(
    source_server: Server, scanner: Scanner, database: str
) -> None:
    """A file of statements only has correct boundaries, or none."""
    file = new_file(source_server)
    source_server.execute(f"SET timestamp = {EARLY}", f"CREATE DATABASE {database}x")
    _, end = source_server.binlog_position()
    source_server.execute(f"SET timestamp = {LATE}", f"DROP DATABASE {database}x")
    assert scanner.boundary_before(file, LATE * 1000) == end


def test_gtids(source_server: Server, scanner: Scanner, database: str) -> None:
    """The set at an offset is that of the server when its binlog ended there."""
    mariadb = source_server.flavour == "mariadb"
    variable = "gtid_binlog_pos" if mariadb else "gtid_executed"
    kind = MariaGtidSet if mariadb else GtidSet
    source_server.execute(f"CREATE TABLE {database}.t (a INT) ENGINE=InnoDB")
    positions = []
    for number in range(3):
        source_server.execute(f"INSERT INTO {database}.t VALUES ({number})")
        text = source_server.execute(f"SELECT @@global.{variable}")[0][0]
        positions.append((*source_server.binlog_position(), str(text)))
    for file, offset, text in positions:
        found = scanner.gtids_at(file, offset, mariadb=mariadb)
        assert str(found) == str(kind.parse("".join(text.split())))


def test_first_sent(source_server: Server, scanner: Scanner, database: str) -> None:
    """The first event sent after a set has the time of its first transaction."""
    mariadb = source_server.flavour == "mariadb"
    variable = "gtid_binlog_pos" if mariadb else "gtid_executed"

    def start_after_all() -> DumpStart:
        text = str(source_server.execute(f"SELECT @@global.{variable}")[0][0])
        if mariadb:
            return MariaGtidStart(text)
        return GtidStart(GtidSet.parse("".join(text.split())).encode())

    source_server.execute(f"CREATE TABLE {database}.t (a INT) ENGINE=InnoDB")
    start = start_after_all()
    assert scanner.first_sent_ms(start) is None
    for number, time_s in enumerate((LATE, EARLY)):
        source_server.execute(
            f"SET timestamp = {time_s}", f"INSERT INTO {database}.t VALUES ({number})"
        )
    assert scanner.first_sent_ms(start) == LATE * 1000


def test_stop(source_server: Server) -> None:
    """A stop ends a scan with an error, not with a partial answer."""
    stop = Stop()
    stop.request()
    access = access_of(source_server)
    scanner = Scanner(InstanceConfig(destination="scan"), access, stop)
    with pytest.raises(ConnectionLost):
        scanner.boundary_before(source_server.binlog_position()[0], EARLY * 1000)


def test_purged_files(source_server: Server, scanner: Scanner) -> None:
    """A file that the server no longer has is reported as purged."""
    file, _ = source_server.binlog_position()
    deleted = file.rpartition(".")[0] + ".999999"
    with pytest.raises(BinlogPurged):
        scanner.first_event_ms(deleted)


def test_after_a_statement_that_leaves_no_record(
    source_server: Server, scanner: Scanner, database: str
) -> None:
    """After a GRANT is between transactions, inside a transaction is not."""
    file = new_file(source_server)
    source_server.execute(f"CREATE TABLE {database}.t (a INT)")
    source_server.execute(f"GRANT SELECT ON {database}.t TO 'canal'@'%'")
    _, offset = source_server.binlog_position()
    source_server.execute(f"INSERT INTO {database}.t VALUES (1)")
    mariadb = source_server.flavour == "mariadb"
    variable = "gtid_binlog_pos" if mariadb else "gtid_executed"
    executed = "".join(
        source_server.execute(f"SELECT @@global.{variable}")[0][0].split()
    )
    kind = MariaGtidSet if mariadb else GtidSet
    found, before = scanner.executed_at(file, offset, mariadb=mariadb)
    assert found == offset
    assert before != kind.parse(executed)
    events = source_server.execute(f"SHOW BINLOG EVENTS IN '{file}' FROM {offset}")
    for inside in (int(row[1]) for row in events if row[2] == "Table_map"):
        found, known = scanner.executed_at(file, inside, mariadb=mariadb)
        assert found <= offset
        assert before.contains(known)  # type: ignore[arg-type]  # of one kind
    end = int(events[-1][1])  # whose end was acknowledged there
    found, after = scanner.executed_at(file, end, mariadb=mariadb)
    assert (found, after) == (end, kind.parse(executed))
    assert not scanner.head_of(file, mariadb=mariadb).contains(before)  # type: ignore[arg-type]


def test_beside_a_stalled_dump(source_server: Server, database: str) -> None:
    """A dump does not wait for an earlier one of the same reader that is stuck.

    MariaDB would not answer until the earlier one has ended.
    """
    source_server.execute(f"CREATE TABLE {database}.t (a LONGTEXT)")
    file = new_file(source_server)
    for _ in range(20):
        source_server.execute(f"INSERT INTO {database}.t VALUES (REPEAT('x', 1000000))")
    config = InstanceConfig(destination="stalled")
    is_stalled, may_end = threading.Event(), threading.Event()

    def read(take) -> None:
        dump = TemporaryDump(config, access_of(source_server), Stop(), replica=3)
        reader = dump.reader(StatementCollector(), whole=True)
        dump.run(reader, FileStart(file), take)

    def stall(_) -> bool:
        is_stalled.set()
        may_end.wait()
        return False

    stalled = threading.Thread(target=read, args=(stall,))
    stalled.start()
    try:
        assert is_stalled.wait(UNIT_S)
        spans: list[object] = []

        def keep(found) -> bool:
            spans.extend(found)
            return True

        read(keep)
        assert len(spans) >= 20
    finally:
        may_end.set()
        stalled.join()
