"""The worker with transactions, with a broker that fails as the test says."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from fix_random import longer
from fix_server import DESTINATION, FakeInstances, make_entry
from fix_store import eventually
from transactions_in_memory import TOPIC, WHO, encode, position_at

from canal_server.delivery import queue_worker
from canal_server.delivery.delivery_status import State
from canal_server.delivery.stored_position import decoded
from canal_server.errors import CanalError
from canal_server.protocol.entry_messages import EntryType
from canal_server.queues.producers.queue_producer import (
    BrokerUnavailableError,
    MessageRefusedError,
    SchemaRefusedError,
)
from canal_server.runtime.lifecycle import Deadline

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from transactions_in_memory import Broker, Source

    from canal_server.delivery.transaction_worker import TransactionWorker
    from canal_server.queues.producers.queue_producer import Message
    from canal_server.runtime.lifecycle import Stop

DEADLINE_S = 60.0


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
    assert source.meta.cursor(WHO) == position_at(2)
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
    source.crash(position_at(3, moved=True))
    source.write(1)
    eventually(lambda: broker.numbers() == [0, 2, 4, 6, 4, 6, 8])
    cursor = source.meta.cursor(WHO)
    assert cursor is not None
    eventually(lambda: not (source.meta.cursor(WHO) or cursor).moved)
    source.crash(position_at(3))
    source.write(1)
    eventually(lambda: broker.numbers() == [0, 2, 4, 6, 4, 6, 8, 10])
    assert worker.status().failures < 3


def test_another_client_is_moved_in_a_large_transaction(
    source: Source, broker: Broker, make: Callable[..., TransactionWorker]
) -> None:
    """The new store has the transaction from its begin: no row of it comes twice.

    It has no begin, as in MariaDB, so that nothing but the store shows that.
    """
    source.write(2)
    make()
    eventually(lambda: broker.numbers() == [0, 1])
    parts = [make_entry(number) for number in range(3, 53)]
    running = source.append(*parts)
    eventually(lambda: running.store.cursors[1001].acked == 53)
    source.replace_store()
    source.append(make_entry(53, EntryType.TRANSACTIONEND))
    eventually(lambda: len(broker.numbers()) > 2)
    assert broker.numbers() == [0, 1, *range(3, 53)]


def test_a_cursor_that_follows_the_binlog(
    source: Source,
    broker: Broker,
    make: Callable[..., TransactionWorker],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that has all is taken to the next file, which is no move."""
    source.write(1)
    worker = make()
    eventually(lambda: source.meta.cursor(WHO) == position_at(1))
    running = source.instance
    assert running is not None
    get = running.store.get

    def follow(*arguments: object, **options: object) -> object:
        """Have it happen while the delivery waits for entries."""
        monkeypatch.setattr(running.store, "get", get)
        source.meta.update_cursor(WHO, position_at(4, file=2))
        source.write(1)
        return get(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(running.store, "get", follow)
    eventually(lambda: broker.numbers() == [0, 2])
    assert worker.status().failures == 0


@pytest.mark.parametrize("moves", [False, True])
def test_a_commit_without_an_answer(
    source: Source,
    broker: Broker,
    make: Callable[..., TransactionWorker],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    moves: bool,
) -> None:
    """It is said, with the last error, until there is one; of a move as well."""
    monkeypatch.setattr(queue_worker, "BLOCKED_AFTER_S", 0.02)
    source.write(1)
    worker = make()
    eventually(lambda: source.meta.cursor(WHO) == position_at(1))

    def outcome() -> str:
        broker.last_error = "broker: Connection refused"
        return "later"

    broker.outcome = outcome
    if moves:
        source.meta.update_cursor(WHO, position_at(1, moved=True))
    else:
        source.write(1)
    eventually(lambda: worker.status().state == "blocked")
    assert worker.status().reason == "broker: Connection refused"
    assert caplog.text.count("confirms nothing: broker: Connection refused") == 1
    broker.outcome = lambda: "done"
    eventually(lambda: worker.status().state == "delivering")
    assert worker.status().reason == ""


def test_a_stop_while_the_position_is_read(
    source: Source,
    broker: Broker,
    make: Callable[..., TransactionWorker],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is not waited for."""
    reading = threading.Event()

    def position(stop: Stop) -> bytes | None:
        reading.set()
        assert stop.wait(DEADLINE_S)
        raise BrokerUnavailableError("not read")

    source.write(1)
    monkeypatch.setattr(broker, "position", position)
    worker = make()
    assert reading.wait(DEADLINE_S)
    worker.request_stop()
    assert worker.join(Deadline(DEADLINE_S))


def test_a_move_before_a_stop(
    source: Source,
    broker: Broker,
    make: Callable[..., TransactionWorker],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is not of the new position is not committed when the server stops."""
    source.write(1)
    worker = make()
    eventually(lambda: source.meta.cursor(WHO) == position_at(1))
    broker.per_poll = 0
    source.write(1)
    eventually(lambda: worker.status().in_flight == 1)

    poll, polls = broker.poll, 0

    def confirms(timeout_s: float) -> None:
        """Stop, and then move the cursor before the last answers."""
        nonlocal polls
        polls += 1
        worker.request_stop()
        if polls == 2:
            source.meta.update_cursor(WHO, position_at(1, moved=True))
            broker.per_poll = 3
        poll(timeout_s)

    monkeypatch.setattr(broker, "poll", confirms)
    assert worker.join(Deadline(DEADLINE_S))
    assert broker.numbers() == [0]
