"""Checks of topics that brokers have answered for; with a broker: test_kafka_checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.cli.check.kafka_topic_checks import TopicsThere, check_topics
from canal_server.cli.check.topic_plan import TopicPlan
from canal_server.config.schema import (
    MessageKeys,
    QueueConfig,
    RoutingConfig,
    ServerMode,
)
from canal_server.model.check_results import Outcome
from canal_server.model.columns_known import ColumnMeta, TableMeta
from canal_server.queues.routing import Router

if TYPE_CHECKING:
    from collections.abc import Sequence

FORBIDDEN = "the account may not read their settings: allow DescribeConfigs on them"


def plan_with(
    routing: RoutingConfig, columns: Sequence[TableMeta] = (), notes: str = ""
) -> TopicPlan:
    """Return a plan with the topic of the settings, and one of notes."""
    named = {routing.topic: "canal.mq.topic"}
    if notes:
        named[notes] = "canal.mq.tooLargeTopic"
    return TopicPlan(routing, Router(routing), named, notes, columns=columns)


def texts(
    plan: TopicPlan, queue: QueueConfig, there: TopicsThere, outcome: Outcome
) -> list[str]:
    """Return what checks with an outcome say."""
    found = check_topics(plan, queue, there)
    return [each.message for each in found if each.outcome is outcome]


def test_partitions_of_a_created_topic() -> None:
    """The texts have those that the server makes, which may be more than it needs."""
    plan = plan_with(RoutingConfig(topic="shop", partitions=6), notes="notes")
    creating = QueueConfig(mode=ServerMode.KAFKA, create_topics=True)
    assert texts(plan, creating, TopicsThere({}), Outcome.OK) == [
        "topic shop will be created, 6 partitions",
        "topic notes will be created, 6 partitions",
    ]
    plain = QueueConfig(mode=ServerMode.KAFKA)
    warned = texts(plan, plain, TopicsThere({}), Outcome.WARN)
    assert "create it with 6 partitions" in warned[0]
    # One that is there needs no more than are used.
    there = TopicsThere({"shop": 1, "notes": 1})
    assert not texts(plan, plain, there, Outcome.FAIL)
    last = plan_with(RoutingConfig(topic="shop", partitions=2, partition=6))
    assert texts(last, creating, TopicsThere({}), Outcome.OK) == [
        "topic shop will be created, 7 partitions"
    ]
    (failed,) = texts(last, plain, TopicsThere({"shop": 6}), Outcome.FAIL)
    assert "topic shop has 6 partitions, 7 are needed" in failed


def test_topics_that_nobody_creates() -> None:
    """They fail if brokers create none, with that reason; else they are a warning."""
    routing = RoutingConfig(topic="shop", dynamic_topic=r".*\..*")
    tables = {"a_b": [("a", "b")]}
    plan = TopicPlan(routing, Router(routing), {"shop": "canal.mq.topic"}, "", tables)
    plain = QueueConfig(mode=ServerMode.KAFKA)
    failed = texts(plan, plain, TopicsThere({}, are_created=False), Outcome.FAIL)
    why = "and the brokers create none (auto.create.topics.enable = false)"
    assert failed == [
        (
            f"topic shop does not exist, or the account may not see it, {why}; create"
            " it with 1 partition, set canal.mq.topics.create = true, or set that to"
            " true"
        ),
        (
            f"1 topic of tables (a_b) missing, or the account may not see them, {why};"
            " create them with 1 partition, set canal.mq.topics.create = true, or set"
            " that to true"
        ),
    ]
    for are_created in (True, None):
        there = TopicsThere({}, are_created=are_created)
        assert not texts(plan, plain, there, Outcome.FAIL)
        assert len(texts(plan, plain, there, Outcome.WARN)) == 2


def test_tables_without_a_key_in_a_compacted_topic() -> None:
    """Brokers refuse their messages for sure, so it fails, with what happens then."""
    keyed = QueueConfig(mode=ServerMode.KAFKA, keys=MessageKeys.PRIMARY_KEY)
    there = TopicsThere({"shop": 1}, compacted=frozenset({"shop"}))
    for is_key in (False, True):
        table = TableMeta("a", "b", (ColumnMeta("id", "int", is_key=is_key),))
        plan = plan_with(RoutingConfig(topic="shop"), [table])
        failed = texts(plan, keyed, there, Outcome.FAIL)
        assert len(failed) == int(not is_key)
        assert not is_key or not texts(plan, keyed, there, Outcome.WARN)
    plan = plan_with(
        RoutingConfig(topic="shop"), [TableMeta("a", "b", (ColumnMeta("id", "int"),))]
    )
    (failed_one,) = texts(plan, keyed, there, Outcome.FAIL)
    assert "1 table has no primary key (a.b), so rows have messages" in failed_one
    assert "delivery of the destination waits from the first one on" in failed_one


def test_settings_that_cannot_be_read() -> None:
    """Whether a topic is compacted is skipped with the reason, where that matters."""
    plain = QueueConfig(mode=ServerMode.KAFKA)
    there = TopicsThere({"shop": 1}, unread={"shop": FORBIDDEN})
    plan = plan_with(RoutingConfig(topic="shop"))
    assert texts(plan, plain, there, Outcome.SKIP) == [
        f"cannot check whether messages need a key in 1 topic (shop): {FORBIDDEN}"
    ]
    assert not texts(plan, plain, TopicsThere({"shop": 1}), Outcome.SKIP)
    keyed = QueueConfig(mode=ServerMode.KAFKA, keys=MessageKeys.PRIMARY_KEY)
    for is_key in (False, True):
        table = TableMeta("a", "b", (ColumnMeta("id", "int", is_key=is_key),))
        plan = plan_with(RoutingConfig(topic="shop"), [table])
        assert len(texts(plan, keyed, there, Outcome.SKIP)) == int(not is_key)


def test_topics_with_a_low_limit() -> None:
    """It is a warning, as a batch that is refused is split; with both ways out."""
    plan = plan_with(RoutingConfig(topic="shop"), notes="notes")
    queue = QueueConfig(mode=ServerMode.KAFKA)
    partitions = {"shop": 1, "notes": 1}
    there = TopicsThere(partitions, limits={"shop": 900}, batch_bytes=1000)
    assert texts(plan, queue, there, Outcome.WARN) == [
        (
            "1 topic (shop) has max.message.bytes = 900, and batches have up to 1000"
            " bytes (kafka.batch.size; 16384 counts as not set): once a batch is"
            " refused, messages are sent one by one, which is slower; raise"
            " max.message.bytes of the topic, or set kafka.batch.size below it"
        )
    ]
    for limits in ({}, {"shop": 1000}):
        there = TopicsThere(partitions, limits=limits, batch_bytes=1000)
        assert not texts(plan, queue, there, Outcome.WARN)


def test_topics_that_are_not_asked_for() -> None:
    """They are counted in a skip, which has the bound."""
    routing = RoutingConfig(topic="shop")
    plan = plan_with(routing, notes="notes")
    there = TopicsThere({"shop": 1}, unasked=frozenset({"shop", "notes"}))
    queue = QueueConfig(mode=ServerMode.KAFKA, create_topics=True)
    (found,) = texts(plan, queue, there, Outcome.SKIP)
    assert found == (
        "cannot check rights, settings and creation of 2 topics (shop, notes): the"
        " brokers are asked for the first 1,000 topics of the server"
    )
