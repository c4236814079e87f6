"""The questions for rights of transactions, with a real broker; ACLs: in `e2e`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("confluent_kafka", reason="the extra `kafka` is not installed")

from canal_server.queues.producers.kafka_rights import TransactionRights
from canal_server.queues.producers.kafka_transactions import TransactionalKafkaProducer
from canal_server.queues.producers.queue_producer import BrokerUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fix_kafka import Kafka

PATIENCE_S = 60.0
PLACE = "canal-position.example"


def rights_in(kafka: Kafka, *, replicas: int = -1) -> TransactionRights:
    """Return what asks a broker."""
    settings = {"bootstrap.servers": kafka.servers}
    return TransactionRights(settings, PLACE, purpose="Kafka", replicas=replicas)


def test_nothing_is_disturbed(make_kafka: Callable[..., Kafka]) -> None:
    """A transaction that is open meanwhile is committed, and no topic is created."""
    kafka = make_kafka("auto.create.topics.enable=false")
    rights = rights_in(kafka)
    assert rights.why_no_transactions() == ""
    assert rights.why_no_position() == ("", False)
    assert "cannot be created" in rights_in(kafka, replicas=5).why_no_position()[0]
    assert PLACE not in rights.topics()
    producer = TransactionalKafkaProducer({"bootstrap.servers": kafka.servers}, PLACE)
    producer.open()
    assert producer.position() is None
    producer.begin()
    producer.send_position(b"p1")
    another = rights_in(kafka)
    assert another.why_no_transactions() == ""
    assert another.why_no_position() == ("", True)
    give_up_at = time.monotonic() + PATIENCE_S
    while not producer.try_commit(1.0):
        assert time.monotonic() < give_up_at
    assert producer.position() == b"p1"


def test_a_broker_that_allows_every_timeout(make_kafka: Callable[..., Kafka]) -> None:
    """It is not asked: it would take the transactional id from the running server."""
    kafka = make_kafka("transaction.max.timeout.ms=2147483647")
    with pytest.raises(BrokerUnavailableError, match="allows everything"):
        rights_in(kafka).why_no_transactions()


def test_nobody_answers() -> None:
    """The error has the reason."""
    rights = TransactionRights(
        {"bootstrap.servers": "127.0.0.1:1"}, PLACE, purpose="Kafka", replicas=-1
    )
    for ask in (rights.why_no_transactions, rights.why_no_position):
        with pytest.raises(BrokerUnavailableError, match="Connection refused"):
            ask()
