"""A topic of Kafka that refuses messages, beside others of the same destination.

With CANAL_INTEROP=1, as Kafka comes from Maven.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from random_shop import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from fix_kafka import Kafka
    from fix_pipeline import Pipeline

pytest.importorskip("confluent_kafka", reason="the extra `kafka` is not installed")

TABLES = ("first", "second", "refused")
TRIES = 5


def test_the_other_topics(stopped: Pipeline, make_kafka: Callable[..., Kafka]) -> None:
    """They get each message once while one is tried again, and so does that one."""
    kafka = make_kafka()
    topics = [f"{stopped.schema}_{table}" for table in TABLES]
    for topic in topics:
        kafka.create(topic, 1)
    refusing = topics[-1]
    kafka.alter(refusing, {"cleanup.policy": "compact"})  # messages have no key
    reads = {topic: kafka.follow(topic, 0) for topic in topics}
    ids: dict[str, list[int]] = {topic: [] for topic in topics}
    for table in TABLES:
        stopped.source.execute(
            f"CREATE TABLE {stopped.schema}.{table} (id INT PRIMARY KEY)"
        )
    stopped.main_settings |= {
        "canal.serverMode": "kafka",
        "kafka.bootstrap.servers": kafka.servers,
    }
    stopped.configure(
        {
            "canal.mq.dynamicTopic": r".*\..*",
            "canal.instance.filter.query.ddl": "true",
            "canal.instance.filter.query.dml": "true",
        }
    )
    stopped.start()
    process = stopped.process

    def write(first: int, last: int) -> None:
        for number in range(first, last):
            stopped.source.execute(
                *(
                    f"INSERT INTO {stopped.schema}.{table} VALUES ({number})"
                    for table in TABLES
                )
            )

    def have(count: int, *names: str) -> bool:
        for topic in topics:
            for value in reads[topic]():
                ids[topic] += (int(row["id"]) for row in json.loads(value)["data"])
        return all(len(ids[topic]) >= count for topic in names)

    write(0, 10)
    stopped.wait_for_status(lambda status: status["delivery"]["failures"] >= TRIES)
    status = stopped.status()["delivery"]
    counted = {name: each["messages"] for name, each in status["topics"].items()}
    assert counted
    wait_until(lambda: all(have(counted[each], each) for each in counted), process)
    assert {topic: len(each) for topic, each in ids.items() if each} == counted
    write(10, 20)
    kafka.alter(refusing, {"cleanup.policy": "delete"})
    wait_until(lambda: have(20, *topics), process)
    stopped.wait_for_status(lambda status: status["delivery"]["in_flight"] == 0)
    stopped.stop()
    have(20, *topics)
    assert ids == {topic: list(range(20)) for topic in topics}
