"""Items of routing settings that match no table, or no topic: they have no effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal_server.cli.check.queue_results import TOPICS
from canal_server.cli.check.topic_plan import DYNAMIC_KEY, listed, plan_of
from canal_server.model.check_results import CheckResult, skip, warn
from canal_server.source.check.matched_tables import TABLES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from canal_server.cli.check.topic_plan import TopicPlan
    from canal_server.config.schema import DaemonConfig

HASH_KEY: Final = "canal.mq.partitionHash"
COUNT_KEY: Final = "canal.mq.dynamicTopicPartitionNum"
_CORRECT: Final = (
    "correct it (schema.table, or an expression such as shop\\\\..*) or"
    " canal.instance.filter.regex, or remove it"
)


def unmatched_items(plan: TopicPlan) -> Iterator[CheckResult]:
    """Yield the items of a destination, with their keys.

    Nothing if its tables are not known, or there are more than were read.
    """
    tables = [each for of_topic in plan.tables.values() for each in of_topic]
    if plan.unread or len(tables) >= TABLES_MAX:
        return
    found = plan.router.unmatched(tables, plan.topics)
    # Without a table it is the filter that matches nothing: another check reports it.
    for key, items in ((DYNAMIC_KEY, found.topics), (HASH_KEY, found.hashes)):
        if items and tables:
            yield warn(
                TOPICS, f"{_no_match(key, items)} table that is delivered", _CORRECT
            )
    if found.counts and (tables or not plan.routing.dynamic_topic):
        yield warn(
            TOPICS,
            f"{_no_match(COUNT_KEY, found.counts)} topic",
            f"write topic:number, for {listed(plan.topics)}",
        )


def _no_match(key: str, items: Sequence[str]) -> str:
    return f"{key}: {listed(items)} {'matches' if len(items) == 1 else 'match'} no"


def check_items(config: DaemonConfig) -> Iterator[CheckResult]:
    """Yield them for each destination, for queues without a check of tables."""
    for instance in config.instances:
        routing = instance.routing
        items = (routing.dynamic_topic, routing.partition_hash)
        if not any((*items, routing.dynamic_topic_partitions)):
            continue
        plan = plan_of(instance, config.server.queue)
        if plan.unread:
            what = "which tables the routing settings match"
            yield skip(TOPICS, what, plan.unread).of(instance.destination)
        for each in unmatched_items(plan):
            yield each.of(instance.destination)
