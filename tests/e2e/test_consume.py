"""`canal-server consume` from MySQL and MariaDB to PostgreSQL and files, with kills."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from fix_pipeline import Process
from fix_postgres import PostgresDatabase
from fix_random import longer
from forked_command import ForkedCommand
from random_shop import COLUMNS, Shop, Topic, wait_until

from canal_server.client.handlers.change_json import json_text

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from fix_kafka import Kafka
    from fix_pipeline import Pipeline
    from postgres_servers import PrivatePostgres


def consumer(pipeline: Pipeline, *options: str) -> Process:
    """Start the command for a pipeline."""
    return Process(
        ForkedCommand(
            ["consume", "--port", str(pipeline.server_port), "--batch-size", "2",
             *options]
        )
    )  # fmt: skip


def rows_of(postgres: PostgresDatabase, table: str) -> Sequence[tuple[Any, ...]]:
    """Return the rows of a table of the target, none if it does not exist yet."""
    if postgres.execute(f"SELECT to_regclass('{table}')") == [(None,)]:
        return ()
    return tuple(postgres.execute(f"SELECT {COLUMNS} FROM {table} ORDER BY id"))


def until_equal(shop: Shop, postgres: PostgresDatabase, process: Process) -> None:
    """Wait until all tables have the same rows as those of the source."""
    for table in shop.tables:
        name = table.partition(".")[2]
        expected = shop.rows(table)
        wait_until(lambda: rows_of(postgres, name) == expected, process)  # noqa: B023


@pytest.mark.slow
def test_postgres_equals_mysql(
    pipeline: Pipeline, postgres: PostgresDatabase, rng: random.Random
) -> None:
    """However often the consumer is killed, and the server, the tables are equal."""
    pipeline.keep_port()
    shop = Shop(pipeline, rng)
    options = (
        "--handler", "sql", "--set", f"url={postgres.url}", "--set", "create=true",
    )  # fmt: skip
    for number in range(longer(6)):
        shop.write(rng.randint(200, 600))
        process = consumer(pipeline, *options)
        before = len(rows_of(postgres, "log"))
        wait_until(lambda: len(rows_of(postgres, "log")) > before, process)  # noqa: B023
        time.sleep(rng.uniform(0, 0.1))  # it is killed within anything
        process.send(signal.SIGKILL)
        process.wait()
        if number == 3:
            pipeline.kill()
            pipeline.start()
    process = consumer(pipeline, *options)
    until_equal(shop, postgres, process)
    process.send(signal.SIGTERM)
    assert process.wait() == 0


def test_postgres_dies(
    pipeline: Pipeline, own_postgres: PrivatePostgres, rng: random.Random
) -> None:
    """While the target is down, the consumer repeats; nothing is a dead letter."""
    shop = Shop(pipeline, rng)
    postgres = PostgresDatabase(own_postgres, "postgres")
    dead = pipeline.conf / "dead.jsonl"
    process = consumer(
        pipeline, "--handler", "sql", "--set", f"url={postgres.url}", "--set",
        "create=true", "--dead-letter", str(dead), "--retries", "0",
    )  # fmt: skip
    for _ in range(2):
        shop.write(100)
        wait_until(lambda: len(rows_of(postgres, "log")) > 0, process)
        own_postgres.kill()
        seen = len(process.log)
        shop.write(20)
        wait_until(lambda: has_failed(process, seen), process)  # noqa: B023
        own_postgres.restart()
    until_equal(shop, postgres, process)
    process.send(signal.SIGTERM)
    assert process.wait() == 0
    assert dead.read_text() == ""
    assert own_postgres.password not in "".join(process.log).replace("admin:***", "")


def has_failed(process: Process, since: int) -> bool:
    """Return whether the log from a line on has a failure of the handler."""
    return any("handler failed: postgresql" in line for line in process.log[since:])


def test_lines_are_complete(
    pipeline: Pipeline, tmp_path: Path, rng: random.Random
) -> None:
    """However often the consumer is killed, its lines lead to the source's rows."""
    shop = Shop(pipeline, rng)
    path = tmp_path / "out.jsonl"
    options = (
        "--handler", "json-lines", "--set", f"path={path}", "--set",
        "rotate_bytes=200000",
    )  # fmt: skip
    for _ in range(longer(4)):
        shop.write(rng.randint(50, 200))
        process = consumer(pipeline, *options)
        before = size_of(tmp_path)
        wait_until(lambda: size_of(tmp_path) > before, process)  # noqa: B023
        time.sleep(rng.uniform(0, 0.1))  # it is killed within anything
        process.send(signal.SIGKILL)
        process.wait()
    process = consumer(pipeline, *options)

    def has_all() -> bool:
        return all(
            lines_of(tmp_path, table) == comparable(shop.rows(table))
            for table in shop.tables
        )

    wait_until(has_all, process)
    process.send(signal.SIGTERM)
    assert process.wait() == 0


