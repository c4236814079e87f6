"""The end of a binlog after its last transaction, for ranged reads and the pump."""

from __future__ import annotations

import pytest
from fix_ranged import LOOK_S, rows_of
from fix_source_access import PATIENCE_S

from canal_server.capture.source_parts import access_of
from canal_server.model.positions import EntryPosition, LogPosition
from canal_server.ranges import range_heads
from canal_server.runtime.lifecycle import Deadline
from canal_server.source.begin.source_lag import SourceView

ROTATED = ("FLUSH BINARY LOGS",)
TWICE = ("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
STATEMENT = ("CREATE USER belongs_to_nobody", "DROP USER belongs_to_nobody")
BOTH = (*STATEMENT, *ROTATED)
# The last events of a source, so that its end is not that of a transaction.
ENDS = {"rotated": ROTATED, "twice": TWICE, "statement": STATEMENT, "both": BOTH}
COMPRESSED = {
    "mysql": ["--binlog-transaction-compression=ON"],
    "mariadb": ["--log-bin-compress=ON", "--log-bin-compress-min-len=10"],
}
MODES: dict[str, dict[str, object]] = {
    "offsets": {},
    "gtids": {"gtid_on": True},
    "reread": {"memory": 0},
}


def reach(lake, start, target):
    """Ask how far a range after a position may go, until the end was read."""
    deadline = Deadline(PATIENCE_S)
    while True:
        ends = lake.head(start, wait_s=0.2)
        if ends.latest.order() >= target.order():
            return ends
        assert not deadline.passed(), f"read up to {ends.latest}, never to {target}"


def wait_for_pump(lake, target):
    """Wait until the pump is at a position, or after it."""
    deadline, tail = Deadline(PATIENCE_S), lake.live().tail
    while True:
        seen = tail.changes
        file, _, offset = lake.instance.status()["position"].rpartition(":")
        if EntryPosition(file, int(offset or 0)).order() >= target.order()[1:]:
            return
        assert not deadline.passed(), f"the pump is at {file}:{offset}"
        tail.wait(seen, LOOK_S, None)


def is_up_to_date(lake, position):
    """Return whether a position is shown as one that lacks nothing."""
    config = lake.instance.config
    access = access_of(config.source, config.destination)
    at = EntryPosition(position.journal, position.position, 1, included=True)
    with SourceView(config, access) as view:
        shown = view.lag_of(LogPosition(view.identity, at))
    return (shown.bytes, shown.seconds, shown.transactions) == (0, 0.0, 0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("end", ENDS)
def test_a_quiet_source(make_lake, source_server, database, end, mode) -> None:
    """The end is reached after a rotation and other statements, and moves on."""
    table = f"{database}.t"
    source_server.execute(f"CREATE TABLE {table} (a INT PRIMARY KEY)")
    lake = make_lake(source_server, **MODES[mode])
    start = lake.subscribe()
    source_server.execute(f"INSERT INTO {table} VALUES (1)", *ENDS[end])
    target = lake.ranges.locate("", "latest")

    ends = reach(lake, start, target)
    assert ends.rows == 1
    later = reach(lake, ends.end, target)
    assert (later.rows, later.end) == (0, ends.end)
    assert rows_of(lake.read(start, target)) == [("t", "a", "1")]
    assert lake.read(ends.end, target) == []
    wait_for_pump(lake, target)
    for position in (ends.end, target):
        assert is_up_to_date(lake, position)

    # What follows is delivered once, from either position and in another process.
    source_server.execute(f"INSERT INTO {table} VALUES (2)")
    last = lake.until(target, 1)
    assert lake.until(ends.end, 1) == last
    lake = make_lake(source_server, **MODES[mode])
    for begin in (ends.end, target):
        assert rows_of(lake.read(begin, last)) == [("t", "a", "2")]


@pytest.mark.parametrize("mode", MODES)
def test_a_transaction_that_was_rolled_back(
    make_lake, mariadb_server, database, mode
) -> None:
    """MariaDB logs one that created a temporary table: the end is after it."""
    mariadb_server.execute(f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    lake = make_lake(mariadb_server, schema="nobody", **MODES[mode])
    start = lake.subscribe()
    mariadb_server.execute(
        f"USE {database}",
        "SET autocommit = 0",
        "INSERT INTO t VALUES (1)",
        "CREATE TEMPORARY TABLE s (a INT) ENGINE = MyISAM",
        "ROLLBACK",
    )
    target = lake.ranges.locate("", "latest")
    assert target.order() > start.order()
    assert reach(lake, start, target).rows == 0
    lake.wait_until_delivered(target)


@pytest.mark.parametrize("mode", MODES)
def test_a_prepared_transaction(make_lake, source_server, database, mode) -> None:
    """The end is reached after XA PREPARE, and the commit is read from there."""
    table = f"{database}.t"
    source_server.execute(f"CREATE TABLE {table} (a INT PRIMARY KEY)")
    lake = make_lake(source_server, **MODES[mode])
    start = lake.subscribe()
    xid = f"'{database}'"
    source_server.execute(
        f"XA START {xid}",
        f"INSERT INTO {table} VALUES (1)",
        f"XA END {xid}",
        f"XA PREPARE {xid}",
    )
    target = lake.ranges.locate("", "latest")
    ends = reach(lake, start, target)
    wait_for_pump(lake, target)
    again = reach(lake, ends.end, target)
    assert (again.rows, again.end) == (0, ends.end)
    source_server.execute(f"XA COMMIT {xid}")
    last = reach(lake, target, lake.ranges.locate("", "latest"))
    assert rows_of(lake.read(target, last.latest)) == rows_of(
        lake.read_again(ends.end, last.latest)
    )


@pytest.mark.parametrize(
    ("flavour", "mode"),
    [
        pytest.param("mysql", "gtids", marks=pytest.mark.mysql),
        pytest.param("mariadb", "offsets", marks=pytest.mark.mariadb),
    ],
)
def test_a_new_source_and_its_restart(make_lake, own_server, flavour, mode) -> None:
    """Without any transaction, and after a restart of the source, the end is read.

    The same after a rotation, with compressed transactions or events.
    """
    server = own_server(flavour, COMPRESSED[flavour])
    lake = make_lake(server, schema="s", **MODES[mode])
    start = lake.subscribe()
    target = lake.ranges.locate("", "latest")
    assert reach(lake, start, target).rows == 0
    wait_for_pump(lake, target)
    assert is_up_to_date(lake, target)

    for kill in (False, True):
        if kill:
            server.kill()
        server.restart()
        target = lake.ranges.locate("", "latest")
        assert target.order() > start.order()
        assert reach(lake, start, target).rows == 0
        wait_for_pump(lake, target)
        # The same in another process, and then changes are delivered once.
        lake = make_lake(server, schema="s", **MODES[mode])
        assert reach(lake, start, target).rows == 0
        assert is_up_to_date(lake, start)
    server.execute("CREATE DATABASE s", "CREATE TABLE s.t (a INT)")
    server.execute("INSERT INTO s.t VALUES (7)")
    last = lake.until(start, 3)
    assert rows_of(lake.read_again(start, last)) == rows_of(lake.read(target, last))
    server.execute("FLUSH BINARY LOGS")
    target = lake.ranges.locate("", "latest")
    assert reach(lake, last, target).rows == 0
    wait_for_pump(lake, target)


def test_a_stream_moves_on(make_lake, source_server, database, monkeypatch) -> None:
    """A head with only a rotation after it moves there in time."""
    lake = make_lake(source_server)
    start = lake.subscribe()
    monkeypatch.setattr(range_heads, "MOVES_ON_S", 0.0)
    source_server.execute("FLUSH BINARY LOGS")
    target = lake.ranges.locate("", "latest")
    deadline = Deadline(PATIENCE_S)
    at = start
    while at.order() < target.order():
        assert not deadline.passed(), f"at {at}, never at {target}"
        at = lake.head(at, wait_s=0.2).end
    assert lake.read(start, at) == []
