"""Measures `canal.serverMode = kafka`: rows a second into a broker, memory, latency.

    KAFKA_SERVERS=host:port python benchmarks/kafka_mode.py [--quick] [--loads NAME,…]

The broker is one that is named, with topics made when asked for. Each load is in the
binlog before the server starts; it ends when the broker has confirmed its last row. The
messages alone, without a broker, are measured by `queue_messages.py`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loads import LOADS, SCHEMA, SERVER_OPTIONS, Load, Range, Writer
from server_process import ServerProcess, require_package

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from servers import PrivateServer, Server, named_or_private

from canal_server.daemon.control import ControlError, ask

if TYPE_CHECKING:
    from collections.abc import Sequence

POLL_S = 0.02
PATIENCE_S = 600.0
END_TOPIC = "finish"
PER_SECOND, LATENCY_ROWS = 200, 2000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the loads that were asked for, and the latency."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--loads", default="inserts,single,updates,latency")
    options = parser.parse_args(arguments)
    servers = os.environ.get("KAFKA_SERVERS", "")
    if not servers:
        print("KAFKA_SERVERS is not set: start a broker and name it, host:port")
        return 2
    print(f"canal_server: {require_package()}")
    names = options.loads.split(",")
    with (
        named_or_private("mysql", SERVER_OPTIONS) as server,
        Writer(server, ours=isinstance(server, PrivateServer)) as writer,
    ):
        for load in LOADS:
            if load.name in names:
                run_load(server, writer, load, servers, quick=options.quick)
        if "latency" in names:
            run_latency(server, writer, servers, quick=options.quick)
    return 0


def run_load(
    server: Server, writer: Writer, load: Load, servers: str, *, quick: bool
) -> None:
    """Measure one load, with one topic, and with a hash of the primary key."""
    written = writer.write(load, quick=quick)
    for title, routing in (
        ("one partition", {}),
        (
            "hash of the key",
            {"canal.mq.partitionHash": r".*\\..*:$pk$", "canal.mq.partitionsNum": "4"},
        ),
    ):
        topic = f"bench-{uuid.uuid4().hex[:8]}"
        with delivering(server, written, servers, topic, routing) as process:
            began_at, ended_at = until_delivered(process)
            seconds = ended_at - began_at
            print(
                f"{load.title}, {title}: {written.rows / seconds:,.0f} rows/s,"
                f" {seconds:.2f} s, memory {process.memory().highest >> 20} MB",
                flush=True,
            )


def delivering(
    server: Server, load: Range, servers: str, topic: str, routing: dict[str, str]
) -> ServerProcess:
    """Return a server that delivers; the last row has a topic of its own."""
    return ServerProcess(
        server,
        load,
        settings={
            "canal.mq.topic": topic,
            "canal.mq.dynamicTopic": rf"{topic}-{END_TOPIC}:.*\\..*finish_line",
            **routing,
        },
        main={
            "canal.serverMode": "kafka",
            "kafka.bootstrap.servers": servers,
            "canal.mq.topics.create": "true",
        },
    )


def until_delivered(process: ServerProcess) -> tuple[float, float]:
    """Wait until the last row is confirmed; return when the first and it were seen."""
    began_at = 0.0
    give_up_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_at and process.alive():
        now = time.monotonic()
        try:
            (found,) = ask(process.data_dir, "status")["instances"]
        except ControlError:
            time.sleep(POLL_S)
            continue
        delivery = found.get("delivery") or {}
        topics = delivery.get("topics", {})
        if not began_at and (topics or delivery.get("in_flight")):
            began_at = now
        if any(name.endswith(END_TOPIC) for name in topics):
            return began_at, now
        time.sleep(POLL_S)
    raise TimeoutError(process.log_tail())


def run_latency(server: Server, writer: Writer, servers: str, *, quick: bool) -> None:
    """Measure from before the INSERT, whose commit is implied, to a consumer."""
    import confluent_kafka  # noqa: PLC0415  # an extra

    written = writer.write(LOADS[1], quick=True)
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    table = "latency_rows"
    with delivering(server, written, servers, topic, {}) as process:
        until_delivered(process)
        consumer: Any = confluent_kafka.Consumer(
            {"bootstrap.servers": servers, "group.id": topic, "fetch.wait.max.ms": 5}
        )
        end = confluent_kafka.OFFSET_END
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, end)])
        consumer.poll(1.0)
        count = LATENCY_ROWS // (10 if quick else 1)
        sent: list[float] = []
        with (
            server.connect(database=SCHEMA) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(f"CREATE TABLE {table} (n INT PRIMARY KEY)")

            def write() -> None:
                due = time.monotonic()
                for number in range(count):
                    due += 1 / PER_SECOND
                    time.sleep(max(0.0, due - time.monotonic()))
                    cursor.execute(f"INSERT INTO {table} VALUES ({number})")
                    sent.append(time.monotonic())

            thread = threading.Thread(target=write)
            thread.start()
            took: list[float] = []
            while len(took) < count:
                message = consumer.poll(10.0)
                assert message is not None, "no message in 10 s"
                value = message.value() or b""
                if f'"table":"{table}"'.encode() in value and b"INSERT" in value:
                    at = time.monotonic()
                    number = len(took)
                    # It may come before the client has the answer to its INSERT.
                    took.append(
                        max(0.0, at - sent[number]) if number < len(sent) else 0.0
                    )
            thread.join()
        consumer.close()
    took.sort()
    print(
        f"commit to consumer at {PER_SECOND}/s: median"
        f" {statistics.median(took) * 1000:.2f} ms, 99 %"
        f" {took[int(len(took) * 0.99)] * 1000:.2f} ms"
    )


if __name__ == "__main__":
    sys.exit(main())
