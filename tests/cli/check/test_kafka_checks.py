"""What `canal-server check` says of Kafka, with a real broker and a real source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fix_kafka import Kafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytest.importorskip("confluent_kafka", reason="the extra `kafka` is not installed")

Results = list[tuple[str, str]]


@pytest.fixture(scope="module")
def kafka(
    kafka_jars: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kafka]:
    """Give a broker that creates no topics by itself."""
    folder = tmp_path_factory.mktemp("broker")
    broker = Kafka(*kafka_jars, folder, "auto.create.topics.enable=false")
    try:
        yield broker.start()
    finally:
        broker.kill()


@pytest.fixture
def found(
    kafka: Kafka, conf_for: Any, checked_server: Any, check: Any
) -> Callable[..., Results]:
    """Give a function that returns what a check says of the destination.

    Its arguments are the name of the check, lines of both files, and other
    subjects.
    """

    def run(
        name: str,
        main: dict[str, object],
        own: dict[str, object] | None = None,
        *subjects: str,
    ) -> Results:
        of_kafka = {
            "canal.serverMode": "kafka", "kafka.bootstrap.servers": kafka.servers
        }  # fmt: skip
        lines = "".join(
            f"{key} = {value}\n" for key, value in (of_kafka | main).items()
        )
        of_destination = (f"{key} = {value}" for key, value in (own or {}).items())
        conf = conf_for(checked_server, *of_destination, main=lines)
        results = check(conf)
        about: list[str] = ["example", *subjects]
        return [each for subject in about for each in results.of(name, subject)]

    return run


def test_a_timeout_that_the_brokers_do_not_allow(found: Callable[..., Results]) -> None:
    """Both numbers are there; the default of the server is below that of brokers."""

    def of_timeout(**main: object) -> tuple[str, str]:
        results = found("exactly_once", {"canal.mq.exactlyOnce": "true", **main})
        (result,) = (each for each in results if "timeout.ms" in each[1])
        return result

    assert of_timeout() == (
        "ok", "kafka.transaction.timeout.ms = 600000, the brokers allow 900000"
    )  # fmt: skip
    outcome, text = of_timeout(**{"kafka.transaction.timeout.ms": 900_001})
    assert outcome == "fail"
    assert "kafka.transaction.timeout.ms = 900001: the brokers allow 900000" in text
    assert text.endswith("lower it, or raise transaction.max.timeout.ms of the brokers")


CREATED = {"canal.mq.topics.create": "true"}
EACH = {
    "canal.mq.dynamicTopic": r".*\\..*",
    "canal.instance.filter.regex": r"shop\\..*",
}


def have(
    kafka: Kafka, topic: str, partitions: int, settings: dict[str, str] | None = None
) -> None:
    """Create a topic, unless a test with another source did so."""
    if topic not in kafka.topics():
        kafka.create(topic, partitions, settings)


def texts(results: Results, outcome: str) -> str:
    """Return what results with an outcome say."""
    return "\n".join(text for each, text in results if each == outcome)


@pytest.mark.parametrize("name", ["missing", "there"])
@pytest.mark.parametrize(
    ("setting", "reason", "remedy"),
    [
        (
            {"canal.mq.topics.settings": "retention.msx=5"},
            "Unknown topic config name: retention.msx",
            "correct canal.mq.topics.settings = retention.msx=5",
        ),
        (
            {"canal.mq.topics.settings": "cleanup.policy=compct"},
            "Invalid value compct",
            "correct canal.mq.topics.settings = cleanup.policy=compct",
        ),
        (
            {"canal.mq.topics.replicas": 3},
            "only 1 broker(s) are registered",
            "lower canal.mq.topics.replicas = 3",
        ),
    ],
)
def test_topics_that_cannot_be_created(  # noqa: PLR0917  # fixtures
    found: Callable[..., Results],
    kafka: Kafka,
    name: str,
    setting: dict[str, object],
    reason: str,
    remedy: str,
) -> None:
    """Settings that the brokers refuse fail, with their key; no topic is created.

    Also if no topic is missing yet.
    """
    if name == "there":
        have(kafka, name, 1)
    before = kafka.topics()
    own = {"canal.mq.topic": name}
    failed = texts(found("topics", CREATED | setting, own, "server"), "fail")
    assert "cannot be created: " in failed
    assert reason in failed
    assert failed.endswith(f"; {remedy}")
    assert kafka.topics() == before
    assert texts(found("topics", CREATED, own, "server"), "fail") == ""


@pytest.mark.parametrize(
    ("main", "own", "reason"),
    [
        (
            {},
            {"canal.mq.topic": "my shop"},
            "'my shop' (canal.mq.topic): ' ' in a name",
        ),
        ({}, {"canal.mq.topic": r"gr\u00f6\u00dfe"}, "'ö' in a"),
        ({}, {"canal.mq.topic": "x" * 250}, "250 characters, Kafka accepts 249"),
        ({}, {"canal.mq.topic": ".."}, "Kafka accepts no such name; correct canal.mq"),
        ({}, {"canal.mq.dynamicTopic": "a b:shop"}, "correct canal.mq.dynamicTopic"),
        (
            {"canal.mq.tooLargeTopic": "too large"},
            {},
            "correct canal.mq.tooLargeTopic",
        ),
    ],
)
def test_names_that_no_topic_can_have(
    found: Callable[..., Results], main: Any, own: Any, reason: str
) -> None:
    """Such a name fails, whether topics are created or not, with its key."""
    for create in ({}, CREATED):
        assert reason in texts(found("topics", main | create, own), "fail")


@pytest.fixture
def tables(checked_server: Any) -> Iterator[None]:
    """Have tables whose topics are not the usual ones."""
    checked_server.execute(
        "CREATE TABLE shop.Größen (id INT PRIMARY KEY)",
        "CREATE TABLE shop.log (id INT, a INT)",
    )
    yield
    checked_server.execute("DROP TABLE shop.Größen", "DROP TABLE shop.log")


@pytest.mark.usefixtures("tables")
def test_topics_of_tables(found: Callable[..., Results], kafka: Kafka) -> None:
    """Those that are missing, have few partitions or impossible names are named."""
    have(kafka, "shop_orders", 2)
    have(kafka, "shop_items", 1)
    own = EACH | {"canal.mq.partition": 1}
    results = found("topics", {}, own)
    assert "1 topic of tables with enough partitions" in texts(results, "ok")
    failed = texts(results, "fail")
    assert "1 topic of tables (shop_log) missing" in failed
    assert "create none (auto.create.topics.enable = false); create them" in failed
    assert "create them with 2 partitions, set canal.mq.topics.create" in failed
    assert "topic shop_items has 1 partitions, 2 are needed" in failed
    assert "topic 'shop_größen' of a table: 'ö' in a name" in failed
    assert "(tables shop.Größen); name a topic for such tables" in failed
    created = texts(found("topics", CREATED, own), "ok")
    assert "1 topic of tables (shop_log) will be created, 2 partitions each" in created
    wrong = CREATED | {"canal.mq.topics.settings": "x=1"}
    assert "topic shop_log cannot be created" in texts(
        found("topics", wrong, own), "fail"
    )


@pytest.mark.usefixtures("tables")
def test_compacted_topics(found: Callable[..., Results], kafka: Kafka) -> None:
    """Tables without a primary key are named, and settings without keys fail."""
    have(kafka, "kept", 1, {"cleanup.policy": "compact,delete"})
    keys = {"canal.mq.keys": "primaryKey"}
    created = CREATED | {"canal.mq.topics.settings": "cleanup.policy=compact"}
    every = {"canal.instance.filter.regex": r"shop\\..*"}
    for main, topic in (({}, "kept"), (created, "made")):
        own = every | {"canal.mq.topic": topic}
        results = found("topics", main | keys, own)
        failed = texts(results, "fail")
        assert "1 table has no primary key (shop.log), so rows have" in failed
        assert f"refuses in a compacted topic ({topic}): delivery" in failed
        own["canal.instance.filter.black.regex"] = r"shop\\.log"
        assert texts(found("topics", main | keys, own), "fail") == ""
        failed = texts(found("topics", main, own), "fail")
        assert f"1 topic compacted ({topic})" in failed
        assert "set canal.mq.keys = primaryKey, or cleanup.policy = delete" in failed


def test_a_topic_with_a_low_limit(found: Callable[..., Results], kafka: Kafka) -> None:
    """It is a warning, until batches are as small."""
    have(kafka, "small", 1, {"max.message.bytes": "50000"})
    own = {"canal.mq.topic": "small"}
    warned = texts(found("topics", {}, own), "warn")
    assert "1 topic (small) has max.message.bytes = 50000" in warned
    assert "batches have up to 1000000 bytes" in warned
    main = {"kafka.batch.size": "40000"}
    assert texts(found("topics", main, own), "warn") == ""


@pytest.mark.usefixtures("tables")
def test_columns_that_no_table_has(found: Callable[..., Results]) -> None:
    """A name in a hash that is no column is a warning, with the tables."""

    def warned(columns: str) -> str:
        own = {
            "canal.instance.filter.regex": r"shop\\.(orders|items|log)",
            "canal.mq.partitionHash": rf"shop\\..*:{columns}",
        }
        results = found("topics", {}, own)
        return "".join(text for _, text in results if "partitionHash: " in text)

    assert "3 tables have no column $pk" in warned("$pk")
    assert warned("$pk").endswith("; write $pk$ for the primary key")
    assert warned("$pk$") == warned("ID") == ""
    assert "2 tables have no column a (shop." in warned("id^a")
    assert warned("id^a").endswith("; correct the name")


def test_a_source_that_does_not_answer(conf_for: Any, check: Any, kafka: Kafka) -> None:
    """What depends on its tables is skipped, and the named topics are checked."""

    class Nobody:
        port = 9

    main = f"canal.serverMode = kafka\nkafka.bootstrap.servers = {kafka.servers}\n"
    conf = conf_for(Nobody, "canal.mq.dynamicTopic = .*\\\\..*", main=main)
    results = check(conf).of("topics")
    assert "what depends on the tables of the source" in texts(results, "skip")
    assert "topic example does not exist" in texts(results, "fail")
