"""The worker of a destination, with a broker that fails as the test says.

What is refused for good is in `test_refused_messages`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from fix_queue_worker import (
    DEADLINE_S,
    LIMITS,
    TOPIC,
    WHO,
    FailingBroker,
    acked,
    encode_to,
    move_cursor,
)
from fix_server import DESTINATION, FakeInstance, FakeInstances
from fix_store import eventually
from service_calls import put

from canal_server.delivery import queue_worker
from canal_server.errors import ClientError
from canal_server.model.identity import ClientIdentity
from canal_server.protocol import server_session
from canal_server.protocol.entry_messages import Entry
from canal_server.protocol.protobuf import decode
from canal_server.queues.producers.queue_producer import BrokerUnavailableError
from canal_server.server.service import Service

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from canal_server.delivery.queue_worker import QueueWorker
    from canal_server.queues.producers.queue_producer import Message, Sending


def test_all_arrives(
    instance: FakeInstance,
    start_worker: Callable[..., QueueWorker],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each entry once, in order; all is acked, and counted by topic.

    The log has one line, with what is sent where, and the position.
    """
    caplog.set_level("INFO", queue_worker.__name__)
    broker = FailingBroker()
    put(instance, *range(20))
    worker = start_worker(broker)
    put(instance, *range(20, 50))
    eventually(lambda: WHO.client_id in instance.store.cursors)
    eventually(lambda: acked(instance) == 50)
    assert broker.numbers() == list(range(50))
    status = worker.status()
    assert (status.state, status.in_flight, status.failures) == ("delivering", 0, 0)
    assert status.topics == {TOPIC: (50, 90)}
    begins = "destination example: delivery to a broker begins"
    assert [each for each in caplog.messages if "delivery" in each] == [
        f"{begins} where reading begins: canal-json, topic shop"
    ]


@pytest.mark.parametrize("is_few", [False, True])
def test_what_comes_last_is_pushed(
    instance: FakeInstance,
    start_worker: Callable[..., QueueWorker],
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_few: bool,
) -> None:
    """At once after a batch of a few, else when nothing follows; until it is there."""
    put(instance, *range(20))
    broker = FailingBroker()
    broker.per_poll = 0
    calls: list[str] = []
    try_send = broker.try_send

    def noted(message: Message, sending: Sending) -> bool:
        calls.append("send")
        return try_send(message, sending)

    monkeypatch.setattr(broker, "try_send", noted)
    monkeypatch.setattr(broker, "push", lambda: calls.append("push"))
    start_worker(broker, LIMITS._replace(few_bytes=10**6 if is_few else 1))
    eventually(lambda: calls[-3:] == ["push"] * 3)
    batch = ["send"] * 4
    expected = [*batch, "push"] * 5 if is_few else [*batch * 5, "push"]
    assert calls[: len(expected)] == expected
    assert "send" not in calls[len(expected) :]
    broker.per_poll = 1000
    eventually(lambda: acked(instance) == 20)


