"""A pipeline that knows a source and its standby, and a checker of what comes of both.

::

    def test_x(make_scene):
        scene = make_scene(GTID_MODE, exact=True)
        scene.die()
        scene.wait_until_reads("standby")
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from fix_pipeline import FILE_WIRING, POLL_S, UNIT_S
from ledger import Checker, Writer

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from fix_pipeline import Pipeline
    from fix_replicas import Replicas
    from servers import PrivateServer, Server

    from canal_server.client import CanalClient, Entry

GTID_MODE: dict[str, object] = {"canal.instance.gtidon": "true"}
BY_SET: dict[str, object] = {
    "canal.instance.fallbackIntervalInSeconds": 5
}  # where there are GTIDs
BY_TIME: dict[str, object] = {**BY_SET, "canal.instance.gtid.sets.enable": "false"}
MODES = {
    "gtid": GTID_MODE,
    "set": BY_SET,
    "time": BY_TIME,
}


def switching_to(standby: PrivateServer) -> dict[str, object]:
    """Return the settings with which a server takes over soon."""
    return {
        "canal.instance.standby.address": f"{standby.host}:{standby.port}",
        "canal.instance.detecting.enable": "true",
        "canal.instance.detecting.sql": "select 1",
        "canal.instance.detecting.interval.time": 1,
        # A machine that stands still for some seconds is borne.
        "canal.instance.detecting.retry.threshold": 1,
        "canal.instance.detecting.heartbeatHaEnable": "true",
    }


class TickingWriter(Writer):
    """Writes in a time of its own, a second per call, far after any binlog's begin.

    It goes on where that of the writers before has come to: the servers are the same.
    """

    latest_s = 0  # of all of them

    def __init__(self, server: Server, schema: str, rng: random.Random) -> None:
        ((now_s,),) = server.execute("SELECT UNIX_TIMESTAMP() + 1000")
        self.now_s = max(int(now_s), TickingWriter.latest_s + 10)
        super().__init__(server, schema, rng, session=self._next_second())

    def write(self, count: int, *, rows: int | None = None) -> None:
        """Write transactions of one second."""
        self.session = self._next_second()
        super().write(count, rows=rows)

    def _next_second(self) -> tuple[str]:
        self.now_s += 1
        TickingWriter.latest_s = self.now_s
        return (f"SET timestamp = {self.now_s}",)


class Follower:
    """A checker of a stream that changes from one server to the other."""

    def __init__(self, writer: Writer, *, begins: bool, exact: bool) -> None:
        self.checker = Checker(writer, begins=begins)
        self.changes = 0
        self._exact = exact
        self._file = ""

    def restart(self) -> None:
        """Allow what a restart may repeat."""
        self.checker.resume()
        self._file = ""

    def take(self, entries: Iterable[Entry]) -> None:
        """Check entries; where the server changes, some may come again by time only."""
        for entry in entries:
            file = entry.header.logfile_name.partition(".")[0]
            if self._file and file != self._file:
                done = self.checker.done
                self.checker.resume(done if self._exact else 0, done)
                self.changes += 1
            self._file = file
            self.checker.take([entry])


class Scene:
    """The servers, what is written to them, the pipeline and what comes out of it."""

    def __init__(
        self, replicas: Replicas, pipeline: Pipeline, rng: random.Random, *, exact: bool
    ) -> None:
        self.replicas = replicas
        self.pipeline = pipeline
        self.writer = TickingWriter(replicas.source, pipeline.schema, rng)
        self.follower = Follower(self.writer, begins=pipeline.has_begins, exact=exact)

    def receive(
        self, client: CanalClient, *, some: int | None = None, batch_size: int = 100
    ) -> None:
        """Receive and ack so many messages, or all that was written."""
        expected = len(self.writer.transactions)
        if some is None and self.follower.checker.has(expected):
            self.pipeline.settle(client)  # all of it arrived, with some of before
            return
        messages = self.pipeline.messages(client, batch_size=batch_size)
        for number, message in enumerate(messages, 1):
            self.follower.take(message.entries)
            client.ack(message.id)
            if number == some or (some is None and self.follower.checker.has(expected)):
                break
        self.pipeline.settle(client)

    def die(self) -> None:
        """End the source as a power cut would, and promote the replica."""
        self.replicas.catch_up()
        self.replicas.source.kill()
        self.replicas.take_over()
        self.writer.go_to(self.replicas.source)

    def read_ahead(self) -> None:
        """Write what the pipeline reads and nobody acks, and some that it may not."""
        self.writer.write(10)
        rows = sum(map(len, self.writer.transactions))
        self.pipeline.wait_for_status(lambda status: status["rows"] >= rows)
        self.writer.write(10)

    def wait_until_reads(self, role: str) -> dict[str, Any]:
        """Wait until the pipeline reads a server; return its status."""
        self.pipeline.wait_for_status(
            lambda status: (
                status.get("reads", "").startswith(role)
                and status["state"] == "running"
            )
        )
        return self.pipeline.status()

    def cursor(self) -> tuple[int, str]:
        """Return the port and the file that the stored cursor names, when stored."""
        (client,) = json.loads(self.pipeline.meta_file.read_text())["clientDatas"]
        cursor = client["cursor"]
        port: int = cursor["identity"]["sourceAddress"]["port"]
        return port, cursor["postion"]["journalName"]

    def wait_for_cursor(self, server: PrivateServer, file: str) -> None:
        """Wait until the cursor on disk is a position of a server."""
        give_up_at = time.monotonic() + 3 * UNIT_S
        while True:
            port, name = self.cursor()
            if port == server.port and name.startswith(file):
                return
            assert time.monotonic() < give_up_at, f"{port}/{name}, not {file}"
            time.sleep(POLL_S)


@pytest.fixture
def make_scene(
    make_pipeline: Callable[..., Pipeline],
    replicas: Replicas,
    replicated_schema: str,
    rng: random.Random,
) -> Callable[..., Scene]:
    """Give `make(settings, …)`: a scene with a running pipeline that may switch."""

    def make(
        settings: dict[str, object], *, exact: bool = False, wiring: str = FILE_WIRING
    ) -> Scene:
        pipeline = make_pipeline(
            replicas.source,
            replicated_schema,
            {
                "canal.file.flush.period": 20,
                **switching_to(replicas.replica),
                **settings,
            },
        )
        pipeline.configure({}, wiring=wiring)
        scene = Scene(replicas, pipeline, rng, exact=exact)
        pipeline.start()
        pipeline.process.wait_for_log("reads .* from")
        return scene

    return make
