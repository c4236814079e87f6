"""The topics of a destination: those of its settings, and those of its tables."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from canal_server.capture.source_parts import access_of
from canal_server.config.schema import MessageKeys
from canal_server.delivery.queue_delivery import routing_of
from canal_server.errors import CanalError
from canal_server.queues.routing import Router
from canal_server.source.check.matched_tables import matched_tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from canal_server.config.schema import InstanceConfig, QueueConfig, RoutingConfig
    from canal_server.model.columns_known import TableMeta
    from canal_server.source.check.source_facts import Table

NAMED_MAX: Final = 5  # in a message
TOPIC_KEY: Final = "canal.mq.topic"
DYNAMIC_KEY: Final = "canal.mq.dynamicTopic"
NOTES_KEY: Final = "canal.mq.tooLargeTopic"


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The topics of a destination, by its settings and the tables that it delivers.

    `named` are the topics of the settings, with the key that names each. `unread` says
    why the tables are not known; empty: they are, if anything depends on them.
    """

    routing: RoutingConfig
    router: Router
    named: dict[str, str]
    notes: str = ""  # the topic of notes about messages that are too large
    tables: dict[str, list[Table]] = field(default_factory=dict)  # by topic
    columns: Sequence[TableMeta] = ()
    unread: str = ""

    @property
    def computed(self) -> list[str]:
        """Return the topics that have their names from tables."""
        return sorted(self.tables.keys() - self.named.keys())

    @property
    def topics(self) -> list[str]:
        """Return all of them, those of the settings first."""
        return [*self.named, *self.computed]

    def needed(self, topic: str) -> int:
        """Return how many partitions a topic has to have at least."""
        if topic == self.notes:
            return 1
        if self.routing.partition_hash:
            return self.router.partitions_of(topic)
        return self.routing.partition + 1

    def created_with(self, topic: str) -> int:
        """Return how many partitions a topic gets that the server creates."""
        return max(self.router.partitions_of(topic), self.needed(topic))


def plan_of(instance: InstanceConfig, queue: QueueConfig) -> TopicPlan:
    """Return the topics of a destination. Raises ConfigError for wrong settings."""
    routing = routing_of(instance, queue)
    router = Router(routing)
    default, *named = router.fixed_topics()
    own = TOPIC_KEY if instance.routing.topic else f"no {TOPIC_KEY}, so the destination"
    keys = {default: own} | {each: DYNAMIC_KEY for each in named if each != default}
    notes = queue.too_large_topic
    if notes:
        keys.setdefault(notes, NOTES_KEY)
    plan = TopicPlan(routing, router, keys, "" if notes in (default, *named) else notes)
    with_columns = bool(routing.partition_hash or queue.keys is not MessageKeys.NONE)
    if not (routing.dynamic_topic or with_columns):
        return plan
    tables: dict[str, list[Table]] = {}
    columns: list[TableMeta] = []
    unread = ""
    try:
        for each in instance.by_source:
            access = access_of(each.source, each.destination)
            found = matched_tables(access, each.filter, with_columns=with_columns)
            columns += found.columns
            unread = unread or found.unread
            for table in found.names:
                tables.setdefault(router(*table).topic, []).append(table)
    except CanalError as error:
        unread = str(error)
    return replace(plan, tables=tables, columns=columns, unread=unread)


def listed(names: Iterable[str]) -> str:
    """Return names for a message: the first ones, and how many more there are."""
    found = list(names)
    more = len(found) - NAMED_MAX
    shown = ", ".join(found[:NAMED_MAX])
    return f"{shown} and {more} more" if more > 0 else shown


def names_of(tables: Iterable[Table]) -> str:
    """Return tables for a message."""
    return listed(".".join(each) for each in tables)