def test_a_message_that_waits_for_room(
    instance: FakeInstance,
    start_worker: Callable[..., QueueWorker],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is before it is pushed: it may wait for the answer to that."""
    put(instance, *range(4))
    broker = FailingBroker(room=1)
    poll, pushed = broker.poll, [0]

    def after_push(timeout_s: float) -> None:
        if pushed[0]:
            poll(timeout_s)
        pushed[0] = 0

    monkeypatch.setattr(broker, "poll", after_push)
    monkeypatch.setattr(broker, "push", lambda: pushed.__setitem__(0, 1))
    start_worker(broker)
    eventually(lambda: acked(instance) == 4)
    assert broker.numbers() == list(range(4))


@pytest.mark.parametrize("by_partition", [False, True])
@pytest.mark.parametrize("topics", [1, 3])
@pytest.mark.parametrize("room", [3, 1000])
def test_failures_at_random(
    instances: FakeInstances,
    start_worker: Callable[..., QueueWorker],
    rng: random.Random,
    room: int,
    topics: int,
    *,
    by_partition: bool,
) -> None:
    """Nothing is lost or acked early, and what comes again comes in order."""
    broker = FailingBroker(room)
    broker.per_poll = 2
    delivered: set[bytes] = set()
    early: list[int] = []

    def fails(topic: str, value: bytes) -> Exception | None:
        assert topic == f"{TOPIC}{int(value) % topics}"
        if rng.random() < 0.05:
            return BrokerUnavailableError("not now")
        delivered.add(value)
        return None

    broker.fails = fails
    current = instances.started[DESTINATION]
    put(current, *range(100))

    def watch(instance: FakeInstance) -> None:
        ack = instance.store.ack

        def checked(client_id: int, last_sequence: int) -> None:
            numbers = [str(each.logfile_offset).encode() for each in (
                decode(Entry, record[0][2:]).header
                for record in instance.store.records[: last_sequence + 1]
            )]  # fmt: skip
            early.extend(int(each) for each in numbers if each not in delivered)
            ack(client_id, last_sequence)

        instance.store.ack = checked  # type: ignore[method-assign]

    watch(current)
    start_worker(broker, LIMITS._replace(by_partition=by_partition), encode_to(topics))
    for restarts in range(1, 4):
        eventually(lambda: WHO.client_id in current.store.cursors)  # noqa: B023
        eventually(lambda: acked(current) > 10)  # noqa: B023
        # It ends, and another one begins with what was not acked, and more.
        del instances.started[DESTINATION]
        current.store.close()
        records = current.store.records[acked(current) :]
        numbers = [decode(Entry, each[0][2:]).header.logfile_offset for each in records]
        current = FakeInstance(DESTINATION)
        put(current, *numbers, *range(restarts * 100, restarts * 100 + 100))
        watch(current)
        instances.started[DESTINATION] = current
    eventually(lambda: WHO.client_id in current.store.cursors)
    eventually(lambda: acked(current) == len(current.store.records))
    assert early == []
    for number in range(topics):
        found = broker.numbers(f"{TOPIC}{number}")
        assert sorted(set(found)) == list(range(number, 400, topics))
        # Not before an earlier one, unless that failed; at the end all are in order.
        last_times = list(dict.fromkeys(reversed(found)))
        assert last_times == sorted(last_times, reverse=True)


def test_topics_beside_one_that_refuses(
    instance: FakeInstance, start_worker: Callable[..., QueueWorker]
) -> None:
    """They get each message once, whatever is tried again, and that is counted.

    All of it is acked when the other topic has taken its messages, once and in order.
    """
    broker = FailingBroker()

    def fails(topic: str, value: bytes) -> Exception | None:
        del value
        refuses = topic == f"{TOPIC}0"
        return BrokerUnavailableError("a policy forbids it") if refuses else None

    broker.fails = fails
    put(instance, *range(60))
    worker = start_worker(broker, LIMITS._replace(by_partition=True), encode_to(3))
    eventually(lambda: worker.status().failures > 3)
    status = worker.status()
    assert (status.batches, acked(instance)) == (0, 0)
    assert {name: count for name, (count, _) in status.topics.items()} == {
        f"{TOPIC}{number}": len(broker.numbers(f"{TOPIC}{number}")) for number in (1, 2)
    }
    assert broker.numbers(f"{TOPIC}1")
    broker.fails = lambda *_: None
    eventually(lambda: acked(instance) == 60)
    for number in range(3):
        assert broker.numbers(f"{TOPIC}{number}") == list(range(number, 60, 3))
        assert worker.status().topics[f"{TOPIC}{number}"][0] == 20


def test_the_cursor_is_moved_while_messages_are_refused(
    instance: FakeInstance,
    start_worker: Callable[..., QueueWorker],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was to be sent again is forgotten: only what is after the new position is.

    The cursor is moved when all was answered, before anything is sent again.
    """
    broker = FailingBroker()
    broker.fails = lambda *_: BrokerUnavailableError("not now")

    def move() -> None:
        broker.fails = lambda *_: None
        move_cursor(instance, 6)
        monkeypatch.setattr(broker, "renew", lambda: None)

    monkeypatch.setattr(broker, "renew", move)
    put(instance, *range(8))
    start_worker(broker, LIMITS._replace(by_partition=True))
    eventually(lambda: acked(instance) == 8)
    assert broker.numbers() == [6, 7]


def test_the_cursor_is_moved_while_answers_are_awaited(
    instance: FakeInstance, start_worker: Callable[..., QueueWorker]
) -> None:
    """A batch from the new position is sent again before what follows it.

    It is fetched while older batches are on their way, which are refused later.
    """
    broker = FailingBroker()
    broker.per_poll = 0
    put(instance, *range(8))
    worker = start_worker(broker, LIMITS._replace(by_partition=True))
    eventually(lambda: worker.status().in_flight == 8)
    move_cursor(instance, 8)
    put(instance, *range(8, 12))
    eventually(lambda: worker.status().in_flight == 12)

    def fails(topic: str, value: bytes) -> Exception | None:
        del topic
        return BrokerUnavailableError("not now") if int(value) < 4 else None

    broker.fails = fails
    broker.per_poll = 1000
    eventually(lambda: worker.status().failures > 0)
    put(instance, *range(12, 16))
    eventually(lambda: acked(instance) == 16)
    assert broker.numbers()[:8] == list(range(4, 12))
    assert broker.numbers()[8:] == list(range(8, 16))
    assert worker.status().failures == 1


def test_a_connection_that_takes_long(
    instance: FakeInstance,
    start_worker: Callable[..., QueueWorker],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Meanwhile the status says that the brokers are waited for."""
    broker, answers = FailingBroker(), threading.Event()
    monkeypatch.setattr(broker, "open", lambda: answers.wait(DEADLINE_S))
    put(instance, 1)
    worker = start_worker(broker)
    eventually(lambda: worker.status().reason == "for an answer of the brokers")
    assert worker.status().state == "waiting"
    answers.set()
    eventually(lambda: broker.numbers() == [1])
    eventually(lambda: _shown(worker) == ("delivering", ""))


def _shown(worker: QueueWorker) -> tuple[str, str]:
    return worker.status().state, worker.status().reason


def test_a_topic_that_is_missing(
    instance: FakeInstance,
    start_worker: Callable[..., QueueWorker],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It delays delivery, with the reason; nothing is sent twice."""
    caplog.set_level("INFO")
    broker = FailingBroker()
    broker.missing.add(TOPIC)
    put(instance, 1, 2)
    worker = start_worker(broker)
    eventually(lambda: worker.status().state == "blocked")
    eventually(lambda: worker.status().reason == f"topic {TOPIC} does not exist")
    broker.missing.clear()
    eventually(lambda: broker.numbers() == [1, 2])
    eventually(lambda: worker.status().state == "delivering")
    assert "destination example: delivery to a broker continues" in caplog.messages


def test_a_broker_that_confirms_nothing(
    instance: FakeInstance,
    start_worker: Callable[..., QueueWorker],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is said once, with the last error; a limited amount is on its way."""
    monkeypatch.setattr(queue_worker, "BLOCKED_AFTER_S", 0.05)
    broker = FailingBroker()
    broker.per_poll = 0
    broker.last_error = "Connection refused"
    put(instance, *range(1000, 1100))
    worker = start_worker(broker, LIMITS._replace(in_flight_bytes=40))
    eventually(lambda: worker.status().state == "blocked")
    assert worker.status().reason == "Connection refused"
    assert worker.status().in_flight_bytes == 48  # a batch of 4 more than 40
    broker.per_poll = 1000
    eventually(lambda: acked(instance) == 100)
    eventually(lambda: worker.status().state == "delivering")
    said = [each for each in caplog.messages if "confirms nothing" in each]
    assert len(said) == 1


def test_the_destination_ends_while_the_broker_is_away(
    instances: FakeInstances, start_worker: Callable[..., QueueWorker]
) -> None:
    """What waits is forgotten: another server may deliver it by now."""
    instance = instances.started[DESTINATION]
    broker = FailingBroker()
    broker.per_poll = 0
    put(instance, *range(100))
    worker = start_worker(broker, LIMITS._replace(in_flight_bytes=10))
    eventually(lambda: worker.status().in_flight > 0)
    assert worker.status().state == "delivering"
    del instances.started[DESTINATION]
    eventually(lambda: worker.status().state == "waiting")
    assert broker.abandoned > 0
    assert broker.waiting == []


def test_an_internal_error(
    instance: FakeInstance,
    start_worker: Callable[..., QueueWorker],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The status names its kind only: its text may have values of rows."""
    broken = [True]
    to_topics = encode_to(1)

    def encode(batch_id: int, body: bytes, now_ms: int) -> Sequence[Message]:
        if broken:
            b"s3cret \xff".decode()
        return to_topics(batch_id, body, now_ms)

    put(instance, 1)
    worker = start_worker(FailingBroker(), LIMITS, encode)
    reason = "internal error UnicodeDecodeError, see the log"
    eventually(lambda: _shown(worker) == ("blocked", reason))
    assert "UnicodeDecodeError" in caplog.text
    broken.clear()
    eventually(lambda: _shown(worker) == ("delivering", ""))


def test_its_client_id_is_taken(instances: FakeInstances) -> None:
    """A connection cannot use it; the refusal says what does."""
    service = Service(instances, {1001: "the delivery to kafka"})
    reply = service.answer(server_session.Subscribe(WHO), None, 0.0, {})
    text = b"".join(reply or ())
    assert b"client id 1001 is used by the delivery to kafka: use another one" in text
    other = ClientIdentity(DESTINATION, 1002)
    reply = service.answer(server_session.Subscribe(other), None, 0.0, {})
    assert b"is used by" not in b"".join(reply or ())
    with pytest.raises(ClientError, match="should subscribe first"):
        service.fetch(WHO, 1, 0.0)
