"""How far positions are behind a real source, and what it has purged of them."""

from __future__ import annotations

import pytest
from fix_source_access import access_of

from canal_server.config.schema import InstanceConfig, PositionConfig, SourceConfig
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.source.begin import source_lag
from canal_server.source.begin.boundary_index import (
    FILE_NAME,
    BoundaryIndex,
    FileKey,
    Mark,
)
from canal_server.source.begin.source_lag import SourceView, transactions_in
from canal_server.source.schema.source_traits import source_of

UUID = "4fc5fb63-e620-11f1-9489-02fc00000001"


@pytest.fixture
def view(source_server, database):
    """Yield a view of a server that has just written three transactions."""
    source_server.execute(f"CREATE TABLE {database}.t (a INT)")
    executed = ""
    if source_server.flavour == "mysql":
        ((executed,),) = source_server.execute("SELECT @@global.gtid_executed")
    view = SourceView(InstanceConfig(destination="lag"), access_of(source_server))
    file, offset = source_server.binlog_position()
    view.start = EntryPosition(file, offset, 1000, included=True)  # type: ignore[attr-defined]
    view.executed = executed  # type: ignore[attr-defined]
    for number in range(3):
        source_server.execute(f"INSERT INTO {database}.t VALUES ({number})")
    return view


def test_lag(view):
    """Bytes, seconds and transactions from a position to the end."""
    with view:
        lag = view.lag_of(LogPosition(view.identity, view.start))
        assert lag.transactions == 3
        assert lag.bytes == view.end.position - view.start.position
        assert 0 <= lag.seconds < 600
        lag = view.lag_of(LogPosition(view.identity, view.end_position))
        assert (lag.bytes, lag.seconds, lag.transactions) == (0, 0.0, 0)


def test_too_much_to_look_at(view, monkeypatch):
    """A large part is not read: no count of transactions, the position's age."""
    monkeypatch.setattr(source_lag, "LOOKED_AT_BYTES_MAX", 10)
    with view:
        lag = view.lag_of(LogPosition(view.identity, view.start))
        assert lag.transactions is None
        assert lag.bytes == view.end.position - view.start.position
        assert lag.seconds == (view.now_ms - 1000) / 1000


def test_by_index(source_server, view, monkeypatch, tmp_path):
    """Where too much would have to be read, the index of a server is used."""
    position = PositionConfig(data_dir=tmp_path)
    view.config = InstanceConfig(destination="lag", position=position)
    with view:
        key = FileKey(
            source_of(view.info),
            view.end.file,
            view.scanner.first_event_ms(view.end.file) // 1000,
        )
        start, stop = view.start.position, view.end.position
    index = BoundaryIndex(tmp_path / "lag" / FILE_NAME)
    (tmp_path / "lag").mkdir()
    index.open()
    index.add(key, [Mark(start, start, stop, 1, 1, 4711, None)])
    index.close()
    monkeypatch.setattr(source_lag, "LOOKED_AT_BYTES_MAX", 10)
    with SourceView(view.config, view.access) as other:
        offset = LogPosition(other.identity, view.start)
        assert other.lag_of(offset).transactions == 4711
        source_server.execute("FLUSH BINARY LOGS")
    with SourceView(view.config, view.access) as other:
        # Nothing is known about the new file, and it may be large.
        assert other.lag_of(offset).transactions is None


def test_other_positions(view):
    """Another server's position and a nonexistent one have no number."""
    with view:
        other = LogPosition(LogIdentity("192.0.2.1", 3306), view.start)
        lag = view.lag_of(other)
        assert (lag.bytes, lag.transactions) == (None, None)
        assert "192.0.2.1:3306" in lag.problem
        beyond = EntryPosition(view.end.file, view.end.position + 10**6)
        lag = view.lag_of(LogPosition(view.identity, beyond))
        assert "is not in the binlog of" in lag.problem


def test_by_set(source_server, view):
    """In GTID mode the sets give the number where too much would have to be read."""
    if source_server.flavour != "mysql":
        pytest.skip("the sets of MariaDB have no counts")
    view.config = InstanceConfig(destination="lag", source=SourceConfig(gtid_on=True))
    with view:
        position = EntryPosition(gtid=view.executed)
        other = LogPosition(LogIdentity("192.0.2.1", 3306), position)
        assert view.lag_of(other).transactions == 3


@pytest.mark.parametrize(
    ("gtids", "number"),
    [
        ("", 0),
        (f"{UUID}:7", 1),
        (f"{UUID}:1-5:8", 6),
        (f"{UUID}:1-5,{UUID}:blue:2-3", 7),
    ],
)
def test_numbers_of_sets(gtids, number):
    """Each interval of a set counts, with tags or without."""
    assert transactions_in(gtids) == number


def test_purged(own_server):
    """The missing files are named, and from when to when they were written."""
    server = own_server("mysql")
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (a INT)")
    file, offset = server.binlog_position()
    for _ in range(3):
        server.execute("INSERT INTO d.t VALUES (1)", "FLUSH BINARY LOGS")
    last = server.binlog_position()[0]
    server.execute(f"PURGE BINARY LOGS TO '{last}'")
    config = InstanceConfig(destination="lag", source=SourceConfig(gtid_on=True))
    with SourceView(config, access_of(server)) as view:
        uuid = view.info.server_uuid
        position = EntryPosition(file, offset, 1_500_000_000_000, gtid=f"{uuid}:1-2")
        purged = view.lag_of(LogPosition(view.identity, position)).purged
        assert purged is not None
        assert (purged.first, purged.last, purged.files) == (
            "binlog.000001",
            "binlog.000003",
            3,
        )
        assert purged.since_ms == 1_500_000_000_000
        assert purged.until_ms is not None
        assert abs(purged.until_ms - view.now_ms) < 600_000
        assert purged.transactions == 3
        assert view.purged_after(view.end_position) is None
