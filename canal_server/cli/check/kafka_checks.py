"""Checks of Kafka: brokers that answer, topics with enough partitions, rights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal_server.cli.check.queue_results import QUEUE, TOPICS, skipped_topics
from canal_server.config.schema import MessageKeys, MessageLayout
from canal_server.delivery.queue_delivery import routing_of
from canal_server.delivery.queue_kinds import KafkaKind
from canal_server.errors import CanalError, ConfigError
from canal_server.model.check_results import CheckResult, fail, ok, skip, warn
from canal_server.queues.routing import Router

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from canal_server.config.schema import DaemonConfig, InstanceConfig, QueueConfig

EXACTLY_ONCE: Final = "exactly_once"


def check_kafka(config: DaemonConfig, server: str) -> Iterator[CheckResult]:
    """Yield what is found; `server` is the subject of what concerns them all."""
    queue = config.server.queue
    topics: Mapping[str, int] | None = None
    unwritable: Mapping[str, object] = {}
    try:
        producer = KafkaKind(queue).producer(None)
        topics = producer.topics()
        named = {name for each in config.instances for name in _names(each, queue)}
        unwritable = producer.denied(sorted(named & topics.keys()), "Write")
        producer.close(0.0)
    except ConfigError as error:
        yield from (fail(QUEUE, each).of(server) for each in error.problems)
    except CanalError as error:
        yield fail(QUEUE, str(error)).of(server)
    else:
        text = f"{queue.mode.value} at {producer.servers} answers"
        yield ok(QUEUE, f"{text}, {len(topics)} topics").of(server)
    if topics is None:
        yield from skipped_topics(config)
        return
    for instance in config.instances:
        for each in _check_topics(instance, queue, topics, unwritable):
            yield each.of(instance.destination)
        if queue.exactly_once:
            for each in _check_transactions(instance.destination, queue):
                yield each.of(instance.destination)


def _check_transactions(destination: str, queue: QueueConfig) -> Iterator[CheckResult]:
    """Ask for the rights of `canal.mq.exactlyOnce`, without a transaction."""
    rights = KafkaKind(queue).transaction_rights(destination)
    name = rights.topic
    try:
        why_not = rights.why_no_transactions()
        if why_not:
            yield fail(EXACTLY_ONCE, f"transactions of {name} are refused: {why_not}")
        else:
            yield ok(EXACTLY_ONCE, f"the account may use the transactional id {name}")
    except CanalError as error:
        yield skip(EXACTLY_ONCE, f"the transactional id {name}", str(error))
    try:
        why_not, exists = rights.why_no_position()
        if why_not:
            yield fail(EXACTLY_ONCE, why_not)
        elif exists:
            yield ok(EXACTLY_ONCE, f"the account may read and write topic {name}")
        else:
            yield ok(
                EXACTLY_ONCE,
                f"topic {name} will be created; the account needs Read and Write on it",
            )
    except CanalError as error:
        yield skip(EXACTLY_ONCE, f"topic {name}", str(error))
    finally:
        rights.close(0.0)


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
    unwritable: Mapping[str, object],
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
