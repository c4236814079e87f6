"""`canal.mq.exactlyOnce`, with a real broker, and kills of it and the server."""

from __future__ import annotations

import json
import re
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from fix_random import longer
from random_shop import Shop, Topic, wait_until

from canal_server.cli import main
from canal_server.daemon.control import ask

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from fix_kafka import Kafka
    from fix_pipeline import Pipeline

pytest.importorskip("confluent_kafka", reason="the extra `kafka` is not installed")

BY_TABLE = {
    "canal.mq.topic": "shop",
    "canal.mq.partitionsNum": 4,
    "canal.mq.partitionHash": r".*\..*",
}
ROWS = 60_000  # more than a ring of 1 MiB has


@pytest.fixture
def kafka(make_kafka: Callable[[], Kafka]) -> Kafka:
    """Give a running broker, whose topics have four partitions."""
    return make_kafka()


@pytest.fixture
def deliver(
    make_pipeline: Callable[..., Pipeline],
    source_server: Any,
    database: str,
    kafka: Kafka,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Pipeline]:
    """Give a function that starts a server with the delivery to the broker."""
    for name in ("CANAL_HTTP_PORT", "CANAL_METRICS_PULL_PORT"):
        monkeypatch.setenv(name, "0")  # a free one

    def start(main_settings: dict[str, Any], **settings: Any) -> Pipeline:
        pipeline = make_pipeline(source_server, database)
        pipeline.main_settings |= {
            "canal.serverMode": "kafka",
            "canal.mq.exactlyOnce": "true",
            "kafka.bootstrap.servers": kafka.servers,
            **main_settings,
        }
        pipeline.configure(settings)
        pipeline.start()
        return pipeline

    return start


def followed(kafka: Kafka, topic: str, partitions: int = 4) -> Topic:
    """Return what consumers of committed messages make of a topic."""
    return Topic(*(kafka.follow(topic, number) for number in range(partitions)))


def arrived(topic: Topic) -> list[str]:
    """Return the ids of the table `log`, as they came."""
    topic.read()
    return topic.log


def all_ids(count: int) -> list[str]:
    """Return the ids of the table `log`, each once."""
    return [str(number) for number in range(1, count + 1)]


@pytest.mark.parametrize(
    ("form", "rounds"),
    # What is killed meets transactions, whatever their messages look like.
    [("canal-json", 6), ("maxwell", 2), ("debezium", 2)],
)
def test_kills(
    deliver: Callable[..., Pipeline],
    kafka: Kafka,
    rng: random.Random,
    form: str,
    rounds: int,
) -> None:
    """Whatever is killed, the topic has each change once, in the order of commits."""
    topic = followed(kafka, "shop")
    pipeline = deliver({"canal.mq.form": form}, **BY_TABLE)
    shop = Shop(pipeline, rng)
    written = 0
    for number in range(longer(rounds)):
        before = topic.count("log")
        more = rng.randint(50, 300)
        shop.write(more)
        wait_until(lambda: topic.count("log") > before, pipeline.process)  # noqa: B023
        if number % 2:
            kafka.kill()
            shop.write(20)
            kafka.start()
        pipeline.kill()
        shop.write(20)
        pipeline.start()
        written += more + (40 if number % 2 else 20)
    wait_until(lambda: topic.has_all(shop), pipeline.process)
    topic.check(shop)
    assert topic.log == all_ids(written)
    pipeline.wait_for_status(lambda status: status["delivery"]["in_flight"] == 0)
    pipeline.stop()
    pipeline.start()
    shop.write(1)
    wait_until(lambda: topic.has_all(shop), pipeline.process)
    assert topic.log == all_ids(written + 1)
    pipeline.stop()


