"""The pump's thread on real servers: it delivers, reconnects, and stops."""

from __future__ import annotations

import logging
import threading
import uuid
from typing import TYPE_CHECKING

import pytest
from fix_blocks import BEGIN, OTHER, ROWS, Entries
from fix_pump import DESTINATION, Pumped
from fix_source_access import PATIENCE_S, access_of
from fix_store import eventually
from purge import kill_dumps

from canal_server.config.schema import (
    HostConfig,
)
from canal_server.errors import BinlogPurged, ConnectionLost, SourceError
from canal_server.filters.table_filters import TableFilter
from canal_server.model.entry import EntryType
from canal_server.model.positions import (
    EntryPosition,
    LogPosition,
    binlog_file_number,
)
from canal_server.mysql.cached_columns import CachedColumns
from canal_server.mysql.source_settings import Access, Address, Credentials
from canal_server.runtime.lifecycle import Deadline
from canal_server.source.begin.session_start import SessionStart
from canal_server.source.pump.pump_status import PumpState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from servers import Server

    from canal_server.mysql.control_connection import ControlConnection


OPEN = 2  # flag of a record inside of a transaction


@pytest.fixture
def pumped(source_server: Server, database: str) -> Iterator[Callable[..., Pumped]]:
    """Give `pumped(**settings)`: a pump on the MySQL, then on the MariaDB."""
    running: list[Pumped] = []

    def start(**settings: object) -> Pumped:
        found = Pumped(access_of(source_server), database, None, **settings)
        running.append(found)
        return found

    yield start
    for each in running:
        each.stop()


def insert(server: Server, database: str, *values: int) -> None:
    """Insert rows, each in a transaction of its own."""
    for value in values:
        server.execute(f"INSERT INTO {database}.t VALUES ({value})")


