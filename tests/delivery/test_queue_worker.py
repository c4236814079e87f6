"""The worker of a destination, with a broker that fails as the test says."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pytest
from fix_server import DESTINATION, FakeInstance, FakeInstances
from fix_store import eventually
from service_calls import put

from canal_server.delivery import queue_worker
from canal_server.delivery.queue_worker import QueueWorker, WorkerLimits
from canal_server.errors import ClientError, ProtocolError
from canal_server.model.identity import ClientIdentity
from canal_server.protocol import server_session
from canal_server.protocol.entry_messages import Entry
from canal_server.protocol.packets import Messages
from canal_server.protocol.protobuf import decode
from canal_server.queues.producers.queue_producer import (
    BrokerUnavailableError,
    MessageRefusedError,
    SchemaRefusedError,
    Sending,
    Subject,
    size_of,
)
from canal_server.runtime.lifecycle import Deadline
from canal_server.server.local_client import LocalClient
from canal_server.server.service import Service

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from canal_server.queues.message_form import Encode
    from canal_server.queues.producers.queue_producer import Message

WHO = ClientIdentity(DESTINATION, 1001)
TOPIC, NOTES = "shop", "notes"
LIMITS = WorkerLimits(4, 100, "")
DEADLINE_S = 30.0


class Broker:
    """A broker and the producer for it: keeps messages, confirms some at each poll.

    `fails(topic, value)` returns what becomes of a message: an error, or None.
    """

    def __init__(self, room: int = 1000) -> None:
        self.room = room
        self.kept: list[tuple[str, bytes]] = []
        self.fails: Callable[[str, bytes], Exception | None] = lambda *_: None
        self.missing: set[str] = set()  # topics
        self.per_poll = 1000  # messages that a poll confirms
        self.waiting: list[tuple[Message, Sending]] = []
        self.last_error = ""
        self.confirmed = 0
        self.abandoned = 0

    def open(self) -> None:
        """Do nothing."""

    def prepare(self, messages: Iterable[Message]) -> None:
        """Refuse missing topics."""
        for topic, *_ in messages:
            if topic in self.missing:
                raise BrokerUnavailableError(f"topic {topic} does not exist")

    def try_send(self, message: Message, sending: Sending) -> bool:
        """Keep a message if there is room."""
        if len(self.waiting) >= self.room:
            return False
        sending.note(message[:2], size_of(message))
        self.waiting.append((message, sending))
        return True

    def push(self) -> None:
        """Do nothing: nothing waits for more."""

    def poll(self, timeout_s: float) -> None:
        """Answer the first messages."""
        del timeout_s
        for _ in range(min(self.per_poll, len(self.waiting))):
            message, sending = self.waiting.pop(0)
            topic, _, value = message[:3]
            assert value is not None
            error = self.fails(topic, value)
            if error is None:
                self.kept.append((topic, value))
                self.confirmed += 1
            sending.answered(message, error)  # type: ignore[arg-type]

    def renew(self) -> None:
        """Do nothing: it fails for a while only."""

    def abandon(self, wait_s: float) -> None:
        """Forget what waits."""
        del wait_s
        self.abandoned += len(self.waiting)
        self.waiting.clear()

    def close(self, wait_s: float) -> None:
        """Forget what waits."""
        self.abandon(wait_s)

    def numbers(self, topic: str = TOPIC) -> list[int]:
        """Return the numbers of the entries that arrived."""
        return [int(value) for name, value in self.kept if name == topic]


def encode(batch_id: int, body: bytes, now_ms: int) -> list[Message]:
    """Return a message for each entry, with its number."""
    del batch_id, now_ms
    return [
        (TOPIC, 0, str(decode(Entry, each).header.logfile_offset).encode())
        for each in decode(Messages, body).messages
    ]


def encode_to(topics: int) -> Encode:
    """Return what deals entries to so many topics in turn."""

    def deal(batch_id: int, body: bytes, now_ms: int) -> list[Message]:
        values = [each[2] or b"" for each in encode(batch_id, body, now_ms)]
        return [(f"{TOPIC}{int(each) % topics}", 0, each) for each in values]

    return deal


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for little."""
    for name in ("ABSENT_S", "IDLE_FETCH_S", "POLL_S"):
        monkeypatch.setattr(queue_worker, name, 0.005)
    monkeypatch.setattr(queue_worker, "RETRY_MAX_S", 0.51)


