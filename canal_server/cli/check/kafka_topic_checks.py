"""Checks of a destination's topics in Kafka: names, partitions, rights, compaction."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from canal_server.cli.check.queue_results import TOPICS
from canal_server.cli.check.topic_plan import (
    DYNAMIC_KEY,
    NAMED_MAX,
    TOPIC_KEY,
    listed,
    names_of,
)
from canal_server.cli.check.unmatched_items import unmatched_items
from canal_server.config.schema import MessageKeys, MessageLayout
from canal_server.model.check_results import (
    CheckResult,
    Outcome,
    fail,
    ok,
    skip,
    warn,
)
from canal_server.queues.producers.kafka_admin import is_compacted
from canal_server.queues.producers.kafka_names import why_no_name
from canal_server.queues.producers.kafka_producer import AUTO_CREATE
from canal_server.queues.producers.kafka_refusals import TOPIC_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from canal_server.cli.check.topic_plan import TopicPlan
    from canal_server.config.schema import QueueConfig
    from canal_server.delivery.queue_kinds import KafkaKind
    from canal_server.queues.producers.kafka_admin import Unread
    from canal_server.queues.producers.kafka_producer import KafkaProducer

ASKED_MAX: Final = 1_000  # topics in a request
_PROBE: Final = "canal-check"  # a topic that is never created
_SETTINGS: Final = "canal.mq.topics."
_FEWER: Final = (
    "add partitions, or lower canal.mq.partitionsNum,"
    " canal.mq.dynamicTopicPartitionNum or canal.mq.partition"
)


@dataclass(frozen=True, slots=True)
class TopicsThere:
    """What the brokers say of topics.

    `partitions` are those of all topics, `unwritable` what the account may not write
    to. `unread` says why settings of topics cannot be read, so that it is not known
    whether they are compacted. `creations` say why missing topics cannot be created,
    empty: they can be. For `unasked`, only the partitions were asked. `limits` say how
    large batches may be in topics, in bytes; those of the server have up to
    `batch_bytes`.
    """

    partitions: Mapping[str, int]
    unwritable: frozenset[str] = frozenset()
    compacted: frozenset[str] = frozenset()
    unread: Mapping[str, str] = field(default_factory=dict)
    unasked: frozenset[str] = frozenset()
    creations: Mapping[str, str | None] = field(default_factory=dict)
    are_created: bool | None = None  # by the brokers, when needed; None: unknown
    limits: Mapping[str, int] = field(default_factory=dict)
    batch_bytes: int = 0


def ask_brokers(
    producer: KafkaProducer, kind: KafkaKind, plans: Sequence[TopicPlan]
) -> TopicsThere:
    """Ask for the topics of destinations; nothing is created. Raises CanalError."""
    partitions = producer.topics()
    admin = producer.admin()
    created: dict[str, int] = {}
    for plan in plans:
        for name in plan.topics:
            created[name] = max(plan.created_with(name), created.get(name, 1))
    there = [each for each in created if each in partitions]
    missing = [
        each for each in created if each not in partitions and not why_no_name(each)
    ]
    unasked = frozenset(there[ASKED_MAX:])
    del there[ASKED_MAX:]
    creations: dict[str, str | None] = {}
    creation = kind.creation(plans[0].router) if plans else None
    if creation is not None:
        unasked |= set(missing[ASKED_MAX:])
        # Settings can be wrong also if nothing is missing yet.
        wanted = {each: created[each] for each in missing[:ASKED_MAX]} or {_PROBE: 1}
        creations = admin.why_not_created(wanted, creation)
    found = admin.described_topics(there)
    return TopicsThere(
        partitions,
        frozenset(admin.denied(there, "Write")),
        frozenset(name for name, each in found.settings.items() if is_compacted(each)),
        {name: _why_unread(why) for name, why in found.unread.items()},
        unasked,
        creations,
        producer.creates_topics() if missing and creation is None else None,
        {
            name: int(each[TOPIC_LIMIT].value)
            for name, each in found.settings.items()
            if TOPIC_LIMIT in each
        },
        int(producer.batch_bytes),
    )


def _why_unread(why: Unread) -> str:
    if why.is_forbidden:
        return "the account may not read their settings: allow DescribeConfigs on them"
    return f"their settings cannot be read: {why.text}"


def check_creation(there: TopicsThere) -> Iterator[CheckResult]:
    """Yield that settings of created topics are wrong, if no topic is missing now."""
    why = there.creations.get(_PROBE)
    if why and _SETTINGS in why:
        yield _with_remedy(f"a new topic{why.partition(_PROBE)[2]}")


def check_topics(
    plan: TopicPlan, queue: QueueConfig, there: TopicsThere
) -> Iterator[CheckResult]:
    """Yield what is found of a destination's topics."""
    if _shares_keys(queue) and not plan.routing.dynamic_topic:
        yield warn(
            TOPICS,
            f"all tables share topic {plan.routing.topic}, and keys of Debezium do not"
            " name the table: set canal.mq.dynamicTopic = .*\\\\..*, or do not compact"
            " it",
        )
    if plan.unread:
        yield skip(TOPICS, "what depends on the tables of the source", plan.unread)
    for name, key in plan.named.items():
        yield _of_named(name, key, plan, queue, there)
    yield from _of_tables(plan, queue, there)
    if unasked := [each for each in plan.topics if each in there.unasked]:
        yield skip(
            TOPICS,
            f"rights, settings and creation of {_topics(unasked)}",
            f"the brokers are asked for the first {ASKED_MAX:,} topics of the server",
        )
    yield from _of_compaction(plan, queue, there)
    yield from _of_limits(plan, there)
    yield from _of_hashes(plan)
    yield from unmatched_items(plan)


