"""Sends messages to Apache Kafka in transactions that contain a position.

A transaction is visible as a whole, or not at all, to consumers that read committed
messages only. The position is the last message of a compacted topic with one partition,
which nothing else writes to: another open transaction in it would hide the last one.
"""

from __future__ import annotations

import hashlib
import re
import time
from typing import TYPE_CHECKING, Any, Final

from canal_server.queues.producers.kafka_admin import Details, TopicCreation
from canal_server.queues.producers.kafka_producer import (
    OF_SERVER,
    OPEN_S,
    KafkaProducer,
    being_created,
)
from canal_server.queues.producers.queue_producer import (
    BrokerUnavailableError,
    OutcomeUnknownError,
)
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canal_server.queues.producers.kafka_refusals import Refusals

ABORT_S: Final = 10.0  # for the brokers to answer
_ABORT_CALL_S: Final = 1.0  # of them, until a stop is looked for
READ_S: Final = 30.0  # for the topic of the position
TIMEOUT_MS: Final = 600_000  # of a transaction; brokers allow 900,000 by default
_POLL_S: Final = 0.5
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
TIMEOUT_KEY: Final = "transaction.timeout.ms"
NOT_ALLOWED: Final = (
    "the account may not use it: allow Write and Describe on the transactional id"
)
_SETTINGS: Final = {  # of the topic; small files are compacted soon
    "cleanup.policy": "compact",
    "segment.bytes": "16777216",
    "min.cleanable.dirty.ratio": "0.1",
}


def position_topic(prefix: str, destination: str) -> str:
    """Return the topic of a destination's position; also its transactional.id."""
    if _NAME.fullmatch(destination):
        return f"{prefix}.{destination}"
    digest = hashlib.sha256(destination.encode()).hexdigest()
    return f"{prefix}.{digest[:32]}"


def timeout_of(settings: Mapping[str, str]) -> str:
    """Return how long a transaction may take, in ms."""
    return settings.get(TIMEOUT_KEY, str(TIMEOUT_MS))


def creation_of_position(replicas: int) -> TopicCreation:
    """Return how the topic of a position is created."""
    return TopicCreation(lambda _: 1, replicas, _SETTINGS)


