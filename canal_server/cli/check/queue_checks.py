"""Checks of the message queue, and of the schema registry of its messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal_server.cli.check.kafka_checks import check_kafka
from canal_server.cli.check.pulsar_checks import check_pulsar
from canal_server.cli.check.rabbit_checks import check_rabbit
from canal_server.cli.check.unmatched_items import check_items
from canal_server.config.schema import MessageLayout, ServerMode, SubjectNames
from canal_server.delivery.queue_delivery import routing_of
from canal_server.errors import CanalError
from canal_server.model.check_results import CheckResult, fail, ok, warn
from canal_server.queues.schema_registry import SchemaRegistry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canal_server.config.schema import DaemonConfig

REGISTRY: Final = "schema_registry"
_CHECKS: Final = {
    ServerMode.KAFKA: check_kafka,
    ServerMode.RABBITMQ: check_rabbit,
    ServerMode.PULSARMQ: check_pulsar,
}


def check_queue(config: DaemonConfig, server: str) -> Iterator[CheckResult]:
    """Yield what is found; nothing if no message queue is configured.

    `server` is the subject of what concerns no single destination.
    """
    queue = config.server.queue
    if queue.mode is ServerMode.TCP:
        return
    if queue.flat and queue.layout is MessageLayout.DEBEZIUM_AVRO:
        yield from _check_registry(config, server)
    yield from _CHECKS[queue.mode](config, server)
    if queue.mode is not ServerMode.KAFKA:  # which looks at more of the tables
        yield from check_items(config)


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