# --- one topic ------------------------------------------------------------------------


def _of_named(
    name: str, key: str, plan: TopicPlan, queue: QueueConfig, there: TopicsThere
) -> CheckResult:
    """Check a topic that the settings name."""
    if why := why_no_name(name):
        own = key if key.startswith("canal.") else TOPIC_KEY
        return fail(TOPICS, f"topic {name!r} ({key}): {why}", f"correct {own}")
    if name in there.partitions:
        return _of_there(name, plan.needed(name), there)
    created = _partitions(plan.created_with(name))
    if why_not := there.creations.get(name):
        return _with_remedy(why_not)
    if queue.create_topics:
        return ok(TOPICS, f"topic {name} will be created, {created}")
    what = f"topic {name} does not exist, or the account may not see it"
    return _missing(what, f"create it with {created}", "it", there)


def _missing(what: str, create: str, them: str, there: TopicsThere) -> CheckResult:
    """Return what a missing topic is, which the server does not create."""
    remedy = f"{create}, set canal.mq.topics.create = true,"
    if there.are_created is False:
        return fail(
            TOPICS,
            f"{what}, and the brokers create none ({AUTO_CREATE} = false)",
            f"{remedy} or set that to true",
        )
    return warn(
        TOPICS, f"{what}: {remedy} or leave {them} to the brokers ({AUTO_CREATE})"
    )


def _of_there(name: str, needed: int, there: TopicsThere) -> CheckResult:
    """Check a topic that exists."""
    count = there.partitions[name]
    if count < needed:
        return fail(
            TOPICS,
            f"topic {name} has {count} partitions, {needed} are needed: {_FEWER}",
        )
    if name in there.unwritable:
        return fail(
            TOPICS,
            f"the account may not write to topic {name}: allow Write and Describe on"
            " it",
        )
    return ok(TOPICS, f"topic {name} has {count} partitions")


def _with_remedy(text: str) -> CheckResult:
    """Return a failure whose text ends with its remedy."""
    what, _, remedy = text.rpartition("; ")
    return fail(TOPICS, what or text, remedy if what else "")


