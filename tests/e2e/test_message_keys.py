"""Keys, tombstones and headers of messages to Kafka, with a real broker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from random_shop import wait_until

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from fix_kafka import Kafka
    from fix_pipeline import Pipeline

pytest.importorskip("confluent_kafka", reason="the extra `kafka` is not installed")

KEYED = {
    "canal.serverMode": "kafka",
    "canal.mq.keys": "primaryKey",
    "canal.mq.tombstones": "true",
    "canal.mq.headers": "true",
}


def statement(rng: random.Random, table: str, number: int) -> str:
    """Return a statement that changes some rows, and keys among them."""
    some = f"a % {rng.randint(2, 5)} = 0"
    choice = rng.random()
    if number < 10 or choice < 0.3:
        return f"REPLACE INTO {table} VALUES ({number}, 'x', 1), ({number}, 'y', 2)"
    if choice < 0.5:
        return f"UPDATE {table} SET v = v + 1 WHERE {some}"
    if choice < 0.7:
        return f"UPDATE {table} SET a = a + 1000 WHERE {some} AND a < 1000"
    return f"DELETE FROM {table} WHERE {some} LIMIT 2"


@pytest.fixture
def kafka(make_kafka: Callable[[], Kafka]) -> Kafka:
    """Give a broker with a compacted topic."""
    kafka = make_kafka()
    kafka.create("shop", 3, {"cleanup.policy": "compact"})
    return kafka


@pytest.fixture
def pipeline(
    make_pipeline: Callable[..., Pipeline],
    source_server: Any,
    database: str,
    kafka: Kafka,
) -> Pipeline:
    """Give a server with keys, which was not started."""
    pipeline = make_pipeline(source_server, database)
    pipeline.main_settings |= KEYED | {"kafka.bootstrap.servers": kafka.servers}
    return pipeline


@pytest.mark.parametrize("once", ["false", "true"])
def test_compacted_topic(
    pipeline: Pipeline, kafka: Kafka, rng: random.Random, once: str
) -> None:
    """What it keeps of each key is the table, whatever happens to keys."""
    database = pipeline.schema
    pipeline.main_settings["canal.mq.exactlyOnce"] = once
    pipeline.configure(
        {
            "canal.mq.topic": "shop",
            "canal.mq.partitionsNum": 3,
            "canal.mq.partitionHash": r".*\..*:$pk$",
        }
    )
    pipeline.start()
    table = f"{database}.items"
    with pipeline.source.connect() as connection, connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TABLE {table} (a INT, b VARCHAR(9), v INT, PRIMARY KEY (a, b))"
        )
        for number in range(80):
            cursor.execute(statement(rng, table, number))
        cursor.execute(f"INSERT INTO {table} VALUES (-1, 'end', 0)")
        cursor.execute(f"SELECT a, b, v FROM {table}")
        rows = sorted(tuple(map(str, each)) for each in cursor.fetchall())
    topics = [kafka.follow_messages("shop", number) for number in range(3)]
    kept: dict[tuple[int, bytes], bytes] = {}
    headers: list[dict[str, bytes]] = []

    def is_complete() -> bool:
        for number, read in enumerate(topics):
            for each in read():
                headers.append(dict(each.headers()))
                kept.pop((number, each.key()), None)
                if each.value() is not None:
                    kept[number, each.key()] = each.value()
        found = [json.loads(v)["data"] for (_, k), v in kept.items() if b"pk." in k]
        has_ddl = b'"table":"items"}' in b"".join(key for _, key in kept)
        return has_ddl and sorted(tuple(each[0].values()) for each in found) == rows

    wait_until(is_complete, pipeline.process)
    # Statements on databases have keys as well.
    statements = [json.loads(key) for _, key in kept if b"pk." not in key]
    assert {"database": database, "table": "items"} in statements
    pipeline.stop()
    rest = [each for each in headers if each.get("canal.xid", b"") >= b"1"]
    assert len(rest) >= len(headers) - 1, "each transaction ends in its batch"
    assert all(b":" in each["canal.position"] for each in headers)
    assert len({each["canal.server_id"] for each in headers}) == 1


def test_no_key(pipeline: Pipeline) -> None:
    """A compacted topic refuses rows of a table without a key; the remedy is logged."""
    pipeline.configure({"canal.mq.topic": "shop"})
    pipeline.start()
    table = f"{pipeline.schema}.log"
    pipeline.source.execute(
        f"CREATE TABLE {table} (a INT)", f"INSERT INTO {table} VALUES (1)"
    )
    pipeline.process.wait_for_log(
        "topic shop is compacted and refuses a message without a key"
        r" \((?:table \w+.log|in a batch with .*)\): the table has no primary key: send"
        " it to another topic with canal.mq.dynamicTopic, leave it out with"
    )
    pipeline.stop()


def test_a_note_if_topics_are_compacted(pipeline: Pipeline, kafka: Kafka) -> None:
    """It has the key of its message, and its topic keeps all notes."""
    pipeline.main_settings |= {
        "canal.mq.topics.create": "true",
        "canal.mq.topics.settings": "cleanup.policy=compact",
        "canal.mq.tooLargeTopic": "notes",
    }
    pipeline.configure({"canal.mq.topic": "made"})
    pipeline.start()
    table = f"{pipeline.schema}.large"
    pipeline.source.execute(
        f"CREATE TABLE {table} (a INT PRIMARY KEY, b LONGTEXT)",
        f"INSERT INTO {table} VALUES (1, REPEAT('x', 2000000))",
    )
    pipeline.process.wait_for_log("notes")
    found: list[Any] = []
    read = kafka.follow_messages("notes", 0)

    def is_noted() -> bool:
        found.extend(read())
        return bool(found)

    wait_until(is_noted, pipeline.process)
    key = {"database": pipeline.schema, "table": "large", "pk.a": "1"}
    assert json.loads(found[0].key()) == json.loads(found[0].value())["key"] == key
    pipeline.stop()
