"""Flink and Spark read the topics of the server, as the documents say.

With CANAL_INTEROP=1, as Kafka, a registry of schemas, Flink and Spark's source for
Kafka come from Maven.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from fix_interop import need, run
from fix_random import longer
from fix_spark import skip_without_spark, spark_environ
from random_shop import wait_until
from support_paths import TESTS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from fix_kafka import Kafka
    from fix_pipeline import Pipeline
    from fix_registry import Apicurio

pytest.importorskip("confluent_kafka", reason="the extra `kafka` is not installed")

HERE = TESTS / "interop" / "topic_readers"
PAGE = TESTS.parent / "docs" / "howto" / "read-topics.md"
SETTINGS = {
    "canal.mq.dynamicTopic": r".*\..*",
    "canal.mq.partitionsNum": 4,
    "canal.mq.partitionHash": r".*\..*:$pk$",
    "canal.instance.filter.query.ddl": "true",
}
KEYED = {"canal.mq.keys": "primaryKey", "canal.mq.tombstones": "true"}
DEBEZIUM = KEYED | {
    "canal.mq.form": "debezium",
    "canal.mq.debezium.decimal.handling.mode": "string",
}
# Settings of messages, and the options of Flink's formats that read them.
FORMS: dict[str, tuple[dict[str, str], str]] = {
    "canal-json": ({}, "'canal-json'"),
    "canal-json with keys": (KEYED, "'canal-json'"),
    "maxwell": (KEYED | {"canal.mq.form": "maxwell"}, "'maxwell-json'"),
    "debezium": (DEBEZIUM, "'debezium-json'"),
    "debezium with schemas": (
        DEBEZIUM | {"canal.mq.debezium.schemas.enable": "true"},
        "'debezium-json', 'debezium-json.schema-include' = 'true'",
    ),
    "debezium-avro": (
        KEYED | {"canal.mq.form": "debezium-avro"},
        "'debezium-avro-confluent', 'debezium-avro-confluent.url' = 'REGISTRY'",
    ),
}
READ_S = 240.0
# Of JDK 17 and later, for Flink and Spark.
OPEN = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in (
        "java.lang", "java.lang.invoke", "java.net", "java.nio", "java.time",
        "java.util", "java.util.concurrent", "sun.nio.ch",
    )
]  # fmt: skip


def block(language: str, number: int = 0) -> str:
    """Return a block of the page."""
    found = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return str(found[number])


@pytest.fixture
def form(request: pytest.FixtureRequest) -> str:
    """Give the form of the messages."""
    return str(getattr(request, "param", "canal-json"))


@pytest.fixture
def registry_url(request: pytest.FixtureRequest, form: str) -> str:
    """Give the URL of a registry of schemas, if the messages need one."""
    if "avro" not in form:
        return ""
    registry: Apicurio = request.getfixturevalue("apicurio")
    return registry.url


@pytest.fixture
def pipeline(
    make_pipeline: Callable[..., Pipeline], source_server: Any, database: str
) -> Pipeline:
    """Give a server that was not started."""
    return make_pipeline(source_server, database)


@pytest.fixture
def topic(
    pipeline: Pipeline,
    make_kafka: Callable[[], Kafka],
    rng: random.Random,
    form: str,
    registry_url: str,
) -> tuple[str, str, list[tuple[Any, ...]]]:
    """Give brokers, a topic that has the changes of a table, and the table's rows."""
    kafka = make_kafka()
    database = pipeline.schema
    pipeline.main_settings |= {
        "canal.serverMode": "kafka",
        "kafka.bootstrap.servers": kafka.servers,
        **FORMS[form][0],
    }
    if registry_url:
        pipeline.main_settings["canal.mq.schema.registry.url"] = registry_url
    pipeline.configure(SETTINGS)
    pipeline.start()
    table = f"{database}.orders"
    create = block("sql").replace("shop.orders", table)
    with pipeline.source.connect() as connection, connection.cursor() as cursor:
        cursor.execute(create)
        for number in range(longer(200)):
            cursor.execute(statement(rng, table, number))
        cursor.execute(f"ALTER TABLE {table} ADD COLUMN note TEXT")
        cursor.execute(f"INSERT INTO {table} (id, name) VALUES (-1, 'the end')")
        cursor.execute(f"SELECT id, name, price, made FROM {table}")
        rows = sorted(cursor.fetchall())
    name = f"{database}_orders"
    topics = [kafka.follow(name, number) for number in range(4)]
    seen: list[bytes] = []

    def is_complete() -> bool:
        for read in topics:
            seen.extend(each or b"" for each in read())
        return any(b"the end" in each for each in seen)

    wait_until(is_complete, pipeline.process)
    pipeline.stop()
    return kafka.servers, name, rows


