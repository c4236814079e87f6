"""Several sources merged into one stream: whose turn it is, and for how long."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from fix_blocks import BEGIN, END, ROWS, Entries
from fix_store import eventually

from canal_server.pipeline.source_merge import Merge

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from fix_blocks import Span

    from canal_server.pipeline.source_merge import Lane

LONG_S = 30.0  # what does not come until then, never comes


class Stored:
    """Replaces the store: keeps the source, kind and time of each record."""

    def __init__(self) -> None:
        self.records: list[tuple[str, int, int]] = []
        self.room = threading.Event()
        self.room.set()

    def accept_of(self, name: str) -> Callable[[list[Span]], bool]:
        """Return what takes the spans of one source."""

        def accept(spans: list[Span]) -> bool:
            assert self.room.wait(LONG_S)
            for block, first, stop in spans:
                for i in range(first, stop):
                    record = block.record(i)
                    self.records.append((name, record["kind"], record["time"]))
            return True

        return accept

    def ends(self) -> list[tuple[str, int]]:
        """Return the transactions that ended: whose, and when."""
        return [(name, at) for name, kind, at in self.records if kind == END]

    def names(self) -> str:
        """Return whose transactions ended, a letter each."""
        return "".join(name for name, _ in self.ends())


class Merging:
    """A merge whose lanes have a letter, and threads that deliver to them."""

    def __init__(self, **times: float) -> None:
        self.stored = Stored()
        self.idled = 0
        self.merge = Merge(on_idle=self._idle, **{"patience_s": LONG_S, **times})
        self.lanes: dict[str, Lane] = {}
        self.accepts: dict[Lane, Callable[[list[Span]], bool]] = {}
        self._threads: list[threading.Thread] = []
        self.errors: list[BaseException] = []

    def _idle(self) -> None:
        self.idled += 1

    def lane(self, name: str) -> Lane:
        """Return a lane, made when it is asked for first, with a session and idle."""
        if name not in self.lanes:
            self.new_lane(name)
            self.lanes[name].begin()
            self.lanes[name].idle()
        return self.lanes[name]

    def new_lane(self, name: str) -> None:
        """Make a lane that nobody has used so far."""
        self.lanes[name] = self.merge.lane()
        self.accepts[self.lanes[name]] = self.stored.accept_of(name)

    def put(self, lane: Lane, spans: list[Span]) -> bool:
        """Put spans into the store, in as many turns as it takes; false: stopped."""
        while spans:
            part, spans = lane.put(spans, self.accepts[lane])
            if not part:
                return False
        return True

    def start(self, body: Callable[[], object]) -> threading.Thread:
        """Run something on a thread of its own."""

        def run() -> None:
            try:
                body()
            except BaseException as error:  # noqa: BLE001  # for the test's own thread
                self.errors.append(error)

        thread = threading.Thread(target=run)
        self._threads.append(thread)
        thread.start()
        return thread

    def deliver(self, name: str, *times: int) -> threading.Thread:
        """Deliver a transaction for each of these times, on a thread of its own.

        Then there is nothing more to read.
        """
        lane = self.lane(name)
        spans = transactions(*times)

        def run() -> None:
            self.put(lane, spans)
            lane.idle()

        return self.start(run)

    def waits(self, name: str) -> Callable[[], bool]:
        """Return a function that returns whether a lane waits for its turn."""
        return lambda: self.lane(name).first is not None

    def close(self) -> None:
        """End all threads; what they raised is raised here."""
        self.stored.room.set()
        for lane in self.lanes.values():
            lane.close()
        for thread in self._threads:
            thread.join(LONG_S)
            assert not thread.is_alive()
        assert self.errors == []


def transactions(*times: int, rows: int = 1) -> list[Span]:
    """Return transactions of these times."""
    entries = Entries(records_per_block=7)
    for at in times:
        entries.time = at
        entries.transaction(rows)
    return entries.take()


def part(*kinds: int, at: int = 1) -> list[Span]:
    """Return records of these kinds."""
    entries = Entries()
    for kind in kinds:
        entries.add(kind, time=at)
    return entries.take()


@pytest.fixture
def make_merging() -> Iterator[Callable[..., Merging]]:
    """Give `make(patience_s=…, grace_s=…)`; its threads end with the test."""
    made: list[Merging] = []

    def make(**times: float) -> Merging:
        made.append(Merging(**times))
        return made[-1]

    yield make
    for merging in made:
        merging.close()


def test_by_time(make_merging):
    """What was committed first is put first; equal ones take turns."""
    merging = make_merging()
    merging.lane("a")
    merging.lane("b").begin()  # reads: it is waited for
    merging.deliver("a", 1, 2, 4, 4, 6)
    eventually(merging.waits("a"))
    assert merging.stored.records == []
    merging.deliver("b", 1, 3, 4, 5, 7).join(LONG_S)
    assert [at for _, at in merging.stored.ends()] == [1, 1, 2, 3, 4, 4, 4, 5, 6, 7]
    # A turn goes up to the other's time: at 4 the second one had it.
    assert merging.stored.names() == "ababbaabab"


def test_idle_source_is_not_waited_for(make_merging):
    """When other lanes have nothing to read, everything is put at once."""
    merging = make_merging()
    merging.lane("b")
    assert merging.put(merging.lane("a"), transactions(5, 9))
    waiting = merging.deliver("b", 10, 11)
    # The first one may have more to read until it says otherwise.
    eventually(merging.waits("b"))
    merging.lane("a").idle()
    waiting.join(LONG_S)
    assert merging.stored.names() == "aabb"


def test_what_is_no_younger_does_not_wait(make_merging):
    """What another reads is no older than its last: up to there nobody waits for it."""
    merging = make_merging()
    merging.lane("b")
    assert merging.put(merging.lane("a"), transactions(5, 9))  # and reads on
    waiting = merging.deliver("b", 8, 9, 10, 11)
    eventually(lambda: merging.stored.names() == "aabb")
    eventually(merging.waits("b"))
    merging.deliver("a", 10).join(LONG_S)
    waiting.join(LONG_S)
    assert [at for _, at in merging.stored.ends()] == [5, 9, 8, 9, 10, 10, 11]


def test_source_that_reads_for_long(make_merging):
    """One that was waited for in vain is waited for no more, until it delivers."""
    merging = make_merging(patience_s=0.2)
    merging.lane("b").begin()
    merging.deliver("a", 5).join(LONG_S)
    merging.deliver("a", 6).join(LONG_S)
    assert merging.stored.names() == "aa"
    merging.deliver("b", 1).join(LONG_S)
    assert merging.stored.names() == "aab"


def test_source_that_goes_is_not_waited_for(make_merging):
    """The end of a session lets those pass that wait for it."""
    merging = make_merging()
    merging.lane("b").begin()
    merging.deliver("a", 5)
    eventually(merging.waits("a"))
    merging.lane("b").end()
    eventually(lambda: merging.stored.names() == "a")


def test_at_the_start_all_are_waited_for(make_merging):
    """A lane that was never used counts as one that is about to deliver."""
    merging = make_merging()
    merging.new_lane("b")
    merging.deliver("a", 5)
    eventually(merging.waits("a"))
    merging.deliver("b", 4)
    eventually(lambda: merging.stored.names() == "ba")


def test_transaction_in_parts(make_merging):
    """Nobody gets between its parts, however early the others' are."""
    merging = make_merging()
    lane = merging.lane("a")
    assert merging.put(lane, part(BEGIN, ROWS, at=9))
    lane.idle()
    merging.deliver("b", 1)
    eventually(merging.waits("b"))
    assert merging.put(lane, part(ROWS, ROWS, at=9))
    assert merging.put(lane, part(ROWS, END, at=9))
    lane.idle()
    eventually(lambda: merging.stored.names() == "ab")
    kinds = [(name, kind) for name, kind, _ in merging.stored.records]
    assert kinds[:6] == [("a", kind) for kind in (BEGIN, ROWS, ROWS, ROWS, ROWS, END)]


