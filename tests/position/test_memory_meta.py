"""The contract of meta managers, for each of them."""

from __future__ import annotations

import pytest

from canal_server.doors.zookeeper import ZooKeeper
from canal_server.errors import ClientError
from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import (
    EntryPosition,
    LogIdentity,
    LogPosition,
    PositionRange,
)
from canal_server.position.file_meta import MetaFiles
from canal_server.position.memory_meta import MemoryMetaManager
from canal_server.position.stored_meta import StoredMetaManager, Writing
from canal_server.position.zookeeper_meta import MetaNodes

ONE = ClientIdentity("example", 1001)
TWO = ClientIdentity("example", 1002)
ELSEWHERE = ClientIdentity("other", 1001)


MANAGERS = {
    "memory": None,
    "file": Writing.PERIODIC,
    "ZooKeeper": Writing.AT_ONCE,
    "mixed": Writing.SOON,
    "periodically mixed": Writing.PERIODIC,
}


def shelf_of(name, request):
    """Return the storage of a manager with this name."""
    if name == "file":
        return MetaFiles(request.getfixturevalue("tmp_path"))
    return MetaNodes(ZooKeeper(request.getfixturevalue("zookeeper_root")))


@pytest.fixture(params=MANAGERS)
def meta(request):
    """Return each manager in turn, started."""
    writing = MANAGERS[request.param]
    manager = (
        MemoryMetaManager()
        if writing is None
        else StoredMetaManager(
            shelf_of(request.param, request), destinations=["example"], writing=writing
        )
    )
    manager.start()
    yield manager
    manager.stop()


def position(offset):
    """Return a position of one server."""
    return LogPosition(
        LogIdentity("db", 3306), EntryPosition("bin.000001", offset, 0, 1, "")
    )


def batch(sequence):
    """Return what a batch of one entry covers."""
    offset = position(sequence)
    return PositionRange(offset, offset, offset, sequence)


def test_subscriptions(meta):
    """Clients are listed by id, of their destination only."""
    assert meta.subscriptions("example") == []
    for identity in (TWO, ONE, ELSEWHERE):
        assert not meta.has_subscribed(identity)
        meta.subscribe(identity)
        assert meta.has_subscribed(identity)
    assert meta.subscriptions("example") == [ONE, TWO]
    assert meta.subscriptions("other") == [ELSEWHERE]


def test_last_filter_counts(meta):
    """A client that subscribes again has its last filter, also an empty one."""
    for text in (r"a\..*", r"b\..*", ""):
        meta.subscribe(ClientIdentity("example", 1001, text))
        assert [each.filter for each in meta.subscriptions("example")] == [text]


def test_cursors(meta):
    """Each client has its own cursor, none at first, and the last one counts."""
    meta.subscribe(ONE)
    assert meta.cursor(ONE) is None
    meta.update_cursor(ONE, position(4))
    meta.update_cursor(ONE, position(8))
    meta.update_cursor(TWO, position(2))
    assert meta.cursor(ONE) == position(8)
    assert meta.cursor(TWO) == position(2)
    assert meta.cursor(ELSEWHERE) is None


def test_unsubscribed_clients_are_remembered(meta):
    """Cursor, batches and batch ids continue when a client subscribes again."""
    meta.subscribe(ONE)
    meta.update_cursor(ONE, position(4))
    assert meta.add_batch(ONE, batch(1)) == 1
    meta.unsubscribe(ONE)
    meta.unsubscribe(ONE)
    assert not meta.has_subscribed(ONE)
    assert meta.subscriptions("example") == []
    assert meta.cursor(ONE) == position(4)
    assert meta.batches(ONE) == {1: batch(1)}
    meta.subscribe(ONE)
    assert meta.add_batch(ONE, batch(2)) == 2


def test_batches_are_removed_in_order(meta):
    """Only the oldest open batch can be removed; an unknown one results in None."""
    assert [meta.add_batch(ONE, batch(each)) for each in (5, 6, 7)] == [1, 2, 3]
    assert meta.add_batch(TWO, batch(9)) == 1
    assert meta.remove_batch(ONE, 4) is None
    with pytest.raises(ClientError, match="batch 2 is not the oldest open one"):
        meta.remove_batch(ONE, 2)
    assert meta.remove_batch(ONE, 1) == batch(5)
    assert meta.remove_batch(ONE, 1) is None
    assert meta.remove_batch(ONE, 2) == batch(6)
    assert meta.batches(ONE) == {3: batch(7)}
    assert meta.batches(TWO) == {1: batch(9)}


def test_cleared_batches(meta):
    """Cleared batches are forgotten, and their ids are not used again."""
    meta.add_batch(ONE, batch(1))
    meta.add_batch(ONE, batch(2))
    meta.clear_batches(ONE)
    meta.clear_batches(TWO)
    assert meta.batches(ONE) == {}
    assert meta.remove_batch(ONE, 1) is None
    assert meta.add_batch(ONE, batch(3)) == 3


def test_returned_batches_are_a_copy(meta):
    """A returned value does not change later."""
    meta.add_batch(ONE, batch(1))
    before = meta.batches(ONE)
    meta.add_batch(ONE, batch(2))
    assert list(before) == [1]
    assert list(meta.batches(ONE)) == [1, 2]


def test_stops_twice(meta):
    """Stopping is idempotent."""
    meta.subscribe(ONE)
    meta.stop()
    meta.stop()