@pytest.fixture
def make(instances: FakeInstances) -> Iterator[Callable[..., QueueWorker]]:
    """Give a function that starts a worker, which is stopped after the test."""
    made: list[QueueWorker] = []

    def start(
        broker: Broker, limits: WorkerLimits = LIMITS, encoder: Encode = encode
    ) -> QueueWorker:
        client = LocalClient(Service(instances), instances, WHO)
        what = f"canal-json, topic {TOPIC}"
        worker = QueueWorker(
            client, "a broker", lambda: broker, encoder, limits, what=what
        )
        made.append(worker)
        worker.start()
        return worker

    yield start
    for each in made:
        each.request_stop()
        assert each.join(Deadline(DEADLINE_S))


def acked(instance: FakeInstance) -> int:
    """Return how many entries were acked."""
    return instance.store.cursors[WHO.client_id].acked


def test_all_arrives(
    instance: FakeInstance,
    make: Callable[..., QueueWorker],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each entry once, in order; all is acked, and counted by topic.

    The log has one line, with what is sent where, and the position.
    """
    caplog.set_level("INFO", queue_worker.__name__)
    broker = Broker()
    put(instance, *range(20))
    worker = make(broker)
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
    make: Callable[..., QueueWorker],
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_few: bool,
) -> None:
    """At once after a batch of a few, else when nothing follows; until it is there."""
    put(instance, *range(20))
    broker = Broker()
    broker.per_poll = 0
    calls: list[str] = []
    try_send = broker.try_send

    def noted(message: Message, sending: Sending) -> bool:
        calls.append("send")
        return try_send(message, sending)

    monkeypatch.setattr(broker, "try_send", noted)
    monkeypatch.setattr(broker, "push", lambda: calls.append("push"))
    make(broker, LIMITS._replace(few_bytes=10**6 if is_few else 1))
    eventually(lambda: calls[-3:] == ["push"] * 3)
    batch = ["send"] * 4
    expected = [*batch, "push"] * 5 if is_few else [*batch * 5, "push"]
    assert calls[: len(expected)] == expected
    assert "send" not in calls[len(expected) :]
    broker.per_poll = 1000
    eventually(lambda: acked(instance) == 20)


def test_a_message_that_waits_for_room(
    instance: FakeInstance,
    make: Callable[..., QueueWorker],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is before it is pushed: it may wait for the answer to that."""
    put(instance, *range(4))
    broker = Broker(room=1)
    poll, pushed = broker.poll, [0]

    def after_push(timeout_s: float) -> None:
        if pushed[0]:
            poll(timeout_s)
        pushed[0] = 0

    monkeypatch.setattr(broker, "poll", after_push)
    monkeypatch.setattr(broker, "push", lambda: pushed.__setitem__(0, 1))
    make(broker)
    eventually(lambda: acked(instance) == 4)
    assert broker.numbers() == list(range(4))


@pytest.mark.parametrize("by_partition", [False, True])
@pytest.mark.parametrize("topics", [1, 3])
@pytest.mark.parametrize("room", [3, 1000])
def test_failures_at_random(
    instances: FakeInstances,
    make: Callable[..., QueueWorker],
    rng: random.Random,
    room: int,
    topics: int,
    *,
    by_partition: bool,
) -> None:
    """Nothing is lost or acked early, and what comes again comes in order."""
    broker = Broker(room)
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
    make(broker, LIMITS._replace(by_partition=by_partition), encode_to(topics))
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
    instance: FakeInstance, make: Callable[..., QueueWorker]
) -> None:
    """They get each message once, whatever is tried again, and that is counted.

    All of it is acked when the other topic has taken its messages, once and in order.
    """
    broker = Broker()

    def fails(topic: str, value: bytes) -> Exception | None:
        del value
        refuses = topic == f"{TOPIC}0"
        return BrokerUnavailableError("a policy forbids it") if refuses else None

    broker.fails = fails
    put(instance, *range(60))
    worker = make(broker, LIMITS._replace(by_partition=True), encode_to(3))
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


