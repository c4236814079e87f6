"""The producer for Kafka, with a real broker."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

pytest.importorskip("confluent_kafka", reason="the extra `kafka` is not installed")

from confluent_kafka import KafkaError

from canal_server.queues.producers import kafka_producer
from canal_server.queues.producers.kafka_admin import KafkaAdmin, TopicCreation
from canal_server.queues.producers.kafka_producer import KafkaProducer
from canal_server.queues.producers.queue_producer import (
    BrokerUnavailableError,
    MessageRefusedError,
    Sending,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from fix_kafka import Kafka

    from canal_server.queues.producers.queue_producer import Message

PATIENCE_S = 60.0
TOPIC = "shop"


@pytest.fixture
def kafka(make_kafka: Callable[..., Kafka]) -> Kafka:
    """Give a broker that creates no topics by itself."""
    return make_kafka("auto.create.topics.enable=false")


def send(producer: KafkaProducer, messages: Sequence[Message]) -> Sending:
    """Send messages, and wait until all are answered."""
    sending = Sending()
    # A failed message ends the producer, which may refuse those that follow.
    with contextlib.suppress(BrokerUnavailableError):
        hand_over(producer, messages, sending)
    sending.is_complete = True
    wait_for_answers(producer, sending)
    return sending


def hand_over(
    producer: KafkaProducer, messages: Iterable[Message], sending: Sending
) -> None:
    """Have messages sent."""
    for each in messages:
        while not producer.try_send(each, sending):
            producer.poll(0.05)


def wait_for_answers(producer: KafkaProducer, sending: Sending) -> None:
    """Wait until all is answered."""
    give_up_at = time.monotonic() + PATIENCE_S
    while sending.pending:
        producer.poll(0.05)
        assert time.monotonic() < give_up_at, f"{sending.pending} are not answered"


def test_a_topic_for_smaller_batches(kafka: Kafka, rng: random.Random) -> None:
    """Small messages are not refused because their batch was too large."""
    kafka.create(TOPIC, 1, {"max.message.bytes": "100000"})
    producer = KafkaProducer({"bootstrap.servers": kafka.servers}, passes_refused=True)
    producer.open()
    messages = [(TOPIC, 0, rng.randbytes(2000)) for _ in range(400)]
    producer.prepare(messages)
    sending = send(producer, messages)
    assert not sending.refused
    assert str(sending.failure) == (
        "topic shop refuses a batch, as it has max.message.bytes = 100000 of the topic,"
        " and batches have up to 1000000 bytes (kafka.batch.size; 16384 counts as not"
        " set): from now on messages are sent one by one, which is slower; raise"
        " max.message.bytes of the topic, or lower kafka.batch.size"
    )
    producer.renew()
    producer.prepare(messages)
    assert send(producer, messages).is_confirmed
    # Now one that is too large by itself is distinguished.
    large = (TOPIC, 0, rng.randbytes(200_000))
    ((refused, error),) = send(producer, [large]).refused
    assert refused == large
    assert isinstance(error, MessageRefusedError)
    assert str(error) == (
        "topic shop: a message of 200000 bytes is larger than max.message.bytes ="
        " 100000 of the topic: raise max.message.bytes of the topic, and start the"
        " destination, or set canal.mq.tooLargeTopic"
    )
    # With a key, it is known as well, among others that are accepted.
    keyed: Message = (TOPIC, 0, large[2], b"key", [("header", b"1")])
    small: Message = (TOPIC, 0, b"small", b"key", None)
    ((refused, error),) = send(producer, [small, keyed, small]).refused
    assert refused[:4] == keyed[:4]
    assert error.size == len(large[2]) + len(b"key")
    assert send(producer, messages[:3]).is_confirmed
    producer.close(1.0)
    # The first message of a producer goes alone: it was accepted before the batch.
    expected = [messages[0], *messages, small, small, *messages[:3]]
    assert kafka.messages(TOPIC, 406)[0] == [each[2] for each in expected]


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Give the topics of each question for settings that the brokers are asked."""
    asked: list[list[str]] = []
    ask = KafkaAdmin.topic_settings

    def counted(self: KafkaAdmin, topics: Iterable[str]) -> dict[str, dict[str, Any]]:
        asked.append(list(topics))
        return ask(self, asked[-1])

    monkeypatch.setattr(KafkaAdmin, "topic_settings", counted)
    return asked


