"""Flat messages equal those of the original's converter: bytes, topics, partitions.

The converter is `MQMessageUtils` of the original's connector.core, which is fetched,
with CANAL_INTEROP=1.
"""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from fix_interop import SWITCH, need, run
from fix_random import longer
from golden_form import DATA, decode_fields, load_workload
from random_entries import random_body
from support_paths import TESTS

from canal_server.config.schema import RoutingConfig
from canal_server.queues.flat_messages import FlatMessages
from canal_server.queues.routing import Router

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

HERE = TESTS / "interop" / "flat"
WORKLOADS = sorted(path.name.removesuffix(".tar.xz") for path in DATA.glob("*.tar.xz"))
BATCH = 7
TIME = re.compile(rb'"ts":\d+,"type":"([A-Z]*)"\}$')
EXPRESSIONS = (
    r"shop\.orders", "shop.orders", r".*\..*", r"shop\..*", r"x_\d+\.t\d", "shop",
    "x_.*", ".*", r"SHOP\.ORDERS", "a.b", r"(shop|x_1)\.(orders|t1)", r"shop.*\.ord.*",
)  # fmt: skip
TOPICS = ("tt", "my_topic", "shop", "shop_orders", ".*", "shop.*", "x_1_t1")
# The original compares the names of columns with regard to case: here they are as
# they are written in the tables.
COLUMNS = ("", ":$pk$", ":$PK$", ":id0", ":id0^v1", ":name2^id1")
Found = list[tuple[str, int, bytes]]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(SWITCH not in os.environ, reason=f"{SWITCH}=1 runs it"),
]


class Converter:
    """The program that converts batches."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen

    def convert(self, routing: dict[str, Any], body: bytes) -> Found:
        """Return the messages of a body of Messages."""
        assert self._popen.stdin is not None
        for part in (json.dumps(routing).encode(), b"\x08\x07" + body):
            self._popen.stdin.write(struct.pack(">i", len(part)) + part)
        self._popen.stdin.flush()
        return [
            (self._bytes().decode(), self._number(), self._bytes())
            for _ in range(self._number())
        ]

    def _number(self) -> int:
        assert self._popen.stdout is not None
        (found,) = struct.unpack(">i", self._popen.stdout.read(4))
        return int(found)

    def _bytes(self) -> bytes:
        assert self._popen.stdout is not None
        return self._popen.stdout.read(self._number())


@pytest.fixture(scope="module")
def converter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Converter]:
    """Give the program, compiled against the original's classes."""
    maven, javac, java = need("mvn"), need("javac"), need("java")
    folder = tmp_path_factory.mktemp("flat")
    fetched = run(
        *(maven, "--batch-mode", "--quiet", "--file", str(HERE / "pom.xml")),
        *("dependency:build-classpath", f"-Dmdep.outputFile={folder / 'jars'}"),
    )
    if fetched.returncode:
        pytest.skip(f"connector.core cannot be had: {fetched.stdout[:200]}")
    jars = (folder / "jars").read_text()
    source = str(HERE / "FlatDriver.java")
    built = run(javac, "-classpath", jars, "-d", str(folder), source)
    assert built.returncode == 0, built.stderr
    with subprocess.Popen(
        [java, "-classpath", os.pathsep.join((str(folder), jars)), "FlatDriver"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as popen:
        yield Converter(popen)
        assert popen.stdin is not None
        popen.stdin.close()


def routing_of(**given: Any) -> dict[str, Any]:
    """Return the settings for the original."""
    return {
        "topic": "top",
        "partitionsNum": 4,
        "databaseHash": True,
        "dynamicTopic": "",
        "dynamicTopicPartitionNum": "",
        "partitionHash": "",
    } | given


def ours(routing: dict[str, Any], body: bytes) -> Found:
    """Return our messages with the same settings."""
    settings = RoutingConfig(
        topic=routing["topic"],
        partitions=routing["partitionsNum"],
        partition_hash=routing["partitionHash"],
        dynamic_topic=routing["dynamicTopic"],
        dynamic_topic_partitions=routing["dynamicTopicPartitionNum"],
        database_hash=routing["databaseHash"],
    )
    return FlatMessages(Router(settings)).convert(BATCH, body, 0)


def compared(found: Found) -> Found:
    """Return messages without the time at which they were made."""
    return [
        (topic, partition, TIME.sub(rb'"type":"\1"}', value))
        for topic, partition, value in found
    ]


@pytest.mark.parametrize("hashes", ["", r".*\..*", r".*\..*:$pk$"])
def test_recorded(converter: Converter, tmp_path: Path, hashes: str) -> None:
    """Of all recorded workloads, in their order."""
    total = 0
    for name in WORKLOADS:
        body = decode_fields(load_workload(name), tmp_path)
        routing = routing_of(partitionHash=hashes)
        theirs = compared(converter.convert(routing, body))
        assert compared(ours(routing, body)) == theirs, name
        total += len(theirs)
    print(f"{total} messages of {len(WORKLOADS)} workloads")


def random_routing(rng: random.Random) -> dict[str, Any]:
    """Return settings of all kinds."""
    separator = rng.choice(",;")
    dynamic = [
        rng.choice(("", "", "tt:", "my.topic:")) + rng.choice(EXPRESSIONS)
        for _ in range(rng.randrange(4))
    ]
    hashes = [
        rng.choice(EXPRESSIONS) + rng.choice(COLUMNS) for _ in range(rng.randrange(4))
    ]
    numbers = [
        f"{rng.choice(TOPICS)}:{rng.randrange(1, 9)}" for _ in range(rng.randrange(3))
    ]
    return routing_of(
        topic=rng.choice(("top", "to.p")),
        partitionsNum=rng.choice((1, 3, 8)),
        databaseHash=rng.random() < 0.5,
        dynamicTopic=separator.join(dynamic),
        dynamicTopicPartitionNum=",".join(numbers),
        partitionHash=separator.join(hashes),
    )


def test_random(converter: Converter, rng: random.Random) -> None:
    """Of random entries, by random expressions."""
    for _ in range(longer(2_000)):
        routing = random_routing(rng)
        body = random_body(rng, rng.randrange(1, 5))
        theirs = compared(converter.convert(routing, body))
        assert sorted(compared(ours(routing, body))) == sorted(theirs), routing
