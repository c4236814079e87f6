"""The newest part of a stream: what it holds and drops, and its waiters."""

from __future__ import annotations

import socket
import threading

import pytest
from fix_blocks import BEGIN, END, ENTRY_BYTES, ROWS, Entries
from fix_source_access import PATIENCE_S
from fix_store import in_thread

from canal_server.model.positions import EntryPosition
from canal_server.ranges import recent_records
from canal_server.ranges.recent_records import SPAN_BYTES, Tail
from canal_server.store.wakeup import WakeUp

END_BYTES = 30  # of an event that ends a transaction, see Entries


def later_than(numbers):
    """Return the boundary after a transaction."""
    return 1, 100 * numbers[-1] + END_BYTES


@pytest.fixture
def entries():
    """Make entries, four to a block."""
    return Entries(records_per_block=4)


@pytest.fixture
def tail():
    """Yield one that is on and has room for some spans."""
    made = Tail(4 * (SPAN_BYTES + 4 * ENTRY_BYTES))
    made.enable(on=True)
    return made


def note(tail, entries, rows=2, transactions=1):
    """Record transactions; return the boundaries after them."""
    found = [later_than(entries.transaction(rows)) for _ in range(transactions)]
    tail.note(entries.take())
    return found


def count(spans):
    """Return how many records spans have."""
    return sum(stop - first for _, first, stop in spans)


def test_nothing_is_kept_unless_it_is_on(entries):
    """A destination without ranged subscriptions stores nothing."""
    tail = Tail(1 << 20)
    note(tail, entries)
    assert tail.held_bytes() == 0
    assert tail.spans_from((1, 1)) is None
    tail.enable(on=True)
    note(tail, entries)
    assert tail.held_bytes() > 0
    tail.enable(on=False)
    assert tail.held_bytes() == 0


def test_holds_what_follows_its_first_boundary(tail, entries):
    """What arrived before the first boundary that it saw may be missing in it."""
    first, second = note(tail, entries, transactions=2)
    assert tail.spans_from((1, 0)) is None
    assert count(tail.spans_from(first)) >= 4
    assert tail.spans_from(first, second) is not None
    assert tail.spans_from(first, (1, second[1] + 1)) is None
    assert tail.spans_from((1, second[1] + 1)) is None
    assert tail.latest() == ("bin.000001", second[1], entries.time)


def test_a_known_beginning(tail, entries):
    """After a reset with a position everything later is known to follow it."""
    note(tail, entries)
    tail.reset((1, 1000))
    assert tail.resets == 1
    assert tail.spans_from((1, 1001)) is None  # the source may have more
    tail.idle()
    assert tail.spans_from((1, 1001)) == []
    assert tail.spans_from((1, 1000)) is None


def test_an_end_after_the_last_boundary(tail, entries):
    """It holds everything after that position, and nobody is woken twice."""
    first, _ = note(tail, entries, transactions=2)
    end = EntryPosition("bin.000002", 400, 1_700_000_000_000)
    tail.idle(end)
    assert tail.latest() == ("bin.000002", 400, 1_700_000_000)
    changes = tail.changes
    tail.idle(EntryPosition("bin.000002", 400, 1_700_000_000_000))
    assert tail.changes == changes
    assert count(tail.spans_from(first, end.order())) > 0
    assert tail.spans_from(end.order(), end.order()) is not None
    assert tail.spans_from(end.order(), (2, 401)) is None
    tail.idle(EntryPosition("bin.000001", 1))  # of no use
    assert tail.latest()[:2] == ("bin.000002", 400)


def test_an_end_before_the_first_record(tail):
    """What follows it will be held, and what was before it is not."""
    tail.idle(EntryPosition("bin.000002", 400))
    assert tail.spans_from((2, 400)) == []
    assert tail.spans_from((2, 399)) is None
    tail.reset(None)
    assert tail.latest() is None


def test_the_set_of_a_boundary(tail, entries):
    """The set is that of the entry ending there; elsewhere there is none."""
    entries.add(BEGIN)
    entries.add(ROWS)
    last = entries.add(END, gtid="a:1-7")
    (position,) = [later_than([last])]
    tail.note(entries.take())
    (other,) = note(tail, entries)
    assert tail.gtids_at(position) == "a:1-7"
    assert tail.gtids_at(other) == ""
    for wrong in ((1, position[1] + 1), (1, 4), (2, position[1]), (0, position[1])):
        assert tail.gtids_at(wrong) is None


def test_the_oldest_is_dropped_first(tail, entries):
    """Above the limit the oldest spans are dropped, with all that begins in them."""
    positions = note(tail, entries, transactions=20)
    assert tail.held_bytes() <= 4 * (SPAN_BYTES + 4 * ENTRY_BYTES)
    held = [position for position in positions if tail.spans_from(position) is not None]
    assert 1 < len(held) < 20
    assert held == positions[-len(held) :]
    for position in held:
        spans = tail.spans_from(position)
        block, first, _ = spans[0]
        assert block.record(first)["offset"] <= position[1] + 100


def test_inside_of_a_large_transaction_nothing_is_held(tail, entries):
    """Where only a part of a transaction is left, reading cannot start."""
    (position,) = note(tail, entries)
    entries.add(BEGIN)
    for _ in range(40):
        entries.add(ROWS)
    tail.note(entries.take())
    assert tail.spans_from(position) is None
    (after,) = note(tail, entries)
    assert tail.spans_from(after) is not None


def test_neighbours_become_one_span(entries):
    """Small chunks of one block use the room of one span."""
    tail = Tail(1 << 20)
    tail.enable(on=True)
    entries = Entries()
    positions = [note(tail, entries, rows=1)[0] for _ in range(10)]
    assert tail.held_bytes() == SPAN_BYTES + 30 * ENTRY_BYTES
    assert len(tail.spans_from(positions[0]) or ()) == 1


def test_waiting_ends_with_news(tail, entries):
    """New records wake waiters, and so do the end of the source and a stop."""
    for change in (lambda: note(tail, entries), tail.idle, tail.wake):
        seen = tail.changes
        waiting = in_thread(tail.wait, seen, PATIENCE_S, None)
        change()
        assert waiting.result(PATIENCE_S)
        assert tail.changes != seen
    assert tail.wait(tail.changes - 1, PATIENCE_S, None)
    assert tail.wait(tail.changes, 0.001, None)


class Watched(WakeUp):
    """A wake-up that shows that it sleeps, and that it was woken."""

    sleeps = threading.Event()
    wakes = 0

    def wake(self) -> None:
        """Count a wake-up."""
        type(self).wakes += 1
        super().wake()

    def sleep(self, seconds: float | None) -> bool:
        """Sleep, and show it."""
        self.sleeps.set()
        return super().sleep(seconds)


def test_waiting_ends_when_the_client_disconnects(tail, monkeypatch):
    """A client that closes its socket is distinguished from news, and gets none."""
    monkeypatch.setattr(recent_records, "WakeUp", Watched)
    monkeypatch.setattr(Watched, "sleeps", threading.Event())
    ours, theirs = socket.socketpair()
    with ours:
        waiting = in_thread(tail.wait, tail.changes, PATIENCE_S, ours.fileno())
        assert Watched.sleeps.wait(PATIENCE_S)
        theirs.close()
        assert not waiting.result(PATIENCE_S)
    tail.wake()
    assert not Watched.wakes
