"""`canal.serverMode = pulsarMQ`, with a real broker, and kills of it and the server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from random_shop import (
    Shop,
    Topic,
    stop_and_go_on,
    wait_until,
    write_under_kills,
)

from canal_server.cli import main

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from fix_pipeline import Pipeline
    from fix_pulsar import Pulsar

pytest.importorskip("pulsar", reason="the extra `pulsar` is not installed")

BY_KEY = {
    "canal.mq.topic": "shop",
    "canal.mq.partitionsNum": 4,
    "canal.mq.partitionHash": r".*\..*:$pk$",
}
PARTITIONS = [f"shop-partition-{number}" for number in range(4)]


@pytest.fixture
def pulsar(make_pulsar: Callable[[], Pulsar]) -> Pulsar:
    """Give a running broker."""
    return make_pulsar()


def deliver(pipeline: Pipeline, pulsar: Pulsar, /, **settings: Any) -> None:
    """Start the server of a pipeline with the delivery to a broker."""
    pipeline.main_settings |= {
        "canal.serverMode": "pulsarMQ",
        "pulsarmq.serverUrl": pulsar.url,
        "pulsarmq.adminServerUrl": pulsar.admin_url,
        "pulsarmq.topicTenantPrefix": "public/default",
    }
    pipeline.configure(settings)
    pipeline.start()


def test_kills(stopped: Pipeline, pulsar: Pulsar, rng: random.Random) -> None:
    """Whatever is killed, the topic has all changes, those of a key in their order.

    The server creates the topic with its partitions.
    """
    pipeline = stopped
    # A row with another key is in the partition of that, beside the order of the first.
    shop = Shop(pipeline, rng, moves_keys=False)
    deliver(pipeline, pulsar, **BY_KEY)
    pipeline.process.wait_for_log(
        r"created topic public/default/shop with 4 partitions"
    )
    topic = Topic(*(pulsar.follow(each) for each in PARTITIONS))
    write_under_kills(pipeline, pulsar, shop, topic, rng)
    stop_and_go_on(pipeline, shop, topic)


def test_a_broker_that_is_away(
    stopped: Pipeline, pulsar: Pulsar, rng: random.Random
) -> None:  # fmt: skip
    """The server starts without it, says so, and delivers when it is there.

    When it goes while messages are on their way, these are confirmed when it is back,
    without a second delivery.
    """
    pulsar.kill()
    shop = Shop(stopped, rng)
    shop.write(5)
    deliver(stopped, pulsar)
    stopped.wait_for_status(lambda status: status["delivery"]["state"] == "blocked")
    stopped.wait_for_status(
        lambda status: (
            f"{pulsar.servers} does not answer: Connection refused"
            in status["delivery"]["reason"]
        )
    )
    pulsar.start()
    topic = Topic(pulsar.follow("example-partition-0"))
    wait_until(lambda: topic.has_all(shop), stopped.process)
    stopped.process.wait_for_log(r"delivery to pulsarmq at .* continues")
    failures = stopped.status()["delivery"]["failures"]
    pulsar.kill()
    shop.write(5)
    stopped.wait_for_status(lambda status: status["delivery"]["in_flight"] > 0)
    stopped.process.wait_for_log("confirms nothing: Pulsar at .* does not answer: Conn")
    pulsar.start()
    wait_until(lambda: topic.has_all(shop), stopped.process)
    topic.check(shop)
    assert stopped.status()["delivery"]["failures"] == failures


@pytest.mark.parametrize("settings", [{}, BY_KEY])
def test_protobuf(
    stopped: Pipeline, pulsar: Pulsar, rng: random.Random, settings: dict[str, Any]
) -> None:
    """Each row arrives, and none more than once, unlike with the original."""
    pulsar.create("shop", 4)
    shop = Shop(stopped, rng, moves_keys=False)
    stopped.main_settings["canal.mq.flatMessage"] = "false"
    deliver(stopped, pulsar, **{"canal.mq.topic": "shop", **settings})
    topic = Topic(*(pulsar.follow(each) for each in PARTITIONS))
    shop.write(100)
    wait_until(lambda: topic.has_all(shop), stopped.process)
    topic.check(shop)
    assert len(topic.log) == len(set(topic.log))


def test_a_message_that_is_too_large(
    stopped: Pipeline, make_pulsar: Callable[..., Pulsar]
) -> None:
    """Delivery stops with the remedy; with a topic for notes, it continues."""
    pulsar = make_pulsar("maxMessageSize=100000")
    table = f"{stopped.schema}.notes"
    stopped.source.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, body LONGTEXT)",
        f"INSERT INTO {table} VALUES (1, 'a')",
        f"INSERT INTO {table} VALUES (2, REPEAT('x', 250000))",
        f"INSERT INTO {table} VALUES (3, 'c')",
    )
    deliver(stopped, pulsar, **{"canal.mq.topic": "shop"})
    stopped.process.wait_for_log(
        "delivery stopped, nothing is acked any more: topic shop: a message of 25.*"
        r" bytes \(table .*\) is larger than the broker accepts: raise maxMessageSize"
    )
    stopped.wait_for_status(lambda status: status["delivery"]["state"] == "stopped")
    stopped.stop()
    stopped.main_settings["canal.mq.tooLargeTopic"] = "large"
    stopped.configure({})
    stopped.start()
    stopped.wait_for_status(lambda status: status["delivery"]["too_large"] == 1)
    (note,) = pulsar.messages("large-partition-0", 1)
    assert json.loads(note.data())["keys"] == [{"id": "2"}]
    ids: list[str] = []
    read = pulsar.follow("shop-partition-0")

    def has_both() -> bool:
        for each in map(json.loads, read()):
            ids.extend(row["id"] for row in each["data"] or ())
        assert "2" not in ids
        return "3" in ids

    wait_until(has_both, stopped.process)


def test_check(stopped: Pipeline, pulsar: Pulsar, capsys: Any) -> None:
    """What it says of the broker, of topics and partitions; no token shows."""
    table = f"{stopped.schema}.notes"
    stopped.source.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY)", f"INSERT INTO {table} VALUES (1)"
    )
    deliver(stopped, pulsar, **BY_KEY)
    stopped.process.wait_for_log("created topic")
    stopped.stop()

    def found(settings: dict[str, Any] | None = None, **more: object) -> list[str]:
        stopped.main_settings |= {f"pulsarmq.{key}": each for key, each in more.items()}
        stopped.configure(settings or {})
        main(["check", "--conf", str(stopped.conf)])
        lines = capsys.readouterr().out.splitlines()
        names = "pulsar", "topic"
        return [each for each in lines if any(map(each.lower().__contains__, names))]

    queue, topic = found()
    assert f"pulsarmq at {pulsar.servers} answers" in queue
    assert "topic shop has 4 partitions" in topic
    _, topic = found({"canal.mq.partitionsNum": 5})
    assert "warn" in topic
    assert "topic shop has 4 partitions, by the settings 5" in topic
    _, topic = found({"canal.mq.topic": "other"})
    assert "topic other has no partitions, or does not exist: create it with" in topic
    pulsar.kill()
    queue, topic = found(roleToken="s3cret")
    assert f"Pulsar at {pulsar.servers} does not answer: Connection refused" in queue
    assert "skip" in topic
    assert "s3cret" not in queue + topic
