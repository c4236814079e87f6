"""The source dies while its changes go to Kafka, and the standby takes over.

Two real servers, one the replica of the other, with GTIDs, and a real broker: with
CANAL_INTEROP=1, as that comes from Maven.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

import pytest
from fix_failover import GTID_MODE, switching_to
from fix_random import longer
from random_shop import Shop, Topic, wait_until

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from fix_kafka import Kafka
    from fix_pipeline import Pipeline
    from fix_replicas import Replicas

pytest.importorskip("confluent_kafka", reason="the extra `kafka` is not installed")

PARTITIONS = 4
# More than a ring of 1 MiB, the buffers of the connection and those of the producer.
ROWS, ROW_BYTES = 16_000, 2_000
SETTINGS: dict[str, object] = {
    **GTID_MODE,
    "canal.mq.topic": "shop",
    "canal.mq.partitionsNum": PARTITIONS,
    "canal.mq.partitionHash": r".*\..*",
}


class LargeTopic(Topic):
    """What a topic has of a shop, and the ids of the table `large`, as they came."""

    def __init__(self, kafka: Kafka) -> None:
        """Follow all partitions."""
        self.large: list[int] = []
        followed = (kafka.follow("shop", number) for number in range(PARTITIONS))
        super().__init__(*map(self._without_large, followed))

    def _without_large(
        self, read: Callable[[], Iterator[bytes]]
    ) -> Callable[[], Iterator[bytes]]:
        def rest() -> Iterator[bytes]:
            for value in read():
                message = json.loads(value)
                if message["table"] == "large":
                    self.large += (int(row["id"]) for row in message["data"] or ())
                else:
                    yield value

        return rest


@pytest.fixture
def pipeline(
    make_pipeline: Callable[..., Pipeline], replicas: Replicas, replicated_schema: str
) -> Pipeline:
    """Give a server that knows the source and its standby, and was not started."""
    settings = {**switching_to(replicas.replica), **SETTINGS}
    return make_pipeline(replicas.source, replicated_schema, settings)


@pytest.mark.parametrize("mode", ["exactly once", "at least once"])
def test_amid_a_transaction(
    pipeline: Pipeline,
    make_kafka: Callable[[], Kafka],
    replicas: Replicas,
    rng: random.Random,
    mode: str,
) -> None:
    """Nothing is lost, and the order of each table is kept.

    The source dies when a part of a transaction has been read and sent. Exactly once,
    nothing comes twice, and of that transaction nothing is visible before its end; else
    it comes again from its begin. What was not committed never comes.
    """
    is_exact = mode == "exactly once"
    kafka = make_kafka()
    pipeline.main_settings |= {
        "canal.serverMode": "kafka",
        "kafka.bootstrap.servers": kafka.servers,
        "canal.mq.exactlyOnce": str(is_exact).lower(),
        "canal.instance.memory.buffer.size": 1024,
    }
    pipeline.configure({})
    pipeline.start()
    topic, shop = LargeTopic(kafka), Shop(pipeline, rng)
    shop.write(20)
    wait_until(lambda: topic.has_all(shop), pipeline.process)
    kafka.pause()
    write_large(pipeline)
    replicas.catch_up()
    before = messages_of(pipeline)
    kafka.resume()
    pipeline.wait_for_status(lambda _: messages_of(pipeline) > before + 50)
    kafka.pause()
    with contextlib.closing(replicas.source.connect(autocommit=False)) as connection:
        with connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {shop.tables[2]} (id) VALUES (1000000)")
        replicas.source.kill()
    replicas.take_over()
    pipeline.source = replicas.source
    kafka.resume()
    topic.read()
    if is_exact:
        assert not topic.large, "a part of a transaction is visible"
    shop.write(20)
    wait_until(
        lambda: topic.has_all(shop) and len(topic.large) >= ROWS, pipeline.process
    )
    assert pipeline.status()["reads"].startswith("standby")
    again = len(topic.large) - ROWS
    assert topic.large[again:] == list(range(1, ROWS + 1))
    assert topic.large[:again] == list(range(1, again + 1))
    assert (again == 0) is is_exact
    check(topic, shop, 40, is_exact=is_exact)
    written = 40
    for _ in range(longer(2)):
        replicas.rejoin()
        shop.write(100)
        replicas.catch_up()
        replicas.source.kill()
        replicas.take_over()
        pipeline.source = replicas.source
        shop.write(20)
        written += 120
        wait_until(lambda: topic.has_all(shop), pipeline.process)
        check(topic, shop, written, is_exact=is_exact)
    pipeline.stop()


def write_large(pipeline: Pipeline) -> None:
    """Execute a large transaction."""
    table = f"{pipeline.schema}.large"
    pipeline.source.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR({ROW_BYTES}))"
    )
    with pipeline.source.connect(autocommit=False) as connection:
        with connection.cursor() as cursor:
            for first in range(1, ROWS + 1, 500):
                value = f"REPEAT('x', {ROW_BYTES})"
                rows = ", ".join(f"({n}, {value})" for n in range(first, first + 500))
                cursor.execute(f"INSERT INTO {table} VALUES {rows}")
        connection.commit()


def messages_of(pipeline: Pipeline) -> int:
    """Return how many messages the broker has confirmed, says the server."""
    topics = pipeline.status()["delivery"]["topics"]
    return sum(each["messages"] for each in topics.values())


def check(topic: Topic, shop: Shop, written: int, *, is_exact: bool) -> None:
    """Check the tables of the shop, and that each of its transactions came in order."""
    topic.check(shop)
    ids = [str(number) for number in range(1, written + 1)]
    if is_exact:
        assert topic.log == ids
    # What comes again does so in order, and up to what comes for the first time.
    last_times = list(dict.fromkeys(reversed(topic.log)))
    assert last_times[::-1] == ids
    assert list(dict.fromkeys(topic.log)) == ids
