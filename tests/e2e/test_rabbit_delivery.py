"""`canal.serverMode = rabbitMQ`, with a real broker, and kills of it and the server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from load import Load
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
    from rabbit_brokers import Rabbit

pytest.importorskip("pika", reason="the extra `rabbitmq` is not installed")

QUEUE, EXCHANGE = "all", "changes"
PAUSE_S = 0.1  # between portions of a load, which has to be read one by one


def deliver(pipeline: Pipeline, rabbit: Rabbit, /, **main_settings: object) -> None:
    """Start the server of a pipeline with the delivery to a broker."""
    pipeline.main_settings |= {
        "canal.serverMode": "rabbitMQ",
        "rabbitmq.host": rabbit.address,
        "rabbitmq.username": rabbit.user,
        "rabbitmq.password": rabbit.password,
        "rabbitmq.exchange": EXCHANGE,
    } | {key.replace("__", "."): value for key, value in main_settings.items()}
    pipeline.configure({"canal.mq.topic": "shop"})
    pipeline.start()


def test_kills(stopped: Pipeline, rabbit: Rabbit, rng: random.Random) -> None:
    """Whatever is killed, the queue has all changes in their order."""
    pipeline = stopped
    rabbit.create(QUEUE, EXCHANGE)
    shop, topic = Shop(pipeline, rng), Topic(rabbit.follow(QUEUE))
    deliver(pipeline, rabbit)
    write_under_kills(pipeline, rabbit, shop, topic, rng)
    # Nothing is missing among those that came, and repetitions are in order as well.
    last_times = list(dict.fromkeys(reversed(topic.log)))
    assert [int(each) for each in reversed(last_times)] == list(
        range(1, len(last_times) + 1)
    )
    log = pipeline.process.log
    stop_and_go_on(pipeline, shop, topic)
    assert "pika" not in "".join(log)


def test_a_broker_that_is_away(
    stopped: Pipeline, rabbit: Rabbit, rng: random.Random
) -> None:  # fmt: skip
    """The server starts without it, says so, and delivers when it is there."""
    rabbit.create(QUEUE, EXCHANGE)
    rabbit.kill()
    shop = Shop(stopped, rng)
    shop.write(5)
    deliver(stopped, rabbit)
    stopped.wait_for_status(lambda status: status["delivery"]["state"] == "blocked")
    stopped.wait_for_status(
        lambda status: rabbit.address in status["delivery"]["reason"]
    )
    rabbit.start()
    topic = Topic(rabbit.follow(QUEUE))
    wait_until(lambda: topic.has_all(shop), stopped.process)
    stopped.process.wait_for_log(r"delivery to rabbitmq at .* continues")
    assert rabbit.password not in "".join(stopped.process.log)


def test_what_is_missing(
    stopped: Pipeline, rabbit: Rabbit, rng: random.Random
) -> None:  # fmt: skip
    """An exchange, then a queue for a topic: each is named, and nothing is lost."""
    shop = Shop(stopped, rng)
    shop.write(5)
    deliver(stopped, rabbit)
    stopped.process.wait_for_log("exchange changes does not exist in virtual host /")
    rabbit.create("other", EXCHANGE, "other")
    stopped.process.wait_for_log(
        "topic shop: no queue takes it in virtual host / of RabbitMQ at .*: bind a"
        " queue to exchange changes with routing key shop"
    )
    stopped.wait_for_status(lambda status: status["delivery"]["state"] == "blocked")
    rabbit.create(QUEUE, EXCHANGE)
    topic = Topic(rabbit.follow(QUEUE))
    wait_until(lambda: topic.has_all(shop), stopped.process)
    topic.check(shop)


def test_a_wrong_password(stopped: Pipeline, rabbit: Rabbit) -> None:
    """The account is named, the password is not."""
    stopped.source.execute(f"CREATE TABLE {stopped.schema}.t (id INT)")
    deliver(stopped, rabbit, rabbitmq__password="wr0ng")
    stopped.process.wait_for_log("refuses the account canal: ACCESS_REFUSED .* check")
    assert "wr0ng" not in "".join(stopped.process.log)
    assert "wr0ng" not in json.dumps(stopped.status())


def test_a_memory_alarm(
    stopped: Pipeline, rabbit: Rabbit, rng: random.Random
) -> None:  # fmt: skip
    """Under load, the delivery shows that the broker blocks publishers, and why.

    When the alarm is over, it continues: all changes come in their order, each once, as
    the broker has not refused any.
    """
    rabbit.create(QUEUE, EXCHANGE)
    shop, topic = Shop(stopped, rng), Topic(rabbit.follow(QUEUE))
    deliver(stopped, rabbit)
    with Load(shop, PAUSE_S):
        wait_until(lambda: topic.count("log") > 0, stopped.process)
        rabbit.control("set_vm_memory_high_watermark", "0.0000001")
        stopped.process.wait_for_log(
            "confirms nothing: .* blocks publishers: low on mem"
        )
        stopped.wait_for_status(lambda status: status["delivery"]["state"] == "blocked")
        found = stopped.status()["delivery"]
        assert "blocks publishers: low on memory" in found["reason"]
        assert found["in_flight"] > 0
    shop.write(50)
    assert stopped.status()["delivery"]["state"] == "blocked"
    rabbit.control("set_vm_memory_high_watermark", "0.4")
    wait_until(lambda: topic.has_all(shop), stopped.process)
    topic.check(shop)
    assert topic.log == [str(number) for number in range(1, len(topic.log) + 1)]
    stopped.wait_for_status(lambda status: status["delivery"]["state"] == "delivering")
    assert stopped.status()["delivery"]["failures"] == 0


def test_a_message_that_is_too_large(
    stopped: Pipeline, make_rabbit: Callable[..., Rabbit]
) -> None:
    """Delivery stops with the remedy; with a topic for notes, it continues."""
    rabbit = make_rabbit("max_message_size = 100000")
    rabbit.create(QUEUE, EXCHANGE)
    table = f"{stopped.schema}.notes"
    stopped.source.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, body LONGTEXT)",
        f"INSERT INTO {table} VALUES (1, 'a')",
        f"INSERT INTO {table} VALUES (2, REPEAT('x', 120000))",
        f"INSERT INTO {table} VALUES (3, 'c')",
    )
    deliver(stopped, rabbit)
    stopped.process.wait_for_log(
        "delivery stopped, nothing is acked any more: topic shop: a message of 12.*"
        r" bytes \(table .*\) is larger than the 100000 bytes .* raise max_message_size"
    )
    stopped.wait_for_status(lambda status: status["delivery"]["state"] == "stopped")
    stopped.stop()
    read = rabbit.follow(QUEUE)
    list(read())
    stopped.main_settings["canal.mq.tooLargeTopic"] = "large"
    stopped.configure({})
    stopped.start()
    found: list[dict[str, Any]] = []

    def has_both() -> bool:
        found.extend(map(json.loads, read()))
        ids = [row["id"] for each in found for row in each.get("data") or ()]
        assert "2" not in ids
        return "3" in ids

    wait_until(has_both, stopped.process)
    notes = [each for each in found if "keys" in each]
    assert notes
    assert all(each["keys"] == [{"id": "2"}] for each in notes)
    stopped.wait_for_status(lambda status: status["delivery"]["too_large"] == 1)


def test_partitions_have_no_meaning(stopped: Pipeline, rabbit: Rabbit) -> None:
    """Rows of one statement are in one message, whatever is set; the server declares.

    A topic of each table is a routing key.
    """
    table = f"{stopped.schema}.t"
    stopped.main_settings |= {
        "rabbitmq.queue": QUEUE,
        "rabbitmq.routingKey": "#",
        "rabbitmq.deliveryMode": "topic",
    }
    read = rabbit.follow(QUEUE)
    rabbit.exchanges.add(EXCHANGE)
    deliver(stopped, rabbit)
    stopped.stop()
    stopped.configure(
        {
            "canal.mq.dynamicTopic": r".*\..*",
            "canal.mq.partitionsNum": 4,
            "canal.mq.partitionHash": r".*\..*:$pk$",
        }
    )
    stopped.start()
    stopped.source.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY)",
        f"INSERT INTO {table} VALUES (1), (2), (3), (4)",
    )
    found: list[dict[str, Any]] = []

    def has_rows() -> bool:
        found.extend(map(json.loads, read()))
        return any(each["data"] for each in found)

    wait_until(has_rows, stopped.process)
    (rows,) = [each["data"] for each in found if each["data"]]
    assert [row["id"] for row in rows] == ["1", "2", "3", "4"]
    topic = f"{stopped.schema}_t"  # counted when it is acked
    stopped.wait_for_status(lambda status: topic in status["delivery"]["topics"])


def test_check(stopped: Pipeline, rabbit: Rabbit, capsys: Any) -> None:
    """What it says of the broker, the account, the exchange and queues."""
    deliver(stopped, rabbit)
    stopped.stop()

    def found(**settings: object) -> list[str]:
        stopped.main_settings |= {
            key.replace("__", "."): value for key, value in settings.items()
        }
        stopped.configure({})
        main(["check", "--conf", str(stopped.conf)])
        lines = capsys.readouterr().out.splitlines()
        names = "rabbit", "exchange", "topic", "queue"
        return [each for each in lines if any(map(each.lower().__contains__, names))]

    queue, exchange, topic = found()
    assert f"rabbitmq at {rabbit.address} answers, account canal may log in" in queue
    assert "FAIL" in exchange
    assert "exchange changes does not exist" in exchange
    assert "FAIL" in topic
    rabbit.create(QUEUE, EXCHANGE)
    _, exchange, topic = found()
    assert "exchange changes exists" in exchange
    assert "topic shop: the account may write" in topic
    rabbit.add_reader("reader", "s3cret")
    _, _, topic = found(rabbitmq__username="reader", rabbitmq__password="s3cret")
    assert "FAIL" in topic
    assert "refuses access to account reader" in topic
    queue, _ = found(rabbitmq__username="canal", rabbitmq__exchange="")
    assert "refuses the account canal" in queue
    assert "s3cret" not in queue
    _, _, topic = found(rabbitmq__password=rabbit.password)
    assert "warn" in topic
    assert "topic shop: there is no queue of this name: create it" in topic
    rabbit.create("shop")
    assert "topic shop: its queue exists" in found()[-1]
    assert not rabbit.messages("shop")
    rabbit.kill()
    queue, topic = found()
    assert f"RabbitMQ at {rabbit.address} does not answer: Connection refused" in queue
    assert "skip" in topic