# --- the topics of tables -------------------------------------------------------------


def _of_tables(
    plan: TopicPlan, queue: QueueConfig, there: TopicsThere
) -> Iterator[CheckResult]:
    """Yield what is found of topics that have their names from tables."""
    valid = [each for each in plan.computed if not why_no_name(each)]
    exist = [each for each in valid if each in there.partitions]
    if exist:
        yield from _of_existing(exist, plan, there)
    refused = [each for each in valid if there.creations.get(each)]
    missing: dict[int, list[str]] = defaultdict(list)
    for name in valid:
        if name not in there.partitions and name not in refused:
            missing[plan.created_with(name)].append(name)
    for number, names in sorted(missing.items()):
        yield _of_missing(names, _partitions(number), queue, there)
    if refused:
        first = _with_remedy(str(there.creations[refused[0]]))
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        yield fail(TOPICS, f"{first.text}{more}", first.remedy)
    if invalid := [each for each in plan.computed if why_no_name(each)]:
        tables = names_of(plan.tables[each][0] for each in invalid)
        yield fail(
            TOPICS,
            f"topic {invalid[0]!r} of a table: {why_no_name(invalid[0])} (tables"
            f" {tables})",
            f"name a topic for such tables with topic:expression in {DYNAMIC_KEY}",
        )


def _of_existing(
    names: Sequence[str], plan: TopicPlan, there: TopicsThere
) -> Iterator[CheckResult]:
    found = [_of_there(each, plan.needed(each), there) for each in names]
    wrong = [each for each in found if each.outcome is Outcome.FAIL]
    if number := len(found) - len(wrong):
        good = "1 topic" if number == 1 else f"{number} topics"
        yield ok(TOPICS, f"{good} of tables with enough partitions")
    yield from wrong[:NAMED_MAX]
    if len(wrong) > NAMED_MAX:
        more = len(wrong) - NAMED_MAX
        yield fail(TOPICS, f"{more} more topics of tables are wrong in such a way")


def _of_missing(
    names: list[str], created: str, queue: QueueConfig, there: TopicsThere
) -> CheckResult:
    if queue.create_topics:
        what = _topics(names, "of tables")
        return ok(TOPICS, f"{what} will be created, {created} each")
    what = f"{_topics(names, 'of tables')} missing, or the account may not see them"
    return _missing(what, f"create them with {created}", "them", there)


def _topics(names: list[str], what: str = "") -> str:
    number = "1 topic" if len(names) == 1 else f"{len(names):,} topics"
    return f"{number}{what and f' {what}'} ({listed(names)})"


def _partitions(number: int) -> str:
    return "1 partition" if number == 1 else f"{number} partitions"


# --- sizes ----------------------------------------------------------------------------


def _of_limits(plan: TopicPlan, there: TopicsThere) -> Iterator[CheckResult]:
    """Yield which topics refuse batches, so that messages are sent one by one."""
    found: dict[int, list[str]] = defaultdict(list)
    for each in plan.topics:
        limit = there.limits.get(each)
        if limit is not None and limit < there.batch_bytes:
            found[limit].append(each)
    for limit, names in sorted(found.items()):
        has = "has" if len(names) == 1 else "have"
        yield warn(
            TOPICS,
            f"{_topics(names)} {has} {TOPIC_LIMIT} = {limit}, and batches have up to"
            f" {there.batch_bytes} bytes (kafka.batch.size; 16384 counts as not set):"
            " once a batch is refused, messages are sent one by one, which is slower",
            f"raise {TOPIC_LIMIT} of the topic, or set kafka.batch.size below it",
        )


# --- keys and hashes ------------------------------------------------------------------


