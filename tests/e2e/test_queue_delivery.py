"""`canal.serverMode = kafka`, with a real broker, and kills of it and the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fix_random import longer
from random_shop import Shop, Topic, wait_until

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from fix_kafka import Kafka
    from fix_pipeline import Pipeline

pytest.importorskip("confluent_kafka", reason="the extra `kafka` is not installed")

BY_KEY = {
    "canal.mq.topic": "shop",
    "canal.mq.partitionsNum": 4,
    "canal.mq.partitionHash": r".*\\..*:$pk$",
}


@pytest.fixture
def kafka(make_kafka: Callable[[], Kafka]) -> Kafka:
    """Give a running broker, whose topics have four partitions."""
    return make_kafka()


def deliver(pipeline: Pipeline, kafka: Kafka, /, **settings: Any) -> None:
    """Start the server of a pipeline with the delivery to a broker."""
    pipeline.main_settings |= {
        "canal.serverMode": "kafka",
        "kafka.bootstrap.servers": kafka.servers,
    }
    pipeline.configure(settings)
    pipeline.start()


@pytest.fixture
def stopped(
    make_pipeline: Callable[..., Pipeline], source_server: Any, database: str
) -> Pipeline:
    """Give a pipeline that was not started."""
    return make_pipeline(source_server, database)


def delivery(pipeline: Pipeline) -> dict[str, Any]:
    """Return what the delivery shows."""
    return dict(pipeline.status()["delivery"])


def test_kills(stopped: Pipeline, kafka: Kafka, rng: random.Random) -> None:
    """Whatever is killed, the topic has all changes, those of a key in their order."""
    pipeline = stopped
    shop = Shop(pipeline, rng)
    topic = Topic(*(kafka.follow("shop", number) for number in range(4)))
    deliver(pipeline, kafka, **BY_KEY)
    for number in range(longer(4)):
        before = topic.count("log")
        shop.write(rng.randint(50, 200))
        wait_until(lambda: topic.count("log") > before, pipeline.process)  # noqa: B023
        if number % 2:
            kafka.kill()
            shop.write(20)
            kafka.start()
        pipeline.kill()
        shop.write(20)
        pipeline.start()
    wait_until(lambda: topic.has_all(shop), pipeline.process)
    topic.check(shop)
    pipeline.wait_for_status(lambda status: status["delivery"]["in_flight"] == 0)
    found = delivery(pipeline)
    assert (found["state"], found["reason"]) == ("delivering", "")
    assert list(found["topics"]) == ["shop"]
    seen = topic.messages
    pipeline.stop()
    pipeline.start()
    shop.write(1)
    wait_until(lambda: topic.has_all(shop), pipeline.process)
    # After a clean stop, nothing comes again.
    assert topic.messages - seen <= 7
    pipeline.stop()