@pytest.fixture
def table(source_server: Server, database: str) -> str:
    """Give the schema of a table `t` with one INT column."""
    source_server.execute(f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    return database


def test_delivers(
    source_server: Server, table: str, pumped: Callable[..., Pumped]
) -> None:
    """From the binlog's end on, what is committed arrives, and its position is kept."""
    file, offset = source_server.binlog_position()
    found = pumped()
    found.pump.start()
    eventually(lambda: found.state is PumpState.RUNNING)
    eventually(lambda: found.begins)
    insert(source_server, table, 1, 2)
    eventually(lambda: found.values == ["1", "2"])
    stored = found.positions.latest(DESTINATION)
    assert stored is not None
    assert stored.identity == found.pump.identity
    last = found.entries[-1]
    assert last.entry_type == EntryType.TRANSACTIONEND

    def is_kept() -> bool:
        latest = found.positions.latest(DESTINATION)
        assert latest is not None
        return latest.position.position == last.header.logfile_offset

    eventually(is_kept)
    (started,) = found.begins
    assert (started.journal_name, started.position, started.included) == (
        file,
        offset,
        True,
    )
    assert found.pump.status.connections == 1
    assert found.pump.status.error == ""
    assert found.is_idle.wait(PATIENCE_S)
    found.stop()
    assert found.state is PumpState.STOPPED


def test_begins_at_a_time_also_by_gtid(
    source_server: Server, table: str, pumped: Callable[..., Pumped]
) -> None:
    """The first cursor has the time of what comes, without which none of Java's does.

    It is the configured one, else that of the first transaction; and of a stored set
    the stored time.
    """
    mariadb = source_server.flavour == "mariadb"
    variable = "gtid_binlog_pos" if mariadb else "gtid_executed"
    ((gtids,),) = source_server.execute(f"SELECT @@global.{variable}")
    source_server.execute(
        "SET timestamp = 1500000000", f"INSERT INTO {table}.t VALUES (1)"
    )
    for configured, expected in ((0, 1_500_000_000_000), (7000, 7000)):
        found = pumped(
            gtid_on=True, master=HostConfig(gtid=gtids, timestamp_ms=configured)
        )
        found.pump.start()
        eventually(lambda: found.values)  # noqa: B023
        assert [position.timestamp for position in found.begins] == [expected]
        found.stop()
        stored = found.positions.latest(DESTINATION)
        assert stored is not None
        again = pumped(gtid_on=True)
        again.positions.persist(DESTINATION, stored)
        again.pump.start()
        eventually(lambda: again.begins)  # noqa: B023
        assert again.begins[0].timestamp == stored.position.timestamp
        again.stop()


def test_whole_files_by_gtid(
    source_server: Server, table: str, pumped: Callable[..., Pumped]
) -> None:
    """The file in which a dump by GTID begins is not whole, the next one is.

    MariaDB begins amid a file, with a list of GTIDs that fits there and is in no file.
    """
    insert(source_server, table, 1)
    mariadb = source_server.flavour == "mariadb"
    variable = "gtid_binlog_pos" if mariadb else "gtid_executed"
    ((gtids,),) = source_server.execute(f"SELECT @@global.{variable}")
    insert(source_server, table, 2)
    found = pumped(gtid_on=True, master=HostConfig(gtid=gtids))
    found.pump.start()
    eventually(lambda: found.values == ["2"])
    assert found.pump.whole_from is None
    source_server.execute("FLUSH BINARY LOGS")
    insert(source_server, table, 3)
    eventually(lambda: found.values == ["2", "3"])
    file, _ = source_server.binlog_position()
    assert found.pump.whole_from == binlog_file_number(file)


def test_continues_after_a_lost_connection(
    source_server: Server, table: str, pumped: Callable[..., Pumped]
) -> None:
    """When the source ends the dump, nothing is lost, and nothing comes twice."""
    found = pumped()
    found.pump.start()
    eventually(lambda: found.begins)
    insert(source_server, table, *range(5))
    eventually(lambda: len(found.values) == 5)
    kill_dumps(source_server)
    eventually(lambda: found.pump.status.connections == 2)
    insert(source_server, table, *range(5, 10))
    eventually(lambda: len(found.values) >= 10)
    assert found.values == [str(n) for n in range(10)]
    assert found.pump.status.connections == 2
    assert found.resets == 1  # the second session continues the first one
    assert len(found.begins) == 1


def test_continues_from_what_is_stored(
    source_server: Server, table: str, pumped: Callable[..., Pumped]
) -> None:
    """Another pump with the same positions continues after the last transaction."""
    first = pumped()
    first.pump.start()
    eventually(lambda: first.begins)
    insert(source_server, table, 1)
    eventually(lambda: first.values == ["1"])
    first.stop()
    insert(source_server, table, 2)
    stored = first.positions.latest(DESTINATION)
    assert stored is not None
    second = pumped()
    second.positions.persist(DESTINATION, stored)
    second.pump.start()
    eventually(lambda: second.values)
    # It begins with the stored end: clients that have acked it are known by position.
    assert second.values == ["2"]
    assert second.entries[0].entry_type == EntryType.TRANSACTIONEND


class FailingColumns(CachedColumns):
    """Columns whose history cannot be written after the next transaction."""

    def __init__(self, control: ControlConnection, fail: threading.Event) -> None:
        super().__init__(control)
        self._fail = fail
        self._last = (0, 0)

    def passed(self, position: EntryPosition) -> None:
        """Fail once at a position after the last one, when the test asks for it."""
        before, self._last = self._last, position.order()
        if before < self._last and self._fail.is_set():
            self._fail.clear()
            raise SourceError("the table history cannot be written")  # retried at once


def test_history_that_cannot_be_written_by_gtid(
    source_server: Server, table: str, pumped: Callable[..., Pumped]
) -> None:
    """A transaction is not delivered again as the history failed after it."""
    fail = threading.Event()
    found = pumped(
        gtid_on=True,
        schemas=lambda control, _info, _position: FailingColumns(control, fail),
    )
    found.pump.start()
    eventually(lambda: found.begins)
    insert(source_server, table, 1)
    eventually(lambda: found.values == ["1"])
    assert found.is_idle.wait(PATIENCE_S)
    fail.set()
    insert(source_server, table, 2)
    eventually(lambda: found.pump.status.connections == 2)
    insert(source_server, table, 3)
    eventually(lambda: "3" in found.values)
    assert found.values == ["1", "2", "3"]


def test_filters_that_change(
    source_server: Server, table: str, pumped: Callable[..., Pumped]
) -> None:
    """Tables are read from the time on at which the filter accepts them."""
    source_server.execute(f"CREATE TABLE {table}.u (a INT PRIMARY KEY)")
    found = pumped()
    found.pump.change_table_filter(TableFilter(rf"{table}\.t", "").accepts)
    found.pump.start()
    eventually(lambda: found.begins)
    source_server.execute(f"INSERT INTO {table}.u VALUES (1)")
    insert(source_server, table, 2)
    eventually(lambda: found.values == ["2"])
    found.pump.change_table_filter(TableFilter(rf"{table}\.u", "").accepts)
    source_server.execute(f"INSERT INTO {table}.u VALUES (3)")
    eventually(lambda: found.values == ["2", "3"])


def unreachable() -> Access:
    """Return how to reach a source that is not there."""
    return Access(
        address=Address("127.0.0.1", 1),
        credentials=Credentials("nobody", ""),
        connect_timeout_s=PATIENCE_S,
    )


def test_source_that_is_not_there() -> None:
    """Without a source it waits, says why, and stops at once when asked."""
    found = Pumped(unreachable(), "db")
    assert found.pump.join(Deadline(0))
    found.pump.start()
    eventually(lambda: found.state is PumpState.WAITING)
    assert "127.0.0.1:1" in found.pump.status.error
    assert found.values == []
    found.stop()
    assert found.state is PumpState.STOPPED


def logged_by(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what the pump logged as errors and warnings."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING
    ]


def test_the_same_error_again(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once in ten minutes, and shown by the status all the time."""
    found = Pumped(unreachable(), "db")
    for error in (ConnectionLost("gone"), ConnectionLost("gone"), BinlogPurged("old")):
        found.pump._failed(error)
        assert found.pump.status.error.startswith(f"{type(error).__name__}: {error}")
    found.pump._failed(ConnectionLost("gone"))
    assert found.pump.status.error == "ConnectionLost: gone"
    first, second = logged_by(caplog)
    assert "ConnectionLost: gone; next attempt in" in first
    assert "BinlogPurged: old; the start is configured by" in second


def test_a_fault_while_an_error_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is reported, and does not end the thread: the next attempt follows."""
    found = Pumped(unreachable(), "db")

    def fail(start: object, error: object, *, passed: bool) -> bool:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(SessionStart, "failed", fail)
    found.pump.start()
    eventually(lambda: "a fault of ours" in found.pump.status.error)
    eventually(lambda: found.state is PumpState.WAITING)
    assert not found.pump.join(Deadline(0))
    found.stop()


def test_an_error_after_a_session_that_was_good(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What ends a session that delivered something is news."""
    found = Pumped(unreachable(), "db")
    entries = Entries(found.pool)
    for _ in range(2):
        entries.transaction(rows=1)
        assert found.pump.deliver(entries.take())
        found.pump._failed(ConnectionLost("gone"))
        found.pump._failed(ConnectionLost("gone"))
    assert len(logged_by(caplog)) == 2


def test_an_account_that_may_not_list_binlogs(
    source_server: Server, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Where nothing can be read without the right, one line says so, not two."""
    name = f"u{uuid.uuid4().hex[:10]}"
    source_server.execute(
        f"CREATE USER '{name}'@'%' IDENTIFIED BY 'x'",
        f"GRANT SELECT, REPLICATION SLAVE ON *.* TO '{name}'@'%'",
    )
    found = Pumped(access_of(source_server, user=name, password="x"), database)
    found.pump.start()
    try:
        eventually(lambda: found.state is PumpState.WAITING)
    finally:
        found.stop()
        source_server.execute(f"DROP USER '{name}'@'%'")
    (line,) = logged_by(caplog)
    assert "REPLICATION CLIENT" in line


def test_binlogs_that_are_not_listed(
    source_server: Server,
    database: str,
    table: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With a position to begin at it reads without the right, and warns of it."""
    name = f"u{uuid.uuid4().hex[:10]}"
    source_server.execute(
        f"CREATE USER '{name}'@'%' IDENTIFIED BY 'x'",
        f"GRANT SELECT, REPLICATION SLAVE ON *.* TO '{name}'@'%'",
    )
    file, offset = source_server.binlog_position()
    found = Pumped(
        access_of(source_server, user=name, password="x"),
        database,
        master=HostConfig(journal_name=file, position=offset),
    )
    found.pump.start()
    try:
        insert(source_server, table, 7)
        eventually(lambda: found.values == ["7"])
    finally:
        found.stop()
        source_server.execute(f"DROP USER '{name}'@'%'")
    (line,) = logged_by(caplog)
    assert "does not list its binlog files" in line


def test_stops_while_it_waits_for_events(
    table: str, pumped: Callable[..., Pumped]
) -> None:
    """A stop ends the waiting for a silent source."""
    found = pumped()
    found.pump.start()
    eventually(found.is_idle.is_set)
    found.stop()
    assert found.state is PumpState.STOPPED
    found.pump.request_stop()


def test_position_that_is_purged(
    source_server: Server, table: str, pumped: Callable[..., Pumped]
) -> None:
    """A stored position that the source lacks is reported, or replaced if allowed."""
    file, _ = source_server.binlog_position()
    deleted = EntryPosition(file.rpartition(".")[0] + ".999999", 4, 1, 1)
    stubborn = pumped()
    stored = LogPosition(stubborn.pump.identity, deleted)
    stubborn.positions.persist(DESTINATION, stored)
    stubborn.pump.start()
    eventually(
        lambda: stubborn.state is PumpState.WAITING and stubborn.pump.status.error
    )
    resetting = pumped(auto_reset_latest=True)
    resetting.positions.persist(DESTINATION, stored)
    resetting.pump.start()
    eventually(lambda: resetting.begins)
    insert(source_server, table, 7)
    eventually(lambda: resetting.values == ["7"])


def test_binlogs_that_are_reset(
    own_server: Callable[..., Server],
) -> None:
    """After the source forgot its binlogs, new files with old names are not skipped."""
    server = own_server("mysql", ())
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)")
    for _ in range(3):
        server.execute("FLUSH BINARY LOGS")
    found = Pumped(access_of(server), "d", auto_reset_latest=True)
    found.pump.start()
    try:
        eventually(lambda: found.begins)
        insert(server, "d", 1)
        eventually(lambda: found.values == ["1"])
        server.execute("RESET BINARY LOGS AND GTIDS")
        eventually(lambda: found.pump.status.connections > 1)
        eventually(lambda: found.state is PumpState.RUNNING)
        insert(server, "d", 2)
        eventually(lambda: found.values == ["1", "2"])
    finally:
        found.stop()


def test_keeps_the_last_boundary() -> None:
    """What is kept is the last end of a transaction, not a position inside of one."""
    access = Access(address=Address("db", 1), credentials=Credentials("u", ""))
    found = Pumped(access, "db")
    entries = Entries(found.pool)
    entries.transaction(1)
    entries.add(BEGIN)
    entries.add(OTHER, flags=OPEN)
    entries.add(ROWS)
    assert found.pump.deliver(entries.take())
    stored = found.positions.latest(DESTINATION)
    assert stored is not None
    assert stored.position.position == 200
    entries.add(ROWS)
    assert found.pump.deliver(entries.take())
    assert found.positions.latest(DESTINATION) == stored