def statement(rng: random.Random, table: str, number: int) -> str:
    """Return a statement that inserts, updates or deletes some rows."""
    some = f"id % {rng.randint(2, 7)} = {rng.randint(0, 6)}"
    name = rng.choice(("NULL", "'a \"b\" ü'", "''", f"'{number}'"))
    price = rng.choice(("NULL", "-0.01", "999999.99", str(number)))
    made = rng.choice(("NULL", "'2026-11-29 01:02:03'", "'1970-01-01 00:00:00'"))
    if number < 20 or rng.random() < 0.4:
        return (
            f"INSERT IGNORE INTO {table} VALUES ({number}, {name}, {price}, {made}),"
            f" ({number + 1000}, {price}, {price}, {made})"
        )
    if rng.random() < 0.7:
        return f"UPDATE {table} SET name = {name}, price = {price} WHERE {some}"
    return f"DELETE FROM {table} WHERE {some} LIMIT 3"


def class_path(what: str, folder: Path) -> str:
    """Return the jars of a program that reads; skips where they cannot be had."""
    jars = folder / "jars"
    fetched = run(
        *(need("mvn"), "--batch-mode", "--quiet"),
        *("--file", str(HERE / what / "pom.xml")),
        *("dependency:build-classpath", f"-Dmdep.outputFile={jars}"),
    )
    if fetched.returncode:
        pytest.skip(f"{what} cannot be had: {fetched.stdout[:200]}")
    return jars.read_text()


@pytest.mark.parametrize("form", FORMS, indirect=True)
def test_flink(topic, tmp_path, form, registry_url) -> None:
    """Flink's formats make the table of it, with updates and deletes."""
    servers, name, rows = topic
    java = need("java")
    jars = class_path("flink", tmp_path)
    is_number = form.startswith("debezium")  # of a DATETIME
    create, _, _ = block("sql", 1).partition(";")
    for there, here in (
        ("'broker1:9092'", f"'{servers}'"),
        ("'shop_orders'", f"'{name}'"),
        ("'scan.startup", "'scan.bounded.mode' = 'latest-offset', 'scan.startup"),
        ("'canal-json'", FORMS[form][1].replace("REGISTRY", registry_url)),
        ("made TIMESTAMP(0)", "made BIGINT" if is_number else "made TIMESTAMP(0)"),
    ):
        assert create.count(there) == 1
        create = create.replace(there, here)
    # The server was not killed, so nothing comes twice.
    done = subprocess.run(
        [
            *(java, "-Xmx700m", *OPEN, "-classpath", jars),
            *(str(HERE / "flink" / "FlinkReader.java"), create, "SELECT * FROM orders"),
        ],
        capture_output=True,
        text=True,
        timeout=READ_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, list[str]] = {}
    kinds = set()
    for line in done.stdout.splitlines():
        if not line.startswith("row "):
            continue
        kind, key, *values = line.removeprefix("row ").split("\t")
        kinds.add(kind)
        if kind in {"+I", "+U"}:
            found[key] = values
        elif kind == "-D":
            del found[key]
    assert kinds == {"+I", "-U", "+U", "-D"}
    expected = {
        str(key): [in_java(each, is_number=is_number) for each in values]
        for key, *values in rows
    }
    assert found == expected


def in_java(value: Any, *, is_number: bool) -> str:
    """Return a value as Java shows it, which leaves out seconds that are 0.

    `is_number`: a moment is in milliseconds since 1970.
    """
    if value is None:
        return "null"
    if isinstance(value, datetime) and is_number:
        return str(int(value.replace(tzinfo=UTC).timestamp()) * 1000)
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds" if value.second else "minutes")
    return str(value)


def test_spark(topic, tmp_path) -> None:
    """The program of the page has the rows of the table."""
    skip_without_spark()
    servers, name, rows = topic
    program = block("python")
    package = re.search(
        r'"spark\.jars\.packages", "[^"]*kafka-0-10_2\.13:[^"]*"', program
    )
    assert package
    jars = class_path("spark", tmp_path).replace(":", ",")
    for there, here in (
        (package[0], f'"spark.jars", "{jars}"'),
        ('"broker1:9092"', f'"{servers}"'),
        ('"shop_orders"', f'"{name}"'),
        ("orders.show()", "print(sorted(map(tuple, orders.collect())))"),
        (".getOrCreate()", '.config("spark.sql.shuffle.partitions", 1).getOrCreate()'),
    ):
        assert program.count(there) == 1, there
        program = program.replace(there, here)
    path = tmp_path / "read_topic.py"
    path.write_text(program)
    done = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        timeout=READ_S,
        check=False,
        env=os.environ | spark_environ() | {"TZ": "UTC"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == str(sorted(rows))
