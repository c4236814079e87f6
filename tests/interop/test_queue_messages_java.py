"""Messages of both forms equal those of the original: bytes, topics, partitions.

Its converters are `MQMessageUtils` and `CanalMessageSerializerUtil` of connector.core,
which is fetched, with CANAL_INTEROP=1. What differs by intention is not compared:

- The order of messages of different topics, which is by chance there. Within a
  partition it is the same.
- The names of columns in `canal.mq.partitionHash`. There, those of flat messages are
  compared with regard to case and those of protobuf without; here, both without. The
  tests write the names of flat messages as they are in the tables.
- `canal.instance.filter.transaction.entry` with whole batches. There it takes effect
  after a restart, and on the store alone, which lets some begins and ends through;
  here, messages have none of them. The original is given batches without them.
- A batch without any entry that is delivered. There it may be an empty message; here it
  is none. These are left out.
"""

from __future__ import annotations

import json
import operator
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

from canal_server.client.frame_reader import entries_of
from canal_server.config.schema import RoutingConfig
from canal_server.model.entry import EntryType
from canal_server.protocol.entry_messages import decode_entry
from canal_server.protocol.protobuf import varint
from canal_server.queues.message_form import MessageForm
from canal_server.queues.routing import Router

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

HERE = TESTS / "interop" / "queue_messages"
WORKLOADS = sorted(path.name.removesuffix(".tar.xz") for path in DATA.glob("*.tar.xz"))
BATCH = 7
TIME = re.compile(rb'"ts":\d+,"type":"([A-Z]*)"\}$')
EXPRESSIONS = (
    r"shop\.orders", "shop.orders", r".*\..*", r"shop\..*", r"x_\d+\.t\d", "shop",
    "x_.*", ".*", r"SHOP\.ORDERS", "a.b", r"(shop|x_1)\.(orders|t1)", r"shop.*\.ord.*",
)  # fmt: skip
TOPICS = ("tt", "my_topic", "shop", "shop_orders", ".*", "shop.*", "x_1_t1")
COLUMNS = ("", ":$pk$", ":$PK$", ":id0", ":id0^v1", ":name2^id1")
PACKET_COLUMNS = (*COLUMNS, ":Id0^V1", ":ID0^nAme2")
NOTHING = b"\x10\x01\x18\x07"  # a Packet without entries
Found = list[tuple[str, int, bytes]]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(SWITCH not in os.environ, reason=f"{SWITCH}=1 runs it"),
]


class Converter:
    """The program that converts batches."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen

    def convert(self, settings: dict[str, Any], body: bytes) -> Found:
        """Return the messages of a body of Messages."""
        assert self._popen.stdin is not None
        for part in (json.dumps(settings).encode(), b"\x08\x07" + body):
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
    folder = tmp_path_factory.mktemp("driver")
    fetched = run(
        *(maven, "--batch-mode", "--quiet", "--file", str(HERE / "pom.xml")),
        *("dependency:build-classpath", f"-Dmdep.outputFile={folder / 'jars'}"),
    )
    if fetched.returncode:
        pytest.skip(f"connector.core cannot be had: {fetched.stdout[:200]}")
    jars = (folder / "jars").read_text()
    source = str(HERE / "MessageDriver.java")
    built = run(javac, "-classpath", jars, "-d", str(folder), source)
    assert built.returncode == 0, built.stderr
    with subprocess.Popen(
        [java, "-classpath", os.pathsep.join((str(folder), jars)), "MessageDriver"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as popen:
        yield Converter(popen)
        assert popen.stdin is not None
        popen.stdin.close()


def settings_of(**given: Any) -> dict[str, Any]:
    """Return the settings for the original."""
    return {
        "topic": "top",
        "partition": 0,
        "partitionsNum": 4,
        "databaseHash": True,
        "dynamicTopic": "",
        "dynamicTopicPartitionNum": "",
        "partitionHash": "",
        "flatMessage": True,
        "rawEntry": True,
        "filterTransactionEntry": False,
    } | given


def ours(settings: dict[str, Any], body: bytes) -> Found:
    """Return our messages with the same settings."""
    router = Router(
        RoutingConfig(
            topic=settings["topic"],
            partition=settings["partition"],
            partitions=settings["partitionsNum"],
            partition_hash=settings["partitionHash"],
            dynamic_topic=settings["dynamicTopic"],
            dynamic_topic_partitions=settings["dynamicTopicPartitionNum"],
            database_hash=settings["databaseHash"],
        )
    )
    form = MessageForm(
        settings["flatMessage"],
        settings["rawEntry"],
        settings["filterTransactionEntry"],
    )
    found = form.encoder(router)(BATCH, body, 0)
    return [(topic, partition, value or b"") for topic, partition, value, *_ in found]


def theirs(converter: Converter, settings: dict[str, Any], body: bytes) -> Found:
    """Return the original's, without what differs by intention."""
    if settings["filterTransactionEntry"] and settings["rawEntry"]:
        body = b"".join(
            b"\x12" + varint(len(each)) + each
            for each in entries_of(body)
            if decode_entry(each).entry_type is EntryType.ROWDATA
        )
    found = converter.convert(settings, body) if body else []
    return [each for each in found if each[2] != NOTHING]