def test_link_lost_in_a_transaction(make_merging):
    """Its turn is kept for a while; when it is back in time, it continues."""
    merging = make_merging(grace_s=LONG_S)
    lane = merging.lane("a")
    assert merging.put(lane, part(BEGIN, ROWS))
    lane.end()
    merging.deliver("b", 1)
    eventually(merging.waits("b"))
    assert lane.begin() is False
    assert merging.put(lane, part(ROWS, END))
    lane.idle()
    eventually(lambda: merging.stored.names() == "ab")


def test_link_lost_for_long_in_a_transaction(make_merging):
    """Then others continue, and the transaction has to come from its beginning."""
    merging = make_merging(grace_s=0.1)
    lane = merging.lane("a")
    assert merging.put(lane, part(BEGIN, ROWS))
    lane.end()
    merging.deliver("b", 1).join(LONG_S)
    assert merging.stored.names() == "b"
    assert lane.begin() is True
    assert merging.put(lane, part(BEGIN, ROWS, END))
    assert merging.stored.names() == "ba"
    lane.end()
    assert lane.begin() is False


def test_transaction_that_does_not_go_on(make_merging):
    """A lane that drops its open transaction gives its turn back at once."""
    merging = make_merging()
    lane = merging.lane("a")
    assert merging.put(lane, part(BEGIN, ROWS))
    lane.idle()
    merging.deliver("b", 1)
    eventually(merging.waits("b"))
    lane.forget_open()
    eventually(lambda: merging.stored.names() == "b")


