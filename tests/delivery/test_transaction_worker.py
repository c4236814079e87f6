"""The worker with transactions, with a broker that fails as the test says."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fix_random import longer
from fix_server import DESTINATION, FakeInstances, make_entry
from fix_store import eventually
from transactions_in_memory import TOPIC, WHO, Broker, Source

from canal_server.delivery import queue_worker, transaction_worker
from canal_server.delivery.delivery_status import State
from canal_server.delivery.queue_worker import WorkerLimits
from canal_server.delivery.stored_position import (
    decoded,
    encoded,
    is_newer,
)
from canal_server.delivery.transaction_worker import (
    Refused,
    RoomInRing,
    TransactionWorker,
)
from canal_server.errors import CanalError
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.protocol.entry_messages import Entry, EntryType
from canal_server.protocol.packets import Messages
from canal_server.protocol.protobuf import decode
from canal_server.queues.message_content import subject_of
from canal_server.queues.producers.queue_producer import (
    BrokerUnavailableError,
    MessageRefusedError,
    SchemaRefusedError,
)
from canal_server.runtime.lifecycle import Deadline
from canal_server.server.local_client import LocalClient
from canal_server.server.service import Service

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from canal_server.queues.message_form import Encode
    from canal_server.queues.producers.queue_producer import Message, Sending

NOTES = "notes"
LIMITS = WorkerLimits(4, 10_000, "")
ROOM = RoomInRing(100_000, 20)
DEADLINE_S = 60.0
MYSQL = LogIdentity("db", 3306)
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def encode(batch_id: int, body: bytes, now_ms: int) -> list[Message]:
    """Return a message for each row, with its number."""
    del batch_id, now_ms
    entries = [decode(Entry, each) for each in decode(Messages, body).messages]
    return [
        (TOPIC, 0, b"%d" % each.header.logfile_offset)
        for each in entries
        if each.entry_type == EntryType.ROWDATA
    ]


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


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for little."""
    for name in ("ABSENT_S", "IDLE_FETCH_S", "POLL_S"):
        monkeypatch.setattr(queue_worker, name, 0.005)
    monkeypatch.setattr(queue_worker, "RETRY_MAX_S", 0.51)
    monkeypatch.setattr(transaction_worker, "OPEN_RETRY_S", 0.005)


@pytest.fixture
def broker() -> Broker:
    """Give a broker that works."""
    return Broker()


@pytest.fixture
def source(instances: FakeInstances, broker: Broker) -> Source:
    """Give a source whose destination runs."""
    found = Source(instances, broker)
    found.restart()
    return found


@pytest.fixture
def make(
    instances: FakeInstances, source: Source, broker: Broker
) -> Iterator[Callable[..., TransactionWorker]]:
    """Give a function that starts a worker, which is stopped after the test."""
    made: list[TransactionWorker] = []

    def start(
        limits: WorkerLimits = LIMITS, encoder: Encode = encode
    ) -> TransactionWorker:
        worker = TransactionWorker(
            LocalClient(Service(instances), instances, WHO),
            "a broker",
            lambda: broker,
            encoder,
            limits,
            room=ROOM,
            restart=source.restart,
        )
        made.append(worker)
        worker.start()
        return worker

    yield start
    for each in made:
        each.request_stop()
        assert each.join(Deadline(DEADLINE_S))


def place(
    number: int, file: int = 1, time_ms: int = 0, *, moved: bool = False
) -> LogPosition:
    """Return a position."""
    entry = EntryPosition(f"binlog.{file:06}", number, time_ms, 1)
    return LogPosition(MYSQL, entry, moved=moved)


def with_set(position: LogPosition, gtids: str) -> LogPosition:
    """Return the position with a GTID set."""
    return replace(position, position=replace(position.position, gtid=gtids))


def elsewhere(position: LogPosition, gtids: str = "") -> LogPosition:
    """Return the position on another server."""
    return with_set(replace(position, identity=LogIdentity("b", 1)), gtids)


def test_all_arrives_once(
    source: Source, broker: Broker, make: Callable[..., TransactionWorker]
) -> None:
    """Also what was there before, and transactions that are larger than the room."""
    for rows in (3, 100, 1, 1, 57):
        source.write(rows)
    make()
    eventually(lambda: len(broker.numbers()) == 162)
    source.write(2)
    eventually(lambda: len(broker.numbers()) == 164)
    assert broker.numbers() == source.rows
    assert broker.stored is not None
    assert decoded(broker.stored).position.position == len(source.entries) - 1
    eventually(lambda: source.meta.cursor(WHO) == decoded(broker.stored or b""))
    assert source.restarts == 1


