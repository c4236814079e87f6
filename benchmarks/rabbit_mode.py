"""Measures `canal.serverMode = rabbitMQ`: rows a second into a broker, and memory.

    RABBITMQ_URI=amqp://user:password@host:port/ python benchmarks/rabbit_mode.py
        [--quick] [--loads NAME,…]

The broker is one that is named; the account must be allowed to declare a queue and an
exchange there. Each load is in the binlog before the server starts; it ends when the
broker has confirmed its last row.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from loads import LOADS, SERVER_OPTIONS, Load, Writer
from server_process import ServerProcess, require_package
from topic_watch import END_TOPIC

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from servers import PrivateServer, Server, named_or_private

from canal_server.daemon.control import ControlError, ask

if TYPE_CHECKING:
    from collections.abc import Sequence

POLL_S = 0.02
PATIENCE_S = 600.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the loads that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--loads", default="inserts,single,updates")
    options = parser.parse_args(arguments)
    uri = os.environ.get("RABBITMQ_URI", "")
    if not uri:
        print("RABBITMQ_URI is not set: start a broker and name it, amqp://…")
        return 2
    print(f"canal_server: {require_package()}")
    with (
        named_or_private("mysql", SERVER_OPTIONS) as server,
        Writer(server, ours=isinstance(server, PrivateServer)) as writer,
    ):
        for load in LOADS:
            if load.name in options.loads.split(","):
                run_load(server, writer, load, uri, quick=options.quick)
    return 0


def run_load(
    server: Server, writer: Writer, load: Load, uri: str, *, quick: bool
) -> None:
    """Measure one load, into a durable queue of its own."""
    written = writer.write(load, quick=quick)
    name = f"bench-{uuid.uuid4().hex[:8]}"
    process = ServerProcess(
        server,
        written,
        settings={
            "canal.mq.topic": name,
            "canal.mq.dynamicTopic": rf"{name}-{END_TOPIC}:.*\\..*finish_line",
        },
        main={
            "canal.serverMode": "rabbitMQ",
            "rabbitmq.host": uri,
            "rabbitmq.exchange": name,
            "rabbitmq.queue": name,
            "rabbitmq.routingKey": "#",
            "rabbitmq.deliveryMode": "topic",
        },
    )
    with process:
        began_at, ended_at = until_delivered(process)
        seconds = ended_at - began_at
        print(
            f"{load.title}: {written.rows / seconds:,.0f} rows/s, {seconds:.2f} s,"
            f" memory {process.memory().highest >> 20} MB",
            flush=True,
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


if __name__ == "__main__":
    sys.exit(main())
