"""A full ring evicts evictable clients, and answers whether others can join it."""

from __future__ import annotations

import pytest
from fix_blocks import ROWS
from fix_store import Absent, StoreUnderTest, eventually, in_thread

from canal_server.errors import StoreError
from canal_server.store.eviction import NobodyEvictable

HERE, AWAY, OFFLINE = 1001, 1002, 1003


@pytest.fixture
def absent():
    """Return a liveness in which two clients are evictable."""
    return Absent(AWAY, OFFLINE)


@pytest.fixture
def t(absent):
    """Return a store of 64 entries with three clients."""
    made = StoreUnderTest(liveness=absent)
    for client_id in (HERE, AWAY, OFFLINE):
        made.store.subscribe(client_id, None, None)
    return made


def drain(t, client_id=HERE):
    """Ack all that a client can get."""
    while (batch := t.store.get(client_id, 64, 0)) is not None:
        t.store.ack(client_id, batch.last_sequence)


def test_only_when_there_is_no_room(t, absent):
    """As long as entries fit, they are retained for evictable clients, too."""
    t.entries.transaction(rows=62)
    assert t.put()
    drain(t)
    assert absent.passed == []
    t.entries.transaction(rows=1)
    assert t.try_put()
    assert absent.passed == [AWAY, OFFLINE]
    with pytest.raises(StoreError):
        t.store.get(AWAY, 1, 0)
    drain(t)


def test_no_more_than_must(t, absent):
    """An evictable client nearer to the end keeps its cursor."""
    t.entries.transaction(rows=30)
    t.put()
    drain(t, AWAY)
    t.entries.transaction(rows=30)
    t.put()
    drain(t)
    t.entries.transaction(rows=10)
    assert t.try_put()
    assert absent.passed == [OFFLINE]
    assert t.get(AWAY, 1).count == 1


def test_one_that_pins_is_waited_for(t, absent):
    """What a retaining client has not acked either is kept."""
    t.entries.transaction(rows=62)
    t.put()
    t.entries.transaction(rows=1)
    assert not t.try_put()
    assert absent.passed == []


def test_looks_again_when_one_left(t, absent):
    """A waiting put continues when the last holder becomes evictable."""
    absent.client_ids.clear()
    t.entries.transaction(rows=62)
    t.put()
    drain(t)
    t.entries.transaction(rows=1)
    putting = in_thread(t.put)
    eventually(lambda: t.store.holders() == (AWAY, OFFLINE))
    absent.client_ids.update((AWAY, OFFLINE))
    t.store.look_again()
    assert putting.result(60)


def test_looks_again_in_time(t, absent):
    """A waiting put checks again when the last holder is to become evictable."""
    absent.client_ids.clear()
    absent.waits_s = 0.05
    t.entries.transaction(rows=62)
    t.put()
    drain(t)
    t.entries.transaction(rows=1)
    putting = in_thread(t.put)
    eventually(lambda: t.store.holders() == (AWAY, OFFLINE))
    absent.client_ids.update((AWAY, OFFLINE))
    assert putting.result(60)


def test_names_who_must_ack(t):
    """Evictable clients are not named: a put does not wait for them, but for others."""
    t.entries.transaction(rows=62)
    t.put()
    t.entries.transaction(rows=1)
    putting = in_thread(t.put)
    eventually(lambda: t.store.holders() == (HERE,))
    blocked = t.store.blocked()
    assert blocked is not None
    assert blocked.clients == (HERE,)
    drain(t)
    assert putting.result(60)


def test_names_nobody_who_rejects_the_entries(t, absent):
    """A client that does not ask for its entries is not named if it rejects them."""
    absent.client_ids.clear()
    t.store.subscribe(OFFLINE, t.wanting("b"), None)
    t.entries.add(ROWS, table_ordinal=t.table_ordinal("a"))
    t.put()
    assert t.store.get(OFFLINE, 1, 0) is None  # its filter is asked
    t.store.unsubscribe(AWAY)
    drain(t)
    for _ in range(64):
        t.entries.add(ROWS, table_ordinal=t.table_ordinal("a"))
    t.put()
    t.entries.add(ROWS, table_ordinal=t.table_ordinal("a"))
    putting = in_thread(t.put)
    eventually(lambda: t.store.holders() == (HERE,))
    t.store.unsubscribe(HERE)
    assert putting.result(60)


