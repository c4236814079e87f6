"""Checks of the message queue: brokers that answer, topics with enough partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal_server.cli.check.pulsar_checks import check_pulsar
from canal_server.cli.check.rabbit_checks import check_rabbit
from canal_server.config.schema import (
    MessageKeys,
    MessageLayout,
    ServerMode,
    SubjectNames,
)
from canal_server.delivery.queue_delivery import routing_of
from canal_server.delivery.queue_kinds import KafkaKind
from canal_server.errors import CanalError, ConfigError
from canal_server.model.check_results import CheckResult, fail, ok, skip, warn
from canal_server.queues.routing import Router
from canal_server.queues.schema_registry import SchemaRegistry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from canal_server.config.schema import DaemonConfig, InstanceConfig, QueueConfig

QUEUE: Final = "message_queue"
REGISTRY: Final = "schema_registry"
TOPICS: Final = "topics"
_WITHOUT_KAFKA: Final = {
    ServerMode.RABBITMQ: check_rabbit, ServerMode.PULSARMQ: check_pulsar,
}  # fmt: skip


def check_queue(config: DaemonConfig, server: str) -> Iterator[CheckResult]:
    """Yield what is found; nothing if no message queue is configured.

    `server` is the subject of what concerns no single destination.
    """
    queue = config.server.queue
    if queue.mode is ServerMode.TCP:
        return
    if queue.flat and queue.layout is MessageLayout.DEBEZIUM_AVRO:
        yield from _check_registry(config, server)
    if (check := _WITHOUT_KAFKA.get(queue.mode)) is not None:
        yield from check(config, server)
        return
    topics: Mapping[str, int] | None = None
    unwritable: set[str] = set()
    try:
        producer = KafkaKind(queue).producer(None)
        topics = producer.topics()
        named = {name for each in config.instances for name in _names(each, queue)}
        unwritable = producer.unwritable(sorted(named & topics.keys()))
        producer.close(0.0)
    except ConfigError as error:
        yield from (fail(QUEUE, each).of(server) for each in error.problems)
    except CanalError as error:
        yield fail(QUEUE, str(error)).of(server)
    else:
        text = f"{queue.mode.value} at {producer.servers} answers"
        yield ok(QUEUE, f"{text}, {len(topics)} topics").of(server)
    for instance in config.instances:
        if topics is None:
            why = "the brokers do not answer, or cannot be asked"
            yield skip(TOPICS, "topics and their partitions", why).of(
                instance.destination
            )
        else:
            for each in _check_topics(instance, queue, topics, unwritable):
                yield each.of(instance.destination)


def _check_registry(config: DaemonConfig, server: str) -> Iterator[CheckResult]:
    """Ask the registry of schemas, in which nothing is registered."""
    queue = config.server.queue
    registry = SchemaRegistry(queue.registry)
    try:
        count = registry.subjects()
    except CanalError as error:
        yield fail(REGISTRY, str(error)).of(server)
    else:
        text = f"the schema registry at {registry.address} answers, {count} subjects"
        yield ok(REGISTRY, text).of(server)
    if queue.registry.subjects is not SubjectNames.TOPIC:
        return
    for instance in config.instances:
        routing = routing_of(instance, queue)
        if not routing.dynamic_topic:
            yield warn(
                REGISTRY,
                f"all tables share the subject {routing.topic}-value, in which their"
                " schemas are not compatible: set canal.mq.dynamicTopic = .*\\\\..*, or"
                " canal.mq.schema.registry.subject.name.strategy ="
                " TopicRecordNameStrategy",
            ).of(instance.destination)


def _names(instance: InstanceConfig, queue: QueueConfig) -> list[str]:
    """Return the topics that the settings name; none if they are wrong."""
    try:
        fixed = Router(routing_of(instance, queue)).fixed_topics()
    except ConfigError:  # reported with the topics
        return []
    notes = [queue.too_large_topic] if queue.too_large_topic else []
    return [*fixed, *notes]


def _check_topics(
    instance: InstanceConfig,
    queue: QueueConfig,
    topics: Mapping[str, int],
    unwritable: AbstractSet[str],
) -> Iterator[CheckResult]:
    routing = routing_of(instance, queue)
    try:
        router = Router(routing)
    except ConfigError as error:
        yield from (fail(TOPICS, each) for each in error.problems)
        return
    if _shares_keys(queue) and not routing.dynamic_topic:
        yield warn(
            TOPICS,
            f"all tables share topic {routing.topic}, and keys of Debezium do not name"
            " the table: set canal.mq.dynamicTopic = .*\\\\..*, or do not compact it",
        )
    for name in dict.fromkeys(_names(instance, queue)):
        count = topics.get(name)
        if name == queue.too_large_topic:
            needed = 1
        elif routing.partition_hash:
            needed = router.partitions_of(name)
        else:
            needed = routing.partition + 1
        if count is None and queue.create_topics:
            yield ok(TOPICS, f"topic {name} will be created, {needed} partitions")
        elif count is None:
            yield warn(
                TOPICS,
                f"topic {name} does not exist, or the account may not see it: create"
                f" it with {needed} partitions, set canal.mq.topics.create, or leave it"
                " to the brokers (auto.create.topics.enable)",
            )
        elif count < needed:
            yield fail(
                TOPICS,
                f"topic {name} has {count} partitions, {needed} are needed: add"
                " partitions, or lower canal.mq.partitionsNum,"
                " canal.mq.dynamicTopicPartitionNum or canal.mq.partition",
            )
        elif name in unwritable:
            yield fail(
                TOPICS,
                f"the account may not write to topic {name}: allow Write and Describe"
                " on it",
            )
        else:
            yield ok(TOPICS, f"topic {name} has {count} partitions")


def _shares_keys(queue: QueueConfig) -> bool:
    """Return whether rows of several tables may have the same key."""
    of_debezium = {
        MessageLayout.DEBEZIUM,
        MessageLayout.DEBEZIUM_AVRO,
        MessageLayout.CLOUDEVENTS,
    }
    return queue.layout in of_debezium and queue.keys is MessageKeys.PRIMARY_KEY