class TransactionalKafkaProducer(KafkaProducer):
    """A `KafkaProducer` whose messages are sent in transactions; for one thread.

    `topic` is that of the position, and the transactional.id: whoever opens it next
    ends what this one had not committed, and this one can commit nothing more.
    `replicas` are those of the topic.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        topic: str,
        *,
        purpose: str = "Kafka",
        refusals: Refusals = OF_SERVER,
        creation: TopicCreation | None = None,
        replicas: int = -1,
    ) -> None:
        timeout_ms = timeout_of(settings)
        self.topic = topic
        self._replicas = replicas
        self._is_opened = False  # transactions of the present producer are possible
        self._is_begun = False
        super().__init__(
            {**settings, TIMEOUT_KEY: timeout_ms},
            purpose=purpose,
            refusals=refusals,
            creation=creation,
            # What is given up ends the transaction, and is sent in the next one.
            fixed={"transactional.id": topic, "message.timeout.ms": timeout_ms},
        )

    def open(self) -> None:
        """Connect, end what an earlier producer left, so that all is known.

        Raises BrokerUnavailableError.
        """
        if self._is_opened or self._is_spent:
            self._replace()
        super().open()
        try:
            self._producer.init_transactions(OPEN_S)
        except self._kafka.KafkaException as error:
            self._is_spent = not error.args[0].retriable()
            raise self._failed("cannot begin", error) from None
        self._is_opened = True

    def position(self, stop: Stop | None = None) -> bytes | None:
        """Return the position of the last transaction, None: there was none.

        Call it after `open`. Raises BrokerUnavailableError, also when a stop is
        requested meanwhile.
        """
        if self.topic not in self.topics():
            # It is read nevertheless: perhaps the broker has only just started.
            self.admin().create(self.topic, 1, creation_of_position(self._replicas))
        consumer = self._kafka.Consumer(
            {
                **self._of_connections(),
                "group.id": self.topic,  # which is never joined
                "enable.auto.commit": "false",
                "enable.partition.eof": "true",
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "error_cb": self._on_error,
            },
            logger=Details(),
        )
        try:
            return self._read_last(consumer, stop or Stop())
        except self._kafka.KafkaException as error:
            raise self._unavailable(error) from None
        finally:
            consumer.close()

    def _read_last(self, consumer: Any, stop: Stop) -> bytes | None:
        codes = self._kafka.KafkaError
        beginning = self._kafka.OFFSET_BEGINNING
        consumer.assign([self._kafka.TopicPartition(self.topic, 0, beginning)])
        give_up_at = time.monotonic() + READ_S
        found: bytes | None = None
        while time.monotonic() < give_up_at and not stop.requested():
            message = consumer.poll(_POLL_S)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found = message.value()
                give_up_at = time.monotonic() + READ_S
            elif error.code() == codes._PARTITION_EOF:  # noqa: SLF001  # their name
                return found
            elif not error.retriable() and error.code() not in being_created(codes):
                raise BrokerUnavailableError(
                    f"the position in topic {self.topic}: {error.str()}"
                )
        raise BrokerUnavailableError(
            f"the position in topic {self.topic} cannot be read from Kafka at"
            f" {self.servers}: {self.last_error or f'no answer for {READ_S:g} s'}"
        )

    def begin(self) -> None:
        """Begin a transaction, unless one is open. Raises BrokerUnavailableError."""
        if self._is_begun:
            return
        try:
            self._producer.begin_transaction()
        except self._kafka.KafkaException as error:
            self._is_spent = True
            raise self._failed("cannot begin", error) from None
        self._is_begun = True

    def send_position(self, value: bytes) -> None:
        """Add the position to the transaction, whose last message it is.

        Raises BrokerUnavailableError.
        """
        try:
            self._producer.produce(self.topic, value, key=self.topic, partition=0)
        except BufferError:
            raise BrokerUnavailableError(
                f"topic {self.topic}: the buffer of messages is full"
            ) from None
        except self._kafka.KafkaException as error:
            raise self._failed("failed", error) from None

    def try_commit(self, timeout_s: float) -> bool:
        """Commit the transaction; false: not known yet, so call it again.

        Raises BrokerUnavailableError when nothing of it will be visible, and
        OutcomeUnknownError when only the next `open` can find that out.
        """
        try:
            self._producer.commit_transaction(timeout_s)
        except self._kafka.KafkaException as error:
            cause = error.args[0]
            if cause.retriable():
                # Which says only that there was no answer.
                self.last_error = self.last_error or cause.str()
                return False
            if cause.txn_requires_abort():
                raise self._failed("failed", error) from None
            self._is_spent = True
            raise OutcomeUnknownError(str(self._failed("failed", error))) from None
        self._is_begun = False
        return True

    def abort(self, wait_s: float = ABORT_S, stop: Stop | None = None) -> bool:
        """Abort the transaction; false: the producer must be opened again.

        The brokers abort it then, if this could not within `wait_s`, or before a stop.
        """
        if not self._is_begun and not self._is_spent:
            return True
        give_up_at = time.monotonic() + wait_s
        while not self._is_spent and self._is_begun:
            try:
                self._producer.abort_transaction(min(_ABORT_CALL_S, wait_s))
                self._is_begun = False
            except self._kafka.KafkaException as error:
                is_over = time.monotonic() > give_up_at or (stop and stop.requested())
                self._is_spent = bool(is_over) or not error.args[0].retriable()
        self._answer_failures()  # of what was aborted
        if not self._is_spent:
            self._cause = None
        return not self._is_spent

    def renew(self) -> None:
        """Do nothing: `open` does it."""

    def _replace(self) -> None:
        self._is_begun = self._is_opened = False
        super()._replace()

    def _failed(self, what: str, error: Exception) -> BrokerUnavailableError:
        self.poll(0)  # for the reason
        return self._because(what, self._fatal or error.args[0])

    def _ended(self, error: Any) -> BrokerUnavailableError:
        """Return what a fatal error means, of which being fenced is the usual one."""
        return self._because("cannot continue", error)

    def _because(self, what: str, cause: Any) -> BrokerUnavailableError:
        codes = self._kafka.KafkaError
        text = cause.str()
        if cause.code() in (codes._FENCED, codes.PRODUCER_FENCED):  # noqa: SLF001
            text = (
                "another producer uses it, or a transaction took longer than"
                f" kafka.{TIMEOUT_KEY}, {self._config[TIMEOUT_KEY]} ms: unless that"
                " is this destination on another server, raise that, or set another"
                " canal.mq.positionTopic for one of them"
            )
        elif cause.code() == codes.INVALID_TRANSACTION_TIMEOUT:
            text = (
                f"the brokers allow no kafka.{TIMEOUT_KEY} of"
                f" {self._config[TIMEOUT_KEY]}: lower it, or raise"
                " transaction.max.timeout.ms there"
            )
        elif cause.code() == codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            text = NOT_ALLOWED
        return BrokerUnavailableError(f"transactions of {self.topic} {what}: {text}")
