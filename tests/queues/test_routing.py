"""Topics and partitions of tables, from the original's expressions."""

from __future__ import annotations

import pytest

from canal_server.config.schema import RoutingConfig
from canal_server.errors import ConfigError
from canal_server.queues.routing import Router


def topic(dynamic: str, schema: str, table: str, default: str = "to.p") -> str:
    """Return the topic of a table."""
    settings = RoutingConfig(topic=default, dynamic_topic=dynamic)
    return Router(settings)(schema, table).topic


@pytest.mark.parametrize(
    ("dynamic", "expected"),
    [
        ("", "to.p"),  # only topics of dynamicTopic lose their points
        ("other", "to_p"),
        ("shop.orders", "shop_orders"),
        ("SHOP.Orders", "shop_orders"),
        (r"shop\.orders", "shop_orders"),
        (r"sales:shop\..*", "sales"),
        (r"my.sales:shop\..*", "my_sales"),
        ("shop", "shop"),
        ("sales:sh.*", "sales"),
        (r"shop;one:shop\.orders", "one"),  # tables before schemas
        (r"one:.*\..*,two:shop\.orders", "one"),  # the first of them
        (r"one:x\..*,two:shop\..*", "two"),
    ],
)
def test_topics(dynamic: str, expected: str) -> None:
    """The first expression for the table, then for the schema, else the default."""
    assert topic(dynamic, "shop", "Orders") == expected


def test_statements_on_no_table() -> None:
    """They go to the default topic."""
    assert topic(r".*\..*,.*", "", "") == "to_p"
    assert topic(".*", "shop", "") == "to_p"


@pytest.mark.parametrize(
    ("hashes", "mode", "columns"),
    [
        ("", 0, ()),
        (r"other\..*:id", 0, ()),
        (r"shop\..*", 1, ()),
        (r"SHOP.ORDERS:$PK$", 2, ()),
        (r"shop.orders:Id^name", 3, ("id", "name")),
        (r"shop\.items:$pk$;shop\.o.*:v", 3, ("v",)),
    ],
)
def test_hashes(hashes: str, mode: int, columns: tuple[str, ...]) -> None:
    """By the table, the key, or columns; the first expression that matches counts."""
    settings = RoutingConfig(topic="t", partitions=5, partition_hash=hashes)
    route = Router(settings)("shop", "orders")
    assert (route.mode, route.columns) == (mode, columns)
    assert route.partitions == (5 if mode else 1)


def test_numbers_of_partitions() -> None:
    """A topic may have its own number; without a hash, the partition is a setting."""
    settings = RoutingConfig(
        partitions=3,
        partition_hash=".*",
        dynamic_topic=r".*\..*",
        dynamic_topic_partitions="shop_.*:7,other:2",
    )
    router = Router(settings)
    assert router("shop", "orders").partitions == 7
    assert router("bank", "orders").partitions == 3
    assert Router(RoutingConfig(topic="t", partition=2))("a", "b").partition == 2


def test_wrong_settings() -> None:
    """All problems at once, with key, item and reason."""
    settings = RoutingConfig(
        partition_hash="a(:id",
        dynamic_topic="t:b(",
        dynamic_topic_partitions="t,u:x,v:0",
    )
    with pytest.raises(ConfigError) as raised:
        Router(settings)
    text = str(raised.value)
    for part in (
        "canal.mq.partitionHash: a(:id: ",
        "canal.mq.dynamicTopic: t:b(: ",
        "canal.mq.dynamicTopicPartitionNum: t: write topic:number",
        "canal.mq.dynamicTopicPartitionNum: u:x: write",
        "canal.mq.dynamicTopicPartitionNum: v:0: write",
    ):
        assert part in text
