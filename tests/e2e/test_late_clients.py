"""Clients that were away while the ring went on get all that they lack, once.

The ring has room for few transactions, so that a client which is away is soon passed
over. `LATE` is away, `LIVE` is not.
"""

from __future__ import annotations

import contextlib
import threading

import pytest
from fix_pipeline import UNIT_S
from fix_random import longer
from load import Load
from purge import purge

from canal_server.client import ClientError, EntryType

LATE, LIVE, OTHER = 1001, 1002, 1003
SMALL = {
    "canal.instance.cursor.pin.seconds": 0,
    "canal.instance.memory.buffer.size": 64,
    "canal.instance.transaction.size": 16,
}
SERVED = f"client {LATE} of example is served by a reader of its own"
CAUGHT_UP = f"client {LATE} of example has caught up"


class Scene:
    """A pipeline with a live and a late client, and what each of them was given."""

    def __init__(self, pipeline, writer):
        self.pipeline, self.writer = pipeline, writer
        self.checkers = {each: pipeline.checker(writer) for each in (LATE, LIVE, OTHER)}
        self.stack = contextlib.ExitStack()
        self.live = None

    def begin(self, *late):
        """Have all of them receive 3 transactions; then only `LIVE` stays."""
        late = late or (LATE,)
        self.live = self.stack.enter_context(self.pipeline.client(LIVE))
        for each in late:
            with self.pipeline.client(each):
                pass
        self.writer.write(3)
        self.drain()
        for each in late:
            self.receive(each)

    def drain(self):
        """Receive with `LIVE` all that it lacks."""
        self.pipeline.receive(self.live, self.checkers[LIVE])

    def pass_over(self, transactions=40):
        """Write more than the ring holds, while `LATE` is away."""
        with Draining(self.pipeline, self.live, self.checkers[LIVE]) as draining:
            self.writer.write(transactions)
            draining.finish()
        self.pipeline.wait_for_status(
            lambda told: not told["late_clients"][str(LATE)]["in_ring"]
        )

    def receive(self, client_id, **options):
        """Receive all that a client lacks, and what is left."""
        with self.pipeline.client(client_id) as client:
            self.pipeline.receive(client, self.checkers[client_id], **options)


class Draining:
    """Receives with a client on a thread of its own, as a context manager."""

    def __init__(self, pipeline, client, checker):
        self._pipeline, self._client, self._checker = pipeline, client, checker
        self._wanted = None
        self._error = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self.finish()

    def finish(self):
        """Wait until all that was written so far has come."""
        self._wanted = len(self._checker._writer.transactions)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self):
        try:
            while self._wanted is None or not self._checker.has(self._wanted):
                message = self._client.get(100, 0.2)
                self._checker.take(message.entries)
                if message:
                    self._client.ack(message.id)
        except BaseException as error:
            self._error = error


@pytest.fixture
def make_scene(make_pipeline, rng):
    """Give `make(source, schema, settings)`: a scene whose server runs."""
    made = []

    def make(source, schema, settings=None):
        pipeline = make_pipeline(source, schema, SMALL | (settings or {}))
        pipeline.start()
        made.append(Scene(pipeline, pipeline.writer(rng)))
        return made[-1]

    yield make
    for scene in made:
        scene.stack.close()


@pytest.fixture
def scene(make_scene, source_server, database):
    """Give a scene on the shared MySQL, then on the shared MariaDB."""
    return make_scene(source_server, database)


def test_returns(scene):
    """A client that was passed over gets all it lacks, then goes on from the ring."""
    scene.begin()
    scene.pass_over()
    told = scene.pipeline.status()["late_clients"][str(LATE)]
    assert told["reading"] is False
    with scene.pipeline.client(LATE) as client:
        scene.pipeline.receive(client, scene.checkers[LATE])
        scene.pipeline.process.wait_for_log(SERVED)
        scene.pipeline.process.wait_for_log(CAUGHT_UP)
        scene.pipeline.wait_for_status(lambda told: not told["late_clients"])
        scene.writer.write(5)
        scene.pipeline.receive(client, scene.checkers[LATE])
    scene.drain()
    scene.pipeline.stop()
