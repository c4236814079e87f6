"""Items of routing settings that match nothing, with the tables of a real source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from canal_server.cli.check.topic_plan import TopicPlan
from canal_server.cli.check.unmatched_items import check_items, unmatched_items
from canal_server.config.load import load
from canal_server.config.schema import RoutingConfig
from canal_server.queues.routing import Router

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PULSAR = "canal.serverMode = pulsarMQ\npulsarmq.serverUrl = pulsar://127.0.0.1:9\n"
TABLES = [("shop", "orders"), ("shop", "items")]


def texts(
    routing: RoutingConfig, unread: str = "", there: Sequence[tuple[str, str]] = TABLES
) -> list[str]:
    """Return what is found of two tables, each with a topic of its own."""
    router = Router(routing)
    tables: dict[str, list[tuple[str, str]]] = {}
    for each in there:
        tables.setdefault(router(*each).topic, []).append(each)
    named = {routing.topic: "canal.mq.topic"}
    plan = TopicPlan(routing, router, named, tables=tables, unread=unread)
    return [each.message for each in unmatched_items(plan)]


def test_items_of_each_key() -> None:
    """The key, the items as they are written, and the remedy are named."""
    routing = RoutingConfig(
        topic="all",
        dynamic_topic=r"orders:shop\.orders,crm,old:legacy\..*",
        partition_hash="shop.ordres:id,shop.items:$pk$",
        dynamic_topic_partitions="orders:3,oders:6",
    )
    remedy = (
        r"; correct it (schema.table, or an expression such as shop\\..*) or"
        " canal.instance.filter.regex, or remove it"
    )
    assert texts(routing) == [
        r"canal.mq.dynamicTopic: crm, old:legacy\..* match no table that is delivered"
        + remedy,
        "canal.mq.partitionHash: shop.ordres:id matches no table that is delivered"
        + remedy,
        (
            "canal.mq.dynamicTopicPartitionNum: oders:6 matches no topic; write"
            " topic:number, for all, orders"
        ),
    ]
    assert texts(routing, unread="nobody answers") == []
    assert texts(routing, there=[]) == []  # of the filter there is another check


def test_items_that_match() -> None:
    """A schema, a table and expressions of both kinds count."""
    for item in ("shop", "shop.items", "SHOP.Items", "a:sho.*", r"b:.*\.items"):
        assert texts(RoutingConfig(topic="all", dynamic_topic=item)) == [], item
    for item in ("shop.items", r".*\.orders:id", r".*\..*:$pk$"):
        assert texts(RoutingConfig(topic="all", partition_hash=item)) == [], item


@pytest.fixture
def found(conf_for: Any) -> Callable[..., list[tuple[str, str]]]:
    """Give a function that returns what is found with a delivery to Pulsar."""

    def run(server: object, *lines: str) -> list[tuple[str, str]]:
        config = load(conf_for(server, *lines, main=PULSAR), {})
        return [(each.outcome.value, each.message) for each in check_items(config)]

    return run


def test_queues_whose_tables_nobody_looks_at(
    found: Callable[..., list[tuple[str, str]]], checked_server: Any
) -> None:
    """The source is asked for the tables; without an answer, that is said."""
    lines = (
        r"canal.instance.filter.regex = shop\\..*",
        r"canal.mq.partitionHash = shop.orders:$pk$,shop.nothing:id",
    )
    ((outcome, text),) = found(checked_server, *lines)
    assert outcome == "warn"
    assert text.startswith("canal.mq.partitionHash: shop.nothing:id matches no table")

    class Nobody:
        port = 9

    ((outcome, text),) = found(Nobody, *lines)
    assert outcome == "skip"
    assert "cannot check which tables the routing settings match" in text
    assert found(checked_server) == []
    # For topics of the settings alone, nobody is asked.
    lines = ("canal.mq.topic = shop", "canal.mq.dynamicTopicPartitionNum = shpo:3")
    ((outcome, text),) = found(Nobody, *lines)
    assert outcome == "warn"
    assert text.startswith("canal.mq.dynamicTopicPartitionNum: shpo:3 matches no topic")
