"""Clients in memory and a storage: what is written when, and who gets errors."""

from __future__ import annotations

import pytest
from fix_store import eventually

from canal_server.errors import MetaStoreError
from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import (
    EntryPosition,
    LogIdentity,
    LogPosition,
    PositionRange,
)
from canal_server.position.stored_meta import StoredClient, StoredMetaManager, Writing

CLIENT = ClientIdentity("example", 1001, r"a\..*")
POSITION = LogPosition(
    LogIdentity("db", 3306), EntryPosition("bin.000001", 4, 0, 1, "")
)
BATCH = PositionRange(POSITION, POSITION, POSITION, 7)


class Shelf:
    """A storage in memory; remembers each write, and fails on demand."""

    silence = "the shelf does not answer"

    def __init__(self, stored=()):
        self.stored = list(stored)
        self.written = []
        self.error = None
        self.opened = 0

    def open(self, destinations, stop):
        """Count."""
        self.opened += 1

    def close(self):
        """Count down."""
        self.opened -= 1

    def read(self, destination):
        """Return what the test stored."""
        self._fail()
        return self.stored

    def must_write(self, destination):
        """Report no damage."""
        return False

    def write(self, destination, clients):
        """Remember."""
        self._fail()
        self.written.append((destination, clients))

    def _fail(self):
        if self.error:
            raise self.error


def manager(shelf, writing, **options):
    """Return a manager whose thread does not run."""
    return StoredMetaManager(
        shelf, destinations=["example"], writing=writing, **options
    )


def test_what_is_written_at_once():
    """Every change is written before its call returns, even batches."""
    shelf = Shelf()
    meta = manager(shelf, Writing.AT_ONCE)
    meta.subscribe(CLIENT)
    meta.update_cursor(CLIENT, POSITION)
    meta.add_batch(CLIENT, BATCH)
    meta.remove_batch(CLIENT, 1)
    meta.remove_batch(CLIENT, 1)  # unknown now: nothing changes
    meta.add_batch(CLIENT, BATCH)
    meta.clear_batches(CLIENT)
    meta.unsubscribe(CLIENT)
    assert [clients for _, clients in shelf.written] == [
        [StoredClient(CLIENT, None)],
        [StoredClient(CLIENT, POSITION)],
        [StoredClient(CLIENT, POSITION, {1: BATCH})],
        [StoredClient(CLIENT, POSITION)],
        [StoredClient(CLIENT, POSITION, {2: BATCH})],
        [StoredClient(CLIENT, POSITION)],
        [],
    ]


def test_what_is_written_with_a_period():
    """A flush writes the last of all changes once, without batches."""
    shelf = Shelf()
    meta = manager(shelf, Writing.PERIODIC)
    meta.subscribe(CLIENT)
    meta.update_cursor(CLIENT, POSITION)
    meta.add_batch(CLIENT, BATCH)
    assert shelf.written == []
    meta.flush()
    meta.flush()
    meta.add_batch(CLIENT, BATCH)
    meta.flush()
    assert shelf.written == [("example", [StoredClient(CLIENT, POSITION)])]


@pytest.mark.parametrize(
    "first",
    [
        StoredClient(CLIENT, POSITION),
        StoredClient(CLIENT, None, source_positions={1: POSITION, 2: POSITION}),
    ],
    ids=["cursor", "places"],
)
def test_the_first_cursor_does_not_wait_for_the_period(first):
    """Without it a start after a crash would begin at the end of the binlog."""
    shelf = Shelf()
    meta = manager(shelf, Writing.PERIODIC, flush_period_s=3600)
    meta.start()
    meta.subscribe(CLIENT)
    eventually(lambda: shelf.written == [("example", [StoredClient(CLIENT, None)])])
    if first.cursor:
        meta.update_cursor(CLIENT, first.cursor)
    for source, position in first.source_positions.items():
        meta.update_source_positions(CLIENT, {source: position})
    eventually(lambda: shelf.written[-1] == ("example", [first]))
    meta.stop()


def test_idle_clients_are_written_as_they_were():
    """Each flush creates objects only for clients that changed, not for thousands."""
    shelf = Shelf()
    meta = manager(shelf, Writing.PERIODIC)
    clients = [ClientIdentity("example", n, "a") for n in range(4)]
    for each in clients:
        meta.subscribe(each)
        meta.update_cursor(each, POSITION)
    meta.flush()
    again = ClientIdentity("example", 0, "b")
    later = LogPosition(POSITION.identity, EntryPosition("bin.000001", 8, 0, 1, ""))
    meta.subscribe(again)
    meta.update_cursor(clients[1], later)
    meta.update_source_positions(clients[2], {0: later})
    meta.flush()
    (_, before), (_, after) = shelf.written[-2:]
    assert after == [
        StoredClient(again, POSITION),
        StoredClient(clients[1], later),
        StoredClient(clients[2], POSITION, source_positions={0: later}),
        StoredClient(clients[3], POSITION),
    ]
    assert after[0].identity.filter == "b"
    assert [one is other for one, other in zip(before, after, strict=True)] == [
        False,
        False,
        False,
        True,
    ]


def test_a_failure_at_once():
    """The caller that changes a cursor gets the error; the next change stores it."""
    shelf = Shelf()
    meta = manager(shelf, Writing.AT_ONCE)
    meta.subscribe(CLIENT)
    shelf.error = MetaStoreError("full")
    with pytest.raises(MetaStoreError, match="full"):
        meta.update_cursor(CLIENT, POSITION)
    shelf.error = None
    meta.add_batch(CLIENT, BATCH)
    assert shelf.written[-1] == (
        "example",
        [StoredClient(CLIENT, POSITION, {1: BATCH})],
    )


def test_what_is_read_back():
    """Cursor and filter are restored; batch ids continue, batches do not."""
    stored = StoredClient(CLIENT, POSITION, last_batch_id=7)
    meta = manager(Shelf([stored]), Writing.SOON)
    assert [each.filter for each in meta.subscriptions("example")] == [CLIENT.filter]
    assert meta.cursor(CLIENT) == POSITION
    assert meta.batches(CLIENT) == {}
    assert meta.add_batch(CLIENT, BATCH) == 8


def test_a_start_that_fails():
    """A failing read is an error each time, and the storage is released."""
    shelf = Shelf([StoredClient(CLIENT, POSITION)])
    shelf.error = MetaStoreError("damaged")
    for _ in range(2):
        with pytest.raises(MetaStoreError, match="damaged"):
            manager(shelf, Writing.PERIODIC).start()
    assert shelf.opened == 0
    shelf.error = None
    meta = manager(shelf, Writing.PERIODIC)
    meta.start()
    assert meta.cursor(CLIENT) == POSITION
    meta.stop()
    assert shelf.opened == 0
