"""What a consumer makes of the success and the failures of a handler."""

from __future__ import annotations

import asyncio
import threading

import pytest
from change_messages import Maker
from fix_consumer import NotedClient, NotedTarget, written
from fix_server import PATIENCE_S

from canal_server.client.consume import Consumer, HandlerFailed
from canal_server.client.handlers import Rejected, RetryLater

pytestmark = pytest.mark.usefixtures("short_delays")


@pytest.fixture
def maker():
    """Give what makes messages."""
    return Maker()


# --- success ------------------------------------------------------------------------


def test_a_message_is_acked_after_its_flush(maker):
    """Each message is handled, flushed and acked, in this order."""
    client = NotedClient(maker.inserts(1, 1, 2), maker.inserts(2, 3))
    target = NotedTarget(flush=lambda ids: client.events.append(f"flush {ids}"))
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
    client = NotedClient(maker.inserts(1, 1, 2), maker.inserts(2, 3))
    Consumer(lambda change: seen.append(change.after["id"])).run(client)
    assert seen == [1, 2, 3]
    assert client.events == ["ack 1", "ack 2"]


def test_coroutine_functions(maker):
    """What they are is not left alone: each runs to its end, in one event loop."""
    client = NotedClient(maker.inserts(1, 1, 2), maker.inserts(2, 3))

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

    client = NotedClient(maker.inserts(1, 1, 2, 3))
    consumer = Consumer(lambda change: handle(change), dead_letters=letters)  # noqa: PLW0108
    consumer.run(client)
    assert set(calls) == {1, 2, 3}
    assert [each["after"]["id"] for each in written(tmp_path)] == [2]
    assert client.events == ["ack 1"]


def test_a_client_that_acks_by_itself(maker):
    """It is refused, as it would ack what the handler has not flushed."""
    client = NotedClient(maker.inserts(1, 1))
    client.ack_policy = "message"
    target = NotedTarget()
    with pytest.raises(ValueError, match="ack = 'message': expected \"manual\""):
        Consumer(target).run(client)
    assert target.calls == []


def test_a_handler_that_cannot_start(maker):
    """What the system says of a file or a network is the reason."""

    def fail():
        raise FileNotFoundError(2, "No such file or directory", "/none/changes.jsonl")

    target = NotedTarget()
    target.open = fail  # type: ignore[method-assign]
    with pytest.raises(HandlerFailed, match=r"cannot start: .*/none/changes\.jsonl"):
        Consumer(target).run(NotedClient(maker.inserts(1, 1)))


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

    client = NotedClient(maker.inserts(1, 1, 2), maker.inserts(2, 3))
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
    client = NotedClient(other.inserts(1, 7), maker.inserts(2, 1), other.inserts(3, 8))
    target = NotedTarget()
    Consumer(target, tables=["shop.orders"]).run(client)
    assert target.durable == [1]
    assert client.events == ["ack 1", "ack 2", "ack 3"]


def test_a_part_of_a_batch(maker):
    """A message without an id, which completes no batch, is handled and not acked."""
    client = NotedClient(maker.inserts(-1, 1), maker.inserts(4, 2))
    target = NotedTarget()
    Consumer(target).run(client)
    assert target.flushes == [[1], [2]]
    assert client.events == ["ack 4"]


def test_flushes_within_a_message(maker):
    """`flush_changes` limits how much a flush has; the ack is after the last one."""
    client = NotedClient(maker.inserts(1, 1, 2, 3, 4, 5))
    target = NotedTarget(flush=lambda ids: client.events.append(f"flush {ids}"))
    target.flush_changes = 2
    Consumer(target).run(client)
    assert client.events == ["flush [1, 2]", "flush [3, 4]", "flush [5]", "ack 1"]


def test_flushes_by_time(maker):
    """With `flush_s`, several messages are flushed and acked at once, when it is due.

    Also when nothing comes any more; at the end, whatever is left.
    """
    now = [100.0]
    client = NotedClient()
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
    target = NotedTarget(flush=lambda ids: client.events.append(f"flush {ids}"))
    target.flush_s = 10
    Consumer(target, clock=lambda: now[0]).run(client)
    assert client.events == ["flush [1, 2]", "ack 2", "flush [3]", "ack 3"]


def test_redelivery(maker):
    """What waits for a flush when its connection is lost is forgotten."""
    target = NotedTarget()
    target.flush_s = 1000
    consumer = Consumer(target)
    client = NotedClient()

    def messages(*, timeout_s, empty):
        yield maker.inserts(1, 1)
        yield maker.inserts(2, 2)
        consumer.forget()
        yield maker.inserts(1, 1)

    client.messages = messages  # type: ignore[method-assign]
    consumer.run(client)
    assert target.durable == [1]
    assert client.events == ["ack 1"]


# --- stopping -----------------------------------------------------------------------


def test_stop_after_the_message_at_hand(maker):
    """The message at hand is finished, flushed and acked, the next one is not."""
    client = NotedClient(maker.inserts(1, 1, 2), maker.inserts(2, 3))
    target = NotedTarget()
    consumer = Consumer(target)
    target.fails = lambda number: consumer.stop()
    consumer.run(client)
    assert target.durable == [1, 2]
    assert client.events == ["ack 1"]


def test_stop_before_the_run(maker):
    """A consumer that was stopped before has nothing to run."""
    client, target = NotedClient(maker.inserts(1, 1)), NotedTarget()
    consumer = Consumer(target)
    consumer.stop()
    consumer.run(client)
    assert (target.durable, client.events) == ([], [])


def test_stop_flushes_what_waits(maker):
    """Messages that wait for a flush by time are flushed and acked at the end."""
    client = NotedClient(maker.inserts(1, 1), maker.inserts(2, 2), maker.inserts(3, 3))
    target = NotedTarget()
    target.flush_s = 1000
    consumer = Consumer(target)
    target.fails = lambda number: consumer.stop() if number == 2 else None
    consumer.run(client)
    assert target.flushes == [[1, 2]]
    assert client.events == ["ack 2"]


def test_stop_while_the_target_is_unavailable(maker):
    """A wait before a repetition ends at once; the message is delivered again."""
    client = NotedClient(maker.inserts(1, 1))
    has_failed = threading.Event()

    def fails(_):
        has_failed.set()
        raise RetryLater("down", after_s=1000)

    target = NotedTarget(fails)
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