def test_a_batch_of_thousands(kafka: Kafka, questions: list[list[str]]) -> None:
    """The brokers are asked once why they refuse a batch, however many are in it."""
    kafka.create(TOPIC, 1, {"max.message.bytes": "20000"})
    kafka.create("compacted", 1, {"cleanup.policy": "compact"})
    servers = {"bootstrap.servers": kafka.servers, "compression.type": "none"}
    producer = KafkaProducer(servers, is_pushed=True)
    producer.open()
    small: list[Message] = [(TOPIC, 0, b"%06d" % number) for number in range(5000)]
    producer.prepare(small)
    sending = send(producer, small)
    assert "refuses a batch, as it has max.message.bytes = 20000" in str(
        sending.failure
    )
    assert questions == [[TOPIC]]
    producer.close(0.0)

    questions.clear()
    producer = KafkaProducer(servers, is_pushed=True)
    producer.open()
    good: list[Message] = [("compacted", 0, b"", b"%d" % n, None) for n in range(1000)]
    bad: Message = ("compacted", 0, b"", None, None)
    producer.prepare(good)
    assert send(producer, good[:1]).is_confirmed
    failed = send(producer, [*good, bad, *good])
    assert "is compacted and refuses a message without a key" in str(failed.failure)
    assert questions in ([], [["compacted"]])
    producer.close(0.0)


def test_a_limit_that_was_lowered(
    kafka: Kafka, rng: random.Random, questions: list[list[str]]
) -> None:
    """A refused message below the known limit has that asked again, once."""
    kafka.create(TOPIC, 1, {"max.message.bytes": "20000"})
    servers = {"bootstrap.servers": kafka.servers}
    producer = KafkaProducer(servers, passes_refused=True)
    producer.open()
    batch: list[Message] = [(TOPIC, 0, rng.randbytes(9000)) for _ in range(20)]
    producer.prepare(batch)
    assert "from now on messages are sent one by one" in str(
        send(producer, batch).failure
    )
    producer.renew()
    large: Message = (TOPIC, 0, rng.randbytes(30_000))
    questions.clear()
    producer.prepare([large])
    refused = send(producer, [large] * 50).refused
    assert len(refused) == 50
    assert "max.message.bytes = 20000 of the topic" in str(refused[-1][1])
    assert questions == [[TOPIC]]
    kafka.alter(TOPIC, {"max.message.bytes": "5000"})
    refused = send(producer, batch).refused
    assert len(refused) == 20
    assert "max.message.bytes = 5000 of the topic" in str(refused[0][1])
    assert questions == [[TOPIC]] * 2
    producer.close(0.0)


