"""A slow filter delays only the client that has it."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest
from fix_blocks import ROWS
from fix_store import PATIENCE_S, StoreUnderTest, eventually, in_thread

from canal_server.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOW, QUICK, LATE = 1, 2, 3


class SlowFilter:
    """A filter that answers when a test releases it."""

    def __init__(self, *tables: str) -> None:
        self.tables = tables
        self.asked = threading.Event()
        self.answers = threading.Event()

    def accepts(self, names):
        """Wait, and pass its tables."""
        self.asked.set()
        assert self.answers.wait(PATIENCE_S)
        return any(table in self.tables for _, table in names)


@pytest.fixture
def slow() -> Iterator[SlowFilter]:
    """Return a filter for table `a`; it answers at the end of the test at latest."""
    found = SlowFilter("a")
    yield found
    found.answers.set()


@pytest.fixture
def t() -> StoreUnderTest:
    """Return a store in which a quick client waits for table `a`."""
    found = StoreUnderTest(buffer_size=4)
    found.store.subscribe(QUICK, found.wanting("a"), None)
    return found


def put(t, *tables):
    """Put a row of each table, as the pump does."""
    for table in tables:
        t.entries.add(ROWS, table_ordinal=t.table_ordinal(table))
    return in_thread(t.put)


def test_others_are_served_while_a_filter_is_asked(t, slow):
    """The pump puts, and others get and ack, while a filter checks a table."""
    t.store.subscribe(SLOW, slow.accepts, None)
    waiting = in_thread(t.store.get, SLOW, 1, None)
    assert put(t, "a").result(PATIENCE_S)
    assert slow.asked.wait(PATIENCE_S)
    assert in_thread(t.ack_next, QUICK, 1).result(PATIENCE_S) is None
    assert put(t, "b", "a").result(PATIENCE_S)
    assert not waiting.done()
    slow.answers.set()
    assert waiting.result(PATIENCE_S).count == 1


def test_a_filter_is_not_asked_on_when_its_client_left(t, slow):
    """The connection of a client that closed ends, however much is left to ask."""
    asked = []

    def table_filter(names):
        asked.append(names)
        return slow.accepts(names)

    t.store.subscribe(SLOW, table_filter, None)
    tables = [str(number) for number in range(100)]
    for table in tables:
        t.table_ordinal(table)
    assert put(t, "a").result(PATIENCE_S)
    here, peer = socket.socketpair()
    with here:
        waiting = in_thread(t.store.get, SLOW, 1, None, here.fileno())
        assert slow.asked.wait(PATIENCE_S)
        peer.close()
        slow.answers.set()
        assert waiting.result(PATIENCE_S) is None
    assert len(asked) == 1
    assert t.get(SLOW, 1).count == 1


def test_a_filter_is_not_asked_on_when_its_client_unsubscribed(t, slow):
    """Nor is it asked when its cursor was dropped, or the store closed."""
    asked = []

    def table_filter(names):
        asked.append(names)
        return slow.accepts(names)

    t.store.subscribe(SLOW, table_filter, None)
    for number in range(100):
        t.table_ordinal(str(number))
    assert put(t, "a").result(PATIENCE_S)
    waiting = in_thread(t.store.get, SLOW, 1, None)
    assert slow.asked.wait(PATIENCE_S)
    t.store.unsubscribe(SLOW)
    slow.answers.set()
    with pytest.raises(StoreError, match="unsubscribed"):
        waiting.result(PATIENCE_S)
    assert len(asked) == 1


def test_others_are_served_while_another_filter_is_asked(t, slow):
    """The same when a client replaces its filter: its entries are judged again."""
    t.store.subscribe(SLOW, t.wanting("b"), None)
    assert put(t, "b", "a").result(PATIENCE_S)
    assert t.get(SLOW, 1).count == 1
    in_thread(t.store.subscribe, SLOW, slow.accepts, None).result(PATIENCE_S)
    waiting = in_thread(t.store.get, SLOW, 1, None)
    assert slow.asked.wait(PATIENCE_S)
    assert in_thread(t.ack_next, QUICK, 1).result(PATIENCE_S) is None
    in_thread(t.store.rollback, SLOW).result(PATIENCE_S)
    assert not t.store.is_drained(SLOW, acked=False)
    slow.answers.set()
    assert waiting.result(PATIENCE_S).last_sequence == 1


def test_no_entry_is_skipped_by_the_filter_of_before(t, slow):
    """What the old filter rejects is kept until the new one was asked about it."""
    t.store.subscribe(SLOW, t.wanting("b"), None)
    assert put(t, "a", "a").result(PATIENCE_S)
    t.store.subscribe(SLOW, slow.accepts, None)
    t.store.unsubscribe(QUICK)
    full = put(t, "b", "b", "b")  # needs room, which the old filter would make
    assert slow.asked.wait(PATIENCE_S)
    assert not full.done()
    slow.answers.set()
    t.store.ack(SLOW, t.get(SLOW, 2).last_sequence)
    assert full.result(PATIENCE_S)


def test_filter_withdrawn_before_it_was_asked(t, slow):
    """A client that returns to its old filter continues as if nothing had changed."""
    old = t.wanting("a")
    t.store.subscribe(SLOW, old, None)
    t.store.subscribe(SLOW, slow.accepts, None)
    assert put(t, "a").result(PATIENCE_S)
    t.store.subscribe(SLOW, old, None)
    assert t.get(SLOW, 1).last_sequence == 0
    assert not slow.asked.is_set()


def test_full_ring_asks_filters_of_those_who_are_away(t, slow):
    """Entries that a disconnected client's filter rejects make room, once asked."""
    rejecting = SlowFilter("z")
    rejecting.answers.set()
    for client_id in range(LATE, LATE + 50):
        t.store.subscribe(client_id, rejecting.accepts, None)
    assert put(t, "a", "a", "a", "a").result(PATIENCE_S)
    t.ack_next(QUICK, 4)
    assert put(t, "a", "b").result(PATIENCE_S)
    assert rejecting.asked.is_set()


def test_put_that_waits_is_woken_to_ask(t):
    """A client that subscribes while a put waits is asked once others have acked."""
    rejecting = SlowFilter("z")
    rejecting.answers.set()
    assert put(t, "a", "a", "a", "a").result(PATIENCE_S)
    waiting = put(t, "a")
    eventually(t.store.holders)
    t.store.subscribe(LATE, rejecting.accepts, None)
    t.ack_next(QUICK, 4)
    assert waiting.result(PATIENCE_S)


def test_client_that_leaves_while_its_filter_is_asked(t, slow):
    """Its get ends with an error, and the entries are freed."""
    t.store.subscribe(SLOW, slow.accepts, None)
    assert put(t, "a").result(PATIENCE_S)
    waiting = in_thread(t.store.get, SLOW, 1, None)
    assert slow.asked.wait(PATIENCE_S)
    t.store.unsubscribe(SLOW)
    slow.answers.set()
    with pytest.raises(Exception, match="unsubscribed during its get"):
        waiting.result(PATIENCE_S)


def test_store_that_closes_while_a_filter_is_asked(t, slow):
    """The get returns nothing."""
    t.store.subscribe(SLOW, slow.accepts, None)
    assert put(t, "a").result(PATIENCE_S)
    waiting = in_thread(t.store.get, SLOW, 1, None)
    assert slow.asked.wait(PATIENCE_S)
    t.store.close()
    slow.answers.set()
    assert waiting.result(PATIENCE_S) is None
