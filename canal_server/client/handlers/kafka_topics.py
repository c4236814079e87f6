"""The handler `kafka`: flat messages (canal-json) into topics of Apache Kafka.

Topics, partitions and bytes are those of the original's Kafka mode. The producer is
idempotent and waits for all replicas, so messages of a partition keep their order, also
when requests are repeated.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from canal_server.client.handlers.handler import Rejected, RetryLater
from canal_server.config.schema import RoutingConfig
from canal_server.errors import ConfigError
from canal_server.queues.flat_messages import FlatMessages
from canal_server.queues.producers.kafka_producer import KafkaProducer
from canal_server.queues.producers.kafka_refusals import Refusals
from canal_server.queues.producers.queue_producer import (
    BrokerUnavailableError,
    MessageRefusedError,
    Sending,
    for_log,
)
from canal_server.queues.routing import Router

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FLUSH_S: Final = 30.0  # until unconfirmed messages are reported, and sent again
POLL_S: Final = 0.1
CLOSE_S: Final = 10.0
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
        settings = RoutingConfig(
            topic=topic,
            partition=partition,
            partitions=partitions,
            partition_hash=partition_hash,
            dynamic_topic=dynamic_topic,
            dynamic_topic_partitions=dynamic_topic_partitions,
            database_hash=database_hash,
        )
        router = Router(settings)
        self._flat = FlatMessages(router)
        given = _read(Path(config)) if config is not None else {}
        self._producer = KafkaProducer(
            given | {"bootstrap.servers": servers},
            purpose="the handler kafka",
            refusals=words_with(router),
        )
        self._clock = clock
        self._sending = Sending()

    def open(self) -> None:
        """Ask the brokers for their topics. Raises RetryLater."""
        with _as_ours():
            self._producer.open()

    def handle_message(self, message: Batch) -> None:
        """Send the messages of a batch, without waiting for the brokers.

        Raises RetryLater, Rejected.
        """
        now_ms = int(self._clock() * 1000)
        messages = self._flat.convert(message.id, message.body, now_ms)
        with _as_ours():
            self._producer.prepare(messages)
            for each in messages:
                self._send(each)
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until all messages are confirmed. Raises RetryLater, Rejected."""
        deadline_s = time.monotonic() + FLUSH_S
        sending = self._sending
        while sending.pending and not (sending.failure or sending.refused):
            if time.monotonic() > deadline_s:
                raise RetryLater(
                    f"Kafka at {self._producer.servers} has not confirmed"
                    f" {sending.pending} messages in {FLUSH_S:g} s" + self._reason()
                )
            self._producer.poll(POLL_S)
        self._raise_failure()

    def rollback(self) -> None:
        """Forget what is not sent, and wait for the answers to what is."""
        self._producer.abandon(FLUSH_S)
        self._sending = Sending()

    def close(self) -> None:
        """Send what was handled, if that is possible soon."""
        self._producer.close(CLOSE_S)

    def _send(self, message: tuple[str, int, bytes]) -> None:
        deadline_s = time.monotonic() + FLUSH_S
        while not self._try_send(message):
            self._producer.poll(POLL_S)
            self._raise_failure()
            if time.monotonic() > deadline_s:
                raise RetryLater(
                    f"Kafka at {self._producer.servers} accepts no messages"
                    + self._reason()
                )

    def _try_send(self, message: tuple[str, int, bytes]) -> bool:
        try:
            return self._producer.try_send(message, self._sending)
        except BrokerUnavailableError:
            self.flush()  # an earlier message that was refused is the reason, if any
            raise

    def _raise_failure(self) -> None:
        with _as_ours():
            for _, refused in self._sending.refused:
                raise refused
            if self._sending.failure is not None:
                raise self._sending.failure

    def _reason(self) -> str:
        return f": {self._producer.last_error}" if self._producer.last_error else ""


def words_with(router: Router) -> Refusals:
    """Return the words for what brokers refuse, by the arguments of the handler."""
    return Refusals(
        servers_key="`servers`",
        protocol_key="security.protocol of `config`",
        buffer_key="queue.buffering.max.kbytes of `config`",
        size_key="message.max.bytes of `config`",
        batch_key="batch.size of `config`",
        batch_note="",
        restart="",
        start="",
        notes_key="",
        create="",
        topics_key="`dynamic_topic`",
        partition_keys="`partitions`, `dynamic_topic_partitions` or `partition`",
        unkeyed="",
        partitions_of=router.partitions_of,
    )


@contextlib.contextmanager
def _as_ours() -> Iterator[None]:
    """Raise errors of the producer as what they mean for a consumer."""
    try:
        yield
    except MessageRefusedError as error:
        raise Rejected(for_log(error)) from None
    except BrokerUnavailableError as error:
        raise RetryLater(for_log(error)) from None


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