def test_one_that_rejects_the_entries_keeps_nobody(t, absent):
    """Evictable clients are evicted although others, who reject the entries, wait."""
    absent.client_ids = {HERE, AWAY}
    t.store.subscribe(OFFLINE, t.wanting("b"), None)
    for _ in range(64):
        t.entries.add(ROWS, table_ordinal=t.table_ordinal("a"))
    t.put()
    t.entries.transaction(rows=2, table_ordinal=t.table_ordinal("a"))
    assert in_thread(t.put).result(60)
    assert absent.passed == [HERE, AWAY]


def test_nobody_floats_by_itself():
    """A store without liveness waits for all clients."""
    nobody = NobodyEvictable()
    assert not nobody.is_evictable(HERE)
    assert nobody.evictable_in_s((HERE,)) is None
    with pytest.raises(AssertionError):
        nobody.evicted(HERE, None)


def test_join(t):
    """A client joins after a position only if nothing after it was freed."""
    t.store.begin_run((1, 0))
    run = t.store.run
    for client_id in (AWAY, OFFLINE):
        t.store.unsubscribe(client_id)
    t.entries.transaction(rows=3)  # at 0 to 400
    t.entries.transaction(rows=3)  # at 500 to 900
    t.put()
    t.store.ack(HERE, t.get(HERE, 7).last_sequence)  # at 600
    for position in ((1, 429), (1, 599), (0, 10_000)):
        assert not t.store.covers(position, run)
        assert not t.store.join(AWAY, None, position, run, needs=position)
    assert t.store.join(AWAY, None, (1, 929), run, needs=(1, 929))
    assert t.store.get(AWAY, 9, 0) is None
    t.entries.transaction(rows=1)
    t.put()
    assert t.get(AWAY, 9).start.position == 1000


def test_join_before_anything_was_freed(t):
    """At first the ring holds what comes after the position where reading began."""
    assert not t.store.covers((1, 10_000), t.store.run)  # before it began
    t.store.begin_run((1, 99))
    assert t.store.covers((1, 99), t.store.run)
    assert not t.store.covers((1, 98), t.store.run)
    assert not t.store.covers((1, 99), t.store.run - 1)


def test_join_waits_for_entries_of_another_run(t):
    """No client joins as long as entries of another run are in the ring."""
    t.store.begin_run((1, 0))
    t.entries.transaction(rows=3)
    t.put()
    t.store.begin_run((1, 0))
    assert not t.store.covers((1, 10_000), t.store.run)
    for client_id in (HERE, AWAY, OFFLINE):
        drain(t, client_id)
    assert t.store.covers((1, 0), t.store.run)


def test_end(t):
    """A store to which nothing more is put answers a get at once."""
    getting = in_thread(t.store.get, HERE, 10, None)
    t.store.end()
    assert getting.result(60) is None
    t.entries.transaction(rows=1)
    t.put()
    assert not t.store.is_drained(HERE, acked=False)
    batch = t.store.get(HERE, 100, None)
    assert batch is not None
    assert t.store.is_drained(HERE, acked=False)
    assert not t.store.is_drained(HERE, acked=True)
    t.store.ack(HERE, batch.last_sequence)
    assert t.store.is_drained(HERE, acked=True)
    assert t.store.is_drained(99, acked=True)


def test_oldest_position(t):
    """It is the boundary after which all entries come, None before any was freed."""
    t.entries.transaction(rows=1)
    t.put()
    assert t.store.oldest_position() is None
    for client_id in (HERE, AWAY, OFFLINE):
        drain(t, client_id)
    oldest = t.store.oldest_position()
    assert oldest is not None
    assert oldest.position == 200