def _of_compaction(
    plan: TopicPlan, queue: QueueConfig, there: TopicsThere
) -> Iterator[CheckResult]:
    """Yield what a compacted topic refuses: messages without a key."""
    compacted = [
        each for each in plan.topics if _is_compacted(each, plan, queue, there)
    ]
    if queue.keys is MessageKeys.NONE:
        if compacted:
            yield fail(
                TOPICS,
                f"{_topics(compacted, 'compacted')}: Kafka accepts only messages with a"
                " key there",
                "set canal.mq.keys = primaryKey, or cleanup.policy = delete for the"
                " topic",
            )
        yield from _of_unread(plan.topics, there)
        return
    tables = [
        (each.schema, each.table)
        for each in plan.columns
        if not any(column.is_key for column in each.columns)
    ]
    yield from _of_unread(dict.fromkeys(plan.router(*e).topic for e in tables), there)
    without = [each for each in tables if plan.router(*each).topic in compacted]
    if without:
        topics = dict.fromkeys(plan.router(*each).topic for each in without)
        has = "table has" if len(without) == 1 else "tables have"
        yield fail(
            TOPICS,
            f"{len(without)} {has} no primary key ({names_of(without)}), so rows have"
            f" messages without a key, which Kafka refuses in a compacted topic"
            f" ({listed(topics)}): delivery of the destination waits from the first"
            " one on",
            "send them to a topic that is not compacted with canal.mq.dynamicTopic"
            f"{_created_before(queue)}, or leave them out with"
            " canal.instance.filter.black.regex",
        )


def _of_unread(topics: Iterable[str], there: TopicsThere) -> Iterator[CheckResult]:
    """Yield which topics may be compacted, as that cannot be read."""
    found: dict[str, list[str]] = defaultdict(list)
    for each in topics:
        if each in there.unread:
            found[there.unread[each]].append(each)
    for why, names in found.items():
        yield skip(TOPICS, f"whether messages need a key in {_topics(names)}", why)


def _created_before(queue: QueueConfig) -> str:
    """Return what to do about the topic, if new ones are compacted."""
    if not (queue.create_topics and _compacts(queue)):
        return ""
    return " (create it before with cleanup.policy = delete, as new ones are compacted)"


def _compacts(queue: QueueConfig) -> bool:
    return "compact" in dict(queue.topic_settings).get("cleanup.policy", "")


def _is_compacted(
    topic: str, plan: TopicPlan, queue: QueueConfig, there: TopicsThere
) -> bool:
    if topic in there.partitions or not queue.create_topics:
        return topic in there.compacted
    return topic != plan.notes and _compacts(queue)


def _of_hashes(plan: TopicPlan) -> Iterator[CheckResult]:
    """Yield the columns of `canal.mq.partitionHash` that tables do not have."""
    found: dict[tuple[str, ...], list[tuple[str, str]]] = defaultdict(list)
    for each in plan.columns:
        known = {column.name.lower() for column in each.columns}
        named = plan.router(each.schema, each.table).columns
        if missing := tuple(name for name in named if name not in known):
            found[missing].append((each.schema, each.table))
    for missing, tables in list(found.items())[:NAMED_MAX]:
        has = "table has" if len(tables) == 1 else "tables have"
        remedy = "correct the name"
        if any("$" in name for name in missing):
            remedy = "write $pk$ for the primary key"
        yield warn(
            TOPICS,
            f"canal.mq.partitionHash: {len(tables)} {has} no column"
            f" {_column(missing)} ({names_of(tables)}), which counts as empty, so that"
            " rows share a partition",
            remedy,
        )


def _column(names: Iterable[str]) -> str:
    return " and ".join(names)


def _shares_keys(queue: QueueConfig) -> bool:
    """Return whether rows of several tables may have the same key."""
    of_debezium = {
        MessageLayout.DEBEZIUM,
        MessageLayout.DEBEZIUM_AVRO,
        MessageLayout.CLOUDEVENTS,
    }
    return queue.layout in of_debezium and queue.keys is MessageKeys.PRIMARY_KEY
