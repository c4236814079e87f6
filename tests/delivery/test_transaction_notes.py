"""Notes in transactions, in place of messages that are too large."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fix_store import eventually
from transactions_in_memory import LIMITS, TOPIC, WHO, encode, position_at

from canal_server.delivery import transaction_worker
from canal_server.delivery.stored_position import decoded
from canal_server.delivery.transaction_worker import Refused
from canal_server.queues.message_content import subject_of
from canal_server.queues.producers.queue_producer import (
    BrokerUnavailableError,
    MessageRefusedError,
)
from canal_server.runtime.lifecycle import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

    from transactions_in_memory import Broker, Source

    from canal_server.delivery.transaction_worker import TransactionWorker
    from canal_server.queues.message_form import Encode
    from canal_server.queues.producers.queue_producer import Message, Sending
    from canal_server.runtime.lifecycle import Stop

NOTES = "notes"
DEADLINE_S = 60.0


def as_json(batch_id: int, body: bytes, now_ms: int) -> list[Message]:
    """Return messages with names, of which notes can be made."""
    return [
        (topic, 0, json.dumps({"n": int(value or b"0")}).encode())
        for topic, _, value, *_ in encode(batch_id, body, now_ms)
    ]


def counted() -> Encode:
    """Return the same, with what changes when they are sent again, as the time does."""
    tries = 0

    def encode_try(batch_id: int, body: bytes, now_ms: int) -> list[Message]:
        nonlocal tries
        tries += 1
        return [
            (topic, 0, json.dumps({"n": number_of(value), "t": tries}).encode())
            for topic, _, value, *_ in as_json(batch_id, body, now_ms)
        ]

    return encode_try


def number_of(value: bytes | None) -> int | None:
    """Return the number in a message, None: it is a note."""
    found = json.loads(value or b"").get("n")
    return None if found is None else int(found)


def test_a_note_in_place_of_a_message(
    source: Source,
    broker: Broker,
    make: Callable[..., TransactionWorker],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The transaction that failed is sent again with it, and visible once.

    So it is counted and logged once, however often the transaction was sent.
    """
    large = (1, 2, 7)  # of the first and the third transaction

    def fails(value: bytes) -> Exception | None:
        is_large = number_of(value) in large
        return MessageRefusedError(TOPIC, 9, "is too large") if is_large else None

    broker.fails = fails
    for rows in (4, 1, 3):
        source.write(rows)
    worker = make(LIMITS._replace(too_large_topic=NOTES), counted())
    eventually(lambda: broker.stored and decoded(broker.stored) == position_at(10))
    found = [number_of(value) for _, value in broker.visible]
    assert found == [0, None, None, 3, 5, None, 8, 9]
    assert [topic == NOTES for topic, _ in broker.visible] == [
        each is None for each in found
    ]
    eventually(lambda: source.meta.cursor(WHO) == position_at(10))
    assert worker.status().too_large == 3
    assert sum("sent a note" in each for each in caplog.messages) == 3


