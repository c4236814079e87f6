"""What a consumer makes of the failures of a handler."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from change_messages import Maker
from fix_consumer import NotedClient, NotedTarget, fail_on, fail_times, written

from canal_server.client.consume import Consumer, HandlerFailed
from canal_server.client.handlers import Rejected, RetryLater

pytestmark = pytest.mark.usefixtures("short_delays")


@pytest.fixture
def maker():
    """Give what makes messages."""
    return Maker()


@pytest.mark.parametrize("where", ["fails", "fails_to_flush"])
def test_the_target_is_unavailable(maker, where):
    """RetryLater is repeated as often as it takes; nothing is lost or out of order."""
    target = NotedTarget()
    setattr(target, where, fail_times(50, RetryLater("down")))
    consumer = Consumer(target, retries=0)
    client = NotedClient(maker.inserts(1, 1, 2), maker.inserts(2, 3))
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
    target = NotedTarget(fail_times(1, RetryLater("busy", after_s=17)))
    Consumer(target).run(NotedClient(maker.inserts(1, 1)))
    assert asked == [17]


def test_the_target_stays_unavailable(maker):
    """With a limit of time, the consumer fails, and nothing is acked."""
    client = NotedClient(maker.inserts(1, 1))
    target = NotedTarget(fail_on({1}, RetryLater))
    with pytest.raises(HandlerFailed, match=r"unavailable for 0.01 s: no 1"):
        Consumer(target, retry_for_s=0.01).run(client)
    assert client.events == []
    assert target.calls[-1] == "close"


def test_the_target_is_unavailable_at_first(maker):
    """`open` is repeated, too."""
    target = NotedTarget()
    fails = fail_times(3, RetryLater("starting"))

    def open_():
        fails(0)
        target.calls.append("open")

    target.open = open_  # type: ignore[method-assign]
    Consumer(target).run(NotedClient(maker.inserts(1, 1)))
    assert target.calls == ["open", "close"]
    assert target.durable == [1]


@pytest.mark.parametrize("where", ["fails", "fails_to_flush"])
def test_a_passing_error(maker, letters, tmp_path, where):
    """Another error is repeated `retries` times; when it passes, nothing is lost."""
    target = NotedTarget()
    setattr(target, where, fail_times(4, OSError("reset")))
    consumer = Consumer(target, retries=4, dead_letters=letters)
    consumer.run(NotedClient(maker.inserts(1, 1)))
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

    target = NotedTarget(flush=check_flush) if by_flush else NotedTarget(check)
    consumer = Consumer(target, retries=2, dead_letters=letters)
    client = NotedClient(maker.inserts(1, 1, 2, 3, 4, 5), maker.inserts(2, 6, 7))
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
    client = NotedClient(maker.message(1, entry))
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

    client = NotedClient(maker.inserts(1, 1, 2), maker.inserts(2, 3))
    consumer = Consumer(ByMessage(), dead_letters=letters)
    consumer.run(client)
    assert [each["after"]["id"] for each in written(tmp_path)] == [1, 2]
    assert consumer.counters.dead_letters == 2
    assert client.events == ["ack 1", "ack 2"]


@pytest.mark.parametrize("bad", [1, 3])
def test_without_dead_letters(maker, bad):
    """The consumer fails, and names the change; what was before it is durable."""
    client = NotedClient(maker.inserts(1, 1, 2, 3), maker.inserts(2, 4))
    target = NotedTarget(fail_on({bad}))
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
    Consumer(handle).run(NotedClient(maker.message(1, entry)))
    assert seen == ["x"] * 3


def test_a_failure_within_a_message(maker):
    """What was flushed before the failure is not handled again."""
    fail = fail_times(1, OSError("reset"))
    target = NotedTarget(lambda number: fail(number) if number == 4 else None)
    target.flush_changes = 2
    handled: Counter[int] = Counter()
    handle = target.handle

    def counted(change):
        handled[change.after["id"]] += 1
        handle(change)

    target.handle = counted  # type: ignore[method-assign]
    Consumer(target).run(NotedClient(maker.inserts(1, 1, 2, 3, 4, 5)))
    assert target.durable == [1, 2, 3, 4, 5]
    assert handled[1] == handled[2] == handled[5] == 1


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

    target = NotedTarget(sometimes, sometimes_flush)
    target.flush_changes = rng.choice((1, 3, 1000))
    target.flush_s = rng.choice((0, 1000))
    client = NotedClient(*(maker.inserts(i, *ids) for i, ids in enumerate(sizes, 1)))

    def ack(message_id):
        done = {*target.durable, *(each["after"]["id"] for each in written(tmp_path))}
        assert done >= {n for ids in sizes[:message_id] for n in ids}
        client.events.append(message_id)

    client.ack = ack  # type: ignore[method-assign]
    Consumer(target, retries=50, dead_letters=letters).run(client)
    assert target.durable == [n for n in range(300) if n not in bad]
    assert [each["after"]["id"] for each in written(tmp_path)] == sorted(bad)
    assert client.events[-1] == len(sizes)