def test_parquet_rows_are_there_once(
    pipeline: Pipeline, tmp_path: Path, rng: random.Random
) -> None:
    """However often consumer and server are killed, no row is in two files."""
    pipeline.keep_port()
    shop = Shop(pipeline, rng)
    folder = tmp_path / pipeline.schema
    log = folder / shop.tables[2]
    options = (
        "--handler", "parquet", "--set", f"folder={folder}", "--set", "flush_s=0.05",
        "--set", "rows=300",
    )  # fmt: skip
    for number in range(longer(4)):
        shop.write(rng.randint(100, 400))
        process = consumer(pipeline, *options)
        before = newest_of(log)
        wait_until(lambda: newest_of(log) > before, process)  # noqa: B023
        time.sleep(rng.uniform(0, 0.2))  # it is killed within anything
        process.send(signal.SIGKILL)
        process.wait()
        if number == 2:
            pipeline.kill()
            pipeline.start()
    process = consumer(pipeline, *options)
    expected = [row[0] for row in shop.rows(shop.tables[2])]
    wait_until(lambda: ids_of(log)[-1:] == expected[-1:], process)
    process.send(signal.SIGTERM)
    assert process.wait() == 0
    assert ids_of(log) == expected


def newest_of(folder: Path) -> str:
    """Return the name of the newest Parquet file."""
    return max((each.name for each in folder.glob("*.parquet")), default="")


def ids_of(folder: Path) -> list[int]:
    """Return the ids in all Parquet files, in the order of their names."""
    found: list[int] = []
    for path in sorted(folder.glob("*.parquet")):
        with contextlib.suppress(FileNotFoundError):  # replaced meanwhile
            found += pq.read_table(path).column("id").to_pylist()
    return found


def size_of(folder: Path) -> int:
    """Return how many bytes the files of lines have."""
    return sum(each.stat().st_size for each in folder.glob("out*.jsonl"))


def lines_of(folder: Path, table: str) -> dict[int, list[object]]:
    """Return the rows to which all lines lead, in the order of the files."""
    found: dict[int, list[object]] = {}
    files = [*sorted(folder.glob("out.*.jsonl"), key=order_of), folder / "out.jsonl"]
    for file in files:
        text = file.read_text() if file.exists() else ""
        for line in text[: text.rfind("\n") + 1].splitlines():
            change = json.loads(line)
            if f"{change['schema']}.{change['table']}" != table or "sql" in change:
                continue
            found.pop(change["key"]["id"], None)
            if change["after"] is not None:
                found[change["after"]["id"]] = list(change["after"].values())
    return found


def order_of(file: Path) -> tuple[str, int]:
    """Return what rotated files are sorted by: their time, then their number."""
    time_text, _, number = file.name.split(".")[1].partition("-")
    return time_text, int(number or 0)


def comparable(rows: Sequence[tuple[Any, ...]]) -> dict[int, list[object]]:
    """Return rows as the lines have them."""
    return {row[0]: json.loads(json_text(list(row))) for row in rows}


def test_a_topic_of_kafka(
    pipeline: Pipeline, make_kafka: Callable[[], Kafka], rng: random.Random
) -> None:
    """However often the consumer and the broker are killed, the topic has all."""
    kafka = make_kafka()
    shop = Shop(pipeline, rng)
    topic = Topic(kafka.follow("shop", 0))
    options = (
        "--handler", "kafka", "--set", f"servers={kafka.servers}",
        "--set", "topic=shop",
    )  # fmt: skip

    for number in range(longer(4)):
        shop.write(rng.randint(50, 200))
        process = consumer(pipeline, *options)
        before = topic.count("log")
        wait_until(lambda: topic.count("log") > before, process)  # noqa: B023
        if number % 2:
            kafka.kill()
            shop.write(20)
            kafka.start()
        process.send(signal.SIGKILL)
        process.wait()
    process = consumer(pipeline, *options)

    wait_until(lambda: topic.has_all(shop), process)
    process.send(signal.SIGTERM)
    assert process.wait() == 0
    topic.check(shop)
