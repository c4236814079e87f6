"""What is refused for good: too large messages, schemas, and the notes for them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fix_queue_worker import (
    LIMITS,
    TOPIC,
    WHO,
    FailingBroker,
    acked,
    encode,
    encode_to,
    move_cursor,
)
from fix_server import DESTINATION, FakeInstance, FakeInstances
from fix_store import eventually
from service_calls import put

from canal_server.delivery import queue_worker
from canal_server.errors import ProtocolError
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.queues.producers.queue_producer import (
    BrokerUnavailableError,
    MessageRefusedError,
    SchemaRefusedError,
    Subject,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canal_server.delivery.queue_worker import QueueWorker
    from canal_server.queues.producers.queue_producer import Message

NOTES = "notes"


def six_is_refused(topic: str, value: bytes) -> Exception | None:
    """Return the error of a message that is too large."""
    return MessageRefusedError(topic, 9, "is too large") if value == b"6" else None


def test_a_change_of_which_no_message_can_be_made(
    instance: FakeInstance,
    start_worker: Callable[..., QueueWorker],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Tries do not repeat what the broker has confirmed, nor the log its first line.

    Batches before it are not acked meanwhile: one of their topics refuses messages.
    """
    caplog.set_level("INFO", queue_worker.__name__)
    broker, malformed, tried = FailingBroker(), [True], []
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
    worker = start_worker(broker, LIMITS._replace(by_partition=True), or_not)
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


def test_a_message_that_is_too_large(
    instances: FakeInstances,
    start_worker: Callable[..., QueueWorker],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Delivery stops, and nothing after it is acked, until the destination restarts.

    The key of the row is in the log, and not in the status.
    """
    instance = instances.started[DESTINATION]
    broker = FailingBroker()

    def fails(topic: str, value: bytes) -> Exception | None:
        about = Subject("table a.b", "k6")
        error = MessageRefusedError(topic, 9, "is too large", about)
        return error if value == b"6" else None

    broker.fails = fails
    put(instance, *range(4), *range(4, 10))
    worker = start_worker(broker)
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
    start_worker: Callable[..., QueueWorker],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Delivery stops, which is said once, and continues when it is accepted."""
    monkeypatch.setattr(queue_worker, "SCHEMA_RETRY_S", 0.01)
    broker, refused, asked = FailingBroker(), [True], []

    def or_not(batch_id: int, body: bytes, now_ms: int) -> list[Message]:
        found = encode(batch_id, body, now_ms)
        if refused and any(each[2] == b"5" for each in found):
            asked.append(batch_id)
            raise SchemaRefusedError("subject shop-value: not compatible")
        return found

    put(instance, *range(4), *range(4, 10))
    worker = start_worker(broker, LIMITS, or_not)
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
    instance: FakeInstance, start_worker: Callable[..., QueueWorker]
) -> None:
    """With a topic for notes, delivery continues; the note has the keys of rows."""
    message = {
        "data": [{"id": "1", "name": "x" * 5000}, {"id": None, "name": "y"}],
        "database": "shop", "table": "orders", "type": "INSERT", "pkNames": ["id"],
        "es": 5, "id": 3, "gtid": "", "isDdl": False,
    }  # fmt: skip
    large = json.dumps(message).encode()
    broker = FailingBroker()

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
    worker = start_worker(broker, LIMITS._replace(too_large_topic=NOTES), with_large)
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
    eventually(lambda: worker.status().too_large == 1)


