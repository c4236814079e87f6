"""`canal.serverMode = kafka`, with a real broker, and kills of it and the server."""

from __future__ import annotations

import json
import shutil
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from random_shop import (
    Shop,
    Topic,
    stop_and_go_on,
    wait_until,
    write_under_kills,
)
from servers import free_port
from support_paths import TESTS

from canal_server.cli import main
from canal_server.daemon.control import ask
from canal_server.errors import ClientError
from canal_server.model.entry import EventType

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from fix_kafka import Kafka
    from fix_pipeline import Pipeline

    from canal_server.client import Entry

pytest.importorskip("confluent_kafka", reason="the extra `kafka` is not installed")

BY_KEY = {
    "canal.mq.topic": "shop",
    "canal.mq.partitionsNum": 4,
    "canal.mq.partitionHash": r".*\..*:$pk$",
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


def test_kills(stopped: Pipeline, kafka: Kafka, rng: random.Random) -> None:
    """Whatever is killed, the topic has all changes, those of a key in their order."""
    pipeline = stopped
    # A row with another key is in the partition of that, beside the order of the first.
    shop = Shop(pipeline, rng, moves_keys=False)
    topic = Topic(*(kafka.follow("shop", number) for number in range(4)))
    deliver(pipeline, kafka, **BY_KEY)
    pipeline.process.wait_for_log(
        r"delivery to kafka at .* begins .*: canal-json, topic shop, 4 partitions"
    )
    write_under_kills(pipeline, kafka, shop, topic, rng)
    stop_and_go_on(pipeline, shop, topic)


@pytest.mark.parametrize("routing", [{"canal.mq.topic": "shop"}, BY_KEY])
def test_protobuf(
    stopped: Pipeline, kafka: Kafka, rng: random.Random, routing: dict[str, Any]
) -> None:
    """Whole batches, or rows by their keys, arrive as well, whatever is killed."""
    pipeline = stopped
    shop = Shop(pipeline, rng, moves_keys=False)
    topic = Topic(*(kafka.follow("shop", number) for number in range(4)))
    pipeline.main_settings["canal.mq.flatMessage"] = "false"
    deliver(pipeline, kafka, **routing)
    shop.write(100)
    wait_until(lambda: topic.count("log") > 0, pipeline.process)
    kafka.kill()
    shop.write(20)
    kafka.start()
    pipeline.kill()
    shop.write(20)
    pipeline.start()
    wait_until(lambda: topic.has_all(shop), pipeline.process)
    topic.check(shop)
    pipeline.wait_for_status(lambda status: status["delivery"]["in_flight"] == 0)
    assert pipeline.status()["delivery"]["state"] == "delivering"
    pipeline.stop()


def test_a_broker_that_is_away(
    stopped: Pipeline, kafka: Kafka, rng: random.Random
) -> None:  # fmt: skip
    """The server starts without it, says so, and delivers when it is there."""
    kafka.kill()
    shop = Shop(stopped, rng)
    shop.write(5)
    deliver(stopped, kafka)
    stopped.wait_for_status(lambda status: status["delivery"]["state"] == "blocked")
    stopped.wait_for_status(
        lambda status: kafka.servers in status["delivery"]["reason"]
    )
    kafka.start()
    topic = Topic(kafka.follow("example", 0))
    wait_until(lambda: topic.has_all(shop), stopped.process)
    stopped.process.wait_for_log(r"delivery to kafka at .* continues")
    kafka.kill()
    shop.write(5)
    stopped.wait_for_status(lambda status: status["delivery"]["in_flight"] > 0)
    kafka.start()
    wait_until(lambda: topic.has_all(shop), stopped.process)


def test_a_topic_that_is_missing(
    stopped: Pipeline, make_kafka: Callable[..., Kafka], rng: random.Random
) -> None:
    """It is named, also if it has too few partitions; nothing is sent meanwhile."""
    kafka = make_kafka("auto.create.topics.enable=false")
    shop = Shop(stopped, rng, moves_keys=False)
    shop.write(5)
    deliver(stopped, kafka, **(BY_KEY | {"canal.mq.partitionsNum": 2}))
    stopped.process.wait_for_log(
        "topic shop does not exist at .* create it with 2 partitions, set"
        " canal.mq.topics.create = true"
    )
    kafka.create("shop", 2)
    topic = Topic(kafka.follow("shop", 0), kafka.follow("shop", 1))
    wait_until(lambda: topic.has_all(shop), stopped.process)
    topic.check(shop)
    stopped.stop()
    stopped.configure({"canal.mq.partitionsNum": 50})
    stopped.start()
    shop.write(30)
    stopped.process.wait_for_log("topic shop has 2 partitions, a message is for")
    stopped.stop()


def test_a_message_that_is_too_large(stopped: Pipeline, kafka: Kafka) -> None:
    """Delivery stops with the remedy; with a topic for notes, it continues."""
    table = f"{stopped.schema}.notes"
    stopped.source.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, body LONGTEXT)",
        f"INSERT INTO {table} VALUES (1, 'a')",
        f"INSERT INTO {table} VALUES (2, REPEAT('x', 1200000))",
        f"INSERT INTO {table} VALUES (3, 'c')",
    )
    deliver(stopped, kafka)
    stopped.process.wait_for_log(
        "delivery stopped, nothing is acked any more: topic example: a message of"
        r" 12\d+ bytes \(table \w+.notes\) is larger than"
        " kafka.max.request.size = 1048576: raise it and restart canal-server, or set"
        r" canal.mq.tooLargeTopic; the row has the key {\"id\":\"2\"}"
    )
    stopped.wait_for_status(lambda status: status["delivery"]["state"] == "stopped")
    # Users see it who may not read rows.
    reason = stopped.status()["delivery"]["reason"]
    assert ".notes) is larger than" in reason
    assert "the key" not in reason
    stopped.stop()
    stopped.main_settings["canal.mq.tooLargeTopic"] = "large"
    stopped.configure({})
    stopped.start()
    topic, notes = kafka.follow("example", 0), kafka.follow("large", 0)
    found: list[dict[str, Any]] = []
    seen: list[dict[str, Any]] = []

    def has_both() -> bool:
        seen.extend(map(json.loads, topic()))
        found.extend(map(json.loads, notes()))
        ids = [row["id"] for each in seen for row in each["data"] or ()]
        return bool(found) and "3" in ids

    wait_until(has_both, stopped.process)
    assert "2" not in [row["id"] for each in seen for row in each["data"] or ()]
    # Like any message, a note may come again after a failure.
    assert all(
        (each["table"], each["keys"]) == ("notes", [{"id": "2"}]) for each in found
    )
    # Unlike notes, messages are counted once.
    stopped.wait_for_status(lambda status: status["delivery"]["too_large"] == 1)
    stopped.stop()