def test_a_change_of_which_no_message_can_be_made(
    instance: FakeInstance,
    make: Callable[..., QueueWorker],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Tries do not repeat what the broker has confirmed, nor the log its first line.

    Batches before it are not acked meanwhile: one of their topics refuses messages.
    """
    caplog.set_level("INFO", queue_worker.__name__)
    broker, malformed, tried = Broker(), [True], []
    deal = encode_to(3)

    def fails(topic: str, value: bytes) -> Exception | None:
        del value
        refuses = topic == f"{TOPIC}0"
        return BrokerUnavailableError("a policy forbids it") if refuses else None

    def or_not(batch_id: int, body: bytes, now_ms: int) -> Sequence[Message]:
        found = deal(batch_id, body, now_ms)
        if malformed and any(each[2] == b"5" for each in found):
            tried.append(batch_id)
            raise ProtocolError("malformed entry in a batch")
        return found

    broker.fails = fails
    put(instance, *range(8))
    worker = make(broker, LIMITS._replace(by_partition=True), or_not)
    eventually(lambda: len(tried) > 3)
    assert worker.status().reason == "malformed entry in a batch"
    assert acked(instance) == 0
    assert broker.numbers(f"{TOPIC}1") == [1]
    assert broker.numbers(f"{TOPIC}2") == [2]
    broker.fails = lambda *_: None
    malformed.clear()
    eventually(lambda: acked(instance) == 8)
    for number in range(3):
        assert broker.numbers(f"{TOPIC}{number}") == list(range(number, 8, 3))
    assert sum("begins" in each for each in caplog.messages) == 1


def move_cursor(instance: FakeInstance, to: int) -> None:
    """Move the cursor of the delivery to an entry, as an operator does."""
    with instance.moving:
        instance.meta.clear_batches(WHO)
        with instance.store.lock:
            cursor = instance.store.cursors[WHO.client_id]
            cursor.got = cursor.acked = to


def test_the_cursor_is_moved_while_messages_are_refused(
    instance: FakeInstance,
    make: Callable[..., QueueWorker],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was to be sent again is forgotten: only what is after the new position is.

    The cursor is moved when all was answered, before anything is sent again.
    """
    broker = Broker()
    broker.fails = lambda *_: BrokerUnavailableError("not now")

    def move() -> None:
        broker.fails = lambda *_: None
        move_cursor(instance, 6)
        monkeypatch.setattr(broker, "renew", lambda: None)

    monkeypatch.setattr(broker, "renew", move)
    put(instance, *range(8))
    make(broker, LIMITS._replace(by_partition=True))
    eventually(lambda: acked(instance) == 8)
    assert broker.numbers() == [6, 7]


def test_the_cursor_is_moved_while_answers_are_awaited(
    instance: FakeInstance, make: Callable[..., QueueWorker]
) -> None:
    """A batch from the new position is sent again before what follows it.

    It is fetched while older batches are on their way, which are refused later.
    """
    broker = Broker()
    broker.per_poll = 0
    put(instance, *range(8))
    worker = make(broker, LIMITS._replace(by_partition=True))
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
    make: Callable[..., QueueWorker],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Meanwhile the status says that the brokers are waited for."""
    broker, answers = Broker(), threading.Event()
    monkeypatch.setattr(broker, "open", lambda: answers.wait(DEADLINE_S))
    put(instance, 1)
    worker = make(broker)
    eventually(lambda: worker.status().reason == "for an answer of the brokers")
    assert worker.status().state == "waiting"
    answers.set()
    eventually(lambda: broker.numbers() == [1])
    eventually(lambda: _shown(worker) == ("delivering", ""))


def _shown(worker: QueueWorker) -> tuple[str, str]:
    return worker.status().state, worker.status().reason


def test_a_topic_that_is_missing(
    instance: FakeInstance,
    make: Callable[..., QueueWorker],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It delays delivery, with the reason; nothing is sent twice."""
    caplog.set_level("INFO")
    broker = Broker()
    broker.missing.add(TOPIC)
    put(instance, 1, 2)
    worker = make(broker)
    eventually(lambda: worker.status().state == "blocked")
    eventually(lambda: worker.status().reason == f"topic {TOPIC} does not exist")
    broker.missing.clear()
    eventually(lambda: broker.numbers() == [1, 2])
    eventually(lambda: worker.status().state == "delivering")
    assert "destination example: delivery to a broker continues" in caplog.messages


def test_a_message_that_is_too_large(
    instances: FakeInstances,
    make: Callable[..., QueueWorker],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Delivery stops, and nothing after it is acked, until the destination restarts.

    The key of the row is in the log, and not in the status.
    """
    instance = instances.started[DESTINATION]
    broker = Broker()

    def fails(topic: str, value: bytes) -> Exception | None:
        about = Subject("table a.b", "k6")
        error = MessageRefusedError(topic, 9, "is too large", about)
        return error if value == b"6" else None

    broker.fails = fails
    put(instance, *range(4), *range(4, 10))
    worker = make(broker)
    eventually(lambda: worker.status().state == "stopped")
    shown = "topic shop: a message of 9 bytes (table a.b) is too large"
    assert worker.status().reason == shown
    assert any(f"{shown}; the row has the key k6" in each for each in caplog.messages)
    assert acked(instance) == 4
    broker.fails = lambda *_: None
    before = list(broker.numbers())
    del instances.started[DESTINATION]
    instance.store.close()
    again = FakeInstance(DESTINATION)
    put(again, *range(4, 10))
    instances.started[DESTINATION] = again
    eventually(lambda: WHO.client_id in again.store.cursors)
    eventually(lambda: acked(again) == 6)
    assert broker.numbers()[len(before) :] == list(range(4, 10))
    assert worker.status().state == "delivering"


def test_a_schema_that_is_refused(
    instance: FakeInstance,
    make: Callable[..., QueueWorker],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Delivery stops, which is said once, and continues when it is accepted."""
    monkeypatch.setattr(queue_worker, "SCHEMA_RETRY_S", 0.01)
    broker, refused, asked = Broker(), [True], []

    def or_not(batch_id: int, body: bytes, now_ms: int) -> list[Message]:
        found = encode(batch_id, body, now_ms)
        if refused and any(each[2] == b"5" for each in found):
            asked.append(batch_id)
            raise SchemaRefusedError("subject shop-value: not compatible")
        return found

    put(instance, *range(4), *range(4, 10))
    worker = make(broker, LIMITS, or_not)
    eventually(lambda: len(asked) > 3)
    assert worker.status().state == "stopped"
    assert worker.status().reason == "subject shop-value: not compatible"
    assert acked(instance) <= 4
    assert sum("the registry refuses a schema" in each for each in caplog.messages) == 1
    refused.clear()
    eventually(lambda: acked(instance) == 10)
    eventually(lambda: worker.status().state == "delivering")
    assert [each for each in broker.numbers() if each > 3] == list(range(4, 10))


def test_a_note_in_place_of_a_message(
    instance: FakeInstance, make: Callable[..., QueueWorker]
) -> None:
    """With a topic for notes, delivery continues; the note has the keys of rows."""
    message = {
        "data": [{"id": "1", "name": "x" * 5000}, {"id": None, "name": "y"}],
        "database": "shop", "table": "orders", "type": "INSERT", "pkNames": ["id"],
        "es": 5, "id": 3, "gtid": "", "isDdl": False,
    }  # fmt: skip
    large = json.dumps(message).encode()
    broker = Broker()

    def fails(topic: str, value: bytes) -> Exception | None:
        refused = topic == TOPIC and value == large
        return (
            MessageRefusedError(topic, len(value), "is too large") if refused else None
        )

    broker.fails = fails

    def with_large(batch_id: int, body: bytes, now_ms: int) -> list[Message]:
        found = encode(batch_id, body, now_ms)
        return [(TOPIC, 2, large) if each[2] == b"2" else each for each in found]

    put(instance, *range(4))
    worker = make(broker, LIMITS._replace(too_large_topic=NOTES), with_large)
    eventually(lambda: WHO.client_id in instance.store.cursors)
    eventually(lambda: acked(instance) == 4)
    assert broker.numbers() == [0, 1, 3]
    (note,) = (json.loads(value) for topic, value in broker.kept if topic == NOTES)
    assert note.pop("reason").endswith("is too large")
    assert note == {
        "topic": TOPIC, "partition": 2, "bytes": len(large), "database": "shop",
        "table": "orders", "type": "INSERT", "es": 5, "gtid": "", "id": 3,
        "isDdl": False, "pkNames": ["id"], "rows": 2,
        "keys": [{"id": "1"}, {"id": None}],
    }  # fmt: skip
    assert worker.status().too_large == 1


def test_a_broker_that_confirms_nothing(
    instance: FakeInstance,
    make: Callable[..., QueueWorker],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is said once, with the last error; a limited amount is on its way."""
    monkeypatch.setattr(queue_worker, "BLOCKED_AFTER_S", 0.05)
    broker = Broker()
    broker.per_poll = 0
    broker.last_error = "Connection refused"
    put(instance, *range(1000, 1100))
    worker = make(broker, LIMITS._replace(in_flight_bytes=40))
    eventually(lambda: worker.status().state == "blocked")
    assert worker.status().reason == "Connection refused"
    assert worker.status().in_flight_bytes == 48  # a batch of 4 more than 40
    broker.per_poll = 1000
    eventually(lambda: acked(instance) == 100)
    eventually(lambda: worker.status().state == "delivering")
    said = [each for each in caplog.messages if "confirms nothing" in each]
    assert len(said) == 1


def test_the_destination_ends_while_the_broker_is_away(
    instances: FakeInstances, make: Callable[..., QueueWorker]
) -> None:
    """What waits is forgotten: another server may deliver it by now."""
    instance = instances.started[DESTINATION]
    broker = Broker()
    broker.per_poll = 0
    put(instance, *range(100))
    worker = make(broker, LIMITS._replace(in_flight_bytes=10))
    eventually(lambda: worker.status().in_flight > 0)
    assert worker.status().state == "delivering"
    del instances.started[DESTINATION]
    eventually(lambda: worker.status().state == "waiting")
    assert broker.abandoned > 0
    assert broker.waiting == []


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