def test_a_start_while_delivery_has_stopped(
    instance: FakeInstance,
    start_worker: Callable[..., QueueWorker],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An operator's retry sends the message again: refused, or from there on all.

    The status has the position up to which all is acked meanwhile.
    """
    broker = FailingBroker()
    broker.fails = six_is_refused
    put(instance, *range(10))
    worker = start_worker(broker)

    def refusals() -> int:
        return sum("delivery stopped" in each for each in caplog.messages)

    for number in (1, 2):
        eventually(lambda: refusals() == number)  # noqa: B023
        eventually(lambda: worker.status().state == "stopped")
        assert acked(instance) == 4
        if number == 1:
            worker.retry()
    broker.fails = lambda *_: None
    worker.retry()
    eventually(lambda: acked(instance) == 10)
    eventually(lambda: worker.status().state == "delivering")
    assert broker.numbers()[-4:] == [6, 7, 8, 9]
    assert worker.status().as_json()["position"] is None  # none is known here
    at = LogPosition(LogIdentity("db", 3306), EntryPosition("b.000001", 4))
    instance.meta.update_cursor(WHO, at)
    assert worker.status().as_json()["position"] == "b.000001:4"
    # Of a group, that would name no source.
    instance.meta.update_source_positions(WHO, {0: at, 1: at})
    assert worker.status().as_json()["position"] is None


@pytest.mark.parametrize("of_group", [False, True])
@pytest.mark.parametrize("by_partition", [False, True])
def test_a_move_while_delivery_has_stopped(
    instance: FakeInstance,
    start_worker: Callable[..., QueueWorker],
    caplog: pytest.LogCaptureFixture,
    *,
    by_partition: bool,
    of_group: bool,
) -> None:
    """Delivery continues from the position to which an operator moves the client.

    A move to the same position counts, and so does one of another source of a group.
    """
    caplog.set_level("INFO", queue_worker.__name__)
    broker = FailingBroker()

    def position() -> LogPosition:
        at = LogPosition(LogIdentity("db", 3306), EntryPosition("b.000001", 4))
        return replace(at, moved=True)

    broker.fails = six_is_refused
    put(instance, *range(10))
    instance.meta.update_cursor(WHO, position())
    if of_group:
        instance.meta.update_source_positions(WHO, {0: position(), 1: position()})
    worker = start_worker(broker, LIMITS._replace(by_partition=by_partition))
    eventually(lambda: worker.status().state == "stopped")
    before = len(broker.kept)
    move_cursor(instance, 7)
    if of_group:
        instance.meta.update_source_positions(WHO, {1: position()})
    else:
        instance.meta.update_cursor(WHO, position())
    eventually(lambda: acked(instance) == 10)
    eventually(lambda: worker.status().state == "delivering")
    assert broker.numbers()[before:] == [7, 8, 9]
    assert worker.status().reason == ""
    assert sum("delivery stopped" in each for each in caplog.messages) == 1
    assert sum("continues" in each for each in caplog.messages) == 1


@pytest.mark.parametrize("by_partition", [False, True])
def test_a_move_while_a_refusal_is_noticed(
    instance: FakeInstance,
    start_worker: Callable[..., QueueWorker],
    monkeypatch: pytest.MonkeyPatch,
    *,
    by_partition: bool,
) -> None:
    """A move that comes before the delivery has stopped counts, too."""
    broker = FailingBroker()

    def move() -> None:
        """Be called when the messages that were on their way are answered."""
        move_cursor(instance, 8)
        monkeypatch.setattr(broker, "renew", lambda: None)

    broker.fails = six_is_refused
    monkeypatch.setattr(broker, "renew", move)
    put(instance, *range(10))
    worker = start_worker(broker, LIMITS._replace(by_partition=by_partition))
    eventually(lambda: WHO.client_id in instance.store.cursors)
    eventually(lambda: acked(instance) == 10)
    assert broker.numbers()[-2:] == [8, 9]
    assert worker.status().failures == 1


def test_a_start_while_a_refusal_is_noticed(
    instance: FakeInstance,
    start_worker: Callable[..., QueueWorker],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A start that comes before the delivery has stopped has the message sent again."""
    broker = FailingBroker()

    def renew() -> None:
        """Be called when the messages that were on their way are answered."""
        broker.fails = lambda *_: None
        worker.retry()

    broker.fails = six_is_refused
    worker = start_worker(broker)
    monkeypatch.setattr(broker, "renew", renew)
    put(instance, *range(10))
    eventually(lambda: WHO.client_id in instance.store.cursors)
    eventually(lambda: acked(instance) == 10)
    assert broker.numbers()[-4:] == [6, 7, 8, 9]


def test_a_retry_that_takes_long(
    instance: FakeInstance, start_worker: Callable[..., QueueWorker]
) -> None:
    """The status says that the message is tried again, and why that is needed."""
    broker = FailingBroker()

    def fails(topic: str, value: bytes) -> Exception | None:
        return MessageRefusedError(topic, 9, "is too large") if value == b"1" else None

    broker.fails = fails
    put(instance, 1)
    worker = start_worker(broker)
    eventually(lambda: worker.status().state == "stopped")
    broker.per_poll = 0
    worker.retry()
    eventually(lambda: worker.status().in_flight == 1)
    assert worker.status().state == "blocked"
    assert worker.status().reason == (
        "it is tried again: topic shop: a message of 9 bytes is too large"
    )
    broker.fails = lambda *_: None
    broker.per_poll = 1000
    eventually(lambda: worker.status().state == "delivering")
