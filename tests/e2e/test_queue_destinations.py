"""Several destinations of one server deliver to one broker: each for itself.

With CANAL_INTEROP=1, as Kafka comes from Maven.
"""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from fix_pipeline import write_properties
from random_shop import wait_until

from canal_server.daemon.control import ask

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from fix_kafka import Kafka
    from fix_pipeline import Pipeline

pytest.importorskip("confluent_kafka", reason="the extra `kafka` is not installed")

COUNT = 6
NAMES = [f"shop{number}" for number in range(COUNT)]  # also their tables and topics
SMALL, LARGE_BYTES = {"max.message.bytes": "20000"}, 100_000
TOO_LARGE, MISSING, *OTHERS = NAMES


class SeveralDestinations:
    """A server whose destinations have a table and a topic each."""

    def __init__(self, pipeline: Pipeline, kafka: Kafka, *, exactly_once: bool) -> None:
        """Write the settings."""
        self.pipeline = pipeline
        self._reads: dict[str, Callable[[], Iterator[bytes]]] = {}
        self._kafka = kafka
        self.ids: dict[str, list[int]] = {name: [] for name in NAMES}  # as they came
        self._next = 1
        pipeline.main_settings |= {
            "canal.destinations": ",".join(NAMES),
            "canal.serverMode": "kafka",
            "kafka.bootstrap.servers": kafka.servers,
            "canal.mq.exactlyOnce": str(exactly_once).lower(),
        }
        pipeline.configure({})
        for name in NAMES:
            write_properties(
                pipeline.conf / name / "instance.properties",
                pipeline.settings
                | {
                    "canal.instance.filter.regex": rf"{pipeline.schema}\.{name}",
                    "canal.instance.filter.query.ddl": "true",
                    # MariaDB's binlog has the texts of statements as well.
                    "canal.instance.filter.query.dml": "true",
                    "canal.mq.topic": name,
                },
            )
            pipeline.source.execute(
                f"CREATE TABLE {pipeline.schema}.{name}"
                " (id INT PRIMARY KEY, body LONGTEXT)"
            )

    def write(self, rows: int, *, body: str = "") -> None:
        """Insert so many rows into each table, each in a transaction of its own."""
        connection = self.pipeline.source.connect()
        with connection, connection.cursor() as cursor:
            for _ in range(rows):
                for name in NAMES:
                    table = f"{self.pipeline.schema}.{name}"
                    values = (self._next, body)
                    cursor.execute(f"INSERT INTO {table} VALUES (%s, %s)", values)
                self._next += 1

    def have_all(self, names: list[str]) -> bool:
        """Return whether topics have all rows; each of these once, and in order."""
        for name in names:
            if name not in self._reads:
                self._reads[name] = self._kafka.follow(name, 0)
            for value in self._reads[name]():
                message = json.loads(value)
                assert message["table"] == name
                self.ids[name] += (int(row["id"]) for row in message["data"])
            assert self.ids[name] == list(range(1, len(self.ids[name]) + 1))
        return all(len(self.ids[name]) == self._next - 1 for name in names)

    def delivery_of(self, name: str) -> dict[str, Any]:
        """Return what the server says of the delivery of a destination."""
        instances = ask(self.pipeline.conf, "status")["instances"]
        (found,) = (each for each in instances if each["destination"] == name)
        return dict(found["delivery"])


@pytest.mark.parametrize(
    ("mode", "again"),
    [
        ("at least once", "restart"),
        ("at least once", "start"),
        ("exactly once", "restart"),
        ("exactly once", "start"),
    ],
)
def test_one_that_is_held_up(  # noqa: PLR0917  # fixtures
    stopped: Pipeline,
    make_kafka: Callable[..., Kafka],
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    again: str,
) -> None:
    """A message too large for its topic, and a missing topic, hold up nobody else.

    What is held up is there when the topics are as they should be, after a restart of
    the server, or a start of the destination, which runs.
    """
    exactly_once = mode == "exactly once"
    monkeypatch.setenv("CANAL_HTTP_PORT", "0")  # a free one
    kafka = make_kafka("auto.create.topics.enable=false")
    several = SeveralDestinations(stopped, kafka, exactly_once=exactly_once)
    kafka.create(TOO_LARGE, 1, SMALL)
    for name in OTHERS:
        kafka.create(name, 1)
    stopped.start()
    process = stopped.process
    several.write(5)
    wait_until(lambda: several.have_all([TOO_LARGE, *OTHERS]), process)
    several.write(
        1, body=rng.randbytes(LARGE_BYTES).hex()
    )  # compressed, it stays large
    several.write(10)
    wait_until(lambda: several.have_all(OTHERS), process)
    wait_until(lambda: several.delivery_of(TOO_LARGE)["state"] == "stopped", process)
    assert (
        f"topic {TOO_LARGE}: a message of" in several.delivery_of(TOO_LARGE)["reason"]
    )
    # A topic that brokers may be creating is waited for before that.
    wait_until(lambda: several.delivery_of(MISSING)["state"] == "blocked", process)
    assert f"topic {MISSING} does not exist" in several.delivery_of(MISSING)["reason"]
    several.write(10)
    wait_until(lambda: several.have_all(OTHERS), process)
    for name in OTHERS:
        assert several.delivery_of(name)["failures"] == 0
    kafka.create(MISSING, 1)
    wait_until(lambda: several.have_all([MISSING]), process)
    kafka.alter(TOO_LARGE, {"max.message.bytes": "1048576"})
    if again == "restart":
        stopped.stop()
        stopped.start()
    else:
        port = ask(stopped.conf, "status")["http_port"]
        url = f"http://127.0.0.1:{port}/api/v1/destinations/{TOO_LARGE}/start"
        with urllib.request.urlopen(urllib.request.Request(url, method="POST")) as done:
            assert done.status == 202
    process = stopped.process
    wait_until(lambda: several.have_all(NAMES), process)
    wait_until(lambda: several.delivery_of(TOO_LARGE)["state"] == "delivering", process)
    stopped.stop()