def test_transactions_larger_than_a_batch(
    source: Source, broker: Broker, make: Callable[..., TransactionWorker]
) -> None:
    """They are committed together as smaller ones are, up to the room."""
    for _ in range(30):
        source.write(5)  # six entries, of which a batch has four
    make()
    eventually(lambda: len(broker.numbers()) == 150)
    assert broker.numbers() == source.rows
    assert broker.commits == 10, "of three transactions each, with room for 20 entries"


def test_parts_of_a_transaction_are_not_visible(
    instances: FakeInstances,
    broker: Broker,
    source: Source,
    make: Callable[..., TransactionWorker],
) -> None:
    """Nor are they committed with what is complete before them."""
    source.write(2)
    running = instances.started[DESTINATION]
    parts = [make_entry(len(source.entries) + n) for n in range(50)]
    running.store.append(*parts)
    worker = make()
    eventually(lambda: broker.confirmed == 52)
    assert broker.numbers() == source.rows
    eventually(lambda: running.store.cursors[1001].acked > 3)
    assert source.meta.cursor(WHO) == place(2)
    assert worker.status().state == "delivering"
    running.store.append(make_entry(53, EntryType.TRANSACTIONEND))
    eventually(lambda: len(broker.numbers()) == 52)
    assert broker.numbers()[2:] == list(range(3, 53))


@pytest.mark.parametrize("round_", range(longer(2)))
def test_failures_at_random(
    source: Source,
    broker: Broker,
    make: Callable[..., TransactionWorker],
    rng: random.Random,
    round_: int,
) -> None:
    """Whatever fails, each row is visible once, in the order of commits."""
    del round_
    lock = threading.Lock()
    outcomes = ["done"] * 30
    outcomes += ["later"] * 6 + ["aborted", "unknown", "unknown but done"]

    def outcome() -> str:
        with lock:
            return rng.choice(outcomes)

    def fails(value: bytes) -> Exception | None:
        del value
        with lock:
            return BrokerUnavailableError("not now") if rng.random() < 0.001 else None

    broker.outcome, broker.fails = outcome, fails
    make()
    for _ in range(rng.randrange(3, 6)):
        old = source.meta.cursor(WHO)
        for _ in range(rng.randrange(5, 40)):
            source.write(rng.choice([1, 1, 2, 5, 70]))
        goal = rng.randrange(len(source.rows))
        eventually(lambda: len(broker.numbers()) >= goal)  # noqa: B023
        source.crash(rng.choice([old, source.meta.cursor(WHO)]))
    broker.outcome, broker.fails = (lambda: "done"), (lambda _: None)
    eventually(lambda: len(broker.numbers()) >= len(source.rows))
    assert broker.numbers() == source.rows


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
    eventually(lambda: broker.stored and decoded(broker.stored) == place(10))
    found = [number_of(value) for _, value in broker.visible]
    assert found == [0, None, None, 3, 5, None, 8, 9]
    assert [topic == NOTES for topic, _ in broker.visible] == [
        each is None for each in found
    ]
    eventually(lambda: source.meta.cursor(WHO) == place(10))
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

    def answered(wait_s: float = 1.0) -> bool:
        while unanswered:
            message, sending = unanswered.pop()
            sending.answered(message, MessageRefusedError(TOPIC, 9, "is too large"))
        return abort(wait_s)

    monkeypatch.setattr(broker, "try_send", try_send)
    monkeypatch.setattr(broker, "abort", answered)
    source.write(5)
    worker = make(LIMITS._replace(too_large_topic=NOTES), as_json)
    eventually(lambda: source.meta.cursor(WHO) == place(5))
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
    eventually(lambda: source.meta.cursor(WHO) == place(90))
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

    def aborted(wait_s: float = 1.0) -> bool:
        nonlocal aborts
        aborts += 1
        if aborts == 2:
            source.meta.update_cursor(WHO, replace(place(7), moved=True))
        return abort(wait_s)

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
    assert cursor == place(7)
    assert not cursor.moved, "it was stored before anything was sent"
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