def test_a_message_that_is_refused_late(
    source: Source,
    broker: Broker,
    make: Callable[..., TransactionWorker],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A producer may refuse what follows before it says why: then a note is sent, too.

    The log has the reason, not what the producer said of the messages after it.
    """
    send, abort = broker.try_send, broker.abort
    unanswered: list[tuple[Message, Sending]] = []

    def try_send(message: Message, sending: Sending) -> bool:
        if unanswered:
            raise BrokerUnavailableError("erroneous state")
        number = json.loads(message[2] or b"").get("n")
        if number == 3:  # larger than the producer's own limit
            raise MessageRefusedError(TOPIC, 9, "is too large")
        if number == 1:  # than the topic's
            sending.note(message[:2], 1)
            unanswered.append((message, sending))
            return True
        return send(message, sending)

    def answered(wait_s: float = 1.0, stop: Stop | None = None) -> bool:
        while unanswered:
            message, sending = unanswered.pop()
            sending.answered(message, MessageRefusedError(TOPIC, 9, "is too large"))
        return abort(wait_s, stop)

    monkeypatch.setattr(broker, "try_send", try_send)
    monkeypatch.setattr(broker, "abort", answered)
    source.write(5)
    worker = make(LIMITS._replace(too_large_topic=NOTES), as_json)
    eventually(lambda: source.meta.cursor(WHO) == position_at(5))
    found = [number_of(value) for _, value in broker.visible]
    assert found == [0, None, 2, None, 4]
    assert worker.status().too_large == 2
    assert "is too large; the transaction is sent again" in caplog.text
    assert "erroneous" not in caplog.text


def test_notes_in_a_transaction_that_is_larger_than_the_room(
    source: Source,
    broker: Broker,
    make: Callable[..., TransactionWorker],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are counted once it is committed, also those of parts that were freed.

    The producer refuses the messages itself, so that nothing is sent again.
    """
    send, outcomes = broker.try_send, ["later"]

    def try_send(message: Message, sending: Sending) -> bool:
        if json.loads(message[2] or b"").get("n") in (2, 60):
            raise MessageRefusedError(TOPIC, 9, "is too large")
        return send(message, sending)

    def outcome() -> str:
        asked.set()
        return outcomes[0]

    asked = threading.Event()
    monkeypatch.setattr(broker, "try_send", try_send)
    broker.outcome = outcome
    source.write(90)
    worker = make(LIMITS._replace(too_large_topic=NOTES), as_json)
    assert asked.wait(DEADLINE_S)
    assert worker.status().too_large == 0
    outcomes[0] = "done"
    eventually(lambda: len(broker.visible) == 90)
    assert sum(topic == NOTES for topic, _ in broker.visible) == 2
    eventually(lambda: source.meta.cursor(WHO) == position_at(90))
    assert worker.status().too_large == 2


@pytest.mark.parametrize("has_committed", [False, True])
def test_messages_that_are_refused_after_parts_were_freed(
    source: Source,
    broker: Broker,
    make: Callable[..., TransactionWorker],
    has_committed: bool,
) -> None:
    """The destination is read again, and what was refused is known then.

    Also before anything was committed, when the queue has no position yet.
    """

    def fails(value: bytes) -> Exception | None:
        is_large = number_of(value) in (4, 60, 80)
        return MessageRefusedError(TOPIC, 9, "is too large") if is_large else None

    broker.fails = fails
    if has_committed:
        source.write(2)
    worker = make(LIMITS._replace(too_large_topic=NOTES), counted())
    eventually(lambda: len(broker.visible) == len(source.rows))
    source.write(90)
    eventually(lambda: len(broker.visible) == len(source.rows))
    found = [number_of(value) for _, value in broker.visible]
    assert found == [None if each in {4, 60, 80} else each for each in source.rows]
    assert source.restarts > 0
    eventually(lambda: worker.status().too_large == 3)


def test_more_notes_than_are_remembered(
    source: Source,
    broker: Broker,
    make: Callable[..., TransactionWorker],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Delivery stops with the reason; it does not try for ever.

    It is tried again after a move, also one that was made while brokers answered.
    """
    monkeypatch.setattr(transaction_worker, "REFUSED_MAX", 1)
    abort, aborts = broker.abort, 0

    def aborted(wait_s: float = 1.0, stop: Stop | None = None) -> bool:
        nonlocal aborts
        aborts += 1
        if aborts == 2:
            source.meta.update_cursor(WHO, replace(position_at(7), moved=True))
        return abort(wait_s, stop)

    def fails(value: bytes) -> Exception | None:
        is_large = number_of(value) in {2, 4}
        return MessageRefusedError(TOPIC, 9, "is too large") if is_large else None

    broker.fails = fails
    monkeypatch.setattr(broker, "abort", aborted)
    source.write(7)
    source.write(2)
    worker = make(LIMITS._replace(too_large_topic=NOTES), as_json)
    eventually(lambda: caplog.text.count("delivery stopped") == 2)
    eventually(lambda: worker.status().state == "stopped")
    cursor = source.meta.cursor(WHO)
    assert cursor == position_at(7)
    assert not cursor.moved, "it was stored before anything was sent"
    assert not broker.visible


@pytest.mark.parametrize("topic", ["", NOTES])
def test_a_late_refusal_after_parts_were_freed(
    source: Source,
    broker: Broker,
    make: Callable[..., TransactionWorker],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    topic: str,
) -> None:
    """Delivery stops, without restarts, also if the producer refuses others first."""
    monkeypatch.setattr(transaction_worker, "REFUSED_MAX", 0)
    send, abort = broker.try_send, broker.abort
    unanswered: list[tuple[Message, Sending]] = []

    def try_send(message: Message, sending: Sending) -> bool:
        if unanswered:
            raise BrokerUnavailableError("erroneous state")
        if number_of(message[2]) == 60:
            sending.note(message[:2], 1)
            unanswered.append((message, sending))
            return True
        return send(message, sending)

    def answered(wait_s: float = 1.0, stop: Stop | None = None) -> bool:
        while unanswered:
            message, sending = unanswered.pop()
            sending.answered(message, MessageRefusedError(TOPIC, 9, "is too large"))
        return abort(wait_s, stop)

    monkeypatch.setattr(broker, "try_send", try_send)
    monkeypatch.setattr(broker, "abort", answered)
    source.write(90)
    worker = make(LIMITS._replace(too_large_topic=topic), as_json)
    eventually(lambda: worker.status().state == "stopped")
    assert "is too large" in worker.status().reason
    worker.request_stop()
    assert worker.join(Deadline(DEADLINE_S))
    assert source.restarts == 1, "it has stayed stopped"
    assert caplog.text.count("delivery stopped") == 1
    assert not broker.visible


def test_which_message_was_refused() -> None:
    """One that differs by its id and time is the same, one of another row is not."""

    def of_row(table: str, size: int, sent: int) -> bytes:
        row = {"database": "shop", "table": table, "id": sent, "data": ["x" * size]}
        return json.dumps(row).encode()

    error, value = MessageRefusedError(TOPIC, 9, "is too large"), of_row("a", 3000, 9)
    refused = Refused(error, TOPIC, 0, len(value), subject_of((TOPIC, 0, value)))
    assert refused.is_of((TOPIC, 0, of_row("a", 3000, 1234)))
    assert not refused.is_of((TOPIC, 0, of_row("a", 200, 9)))
    assert not refused.is_of((TOPIC, 0, of_row("b", 3000, 9)))
    assert not refused.is_of((TOPIC, 1, value))
    assert not refused.is_of(("another", 0, value))