def is_logged(entry: Entry) -> bool:
    """Return whether it is a row of the shop's table `log`."""
    header = entry.header
    return (header.table_name, header.event_type) == ("log", EventType.INSERT)


def test_clients_beside_it(
    stopped: Pipeline, kafka: Kafka, rng: random.Random
) -> None:  # fmt: skip
    """It continues from the cursor of client 1001, whose id nobody else can use."""
    stopped.start()
    shop = Shop(stopped, rng)
    with stopped.client() as client:
        shop.write(3)
        logged = 0  # each transaction ends with one
        for message in stopped.messages(client):
            logged += sum(map(is_logged, message.entries))
            client.ack(message.id)
            if logged == 3:
                break
        stopped.settle(client)
    stopped.stop()
    stopped.main_settings["canal.mq.serveClients"] = "true"
    deliver(stopped, kafka)
    topic = Topic(kafka.follow("example", 0))
    with stopped.client(1002) as client:
        shop.write(3)
        assert stopped.rows(client, 3)
    wait_until(lambda: topic.count("log") == 3, stopped.process)
    assert topic.log == ["4", "5", "6"]
    with (
        pytest.raises(ClientError, match="1001 is used by the delivery to kafka"),
        stopped.client(),
    ):
        pass
    stopped.stop()


def test_the_conf_folder_of_the_java_server(
    stopped: Pipeline, kafka: Kafka, rng: random.Random
) -> None:
    """What delivers there delivers here: it is used as it is.

    The lines that are replaced are those that differ on each host: the mode, addresses,
    the account, ports.
    """
    source = stopped.source
    file, offset = source.binlog_position()
    wanted: dict[str, object] = {
        "canal.serverMode": "kafka",
        "kafka.bootstrap.servers": kafka.servers,
        "canal.admin.port": free_port(),
        "canal.metrics.pull.port": 0,
        "canal.instance.master.address": f"{source.host}:{source.port}",
        "canal.instance.master.journal.name": file,
        "canal.instance.master.position": offset,
        "canal.instance.dbUsername": source.user,
        "canal.instance.dbPassword": source.password,
        "canal.instance.filter.regex": rf"{stopped.schema}\\..*",
    }
    shutil.rmtree(stopped.conf)
    shutil.copytree(TESTS / "config" / "shipped", stopped.conf)
    for name in ("canal.properties", "example/instance.properties"):
        path = stopped.conf / name
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            key = line.partition("=")[0].strip()
            if key in wanted:
                lines[number] = f"{key} = {wanted.pop(key)}"
        path.write_text("\n".join(lines) + "\n")
    assert not wanted, "all are lines of the Java server's files"
    shop = Shop(stopped, rng)
    stopped.start()
    shop.write(20)
    topic = Topic(kafka.follow("example", 0))
    wait_until(lambda: topic.has_all(shop), stopped.process)
    topic.check(shop)
    stopped.stop()


