"""Measures `canal.serverMode = kafka`: rows a second, CPU time, memory, latency.

    python benchmarks/kafka_mode.py [--quick] [--loads NAME,…]

The broker is private, from Maven's jars; KAFKA_SERVERS=host:port names another. Each
load is in the binlog before the server starts; the times are from when the first row is
in the broker to when the last one is. If CANAL_JAVA_HOME names a built deployer of the
Java original, it delivers the same loads with the same settings. The messages alone,
without a broker, are measured by `queue_messages.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import java_original
from java_original import java_home
from latency import PER_SECOND, measure
from loads import LOADS, SERVER_OPTIONS, Load, Range, Writer
from process_times import Stopwatch, seconds_of
from server_process import FILE_WIRING, Memory, ServerProcess, require_package
from topic_watch import END_TOPIC, TopicWatch

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from kafka_broker import KafkaMissingError, private_kafka
from servers import PrivateServer, Server, named_or_private

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

OURS, JAVA = "canal-server", "Java original"
LATENCY_S, LATENCY_QUICK_S = 20, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the loads that were asked for, and the latency."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--loads", default="inserts,single,updates,latency")
    options = parser.parse_args(arguments)
    names = options.loads.split(",")
    try:
        _measure(names, quick=options.quick)
    except KafkaMissingError as error:
        print(f"the delivery to Kafka is not measured: {error}")
    return 0


def _measure(names: Sequence[str], *, quick: bool) -> None:
    print(f"canal_server: {require_package()}")
    named = os.environ.get("KAFKA_SERVERS", "")
    with (
        contextlib.nullcontext(named) if named else _private_servers() as servers,
        named_or_private("mysql", SERVER_OPTIONS) as server,
        Writer(server, ours=isinstance(server, PrivateServer)) as writer,
    ):
        for load in LOADS:
            if load.name in names:
                run_load(server, writer, load, servers, quick=quick)
        if "latency" in names:
            run_latency(server, writer, servers, quick=quick)


@contextlib.contextmanager
def _private_servers() -> Iterator[str]:
    with private_kafka() as broker:
        yield broker.servers


def run_load(
    server: Server, writer: Writer, load: Load, servers: str, *, quick: bool
) -> None:
    """Measure one load, with one partition, and with a hash of the primary key."""
    written = writer.write(load, quick=quick)
    for title, partitions, routing in (
        ("one partition", 1, {}),
        (
            "hash of the key",
            4,
            {"canal.mq.partitionHash": r".*\\..*:$pk$", "canal.mq.partitionsNum": "4"},
        ),
    ):
        rates = {}
        for who, deliver in (
            (OURS, ours),
            (f"{OURS}, exactly once", partial(ours, exactly_once=True)),
            (JAVA, java),
        ):
            topics = TopicWatch(servers, f"bench-{uuid.uuid4().hex[:8]}", partitions)
            settings = routing_of(topics.name, routing)
            with (
                contextlib.closing(topics),
                deliver(server, written, servers, settings) as pid,
            ):
                if pid is None:
                    continue
                topics.wait_for_first(partial(is_alive, pid))
                cpu = Stopwatch({"cpu": partial(seconds_of, pid)})
                seconds = topics.seconds(partial(is_alive, pid))
                rates[who] = written.rows / seconds
                print(
                    f"{load.title}, {title}, {who}: {rates[who]:,.0f} rows/s,"
                    f" {seconds:.2f} s, {cpu.seconds()['cpu']:.2f} s of CPU time,"
                    f" memory {Memory.of(pid).highest >> 20} MB",
                    flush=True,
                )
        if JAVA in rates:
            print(f"  {rates[OURS] / rates[JAVA]:.1f} times {JAVA}", flush=True)


def routing_of(topic: str, routing: dict[str, str]) -> dict[str, str]:
    """Return where rows go; the last one has a topic of its own."""
    return {
        "canal.mq.topic": topic,
        "canal.mq.dynamicTopic": rf"{topic}-{END_TOPIC}:.*\\..*finish_line",
        **routing,
    }


@contextlib.contextmanager
def ours(
    server: Server,
    load: Range,
    servers: str,
    settings: dict[str, str],
    *,
    exactly_once: bool = False,
) -> Iterator[int]:
    """Have our server deliver; give the id of its process."""
    more = {}
    if exactly_once:
        # A position of a run before, which the broker keeps, would be continued from.
        topic = settings["canal.mq.topic"]
        more = {
            "canal.mq.exactlyOnce": "true",
            "canal.mq.positionTopic": f"{topic}-position",
        }
    with delivering(server, load, servers, settings, **more) as process:
        yield process.pid


@contextlib.contextmanager
def java(
    server: Server, load: Range, servers: str, settings: dict[str, str]
) -> Iterator[int | None]:
    """Have the Java original deliver; give the id of its process, None without it."""
    home = java_home()
    if home is None:
        yield None
        return
    main = {"canal.serverMode": "kafka", "kafka.bootstrap.servers": servers}
    with java_original.delivering(
        home, server, load, main=main, settings=settings
    ) as pid:
        yield pid


def is_alive(pid: int) -> bool:
    """Return whether a process of ours has not ended."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def delivering(
    server: Server, load: Range, servers: str, settings: dict[str, str], **main: str
) -> ServerProcess:
    """Return a server of ours that delivers."""
    return ServerProcess(
        server,
        load,
        wiring=FILE_WIRING,  # without stored cursors nothing is delivered exactly once
        settings=settings,
        main={
            "canal.serverMode": "kafka",
            "kafka.bootstrap.servers": servers,
            "canal.mq.topics.create": "true",
            **main,
        },
    )


def run_latency(server: Server, writer: Writer, servers: str, *, quick: bool) -> None:
    """Measure from a commit to a consumer, one row a transaction."""
    count = PER_SECOND * (LATENCY_QUICK_S if quick else LATENCY_S)
    for who, deliver in ((OURS, ours), (JAVA, java)):
        written = writer.write(LOADS[1], quick=True)
        topics = TopicWatch(servers, f"bench-{uuid.uuid4().hex[:8]}", 1)
        settings = routing_of(topics.name, {})
        with (
            contextlib.closing(topics),
            deliver(server, written, servers, settings) as pid,
        ):
            if pid is None:
                continue
            topics.seconds(partial(is_alive, pid))
            topics.follow()
            writer.recreate_table()
            keys = range(1, count + 1)
            found = measure(server, partial(topics.collect, keys), keys)
            print(f"commit to consumer at {PER_SECOND}/s, {who}: {found}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
