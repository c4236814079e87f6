"""Checks of Kafka: brokers that answer, topics, and the rights of transactions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from canal_server.cli.check.kafka_topic_checks import (
    ask_brokers,
    check_creation,
    check_topics,
)
from canal_server.cli.check.queue_results import QUEUE, skipped_topics
from canal_server.cli.check.topic_plan import plan_of
from canal_server.delivery.queue_kinds import KafkaKind
from canal_server.errors import CanalError
from canal_server.model.check_results import CheckResult, fail, ok, skip
from canal_server.queues.producers.kafka_rights import LIMIT_KEY
from canal_server.queues.producers.kafka_transactions import TIMEOUT_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canal_server.config.schema import DaemonConfig, QueueConfig

AT_A_TIME: Final = 16  # sources that are asked for their tables together
EXACTLY_ONCE: Final = "exactly_once"


def check_kafka(config: DaemonConfig, server: str) -> Iterator[CheckResult]:
    """Yield what is found; `server` is the subject of what concerns them all.

    The settings were found valid (`check_deliverable`).
    """
    queue = config.server.queue
    with ThreadPoolExecutor(AT_A_TIME, "topics") as pool:
        plans = list(pool.map(lambda each: plan_of(each, queue), config.instances))
    try:
        kind = KafkaKind(queue)
        producer = kind.producer(None)
        there = ask_brokers(producer, kind, plans)
        producer.close(0.0)
    except CanalError as error:
        yield fail(QUEUE, str(error)).of(server)
        yield from skipped_topics(config)
        return
    text = f"{queue.mode.value} at {producer.servers} answers"
    yield ok(QUEUE, f"{text}, {len(there.partitions)} topics").of(server)
    yield from (each.of(server) for each in check_creation(there))
    for instance, plan in zip(config.instances, plans, strict=True):
        name = instance.destination
        for each in check_topics(plan, queue, there):
            yield each.of(name)
        if queue.exactly_once:
            for each in _check_transactions(name, queue):
                yield each.of(name)


def _check_transactions(destination: str, queue: QueueConfig) -> Iterator[CheckResult]:
    """Ask for the rights of `canal.mq.exactlyOnce`, without a transaction."""
    rights = KafkaKind(queue).transaction_rights(destination)
    name = rights.topic
    try:
        yield _check_timeout(rights.timeout_ms, rights.timeout_max())
    except CanalError as error:
        yield skip(EXACTLY_ONCE, f"kafka.{TIMEOUT_KEY}", str(error))
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


def _check_timeout(timeout_ms: str, limit_ms: str) -> CheckResult:
    """Check that the brokers accept the timeout; an empty limit is not known."""
    what = f"kafka.{TIMEOUT_KEY} = {timeout_ms}"
    if not (limit_ms.isdecimal() and timeout_ms.isdecimal()):
        why = (
            f"the account may not read {LIMIT_KEY} of the brokers: allow"
            " DescribeConfigs on the cluster, or compare them"
        )
        return skip(EXACTLY_ONCE, what, why)
    if int(timeout_ms) > int(limit_ms):
        return fail(
            EXACTLY_ONCE,
            f"{what}: the brokers allow {limit_ms}, so no transaction can begin",
            f"lower it, or raise {LIMIT_KEY} of the brokers",
        )
    return ok(EXACTLY_ONCE, f"{what}, the brokers allow {limit_ms}")
