"""The handler `kafka`: flat messages (canal-json) into topics of Apache Kafka.

Topics, partitions and bytes are those of the original's Kafka mode. The producer is
idempotent and waits for all replicas, so messages of a partition keep their order, also
when requests are repeated.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from canal_server.client.handlers.handler import Rejected, RetryLater, required
from canal_server.errors import CanalError, ConfigError
from canal_server.queues.flat_messages import FlatMessages
from canal_server.queues.routing import Router, RoutingSettings

if TYPE_CHECKING:
    from collections.abc import Callable


logger = logging.getLogger(__name__)

FLUSH_S: Final = 30.0  # until unconfirmed messages are reported, and sent again
OPEN_S: Final = 10.0
POLL_S: Final = 0.1
_OURS: Final = {
    "enable.idempotence": True,  # implies acks=all, and keeps the order of a partition
    "linger.ms": 5,
    "compression.type": "lz4",
    "message.timeout.ms": 0,  # never given up by the library: `flush` reports
}
_FIXED: Final = {
    "acks", "request.required.acks", "delivery.timeout.ms", "message.timeout.ms",
    "enable.idempotence", "bootstrap.servers", "metadata.broker.list",
}  # fmt: skip


class Batch(Protocol):
    """What the handler needs of a message."""

    @property
    def id(self) -> int:
        """The id of the batch."""

    @property
    def body(self) -> bytes | memoryview:
        """The entries, as the protocol has them."""


class KafkaTopics:
    """Sends each entry as a flat message, or one for each partition of its rows.

    A batch is acked when the brokers have confirmed all of its messages. After a
    failure or a crash, messages since the last ack are sent again, in the same order.

    Args:
        servers: the brokers to begin with, `host:port`, separated by commas
        topic: the topic; with `dynamic_topic`, that of what no expression matches
        partition: the partition of all messages, unless `partition_hash` matches
        partitions: how many partitions a topic has, for `partition_hash`
        partition_hash: how rows find their partition, as in `canal.mq.partitionHash`
        dynamic_topic: topics of tables, as in `canal.mq.dynamicTopic`
        dynamic_topic_partitions: partitions of topics, as in
            `canal.mq.dynamicTopicPartitionNum`
        database_hash: whether the schema's name is part of the hash of columns
        config: a file with more settings of librdkafka, a line each: `key=value`; for
            example for TLS and SASL
        clock: returns the time in seconds since 1970

    """

    def __init__(
        self,
        servers: str,
        topic: str = "",
        *,
        partition: int = 0,
        partitions: int = 1,
        partition_hash: str = "",
        dynamic_topic: str = "",
        dynamic_topic_partitions: str = "",
        database_hash: bool = True,
        config: str | Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not (topic or dynamic_topic):
            raise ValueError("expected topic, dynamic_topic or both")
        self._kafka = required("confluent_kafka", "kafka", extra="kafka")
        settings = RoutingSettings(
            topic=topic,
            partition=partition,
            partitions=partitions,
            partition_hash=partition_hash,
            dynamic_topic=dynamic_topic,
            dynamic_topic_partitions=dynamic_topic_partitions,
            database_hash=database_hash,
        )
        self._flat = FlatMessages(Router(settings))
        self._servers = servers
        given = _read(Path(config)) if config is not None else {}
        self._config = _OURS | given | {"bootstrap.servers": servers}
        self._clock = clock
        self._producer: Any = None
        self._pending = 0  # messages that are not confirmed
        self._failure: CanalError | None = None  # the first since the last flush
        self._reason = ""  # the last error of a connection
        try:
            self._made()  # connects to nobody yet
        except (self._kafka.KafkaException, ValueError, TypeError) as error:
            raise ConfigError([f"settings of Kafka: {_text_of(error)}"]) from None

    def open(self) -> None:
        """Ask the brokers for their topics. Raises RetryLater."""
        self._producer = self._made()
        try:
            self._producer.list_topics(timeout=OPEN_S)
        except self._kafka.KafkaException as error:
            raise RetryLater(
                f"Kafka at {self._servers} does not answer: "
                f"{self._reason or _text_of(error)}"
            ) from None

    def handle_message(self, message: Batch) -> None:
        """Send the messages of a batch, without waiting for the brokers."""
        now_ms = int(self._clock() * 1000)
        for topic, partition, value in self._flat.convert(
            message.id, message.body, now_ms
        ):
            self._send(topic, partition, value)
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until all messages are confirmed. Raises RetryLater, Rejected."""
        deadline_s = time.monotonic() + FLUSH_S
        while self._pending and self._failure is None:
            if time.monotonic() > deadline_s:
                raise RetryLater(
                    f"Kafka at {self._servers} has not confirmed {self._pending} "
                    f"messages in {FLUSH_S:g} s"
                    + (f": {self._reason}" if self._reason else "")
                )
            self._producer.poll(POLL_S)
        if self._failure is not None:
            raise self._failure

    def rollback(self) -> None:
        """Forget what is not sent, and wait for the answers to what is."""
        self._producer.purge(in_flight=False, blocking=True)
        deadline_s = time.monotonic() + FLUSH_S
        while self._pending and time.monotonic() < deadline_s:
            self._producer.poll(POLL_S)
        if self._pending:
            # A request that nobody answers: its producer ends, with what it still has.
            self._producer.purge(blocking=True)
            self._producer = self._made()
        self._pending, self._failure, self._reason = 0, None, ""

    def close(self) -> None:
        """Send what was handled, if that is possible soon."""
        if self._producer is not None:
            self._producer.flush(OPEN_S)

    def _made(self) -> Any:
        config = self._config | {"error_cb": self._on_error}
        return self._kafka.Producer(config, logger=logger)

    def _send(self, topic: str, partition: int, value: bytes) -> None:
        produce, kafka = self._producer.produce, self._kafka
        deadline_s = time.monotonic() + FLUSH_S
        while True:
            try:
                produce(topic, value, partition=partition, on_delivery=self._delivered)
            except BufferError:  # the queue of the producer is full
                self._producer.poll(POLL_S)
                if self._failure is not None:
                    raise self._failure from None
                if time.monotonic() > deadline_s:
                    raise RetryLater(
                        f"Kafka at {self._servers} accepts no messages: {self._reason}"
                    ) from None
            except kafka.KafkaException as error:
                raise self._as_ours(error.args[0], topic, len(value)) from None
            else:
                self._pending += 1
                return

    def _delivered(self, error: Any, message: Any) -> None:
        self._pending -= 1
        if error is not None and self._failure is None:
            size = len(message.value() or b"")
            self._failure = self._as_ours(error, message.topic(), size)

    def _as_ours(self, error: Any, topic: str, size: int) -> CanalError:
        """Return what an error of a message means for the consumer."""
        codes = self._kafka.KafkaError
        if error.code() in (codes.MSG_SIZE_TOO_LARGE, codes.INVALID_MSG_SIZE):
            return Rejected(
                f"topic {topic}: a message of {size} bytes is too large: raise "
                "message.max.bytes of `config`, and of the topic (max.message.bytes)"
            )
        return RetryLater(f"topic {topic}: {error.str()}")

    def _on_error(self, error: Any) -> None:
        self._reason = error.str()


def _read(path: Path) -> dict[str, str]:
    """Return the settings of a file. Raises ConfigError; never shows a value."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not UTF-8"
        raise ConfigError([f"{path}: {why}"]) from None
    found, problems = {}, []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key, equals, value = text.partition("=")
        if not (key.strip() and equals):
            problems.append(f"{path}:{number}: expected key=value")
        elif key.strip() in _FIXED:
            problems.append(
                f"{path}:{number}: {key.strip()} cannot be set: no message may get lost"
            )
        else:
            found[key.strip()] = value.strip()
    if problems:
        raise ConfigError(problems)
    return found


def _text_of(error: Exception) -> str:
    found = error.args[0] if error.args else error
    text = found.str() if hasattr(found, "str") else found
    return str(text)