def test_a_transaction_larger_than_the_ring(
    deliver: Callable[..., Pipeline], kafka: Kafka
) -> None:
    """It arrives as a whole, once, also if the server is killed in its middle."""
    read = kafka.follow("shop", 0)
    settings = {"canal.mq.topic": "shop"}
    pipeline = deliver({"canal.instance.memory.buffer.size": 1024}, **settings)
    table = f"{pipeline.schema}.large"
    pipeline.source.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v CHAR(200))")
    ids: list[int] = []

    def count() -> int:
        for value in read():
            message = json.loads(value)
            ids.extend(int(row["id"]) for row in message["data"] or ())
        return len(ids)

    half = ROWS // 2
    for first in (1, half + 1):
        with pipeline.source.connect(autocommit=False) as connection:
            with connection.cursor() as cursor:
                for start in range(first, first + half, 500):
                    rows = ", ".join(f"({n}, 'x')" for n in range(start, start + 500))
                    cursor.execute(f"INSERT INTO {table} VALUES {rows}")
            connection.commit()
        if first == 1:
            pipeline.wait_for_status(
                lambda status: (
                    sum(e["messages"] for e in status["delivery"]["topics"].values())
                    > 50
                )
            )
            assert count() in (0, half), "a part of a transaction is visible"
            pipeline.kill()
            pipeline.start()
    wait_until(lambda: count() >= ROWS, pipeline.process)
    assert ids == list(range(1, ROWS + 1))
    pipeline.stop()


@pytest.mark.parametrize("is_running", [True, False])
def test_an_operator_moves_it(
    deliver: Callable[..., Pipeline],
    kafka: Kafka,
    rng: random.Random,
    *,
    is_running: bool,
) -> None:
    """Moved back, it delivers again from there, and a crash does not undo that."""
    topic = followed(kafka, "example", 1)
    pipeline = deliver({})
    shop = Shop(pipeline, rng)
    shop.write(5)
    wait_until(lambda: arrived(topic) == all_ids(5), pipeline.process)
    file, offset = pipeline.source.binlog_position()
    shop.write(5)
    wait_until(lambda: arrived(topic) == all_ids(10), pipeline.process)
    if not is_running:
        pipeline.stop()
    to = f"{file}:{offset}"
    command = ["position", "seek", "--conf", str(pipeline.conf), "--to", to, "--yes"]
    assert main(command) == 0
    if not is_running:
        pipeline.start()
    again = [*all_ids(10), *all_ids(10)[5:]]
    wait_until(lambda: len(arrived(topic)) >= 15, pipeline.process)
    pipeline.kill()
    pipeline.start()
    shop.write(1)
    wait_until(lambda: topic.count("log") == 11, pipeline.process)
    assert topic.log == [*again, "11"]
    pipeline.stop()


def test_a_message_that_is_too_large(
    deliver: Callable[..., Pipeline], kafka: Kafka, rng: random.Random
) -> None:
    """A note takes its place, once; what is before and after it arrives once.

    Also if several are, some for the topic and one for the producer.
    """
    kafka.create("shop", 1, {"max.message.bytes": "100000"})
    read, notes = kafka.follow("shop", 0), kafka.follow("large", 0)
    pipeline = deliver(
        {"canal.mq.tooLargeTopic": "large"}, **{"canal.mq.topic": "shop"}
    )
    table = f"{pipeline.schema}.notes"
    # The text of a statement that is too large would be one more message.
    silent = (
        ("SET SESSION binlog_annotate_row_events = OFF",)
        if pipeline.source.flavour == "mariadb"
        else ()
    )
    pipeline.source.execute(
        *silent,
        f"CREATE TABLE {table} (id INT PRIMARY KEY, body LONGTEXT)",
        f"INSERT INTO {table} VALUES (1, 'a')",
        *(
            f"INSERT INTO {table} VALUES ({number}, '{rng.randbytes(size).hex()}')"
            for number, size in enumerate((250_000, 1_000_000, 250_000), 2)
        ),
        f"INSERT INTO {table} VALUES (5, 'c')",
    )
    ids: list[str] = []
    found: list[dict[str, Any]] = []

    def has_all() -> bool:
        for value in read():
            ids.extend(row["id"] for row in json.loads(value)["data"] or ())
        found.extend(map(json.loads, notes()))
        return "5" in ids and len(found) >= 3

    wait_until(has_all, pipeline.process)
    assert ids == ["1", "5"]
    assert [each["keys"] for each in found] == [[{"id": each}] for each in "234"]
    pipeline.wait_for_status(lambda status: status["delivery"]["too_large"] == 3)
    pipeline.stop()