def test_an_error_that_cannot_be_explained(
    kafka: Kafka,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each message is answered, also when to find the reason fails.

    The log has the internal error, and users who see the answer its kind only.
    """
    kafka.create(TOPIC, 1, {"max.message.bytes": "5000"})
    producer = KafkaProducer({"bootstrap.servers": kafka.servers})
    producer.open()

    def fail(*_: object) -> None:
        raise RuntimeError("no files left")

    monkeypatch.setattr(KafkaAdmin, "topic_settings", fail)
    messages: list[Message] = [(TOPIC, 0, rng.randbytes(2000)) for _ in range(50)]
    producer.prepare(messages)
    sending = send(producer, messages)
    assert str(sending.failure).startswith("topic shop: Broker: Message size too large")
    assert "internal error RuntimeError, see the log" in str(sending.failure)
    assert "no files left" not in str(sending.failure)
    assert "no files left" in caplog.text
    producer.close(0.0)


def test_messages_wait_until_they_are_pushed(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A push sends what waits for more; with a wait in the settings there is none."""
    kafka.create(TOPIC, 1)
    monkeypatch.setattr(kafka_producer, "_PUSHED", {"linger.ms": "900000"})
    servers = {"bootstrap.servers": kafka.servers}
    producer = KafkaProducer(servers, is_pushed=True)
    producer.open()
    for number in range(3):
        message: Message = (TOPIC, 0, b"%d" % number)
        producer.prepare([message])
        sending = Sending()
        assert producer.try_send(message, sending)
        sending.is_complete = True
        give_up_at = time.monotonic() + PATIENCE_S
        while sending.pending:
            producer.push()
            producer.poll(0.05)
            assert time.monotonic() < give_up_at, f"message {number} is not sent"
        assert sending.is_confirmed
    producer.close(1.0)
    for producer in (
        KafkaProducer({**servers, "linger.ms": "7"}, is_pushed=True),
        KafkaProducer(servers),
    ):
        producer.open()
        end: Message = (TOPIC, 0, b"end")
        producer.prepare([end])
        assert send(producer, [end, end]).is_confirmed
        producer.close(1.0)


def test_the_reason_of_messages_that_were_dropped(kafka: Kafka) -> None:
    """What is dropped because of another topic's refusal fails with that reason."""
    kafka.create(TOPIC, 1)
    kafka.create("compacted", 1, {"cleanup.policy": "compact"})
    producer = KafkaProducer({"bootstrap.servers": kafka.servers})
    producer.open()
    proven: list[Message] = [(TOPIC, 0, b"x"), ("compacted", 0, b"x", b"key", None)]
    producer.prepare(proven)
    assert send(producer, proven).is_confirmed
    refused, other = Sending(), Sending()
    with contextlib.suppress(BrokerUnavailableError):
        assert producer.try_send(("compacted", 0, b"no key"), refused)
        for number in range(500):
            assert producer.try_send((TOPIC, 0, b"%d" % number), other)
    give_up_at = time.monotonic() + PATIENCE_S
    while refused.pending or other.pending:
        producer.poll(0.05)
        assert time.monotonic() < give_up_at
    for failure in (refused.failure, other.failure):
        assert (
            failure is None
            or "is compacted and refuses a message without a key" in str(failure)
        )
    assert refused.failure is not None
    producer.close(0.0)


def test_nothing_is_sent_after_a_failure(kafka: Kafka, rng: random.Random) -> None:
    """What follows a refused batch or message in its partition is not sent before it.

    Nor when whoever sends it hears of the refusal late.
    """
    kafka.create(TOPIC, 1, {"max.message.bytes": "30000"})
    producer = KafkaProducer({"bootstrap.servers": kafka.servers})
    producer.open()
    large: list[Message] = [(TOPIC, 0, rng.randbytes(2000)) for _ in range(100)]
    follow: list[Message] = [(TOPIC, 0, b"%d" % number) for number in range(2000)]
    never: list[Message] = [(TOPIC, 0, b"never %d" % number) for number in range(2000)]
    producer.prepare(large)
    sending = send(producer, [*large, *follow])
    assert "topic shop refuses a batch, as it has max" in str(sending.failure)
    producer.renew()
    producer.prepare(large)
    assert send(producer, [*large, *follow]).is_confirmed

    too_large: Message = (TOPIC, 0, rng.randbytes(60_000))
    ((refused, error),) = send(producer, [too_large, *never]).refused
    assert refused == too_large
    assert isinstance(error, MessageRefusedError)
    producer.renew()
    end: Message = (TOPIC, 0, b"end")
    producer.prepare([end])
    assert send(producer, [end]).is_confirmed
    producer.close(1.0)
    expected = [each[2] for each in [*large, *follow, end]]
    found = kafka.messages(TOPIC, len(expected))[0]
    while found[-1] != b"end":  # some came twice
        found = kafka.messages(TOPIC, len(found) + 1)[0]
    assert list(dict.fromkeys(found)) == expected


def one_by_one(kafka: Kafka, rng: random.Random, **topic: str) -> KafkaProducer:
    """Return a producer whose batches were refused, for a topic with such settings."""
    limit = {"max.message.bytes": "2500"}
    kafka.create(TOPIC, 1, limit | {key.replace("_", "."): topic[key] for key in topic})
    kafka.create("small", 1, limit)
    producer = KafkaProducer(
        {"bootstrap.servers": kafka.servers, "compression.type": "none"},
        passes_refused=True,
    )
    producer.open()
    batch: list[Message] = [("small", 0, rng.randbytes(900)) for _ in range(30)]
    producer.prepare([*batch, (TOPIC, 0, b"")])
    assert "refuses a batch" in str(send(producer, batch).failure)
    producer.renew()
    return producer


def test_answers_that_come_with_a_refusal(kafka: Kafka, rng: random.Random) -> None:
    """What was confirmed after a refused message counts as such, however late it is.

    Else the refused one would be left out when the batch is sent again.
    """
    producer = one_by_one(kafka, rng)
    sent = [
        (TOPIC, 0, b"%03d" % number + rng.randbytes(8000 if number == 12 else 900))
        for number in range(30)
    ]
    sending = Sending()
    producer.prepare(sent)
    hand_over(producer, sent, sending)
    assert len(sent) - sending.pending <= 12
    kafka.messages(TOPIC, len(sent) - 1)  # nothing is looked at until they are there
    wait_for_answers(producer, sending)
    assert sending.confirmed_first() == {(TOPIC, 0): 12}
    assert [message[2] for message, _ in sending.refused] == [sent[12][2]]
    producer.close(1.0)


def test_order_of_messages_one_by_one(kafka: Kafka, rng: random.Random) -> None:
    """What follows a message that is refused for its missing key is not sent before it.

    But it is after one that is too large, in whose place a note is sent.
    """
    producer = one_by_one(kafka, rng, cleanup_policy="compact")
    size = rng.randbytes(900)
    sent: list[Message] = [
        (TOPIC, 0, b"%03d" % each + size, b"%d" % each, None) for each in range(60)
    ]
    sent[7] = (TOPIC, 0, rng.randbytes(8000), b"7", None)
    sent[20] = (TOPIC, 0, b"020" + size, None, None)
    sending = Sending()
    refused = pytest.raises(BrokerUnavailableError, match="a message without a key")
    with refused:
        hand_over(producer, sent, sending)
    wait_for_answers(producer, sending)
    assert [message[3:4] for message, _ in sending.refused] == [(b"7",)]
    producer.renew()
    with refused:  # it is the first one now, and no answer keeps those after it
        hand_over(producer, sent[20:], Sending())
    end: Message = (TOPIC, 0, b"end", b"end", None)
    producer.prepare([end])
    assert send(producer, [end]).is_confirmed
    found = kafka.messages(TOPIC, 20)[0]
    numbers = [int(each[:3]) for each in found if each != b"end"]
    assert numbers == [each for each in range(20) if each != 7]
    kafka.alter(TOPIC, {"cleanup.policy": "delete"})
    assert send(producer, sent[20:]).is_confirmed
    producer.close(1.0)


class Answered(NamedTuple):
    """A message as librdkafka reports it, as far as that is used."""

    number: int

    def topic(self) -> str:
        """Return its topic."""
        return TOPIC

    def partition(self) -> int:
        """Return its partition."""
        return 0

    def value(self) -> bytes:
        """Return its content."""
        return b"%d" % self.number

    def key(self) -> None:
        """Return no key."""


def test_what_is_purged_follows_what_is_in_flight() -> None:
    """Librdkafka reports it earlier; what is confirmed then is not sent again."""
    producer, sending = KafkaProducer({"bootstrap.servers": "127.0.0.1:1"}), Sending()
    for _ in range(3):
        sending.note((TOPIC, 0), 1)
    producer._on_way = 3
    report = producer._report_to(sending)
    purged = KafkaError(KafkaError._PURGE_QUEUE)
    report(purged, Answered(2))
    report(None, Answered(0))
    producer.poll(0)
    assert sending.pending == 2, "it is not answered before the others are"
    report(None, Answered(1))
    producer.poll(0)
    assert sending.pending == 0
    assert sending.confirmed_first() == {(TOPIC, 0): 2}
    assert sending.failure is not None
    producer.close(0.0)


def test_the_size_of_java(kafka: Kafka, rng: random.Random) -> None:
    """The default limits of a producer are those of the Java client."""
    kafka.create(TOPIC, 1)
    producer = KafkaProducer({"bootstrap.servers": kafka.servers})
    producer.open()
    message = (TOPIC, 0, rng.randbytes(1_040_000))
    producer.prepare([message])
    assert send(producer, [message]).is_confirmed
    with pytest.raises(MessageRefusedError, match=r"max.request.size = 1048576: raise"):
        producer.try_send((TOPIC, 0, rng.randbytes(1_100_000)), Sending())


def test_names_and_numbers(kafka: Kafka) -> None:
    """What cannot be a topic is named, with the remedy."""
    creation = TopicCreation(lambda _: 200_000)
    producer = KafkaProducer({"bootstrap.servers": kafka.servers}, creation=creation)
    producer.open()
    with pytest.raises(BrokerUnavailableError, match="topic many cannot be created"):
        producer.prepare([("many", 0, b"")])
    producer = KafkaProducer({"bootstrap.servers": kafka.servers})
    producer.open()
    with pytest.raises(BrokerUnavailableError, match="accepts letters of ASCII"):
        producer.prepare([("größe", 0, b"")])


def test_settings_of_created_topics() -> None:
    """Notes are never compacted: two of them may have the same key."""
    settings = {"cleanup.policy": "compact", "retention.ms": "5"}
    creation = TopicCreation(
        lambda _: 1, settings=settings, uncompacted=frozenset({"notes"})
    )
    assert creation.settings_of("top") == settings
    assert creation.settings_of("notes") == {"retention.ms": "5"}
    deleting = TopicCreation(
        lambda _: 1,
        settings={"cleanup.policy": "delete"},
        uncompacted=frozenset({"notes"}),
    )
    assert deleting.settings_of("notes") == {"cleanup.policy": "delete"}


def test_nobody_answers() -> None:
    """The error has the reason."""
    producer = KafkaProducer({"bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(BrokerUnavailableError, match="Connection refused"):
        producer.open()
