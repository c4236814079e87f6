"""What a consumer makes of the success and the failures of a handler."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from change_messages import Maker
from fix_server import PATIENCE_S

from canal_server.client.consume import Consumer, DeadLetters, HandlerFailed
from canal_server.client.consume import consumer as consumer_module
from canal_server.client.handlers import Rejected, RetryLater

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from canal_server.client import Message
    from canal_server.client.client_options import AckPolicy


@pytest.fixture(autouse=True)
def _short_delays(monkeypatch):
    """Delays are as in the product, but shorter."""
    monkeypatch.setattr(consumer_module, "_FIRST_DELAY_S", 0.001)
    monkeypatch.setattr(consumer_module, "_DELAY_MAX_S", 0.002)


@pytest.fixture
def letters(tmp_path):
    """Give a file for dead letters."""
    made = DeadLetters(tmp_path / "dead.jsonl")
    yield made
    made.close()


def written(tmp_path):
    """Return the dead letters."""
    text = (tmp_path / "dead.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


class Client:
    """Yields messages as a client does, and notes what is acked between them."""

    ack_policy: AckPolicy = "manual"

    def __init__(self, *messages) -> None:
        self.waiting = list(messages)
        self.events: list[object] = []
        self.is_stopped = False

    def messages(self, *, timeout_s: float | None, empty: bool) -> Iterator[Message]:
        """Yield the messages, until it is stopped."""
        for message in self.waiting:
            if self.is_stopped:
                return
            yield message

    def ack(self, message_id: int | None) -> None:
        """Take note."""
        self.events.append(f"ack {message_id}")

    def stop(self) -> None:
        """End the iteration."""
        self.is_stopped = True


class Target:
    """A handler with a transaction: what is flushed is durable, the rest can be lost.

    `fails` is called with each id before it is handled, `fails_to_flush` with the ids
    that a flush would make durable.
    """

    def __init__(self, fails=lambda number: None, flush=lambda ids: None) -> None:
        self.fails: Callable[[int], object] = fails
        self.fails_to_flush: Callable[[list[int]], object] = flush
        self.flush_changes = 0  # no limit
        self.flush_s = 0.0
        self.pending: list[int] = []
        self.durable: list[int] = []
        self.flushes: list[list[int]] = []
        self.calls: list[str] = []

    def open(self):
        """Take note."""
        self.calls.append("open")

    def handle(self, change):
        """Handle an insert."""
        self.fails(change.after["id"])
        self.pending.append(change.after["id"])

    def flush(self):
        """Make it durable."""
        self.fails_to_flush(self.pending)
        self.durable += self.pending
        self.flushes.append(self.pending)
        self.pending = []

    def rollback(self):
        """Forget it."""
        self.calls.append("rollback")
        self.pending = []

    def close(self):
        """Take note."""
        self.calls.append("close")


def fail_on(bad, error=ValueError):
    """Return a function that raises an error for some ids."""

    def check(number):
        if number in bad:
            raise error(f"no {number}")

    return check


def fail_times(times, error):
    """Return a function that raises an error so many times."""
    left = [times]

    def check(_):
        if left[0]:
            left[0] -= 1
            raise error

    return check


@pytest.fixture
def maker():
    """Give what makes messages."""
    return Maker()


# --- success ------------------------------------------------------------------------


def test_a_message_is_acked_after_its_flush(maker):
    """Each message is handled, flushed and acked, in this order."""
    client = Client(maker.inserts(1, 1, 2), maker.inserts(2, 3))
    target = Target(flush=lambda ids: client.events.append(f"flush {ids}"))
    consumer = Consumer(target)
    consumer.run(client)
    assert client.events == ["flush [1, 2]", "ack 1", "flush [3]", "ack 2"]
    assert target.calls == ["open", "close"]
    counters = consumer.counters
    assert (counters.changes, counters.messages, counters.flushes) == (3, 2, 2)
    assert counters.commit_time_ms == 1_700_000_000_000


def test_a_function(maker):
    """A function is a handler; there is nothing to flush."""
    seen = []
    client = Client(maker.inserts(1, 1, 2), maker.inserts(2, 3))
    Consumer(lambda change: seen.append(change.after["id"])).run(client)
    assert seen == [1, 2, 3]
    assert client.events == ["ack 1", "ack 2"]


def test_coroutine_functions(maker):
    """What they are is not left alone: each runs to its end, in one event loop."""
    client = Client(maker.inserts(1, 1, 2), maker.inserts(2, 3))

    class Handler:
        def __init__(self):
            self.loops, self.seen, self.calls = set(), [], []

        async def open(self):
            await self.note("open")

        async def handle(self, change):
            await self.note("handle")
            self.seen.append(change.after["id"])

        async def flush(self):
            await self.note(f"flush {len(self.seen)}")

        async def close(self):
            await self.note("close")

        async def note(self, call):
            await asyncio.sleep(0)
            self.loops.add(asyncio.get_running_loop())
            self.calls.append(call)

    handler = Handler()
    Consumer(handler).run(client)
    assert handler.seen == [1, 2, 3]
    assert handler.calls == [
        *("open", "handle", "handle", "flush 2", "handle", "flush 3", "close")
    ]
    assert len(handler.loops) == 1
    assert client.events == ["ack 1", "ack 2"]


def test_a_coroutine_that_fails(maker, letters, tmp_path):
    """Its error counts as that of a function, also if a function returned it."""
    calls = []

    async def handle(change):
        await asyncio.sleep(0)
        calls.append(change.after["id"])
        if calls[-1] == 2:
            raise Rejected("not this one")

    client = Client(maker.inserts(1, 1, 2, 3))
    consumer = Consumer(lambda change: handle(change), dead_letters=letters)  # noqa: PLW0108
    consumer.run(client)
    assert set(calls) == {1, 2, 3}
    assert [each["after"]["id"] for each in written(tmp_path)] == [2]
    assert client.events == ["ack 1"]


def test_a_client_that_acks_by_itself(maker):
    """It is refused, as it would ack what the handler has not flushed."""
    client = Client(maker.inserts(1, 1))
    client.ack_policy = "message"
    target = Target()
    with pytest.raises(ValueError, match="ack = 'message': expected \"manual\""):
        Consumer(target).run(client)
    assert target.calls == []


def test_a_handler_that_cannot_start(maker):
    """What the system says of a file or a network is the reason."""

    def fail():
        raise FileNotFoundError(2, "No such file or directory", "/none/changes.jsonl")

    target = Target()
    target.open = fail  # type: ignore[method-assign]
    with pytest.raises(HandlerFailed, match=r"cannot start: .*/none/changes\.jsonl"):
        Consumer(target).run(Client(maker.inserts(1, 1)))


def test_tables_of_whole_messages():
    """Tables cannot be selected where the handler receives messages."""

    class ByMessage:
        def handle_message(self, message):
            """Do nothing."""

    with pytest.raises(
        ValueError, match=r"receives whole messages.*the client's filter"
    ):
        Consumer(ByMessage(), tables=["shop.orders"])


def test_messages_as_they_are(maker):
    """A handler with `handle_message` is called with whole messages."""

    class ByMessage:
        def __init__(self):
            self.seen = []

        def handle_message(self, message):
            self.seen.append((message.id, message.rows))

    client = Client(maker.inserts(1, 1, 2), maker.inserts(2, 3))
    handler = ByMessage()
    Consumer(handler).run(client)
    assert handler.seen == [(1, 2), (2, 1)]
    assert client.events == ["ack 1", "ack 2"]


@pytest.mark.parametrize("handler", [3, "x", object()])
def test_no_handler(handler):
    """What can handle nothing is refused, with what it should be."""
    with pytest.raises(
        TypeError, match="not a handler: expected a function, or an obj"
    ):
        Consumer(handler)


def test_tables(maker):
    """Changes of other tables are left out, and their messages acked."""
    other = Maker("items")
    client = Client(other.inserts(1, 7), maker.inserts(2, 1), other.inserts(3, 8))
    target = Target()
    Consumer(target, tables=["shop.orders"]).run(client)
    assert target.durable == [1]
    assert client.events == ["ack 1", "ack 2", "ack 3"]


def test_a_part_of_a_batch(maker):
    """A message without an id, which completes no batch, is handled and not acked."""
    client = Client(maker.inserts(-1, 1), maker.inserts(4, 2))
    target = Target()
    Consumer(target).run(client)
    assert target.flushes == [[1], [2]]
    assert client.events == ["ack 4"]


def test_flushes_within_a_message(maker):
    """`flush_changes` limits how much a flush has; the ack is after the last one."""
    client = Client(maker.inserts(1, 1, 2, 3, 4, 5))
    target = Target(flush=lambda ids: client.events.append(f"flush {ids}"))
    target.flush_changes = 2
    Consumer(target).run(client)
    assert client.events == ["flush [1, 2]", "flush [3, 4]", "flush [5]", "ack 1"]


def test_flushes_by_time(maker):
    """With `flush_s`, several messages are flushed and acked at once, when it is due.

    Also when nothing comes any more; at the end, whatever is left.
    """
    now = [100.0]
    client = Client()
    nothing = maker.message(-1)
    nothing = type(nothing).of_entries(-1, ())

    def messages(*, timeout_s, empty):
        assert empty
        for step, message in (
            (0, maker.inserts(1, 1)), (5, maker.inserts(2, 2)), (4, nothing),
            (1, nothing), (20, nothing), (0, maker.inserts(3, 3)),
        ):  # fmt: skip
            now[0] += step
            yield message

    client.messages = messages  # type: ignore[method-assign]
    target = Target(flush=lambda ids: client.events.append(f"flush {ids}"))
    target.flush_s = 10
    Consumer(target, clock=lambda: now[0]).run(client)
    assert client.events == ["flush [1, 2]", "ack 2", "flush [3]", "ack 3"]


def test_redelivery(maker):
    """What waits for a flush when its connection is lost is forgotten."""
    target = Target()
    target.flush_s = 1000
    consumer = Consumer(target)
    client = Client()

    def messages(*, timeout_s, empty):
        yield maker.inserts(1, 1)
        yield maker.inserts(2, 2)
        consumer.forget()
        yield maker.inserts(1, 1)

    client.messages = messages  # type: ignore[method-assign]
    consumer.run(client)
    assert target.durable == [1]
    assert client.events == ["ack 1"]


# --- failures -----------------------------------------------------------------------


@pytest.mark.parametrize("where", ["fails", "fails_to_flush"])
def test_the_target_is_unavailable(maker, where):
    """RetryLater is repeated as often as it takes; nothing is lost or out of order."""
    target = Target()
    setattr(target, where, fail_times(50, RetryLater("down")))
    consumer = Consumer(target, retries=0)
    client = Client(maker.inserts(1, 1, 2), maker.inserts(2, 3))
    consumer.run(client)
    assert target.durable == [1, 2, 3]
    assert consumer.counters.retries == 50
    assert client.events == ["ack 1", "ack 2"]


def test_the_target_says_when(maker, monkeypatch):
    """The wait is at least as long as the target asks for."""
    asked = []
    monkeypatch.setattr(
        Consumer, "_pause", lambda self, delay_s, error: asked.append(delay_s)
    )
    target = Target(fail_times(1, RetryLater("busy", after_s=17)))
    Consumer(target).run(Client(maker.inserts(1, 1)))
    assert asked == [17]


def test_the_target_stays_unavailable(maker):
    """With a limit of time, the consumer fails, and nothing is acked."""
    client = Client(maker.inserts(1, 1))
    target = Target(fail_on({1}, RetryLater))
    with pytest.raises(HandlerFailed, match=r"unavailable for 0.01 s: no 1"):
        Consumer(target, retry_for_s=0.01).run(client)
    assert client.events == []
    assert target.calls[-1] == "close"


def test_the_target_is_unavailable_at_first(maker):
    """`open` is repeated, too."""
    target = Target()
    fails = fail_times(3, RetryLater("starting"))

    def open_():
        fails(0)
        target.calls.append("open")

    target.open = open_  # type: ignore[method-assign]
    Consumer(target).run(Client(maker.inserts(1, 1)))
    assert target.calls == ["open", "close"]
    assert target.durable == [1]


@pytest.mark.parametrize("where", ["fails", "fails_to_flush"])
def test_a_passing_error(maker, letters, tmp_path, where):
    """Another error is repeated `retries` times; when it passes, nothing is lost."""
    target = Target()
    setattr(target, where, fail_times(4, OSError("reset")))
    consumer = Consumer(target, retries=4, dead_letters=letters)
    consumer.run(Client(maker.inserts(1, 1)))
    assert target.durable == [1]
    assert consumer.counters.retries == 4
    assert written(tmp_path) == []


@pytest.mark.parametrize("by_flush", [False, True])
@pytest.mark.parametrize("error", [ValueError, Rejected])
@pytest.mark.parametrize("bad", [{1}, {4}, {7}, {2, 3}, {1, 2, 3, 4, 5, 6, 7}])
def test_dead_letters(maker, letters, by_flush, error, bad):
    """Just what fails is a dead letter, also if only a flush shows that.

    Everything else is durable, in its order.
    """
    check = fail_on(bad, error)

    def check_flush(ids):
        for number in ids:
            check(number)

    target = Target(flush=check_flush) if by_flush else Target(check)
    consumer = Consumer(target, retries=2, dead_letters=letters)
    client = Client(maker.inserts(1, 1, 2, 3, 4, 5), maker.inserts(2, 6, 7))
    consumer.run(client)
    assert target.durable == [n for n in range(1, 8) if n not in bad]
    assert [each["after"]["id"] for each in written(letters.path.parent)] == sorted(bad)
    assert client.events == ["ack 1", "ack 2"]
    assert consumer.counters.changes == 7
    assert consumer.counters.dead_letters == len(bad)
    attempts = {each["attempts"] for each in written(letters.path.parent)}
    assert attempts == {1 if error is Rejected else 3}


def test_what_a_dead_letter_says(maker, letters, tmp_path):
    """It has the change as it was received, its position, the error and the time."""

    def handle(change):
        change.after.clear()
        raise KeyError("name")

    entry = maker.update({"id": 1, "name": "a"}, {"id": 1, "name": "b"})
    client = Client(maker.message(1, entry))
    Consumer(handle, retries=1, dead_letters=letters).run(client)
    (letter,) = written(tmp_path)
    assert re.match(r"20\d\d-\d\d-\d\dT[\d:.]+\+00:00", letter.pop("failed_at"))
    assert letter == {
        "schema": "shop",
        "table": "orders",
        "kind": "update",
        "key": {"id": 1},
        "before": {"id": 1, "name": "a"},
        "after": {"id": 1, "name": "b"},
        "file": "binlog.000001",
        "position": 110,
        "gtid": "",
        "commit_time": "2023-11-14T22:13:20+00:00",
        "error": {"type": "KeyError", "message": "'name'"},
        "attempts": 2,
    }


def test_a_message_as_a_dead_letter(maker, letters, tmp_path):
    """Of a handler of messages, all changes of the message are dead letters."""

    class ByMessage:
        def handle_message(self, message):
            if message.id == 1:
                raise Rejected("no")

    client = Client(maker.inserts(1, 1, 2), maker.inserts(2, 3))
    consumer = Consumer(ByMessage(), dead_letters=letters)
    consumer.run(client)
    assert [each["after"]["id"] for each in written(tmp_path)] == [1, 2]
    assert consumer.counters.dead_letters == 2
    assert client.events == ["ack 1", "ack 2"]


@pytest.mark.parametrize("bad", [1, 3])
def test_without_dead_letters(maker, bad):
    """The consumer fails, and names the change; what was before it is durable."""
    client = Client(maker.inserts(1, 1, 2, 3), maker.inserts(2, 4))
    target = Target(fail_on({bad}))
    with pytest.raises(HandlerFailed) as caught:
        Consumer(target, retries=1).run(client)
    text = str(caught.value)
    assert f"<insert shop.orders {{'id': {bad}}} at binlog.000001:" in text
    assert f"ValueError: no {bad}" in text
    assert "--dead-letter" in text
    assert target.durable == list(range(1, bad))
    assert client.events == []
    assert target.calls[-1] == "close"


def test_values_that_a_handler_altered(maker):
    """A repetition is called with the values as they were received."""
    seen = []

    def handle(change):
        seen.append(change.after.pop("secret"))
        if len(seen) < 3:
            raise ValueError("again")

    entry = maker.insert({"id": 1, "secret": "x"})
    Consumer(handle).run(Client(maker.message(1, entry)))
    assert seen == ["x"] * 3


def test_a_failure_within_a_message(maker):
    """What was flushed before the failure is not handled again."""
    fail = fail_times(1, OSError("reset"))
    target = Target(lambda number: fail(number) if number == 4 else None)
    target.flush_changes = 2
    handled: Counter[int] = Counter()
    handle = target.handle

    def counted(change):
        handled[change.after["id"]] += 1
        handle(change)

    target.handle = counted  # type: ignore[method-assign]
    Consumer(target).run(Client(maker.inserts(1, 1, 2, 3, 4, 5)))
    assert target.durable == [1, 2, 3, 4, 5]
    assert handled[1] == handled[2] == handled[5] == 1


# --- stopping -----------------------------------------------------------------------


def test_stop_after_the_message_at_hand(maker):
    """The message at hand is finished, flushed and acked, the next one is not."""
    client = Client(maker.inserts(1, 1, 2), maker.inserts(2, 3))
    target = Target()
    consumer = Consumer(target)
    target.fails = lambda number: consumer.stop()
    consumer.run(client)
    assert target.durable == [1, 2]
    assert client.events == ["ack 1"]


def test_stop_before_the_run(maker):
    """A consumer that was stopped before has nothing to run."""
    client, target = Client(maker.inserts(1, 1)), Target()
    consumer = Consumer(target)
    consumer.stop()
    consumer.run(client)
    assert (target.durable, client.events) == ([], [])


def test_stop_flushes_what_waits(maker):
    """Messages that wait for a flush by time are flushed and acked at the end."""
    client = Client(maker.inserts(1, 1), maker.inserts(2, 2), maker.inserts(3, 3))
    target = Target()
    target.flush_s = 1000
    consumer = Consumer(target)
    target.fails = lambda number: consumer.stop() if number == 2 else None
    consumer.run(client)
    assert target.flushes == [[1, 2]]
    assert client.events == ["ack 2"]


def test_stop_while_the_target_is_unavailable(maker):
    """A wait before a repetition ends at once; the message is delivered again."""
    client = Client(maker.inserts(1, 1))
    has_failed = threading.Event()

    def fails(_):
        has_failed.set()
        raise RetryLater("down", after_s=1000)

    target = Target(fails)
    consumer = Consumer(target)
    thread = threading.Thread(target=consumer.run, args=(client,))
    thread.start()
    assert has_failed.wait(PATIENCE_S)
    consumer.stop()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert client.events == []
    assert target.durable == []
    assert target.calls[-1] == "close"


# --- anything at random -------------------------------------------------------------


def test_random_failures(maker, letters, tmp_path, rng):
    """Whatever fails when, each change is once durable or once a dead letter, in order.

    Acks are never ahead of what is durable.
    """
    bad = {number for number in range(300) if rng.random() < 0.03}
    sizes = []
    left = list(range(300))
    while left:
        size = rng.randint(1, 20)
        sizes.append(left[:size])
        del left[:size]

    def sometimes(number):
        if number in bad:
            raise rng.choice((ValueError, Rejected))("bad")
        if rng.random() < 0.02:
            raise rng.choice((OSError, RetryLater))("passing")

    def sometimes_flush(ids):
        sometimes(-1)

    target = Target(sometimes, sometimes_flush)
    target.flush_changes = rng.choice((1, 3, 1000))
    target.flush_s = rng.choice((0, 1000))
    client = Client(*(maker.inserts(i, *ids) for i, ids in enumerate(sizes, 1)))

    def ack(message_id):
        done = {*target.durable, *(each["after"]["id"] for each in written(tmp_path))}
        assert done >= {n for ids in sizes[:message_id] for n in ids}
        client.events.append(message_id)

    client.ack = ack  # type: ignore[method-assign]
    Consumer(target, retries=50, dead_letters=letters).run(client)
    assert target.durable == [n for n in range(300) if n not in bad]
    assert [each["after"]["id"] for each in written(tmp_path)] == sorted(bad)
    assert client.events[-1] == len(sizes)
