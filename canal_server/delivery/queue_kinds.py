"""The kinds of message queues: which producer a mode has, with which settings."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, Protocol

from canal_server.config.schema import MessageKeys, ServerMode
from canal_server.errors import CanalError, ConfigError
from canal_server.queues.producers.kafka_admin import CLEANUP, COMPACT, TopicCreation
from canal_server.queues.producers.kafka_producer import KafkaProducer
from canal_server.queues.producers.kafka_refusals import NOTES_KEY, Refusals
from canal_server.queues.producers.kafka_rights import TransactionRights
from canal_server.queues.producers.kafka_settings import (
    SERVERS_KEY,
    SettingRefusedError,
    WrongSettingsError,
    is_of_one,
    librdkafka_settings,
    refused_setting,
)
from canal_server.queues.producers.kafka_transactions import (
    TransactionalKafkaProducer,
    position_topic,
)
from canal_server.queues.producers.pulsar_producer import PulsarProducer
from canal_server.queues.producers.pulsar_settings import pulsar_settings
from canal_server.queues.producers.rabbit_producer import RabbitProducer
from canal_server.queues.producers.rabbit_settings import rabbit_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from canal_server.config.schema import QueueConfig
    from canal_server.queues.producers.queue_producer import Producer
    from canal_server.queues.routing import Router

IN_FLIGHT_BYTES: Final = 32 * 1024 * 1024  # as `buffer.memory` of Kafka's Java client
_BUFFER: Final = "queue.buffering.max.kbytes"
_KIB: Final = 1024


class QueueKind(Protocol):
    """A message queue as the settings describe it."""

    @property
    def servers(self) -> str:
        """Return the addresses of the brokers."""

    @property
    def in_flight_bytes(self) -> int:
        """Return how much of a destination may wait for its confirmation."""

    @property
    def is_by_partition(self) -> bool:
        """Return whether each partition has an order, in which brokers answer.

        Then those that were confirmed are not sent again when others failed.
        """

    def producer(self, router: Router | None) -> Producer:
        """Return a producer, not connected; with a router, it may create topics.

        Raises CanalError.
        """


def kind_of(queue: QueueConfig) -> QueueKind:
    """Return the message queue of the settings. Raises ConfigError."""
    return _KINDS[queue.mode](queue)


def purpose_of(queue: QueueConfig) -> str:
    """Return what needs a library, for errors."""
    return f"canal.serverMode = {queue.mode.value}"


def notes_topic(queue: QueueConfig) -> str:
    """Return the topic of notes about messages that are too large; empty: none."""
    return queue.too_large_topic if _can_send_notes(queue) else ""


def _can_send_notes(queue: QueueConfig) -> bool:
    """Return whether notes can be sent.

    A message of protobuf cannot be recognized when a transaction is sent again.
    """
    return queue.flat or not queue.exactly_once


def check_producer(queue: QueueConfig) -> None:
    """Raise ConfigError for settings with which there is no producer."""
    if queue.mode is not ServerMode.TCP:
        kind_of(queue).producer(None).close(0.0)


@contextlib.contextmanager
def located(queue: QueueConfig) -> Iterator[None]:
    """Have problems of a producer's settings name the file and the key of each."""
    try:
        yield
    except SettingRefusedError as error:
        given = dict(queue.properties)
        problems = [_located(queue, refused_setting(e, given)) for e in error.texts]
        raise ConfigError(problems) from None
    except ConfigError as error:
        problems = [_located(queue, each) for each in error.problems]
        raise ConfigError(problems, error.warnings) from None


def _located(queue: QueueConfig, problem: str) -> str:
    """Return a problem, which begins with the key of the producer."""
    prefix = f"{queue.mode.value}."
    for name, file, key in queue.origins:
        rest = problem.removeprefix(prefix + name)
        if rest != problem and rest.startswith((":", " = ")):
            return f"{file}: {key}{rest}"
    return f"{queue.file}: {problem}"