def check_shown(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str], reason: str
) -> None:
    """Check that a reason is in the status, the check, REST and the metrics."""
    conf = ["--conf", str(pipeline.conf)]
    assert main(["status", *conf]) == 0
    text = capsys.readouterr().out
    assert f"example: waits for its position in the message queue: {reason}" in text
    assert "(since 2" in text
    assert text.count(reason) == 1
    assert main(["status", "--check", *conf]) == 5
    (line,) = capsys.readouterr().out.splitlines()
    assert reason in line
    ports = ask(pipeline.conf, "status")
    at = f"http://127.0.0.1:{ports['http_port']}"
    with urllib.request.urlopen(f"{at}/api/v1/destinations/example") as answer:
        shown = json.load(answer)
    assert reason in shown["error"]
    assert shown["error_since_ms"] > 0
    assert (shown["delivery"]["state"], shown["ready"]) == ("waiting", False)
    (note,) = shown["error_notes"]
    assert note["anchor"] == "position-not-read"
    found = f"http://127.0.0.1:{ports['metrics_port']}/metrics"
    with urllib.request.urlopen(found) as answer:
        metrics = answer.read().decode()
    labels = 'destination="example"'
    assert f'canal_delivery_state{{{labels},state="waiting"}} 1.0' in metrics
    (failing,) = re.findall(
        rf"^canal_instance_failing_seconds\{{{labels}\}} (.*)$", metrics, re.MULTILINE
    )
    assert float(failing) > 0


def test_transactions_that_brokers_refuse(
    deliver: Callable[..., Pipeline],
    make_kafka: Callable[..., Kafka],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The destination waits, and all that shows it says which setting to change."""
    kafka = make_kafka("transaction.max.timeout.ms=60000")
    pipeline = deliver({"kafka.bootstrap.servers": kafka.servers})
    pipeline.wait_for_status(lambda status: bool(status.get("error")))
    check_shown(
        pipeline,
        capsys,
        "transactions of canal-position.example cannot begin: the brokers allow no"
        " kafka.transaction.timeout.ms of 600000",
    )
    pipeline.stop()


def test_a_broker_that_is_away(
    deliver: Callable[..., Pipeline],
    kafka: Kafka,
    rng: random.Random,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The destination waits for its position, says so, and then runs."""
    topic = followed(kafka, "example", 1)
    pipeline = deliver({})
    shop = Shop(pipeline, rng)
    shop.write(3)
    wait_until(lambda: arrived(topic) == all_ids(3), pipeline.process)
    pipeline.kill()
    kafka.kill()
    shop.write(3)
    pipeline.start()
    pipeline.process.wait_for_log("waits for its position in the message queue: Kafka")
    check_shown(pipeline, capsys, f"Kafka at {kafka.servers} does not answer")
    kafka.start()
    wait_until(lambda: topic.has_all(shop), pipeline.process)
    assert topic.log == all_ids(6)
    pipeline.stop()


def test_a_first_start_before_the_broker(
    deliver: Callable[..., Pipeline], kafka: Kafka, rng: random.Random
) -> None:
    """What is committed while nobody answers arrives, once, also after a kill."""
    kafka.kill()
    start = "canal.instance.master."
    pipeline = deliver({}, **{f"{start}journal.name": None, f"{start}position": None})
    pipeline.process.wait_for_log("waits for its position in the message queue: Kafka")
    shop = Shop(pipeline, rng)
    shop.write(5)
    kafka.start()
    pipeline.process.wait_for_log("nothing was delivered before, delivery begins at")
    topic = followed(kafka, "example", 1)
    wait_until(lambda: topic.has_all(shop), pipeline.process)
    shop.write(2)
    wait_until(lambda: topic.has_all(shop), pipeline.process)
    assert arrived(topic) == all_ids(7)
    pipeline.kill()
    pipeline.start()
    shop.write(1)
    wait_until(lambda: topic.has_all(shop), pipeline.process)
    assert topic.log == all_ids(8)
    pipeline.stop()
