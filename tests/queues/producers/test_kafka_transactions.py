"""The producer with transactions, with a real broker."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("confluent_kafka", reason="the extra `kafka` is not installed")

from canal_server.queues.producers.kafka_transactions import (
    TransactionalKafkaProducer,
    position_topic,
)
from canal_server.queues.producers.queue_producer import (
    BrokerUnavailableError,
    OutcomeUnknownError,
    Sending,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from fix_kafka import Kafka

    from canal_server.queues.producers.queue_producer import Message

PATIENCE_S = 60.0
TOPIC, PLACE = "shop", "canal-position.example"


@pytest.fixture
def kafka(make_kafka: Callable[..., Kafka]) -> Kafka:
    """Give a broker that creates no topics by itself, and has one."""
    broker = make_kafka("auto.create.topics.enable=false")
    broker.create(TOPIC, 1)
    return broker


def opened(kafka: Kafka, **settings: str) -> TransactionalKafkaProducer:
    """Return a producer that is open; a broker that has just started needs a while."""
    producer = TransactionalKafkaProducer(
        {"bootstrap.servers": kafka.servers, **settings}, PLACE
    )
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        try:
            producer.open()
        except BrokerUnavailableError:
            assert time.monotonic() < give_up_at
            time.sleep(0.1)
        else:
            return producer


def send(producer: TransactionalKafkaProducer, *values: bytes) -> None:
    """Send messages in a transaction, and wait until they are answered."""
    producer.begin()
    sending = Sending()
    give_up_at = time.monotonic() + PATIENCE_S
    for value in values:
        assert producer.try_send((TOPIC, 0, value), sending)
    while sending.pending:
        producer.poll(0.05)
        assert time.monotonic() < give_up_at


def commit(producer: TransactionalKafkaProducer) -> None:
    """Commit, however often that has to be asked for."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not producer.try_commit(1.0):
        assert time.monotonic() < give_up_at


def send_and_commit(producer: TransactionalKafkaProducer) -> None:
    """Send a message and a position, and commit both."""
    send(producer, b"of the first")
    producer.send_position(b"p1")
    commit(producer)


def test_transactions(kafka: Kafka) -> None:
    """What is committed is visible with its position; the rest is not."""
    producer = opened(kafka)
    assert producer.position() is None
    for number in range(3):
        send(producer, b"a%d" % number)
        producer.send_position(b"p%d" % number)
        commit(producer)
    send(producer, b"aborted")
    producer.send_position(b"p3")
    assert producer.abort()
    assert producer.position() == b"p2"
    send(producer, b"last")
    commit(producer)
    producer.close(0.0)
    # Who opens it next ends what was left open.
    left = opened(kafka)
    send(left, b"left open")
    left.send_position(b"p4")
    found = opened(kafka)
    assert found.position() == b"p2"
    assert kafka.messages(TOPIC, 4) == {0: [b"a0", b"a1", b"a2", b"last"]}


def test_messages_of_another_producer(kafka: Kafka) -> None:
    """Messages that a fenced producer drops fail with the reason, not as dropped."""
    first = opened(kafka)
    first.position()
    messages: list[Message] = [(TOPIC, 0, b"%d" % number) for number in range(50)]
    first.prepare(messages)
    first.begin()
    second = opened(kafka)
    sending = Sending()
    with contextlib.suppress(BrokerUnavailableError):
        for message in messages:
            while not first.try_send(message, sending):
                first.poll(0.05)
    give_up_at = time.monotonic() + PATIENCE_S
    while sending.pending and sending.failure is None:
        first.poll(0.05)
        assert time.monotonic() < give_up_at, f"{sending.pending} are not answered"
    assert "another producer uses it" in str(sending.failure)
    first.close(0.0)
    second.close(0.0)


def test_another_producer(kafka: Kafka) -> None:
    """The first of two can commit nothing more, and says why; opened again, it can."""
    first = opened(kafka)
    first.position()
    second = opened(kafka)
    with pytest.raises(
        (BrokerUnavailableError, OutcomeUnknownError), match="another producer uses it"
    ):
        send_and_commit(first)
    assert not first.abort()
    send(second, b"of the second")
    second.send_position(b"p2")
    commit(second)
    first.open()
    assert first.position() == b"p2"
    send(first, b"again")
    commit(first)
    assert kafka.messages(TOPIC, 2) == {0: [b"of the second", b"again"]}


def test_a_timeout_that_the_broker_does_not_allow(kafka: Kafka) -> None:
    """The error names the setting, and the broker's."""
    opened(kafka).close(0.0)  # from here on it answers
    producer = TransactionalKafkaProducer(
        {"bootstrap.servers": kafka.servers, "transaction.timeout.ms": "1000000"}, PLACE
    )
    with pytest.raises(
        BrokerUnavailableError, match=r"no kafka\.transaction\.timeout\.ms of 1000000"
    ):
        producer.open()


def test_names() -> None:
    """A name that Kafka does not accept is replaced by its hash."""
    assert position_topic("canal-position", "example") == PLACE
    for destination in ("ünï", "a" * 300, "a b"):
        found = position_topic("canal-position", destination)
        assert found.isascii()
        assert len(found) < 249
        assert " " not in found