def test_topics_are_created(
    stopped: Pipeline, make_kafka: Callable[..., Kafka], rng: random.Random
) -> None:
    """With the partitions and settings that are asked for."""
    kafka = make_kafka("auto.create.topics.enable=false")
    shop = Shop(stopped, rng, moves_keys=False)
    stopped.main_settings |= {
        "canal.mq.topics.create": "true",
        "canal.mq.topics.settings": "retention.ms=3600000",
    }
    deliver(stopped, kafka, **(BY_KEY | {"canal.mq.partitionsNum": 3}))
    shop.write(20)
    topic = Topic(*(kafka.follow("shop", number) for number in range(3)))
    wait_until(lambda: topic.has_all(shop), stopped.process)
    admin: Any = pytest.importorskip("confluent_kafka.admin")
    client = admin.AdminClient({"bootstrap.servers": kafka.servers})
    resource = admin.ConfigResource("topic", "shop")
    config = client.describe_configs([resource])[resource].result(10)
    assert config["retention.ms"].value == "3600000"
    assert len(client.list_topics("shop").topics["shop"].partitions) == 3
    stopped.stop()


def test_metrics(
    stopped: Pipeline, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What each topic has is counted, in messages and bytes, and none fails."""
    monkeypatch.setenv("CANAL_METRICS_PULL_PORT", "0")  # a free one
    stopped.main_settings["canal.metrics.pull.port"] = 0  # a free one
    stopped.source.execute(
        *(f"CREATE TABLE {stopped.schema}.{name} (id INT PRIMARY KEY)" for name in "ab")
    )
    deliver(
        stopped,
        kafka,
        **{
            "canal.mq.dynamicTopic": rf"{stopped.schema}\..*",
            "canal.instance.filter.query.ddl": "true",
            # MariaDB has the text of statements beside their rows.
            "canal.instance.filter.query.dml": "true",
        },
    )
    for number in range(3):
        stopped.source.execute(f"INSERT INTO {stopped.schema}.a VALUES ({number})")
    stopped.source.execute(f"INSERT INTO {stopped.schema}.b VALUES (1)")
    port = ask(stopped.conf, "status")["metrics_port"]

    def found(name: str, **labels: str) -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            families = text_string_to_metric_families(answer.read().decode())
            return {
                sample.labels.get("topic", ""): sample.value
                for family in families
                for sample in family.samples
                if sample.name == f"canal_delivery_{name}"
                and sample.labels.items() >= labels.items()
            }

    counts = {f"{stopped.schema}_a": 3, f"{stopped.schema}_b": 1}
    wait_until(lambda: found("messages_total") == counts, stopped.process)
    sizes = [
        sum(
            len(value)
            for values in kafka.messages(name, count).values()
            for value in values
        )
        for name, count in counts.items()
    ]
    assert list(found("bytes_total").values()) == sizes
    assert found("in_flight") == found("in_flight_bytes") == {"": 0}
    assert found("failures_total") == found("too_large_total") == {"": 0}
    assert found("state", state="delivering") == {"": 1}
    stopped.stop()


def test_check(
    stopped: Pipeline, make_kafka: Callable[..., Kafka], capsys: Any
) -> None:  # fmt: skip
    """What it says of brokers and topics."""
    kafka = make_kafka("auto.create.topics.enable=false")
    stopped.main_settings |= {
        "canal.serverMode": "kafka", "kafka.bootstrap.servers": kafka.servers,
    }  # fmt: skip

    def found(**settings: Any) -> list[str]:
        stopped.configure(settings)
        main(["check", "--conf", str(stopped.conf)])
        lines = capsys.readouterr().out.splitlines()
        return [each for each in lines if "topic" in each or "kafka" in each.lower()]

    (queue, topic) = found(**BY_KEY)
    assert f"kafka at {kafka.servers} answers, 0 topics" in queue
    assert "FAIL" in topic
    assert "topic shop does not exist" in topic
    assert "create it with 4 partitions" in topic
    kafka.create("shop", 2)
    assert "FAIL" in found()[-1]
    assert "has 2 partitions, 4 are needed" in found()[-1]
    (_, topic) = found(**{"canal.mq.partitionsNum": 2})
    assert "ok" in topic
    assert "topic shop has 2 partitions" in topic
    stopped.main_settings |= {
        "canal.mq.form": "debezium",
        "canal.mq.keys": "primaryKey",
    }
    assert "keys of Debezium do not name the table" in "".join(found())
    rest = found(**{"canal.mq.dynamicTopic": r".*\..*"})
    assert "do not name the table" not in "".join(rest)
    stopped.main_settings["canal.mq.form"] = "canal-json"
    kafka.kill()
    (queue, topic) = found()
    assert "FAIL" in queue
    assert f"Kafka at {kafka.servers} does not answer" in queue
    assert "skip" in topic
