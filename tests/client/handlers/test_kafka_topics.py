"""The handler `kafka`, against a real broker."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

pytest.importorskip("confluent_kafka", reason="the extra `kafka` is not installed")

from client_entries import row
from random_entries import random_body

from canal_server.client.handlers import Rejected, RetryLater, kafka_topics
from canal_server.client.handlers.kafka_topics import KafkaTopics
from canal_server.config.schema import RoutingConfig
from canal_server.errors import ConfigError
from canal_server.protocol.protobuf import varint
from canal_server.queues.flat_messages import FlatMessages
from canal_server.queues.producers import kafka_producer
from canal_server.queues.routing import Router

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from fix_kafka import Kafka

NOW_S = 1_700_000_000.5
TOPIC = "shop"
BY_KEY: dict[str, Any] = {"partition_hash": r".*\..*:$pk$", "partitions": 4}


class Batch(NamedTuple):
    """What the handler needs of a message."""

    id: int
    body: bytes


def rows(first: int, count: int) -> Batch:
    """Return a batch with a row an entry."""
    entries = [row(number) for number in range(first, first + count)]
    body = b"".join(b"\x12" + varint(len(each)) + each for each in entries)
    return Batch(first, body)


def ids(values: list[bytes]) -> list[int]:
    """Return the keys of rows, in the order of messages."""
    return [int(each["id"]) for value in values for each in json.loads(value)["data"]]


@pytest.fixture
def kafka(make_kafka: Callable[[], Kafka]) -> Kafka:
    """Give a running broker."""
    return make_kafka()


def test_messages(kafka: Kafka, rng: random.Random) -> None:
    """All are there, in their order of each partition, with the bytes of queues."""
    batches = [Batch(number, random_body(rng, 5)) for number in range(1, 60)]
    settings = RoutingConfig(topic=TOPIC, partition_hash=r".*\..*:$pk$", partitions=4)
    flat = FlatMessages(Router(settings))
    expected: dict[int, list[bytes]] = {}
    for batch in batches:
        for _, number, value in flat.convert(batch.id, batch.body, int(NOW_S * 1000)):
            expected.setdefault(number, []).append(value)
    handler = KafkaTopics(kafka.servers, TOPIC, clock=lambda: NOW_S, **BY_KEY)
    handler.open()
    for batch in batches:
        handler.handle_message(batch)
    handler.flush()
    handler.close()
    assert len(expected) > 1
    assert kafka.messages(TOPIC, sum(map(len, expected.values()))) == expected


def test_topics_of_tables(kafka: Kafka) -> None:
    """Each table may have a topic of its own."""
    handler = KafkaTopics(kafka.servers, dynamic_topic=r".*\..*", partition=2)
    handler.open()
    handler.handle_message(rows(1, 3))
    handler.flush()
    handler.close()
    found = kafka.messages("shop_orders", 3)
    assert {number: ids(values) for number, values in found.items()} == {2: [1, 2, 3]}


def test_a_broker_that_is_killed(kafka: Kafka) -> None:
    """What it has not confirmed is sent when it is back: each once, in order."""
    handler = KafkaTopics(kafka.servers, TOPIC, partition=1)
    handler.open()
    handler.handle_message(rows(1, 50))
    handler.flush()
    handler.handle_message(rows(51, 50))
    kafka.kill()
    handler.handle_message(rows(101, 50))
    starts = threading.Thread(target=kafka.start)
    starts.start()
    handler.flush()
    starts.join()
    handler.close()
    assert ids(kafka.messages(TOPIC, 150)[1]) == list(range(1, 151))


def test_a_broker_that_is_away(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """A flush ends with what is to be repeated; then the same comes again, in order."""
    monkeypatch.setattr(kafka_topics, "FLUSH_S", 2.0)
    handler = KafkaTopics(kafka.servers, TOPIC)
    handler.open()
    handler.handle_message(rows(1, 5))
    handler.flush()
    kafka.kill()
    handler.handle_message(rows(6, 5))
    with pytest.raises(RetryLater, match="has not confirmed 5 messages in 2 s"):
        handler.flush()
    handler.rollback()
    kafka.start()
    monkeypatch.setattr(kafka_topics, "FLUSH_S", 60.0)
    handler.handle_message(rows(6, 5))
    handler.flush()
    handler.close()
    found = ids(kafka.messages(TOPIC, 10)[0])
    assert sorted(set(found)) == list(range(1, 11))
    assert found[-5:] == [6, 7, 8, 9, 10]


def test_a_message_that_is_too_large(kafka: Kafka) -> None:
    """It is rejected, with the settings that decide; others are sent."""
    handler = KafkaTopics(kafka.servers, TOPIC)
    handler.open()
    entry = row(1, "x" * 1_100_000)
    with pytest.raises(
        Rejected, match=r"message\.max\.bytes of `config` = \d+: raise it"
    ):
        handler.handle_message(Batch(1, b"\x12" + varint(len(entry)) + entry))
    handler.rollback()
    handler.handle_message(rows(2, 1))
    handler.flush()
    handler.close()
    assert ids(kafka.messages(TOPIC, 1)[0]) == [2]


def test_words_for_refusals() -> None:
    """They name the arguments of the handler, and no key of the server."""
    words = kafka_topics.words_with(Router(RoutingConfig(topic=TOPIC)))
    texts = [
        words.no_name("größe"),
        words.few_partitions(TOPIC, 1, 2),
        words.missing(TOPIC, "a:9092", 2),
        words.own_limit("5"),
        words.buffer_limit,
        words.topic_limit(TOPIC, None),
        words.small_batches(TOPIC, None, "5"),
        words.no_key(TOPIC, "table a.b"),
        words.of_connection("a:9/bootstrap: Invalid response size 5"),
        words.of_connection("a:9/1: SSL handshake failed: wrong version number"),
        words.of_connection("1/1 brokers are down"),
    ]
    for text in texts:
        assert "kafka." not in text
        assert "canal." not in text
    assert texts[0].endswith("topic:expression in `dynamic_topic`")
    assert texts[-1].endswith(
        "`servers`, which may be another service, and security.protocol of `config`"
    )


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start waits for the brokers, and names them."""
    monkeypatch.setattr(kafka_producer, "OPEN_S", 0.5)
    handler = KafkaTopics("127.0.0.1:1", TOPIC)
    with pytest.raises(RetryLater, match=r"Kafka at 127\.0\.0\.1:1 does not answer: "):
        handler.open()


def test_wrong_settings(tmp_path: Path) -> None:
    """Each with its reason; values, which may be secret, are never shown."""
    with pytest.raises(ValueError, match="expected topic, dynamic_topic or both"):
        KafkaTopics("127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"canal\.mq\.dynamicTopic: b\("):
        KafkaTopics("127.0.0.1:1", dynamic_topic="b(")
    file = tmp_path / "kafka.properties"
    file.write_text("# a comment\n\nacks = 1\nword\nsasl.password=secret\n")
    with pytest.raises(ConfigError) as raised:
        KafkaTopics("127.0.0.1:1", TOPIC, config=file)
    text = str(raised.value)
    assert f"{file}:3: acks cannot be set: no message may get lost" in text
    assert f"{file}:4: expected key=value" in text
    file.write_text("no.such.setting=secret\n")
    with pytest.raises(ConfigError, match=r"settings of Kafka: .*no\.such") as raised:
        KafkaTopics("127.0.0.1:1", TOPIC, config=file)
    assert "secret" not in str(raised.value)
    with pytest.raises(ConfigError, match="No such file"):
        KafkaTopics("127.0.0.1:1", TOPIC, config=tmp_path / "none")