def compared(found: Found) -> Found:
    """Return messages without the time at which they were made, by topic."""
    return sorted(
        (
            (topic, partition, TIME.sub(rb'"type":"\1"}', value))
            for topic, partition, value in found
        ),
        key=operator.itemgetter(0),
    )


@pytest.mark.parametrize("dynamic", ["", r".*\..*"])
@pytest.mark.parametrize("hashes", ["", r".*\..*", r".*\..*:$pk$", r".*\..*:ID^a^b"])
def test_recorded(
    converter: Converter, tmp_path: Path, hashes: str, dynamic: str
) -> None:
    """Of all recorded workloads, in order: JSON, and protobuf in all its forms."""
    total = 0
    for name in WORKLOADS:
        body = decode_fields(load_workload(name), tmp_path)
        for flat, raw, filtered in (
            (True, True, False),
            (False, True, False),
            (False, True, True),
            (False, False, False),
            (False, False, True),
        ):
            if flat and hashes.endswith("^b"):
                continue  # with regard to case
            settings = settings_of(
                partition=3,
                partitionHash=hashes,
                dynamicTopic=dynamic,
                flatMessage=flat,
                rawEntry=raw,
                filterTransactionEntry=filtered,
            )
            expected = compared(theirs(converter, settings, body))
            assert compared(ours(settings, body)) == expected, (name, settings)
            total += len(expected)
    print(f"{total} messages of {len(WORKLOADS)} workloads")


def random_settings(rng: random.Random, *, flat: bool) -> dict[str, Any]:
    """Return settings of all kinds."""
    separator = rng.choice(",;")
    dynamic = [
        rng.choice(("", "", "tt:", "my.topic:")) + rng.choice(EXPRESSIONS)
        for _ in range(rng.randrange(4))
    ]
    columns = COLUMNS if flat else PACKET_COLUMNS
    hashes = [
        rng.choice(EXPRESSIONS) + rng.choice(columns) for _ in range(rng.randrange(4))
    ]
    numbers = [
        f"{rng.choice(TOPICS)}:{rng.randrange(1, 9)}" for _ in range(rng.randrange(3))
    ]
    return settings_of(
        topic=rng.choice(("top", "to.p")),
        partition=rng.choice((0, 2)),
        partitionsNum=rng.choice((1, 3, 8)),
        databaseHash=rng.random() < 0.5,
        dynamicTopic=separator.join(dynamic),
        dynamicTopicPartitionNum=",".join(numbers),
        partitionHash=separator.join(hashes),
        flatMessage=flat,
        rawEntry=rng.random() < 0.7,
        filterTransactionEntry=rng.random() < 0.5,
    )


@pytest.mark.parametrize("flat", [True, False], ids=["flat", "protobuf"])
def test_random(converter: Converter, rng: random.Random, flat: bool) -> None:
    """Of random entries, by random expressions."""
    for _ in range(longer(2_000)):
        settings = random_settings(rng, flat=flat)
        body = random_body(rng, rng.randrange(1, 7), has_markers=True)
        expected = theirs(converter, settings, body)
        assert compared(ours(settings, body)) == compared(expected), settings