def test_store_that_fails(make_merging):
    """Others continue, and what was delivered in part comes from its beginning."""
    merging = make_merging()

    def refuse(spans: list[Span]) -> bool:
        raise OverflowError(len(spans))

    lane = merging.merge.lane()
    merging.accepts[lane] = refuse
    with pytest.raises(OverflowError):
        merging.put(lane, part(BEGIN, ROWS))
    lane.end()
    merging.deliver("b", 1).join(LONG_S)
    assert merging.stored.names() == "b"
    assert lane.begin() is True


def test_closed_while_it_waits(make_merging):
    """A closed lane delivers nothing more; its thread ends, others continue."""
    merging = make_merging()
    merging.lane("a").begin()
    waiting = merging.deliver("b", 1)
    eventually(merging.waits("b"))
    merging.lane("b").close()
    waiting.join(LONG_S)
    merging.deliver("a", 2).join(LONG_S)
    assert merging.stored.names() == "a"
    assert merging.put(merging.lane("b"), transactions(1)) is False


def test_full_store(make_merging):
    """While one waits for room, the others wait for their turns."""
    merging = make_merging()
    merging.stored.room.clear()
    merging.deliver("a", 1)
    eventually(lambda: merging.lane("a").first is None)
    merging.deliver("b", 1)
    eventually(merging.waits("b"))
    assert merging.stored.records == []
    merging.stored.room.set()
    eventually(lambda: merging.stored.names() == "ab")


def test_idle_is_reported_when_all_are(make_merging):
    """`on_idle` is called only when no source has anything to read."""
    merging = make_merging()
    merging.lane("a").begin()
    before = merging.idled
    merging.lane("b").idle()
    assert merging.idled == before
    merging.lane("a").idle()
    assert merging.idled == before + 1


@pytest.mark.parametrize("count", [2, 3, 5])
def test_random(make_merging, rng: random.Random, count: int):
    """Transactions are whole and in their source's order, whatever comes when.

    And in the order of time, as long as all of them have entries.
    """
    merging = make_merging()
    names = "abcde"[:count]
    written = {
        name: sorted(rng.randrange(200) for _ in range(rng.randrange(1, 120)))
        for name in names
    }
    for name in names:
        merging.lane(name).begin()

    def run(name: str, seed: float) -> None:
        chance = type(rng)(seed)
        lane, rest = merging.lane(name), written[name]
        while rest:
            size = chance.randrange(1, 20)
            spans = transactions(*rest[:size], rows=chance.randrange(3))
            rest = rest[size:]
            for piece in pieces(spans, chance):
                assert merging.put(lane, piece)
            if chance.random() < 0.1:
                time.sleep(0)
        lane.idle()

    seeds = {name: rng.random() for name in names}
    threads = [
        merging.start(lambda name=name: run(name, seeds[name])) for name in names
    ]
    for thread in threads:
        thread.join(LONG_S)
    assert merging.errors == []
    for name in names:
        mine = [at for owner, at in merging.stored.ends() if owner == name]
        assert mine == written[name]
    inside = None
    for name, kind, _ in merging.stored.records:
        assert inside in (None, name)
        inside = None if kind == END else name
    times = [at for _, at in merging.stored.ends()]
    assert times == sorted(times)


def pieces(spans: list[Span], chance: random.Random) -> Iterator[list[Span]]:
    """Yield the records of spans in a few parts, split anywhere."""
    for block, first, stop in spans:
        at = first
        while at < stop:
            to = min(stop, at + chance.randrange(1, 9))
            yield [(block, at, to)]
            at = to