class KafkaKind:
    """Apache Kafka."""

    is_by_partition: bool = True

    def __init__(self, queue: QueueConfig) -> None:
        """Read the settings. Raises ConfigError."""
        self._queue = queue
        with located(queue):
            try:
                self._settings = librdkafka_settings(dict(queue.properties))
            except WrongSettingsError as error:
                raise ConfigError([*error.problems, *self._refused(error)]) from None
        self.servers = self._settings[SERVERS_KEY]
        kib = int(self._settings.get(_BUFFER, IN_FLIGHT_BYTES // _KIB))
        self.in_flight_bytes = kib * _KIB

    def _refused(self, error: WrongSettingsError) -> list[str]:
        """Return what librdkafka refuses of those settings that it would get."""
        given = dict(self._queue.properties)
        try:
            KafkaProducer({SERVERS_KEY: "", **error.others})
        except SettingRefusedError as refused:
            return [refused_setting(e, given) for e in refused.texts if is_of_one(e)]
        except CanalError:
            pass  # it is not installed
        return []

    def producer(self, router: Router | None) -> KafkaProducer:
        """Return a producer. Raises CanalError."""
        with located(self._queue):
            return KafkaProducer(
                self._settings,
                purpose=purpose_of(self._queue),
                refusals=self._refusals(router),
                creation=self.creation(router),
                passes_refused=bool(self._queue.too_large_topic),
                is_pushed=True,
            )

    def transactional_producer(
        self, destination: str, router: Router | None = None
    ) -> TransactionalKafkaProducer:
        """Return one with transactions, of a destination. Raises CanalError."""
        with located(self._queue):
            return TransactionalKafkaProducer(
                self._settings,
                position_topic(self._queue.position_topic, destination),
                purpose=purpose_of(self._queue),
                refusals=self._refusals(router),
                creation=self.creation(router),
                replicas=self._queue.topic_replicas,
            )

    def transaction_rights(self, destination: str) -> TransactionRights:
        """Return what asks for the rights that the latter needs. Raises CanalError."""
        with located(self._queue):
            return TransactionRights(
                self._settings,
                position_topic(self._queue.position_topic, destination),
                purpose=purpose_of(self._queue),
                replicas=self._queue.topic_replicas,
            )

    def _refusals(self, router: Router | None) -> Refusals:
        """Return the words for what brokers refuse."""
        queue = self._queue
        return Refusals(
            notes_topic=notes_topic(queue),
            notes_key=NOTES_KEY if _can_send_notes(queue) else "",
            has_keys=queue.keys is MessageKeys.PRIMARY_KEY,
            creates_compacted=queue.create_topics
            and COMPACT in dict(queue.topic_settings).get(CLEANUP, ""),
            partitions_of=None if router is None else router.partitions_of,
        )

    def creation(self, router: Router | None) -> TopicCreation | None:
        """Return how topics are created, None: they are not."""
        queue = self._queue
        if router is None or not queue.create_topics:
            return None
        # Each note counts, whatever its key is.
        return TopicCreation(
            router.partitions_of,
            queue.topic_replicas,
            dict(queue.topic_settings),
            uncompacted=frozenset({queue.too_large_topic} - {""}),
        )


class RabbitKind:
    """RabbitMQ."""

    in_flight_bytes: int = IN_FLIGHT_BYTES
    # A queue may take several topics, and confirmations come in any order.
    is_by_partition: bool = False

    def __init__(self, queue: QueueConfig) -> None:
        """Read the settings. Raises ConfigError."""
        self._purpose = purpose_of(queue)
        with located(queue):
            self._settings = rabbit_settings(dict(queue.properties))
        self.servers = self._settings.servers

    def producer(self, router: Router | None) -> RabbitProducer:
        """Return a producer. Raises CanalError."""
        del router  # what is declared does not depend on topics
        return RabbitProducer(self._settings, purpose=self._purpose)


class PulsarKind:
    """Apache Pulsar."""

    in_flight_bytes: int = IN_FLIGHT_BYTES
    # The library reports what it refuses itself before what was sent earlier.
    is_by_partition: bool = False

    def __init__(self, queue: QueueConfig) -> None:
        """Read the settings. Raises ConfigError."""
        self._purpose = purpose_of(queue)
        with located(queue):
            self._settings = pulsar_settings(dict(queue.properties))
        self.servers = self._settings.servers

    def producer(self, router: Router | None) -> PulsarProducer:
        """Return a producer. Raises CanalError."""
        return PulsarProducer(
            self._settings,
            purpose=self._purpose,
            known_topic=router.fixed_topics()[0] if router is not None else "",
            partitions_of=router.partitions_of if router is not None else None,
        )


_KINDS: Final[Mapping[ServerMode, Callable[[QueueConfig], QueueKind]]] = {
    ServerMode.KAFKA: KafkaKind,
    ServerMode.RABBITMQ: RabbitKind,
    ServerMode.PULSARMQ: PulsarKind,
}
