"""Checks of Pulsar: brokers that answer, the token, topics and their partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.cli.check.queue_results import QUEUE, TOPICS, skipped_topics
from canal_server.delivery.queue_delivery import routing_of
from canal_server.delivery.queue_kinds import PulsarKind
from canal_server.errors import CanalError, ConfigError
from canal_server.model.check_results import CheckResult, fail, ok, warn
from canal_server.queues.routing import Router

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canal_server.config.schema import DaemonConfig, InstanceConfig, QueueConfig
    from canal_server.queues.producers.pulsar_producer import PulsarProducer


def check_pulsar(config: DaemonConfig, server: str) -> Iterator[CheckResult]:
    """Yield what is found; nothing is created or sent.

    `server` is the subject of what concerns no single destination.
    """
    queue = config.server.queue
    try:
        producer = PulsarKind(queue).producer(None)
    except ConfigError as error:
        yield from (fail(QUEUE, each).of(server) for each in error.problems)
        yield from skipped_topics(config)
        return
    except CanalError as error:
        yield fail(QUEUE, str(error)).of(server)
        yield from skipped_topics(config)
        return
    try:
        yield from _check(config, server, producer)
    finally:
        producer.close(0.0)


def _check(
    config: DaemonConfig, server: str, producer: PulsarProducer
) -> Iterator[CheckResult]:
    queue = config.server.queue
    found: list[CheckResult] = []
    for instance in config.instances:
        try:
            results = list(_check_topics(instance, queue, producer))
        except CanalError as error:
            yield fail(QUEUE, str(error)).of(server)
            yield from skipped_topics(config)
            return
        found.extend(each.of(instance.destination) for each in results)
    yield ok(QUEUE, f"{queue.mode.value} at {producer.servers} answers").of(server)
    yield from found


def _check_topics(
    instance: InstanceConfig, queue: QueueConfig, producer: PulsarProducer
) -> Iterator[CheckResult]:
    """Yield what is found of topics. Raises CanalError when nobody answers."""
    routing = routing_of(instance, queue)
    try:
        router = Router(routing)
    except ConfigError as error:
        yield from (fail(TOPICS, each) for each in error.problems)
        return
    notes = [queue.too_large_topic] if queue.too_large_topic else []
    for name in dict.fromkeys([*router.fixed_topics(), *notes]):
        count = producer.partitions(name)
        if routing.partition_hash and name not in notes:
            needed = router.partitions_of(name)
        else:
            needed = 1
        if count == 0:
            what = f"topic {name} has no partitions, or does not exist"
            if needed == 1:
                yield ok(TOPICS, what)
            else:
                yield warn(
                    TOPICS,
                    f"{what}: create it with {needed} partitions, or set"
                    " pulsarmq.adminServerUrl, which does so",
                )
        elif count < needed:
            yield warn(
                TOPICS,
                f"topic {name} has {count} partitions, by the settings {needed}, so"
                " some have the messages of several: add partitions, or lower"
                " canal.mq.partitionsNum or canal.mq.dynamicTopicPartitionNum",
            )
        else:
            yield ok(TOPICS, f"topic {name} has {count} partitions")