def test_a_message_that_is_refused(
    source: Source, broker: Broker, make: Callable[..., TransactionWorker]
) -> None:
    """Without a topic for notes, delivery stops before the whole transaction."""
    broker.fails = lambda value: (
        MessageRefusedError(TOPIC, 9, "is too large") if value == b"6" else None
    )
    source.write(3)
    worker = make()
    eventually(lambda: broker.numbers() == [0, 1, 2])
    source.write(5)
    eventually(lambda: worker.status().state == "stopped")
    assert broker.numbers() == [0, 1, 2]


def test_a_message_that_is_refused_in_a_large_transaction(
    source: Source, broker: Broker, make: Callable[..., TransactionWorker]
) -> None:
    """Delivery stops; the parts that were freed come again when it is restarted."""
    broker.fails = lambda value: (
        MessageRefusedError(TOPIC, 9, "is too large") if value == b"60" else None
    )
    source.write(1)
    worker = make()
    eventually(lambda: broker.numbers() == [0])
    source.write(90)
    eventually(lambda: worker.status().state == "stopped")
    assert source.restarts == 1, "it stays stopped"
    broker.fails = lambda _: None
    source.restart()
    eventually(lambda: len(broker.numbers()) == 91)
    assert broker.numbers() == source.rows


@pytest.mark.parametrize(
    "error", [SchemaRefusedError("not compatible"), BrokerUnavailableError("no answer")]
)
def test_a_registry_that_refuses_in_a_large_transaction(
    source: Source,
    broker: Broker,
    make: Callable[..., TransactionWorker],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    """Once it accepts, the parts that were freed come again; each row is there once."""
    monkeypatch.setattr(queue_worker, "SCHEMA_RETRY_S", 0.1)
    refuses = True

    def or_not(batch_id: int, body: bytes, now_ms: int) -> list[Message]:
        found = encode(batch_id, body, now_ms)
        if refuses and any(each[2] == b"60" for each in found):
            raise error
        return found

    source.write(1)
    worker = make(encoder=or_not)
    eventually(lambda: broker.numbers() == [0])
    source.write(90)
    expected = "stopped" if isinstance(error, SchemaRefusedError) else "blocked"
    eventually(lambda: worker.status().state == expected)
    assert broker.numbers() == [0]
    refuses = False
    eventually(lambda: len(broker.numbers()) == 91)
    assert broker.numbers() == source.rows
    eventually(lambda: worker.status().state == "delivering")


@pytest.mark.parametrize("is_in_time", [True, False])
def test_a_source_that_is_replaced_in_a_transaction(
    source: Source,
    broker: Broker,
    make: Callable[..., TransactionWorker],
    *,
    is_in_time: bool,
) -> None:
    """The part of the old one is not committed with what the new one sends."""
    source.write(2)
    make()
    eventually(lambda: broker.numbers() == [0, 1])
    running = source.instance
    assert running is not None
    begin = make_entry(3, EntryType.TRANSACTIONBEGIN)
    running.store.append(begin, make_entry(4))
    if is_in_time:
        eventually(lambda: broker.confirmed == 3)
    running.store.append(begin, make_entry(4))
    # The new instance reads it as a whole.
    source.entries += [begin, make_entry(4), make_entry(5, EntryType.TRANSACTIONEND)]
    running.store.append(source.entries[-1])
    eventually(lambda: broker.numbers() == [0, 1, 4])
    assert source.restarts == 2


def test_another_instance_takes_over(
    instances: FakeInstances,
    source: Source,
    broker: Broker,
    make: Callable[..., TransactionWorker],
) -> None:
    """It reads the position first, with a producer of its own: no failure follows."""
    source.write(2)
    worker = make()
    eventually(lambda: broker.numbers() == [0, 1])
    del instances.started[DESTINATION]
    eventually(lambda: worker.status().state is State.WAITING)
    source.restart()
    source.write(2)
    eventually(lambda: broker.numbers() == [0, 1, 3, 4])
    assert worker.status().failures == 0


def test_a_lease_that_is_not_certain_for_a_moment(
    instances: FakeInstances,
    source: Source,
    broker: Broker,
    make: Callable[..., TransactionWorker],
) -> None:
    """An instance of which parts were freed does not deliver the rest alone."""
    source.write(1)
    make()
    running = source.instance
    assert running is not None
    eventually(lambda: broker.numbers() == [0])
    parts = [make_entry(n) for n in range(2, 52)]
    running.store.append(*parts)
    eventually(lambda: running.store.cursors[1001].acked > 10)
    del instances.started[DESTINATION]
    source.entries += [*parts, make_entry(52, EntryType.TRANSACTIONEND)]
    running.store.append(source.entries[-1])
    instances.started[DESTINATION] = running
    eventually(lambda: len(broker.numbers()) == 51)
    assert broker.numbers() == [0, *range(2, 52)]


def test_acks_that_fail_after_a_commit(
    source: Source, broker: Broker, make: Callable[..., TransactionWorker]
) -> None:
    """What was committed does not come again."""
    source.write(3)
    running = source.instance
    assert running is not None
    ack = running.store.ack

    def fails(client_id: int, last_sequence: int) -> None:
        running.store.ack = ack  # type: ignore[method-assign]
        raise CanalError("not now")

    running.store.ack = fails  # type: ignore[method-assign]
    make()
    eventually(lambda: source.restarts == 2)
    source.write(2)
    eventually(lambda: len(broker.numbers()) >= 5)
    assert broker.numbers() == [0, 1, 2, 4, 5]


def test_a_first_cursor_is_no_move(
    source: Source,
    broker: Broker,
    make: Callable[..., TransactionWorker],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server may note where it began to read while the first messages are sent."""
    noted: list[bytes] = []
    cursor = source.meta.cursor
    monkeypatch.setattr(
        source.meta, "cursor", lambda client: cursor(client) if noted else None
    )
    broker.fails = noted.append
    source.write(1)
    worker = make()
    eventually(lambda: broker.numbers() == [0])
    assert worker.status().failures == 0


def test_an_operator_moves_the_cursor(
    source: Source, broker: Broker, make: Callable[..., TransactionWorker]
) -> None:
    """It begins there, and stores that at once; a crash does not undo it."""
    for _ in range(4):
        source.write(1)  # entries 0, 2, 4 and 6
    worker = make()
    eventually(lambda: broker.numbers() == [0, 2, 4, 6])
    source.crash(place(3, moved=True))
    source.write(1)
    eventually(lambda: broker.numbers() == [0, 2, 4, 6, 4, 6, 8])
    cursor = source.meta.cursor(WHO)
    assert cursor is not None
    eventually(lambda: not (source.meta.cursor(WHO) or cursor).moved)
    source.crash(place(3))
    source.write(1)
    eventually(lambda: broker.numbers() == [0, 2, 4, 6, 4, 6, 8, 10])
    assert worker.status().failures < 3


@pytest.mark.parametrize(
    ("stored", "cursor", "expected"),
    [
        (place(5), None, True),
        (place(5), place(4), True),
        (place(5), place(5), False),
        (place(5), place(6), False),  # of a time without stored positions
        (place(5), place(4, moved=True), False),
        (place(5, file=2), place(4, file=1, time_ms=9), True),
        (elsewhere(place(5, time_ms=5)), place(9), True),
        (elsewhere(place(5)), place(9, time_ms=5), False),
        (
            elsewhere(place(5), f"{UUID}:1-9"),
            with_set(place(9, time_ms=5), f"{UUID}:1-8"),
            True,
        ),
        (
            elsewhere(place(5, time_ms=5), f"{UUID}:1-8"),
            with_set(place(9), f"{UUID}:1-9"),
            False,
        ),
        (elsewhere(place(5), "0-1-9"), with_set(place(9, time_ms=5), "0-2-8"), True),
        # The address leads to another server, whose files have lower numbers.
        (
            with_set(place(5), f"{UUID}:1-9"),
            with_set(place(4, file=9), f"{UUID}:1-8"),
            True,
        ),
    ],
)
def test_which_of_two_positions(
    stored: LogPosition, cursor: LogPosition | None, expected: bool
) -> None:
    """The one that is further, unless an operator has moved the cursor."""
    assert is_newer(decoded(encoded(stored)), cursor) is expected


@pytest.mark.parametrize("value", [b"", b"[]", b'{"position": {}}', b"\xff"])
def test_what_is_no_position(value: bytes) -> None:
    """It is an error with a remedy."""
    with pytest.raises(CanalError, match="to another name, to begin with"):
        decoded(value)
