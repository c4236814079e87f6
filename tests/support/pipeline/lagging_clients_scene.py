"""A live and a lagging client of one destination, and what each of them received."""

from __future__ import annotations

import contextlib
import threading
import time

from fix_pipeline import UNIT_S

LATE, LIVE, OTHER = 1001, 1002, 1003


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
        self.take_rest(self.live, LIVE)

    def take_rest(self, client, client_id):
        """Receive all that a client lacks, if that is anything."""
        checker = self.checkers[client_id]
        if not checker.has(len(self.writer.transactions)):
            self.pipeline.receive(client, checker)

    def pass_over(self, transactions=40):
        """Write more than the ring holds, while `LATE` is away."""
        with Draining(self.pipeline, self.live, self.checkers[LIVE]) as draining:
            self.writer.write(transactions)
            draining.finish()
        self.pipeline.wait_for_status(
            lambda status: not status["late_clients"][str(LATE)]["in_ring"]
        )

    def receive(self, client_id):
        """Connect a client, and receive all that it lacks."""
        with self.pipeline.client(client_id) as client:
            self.take_rest(client, client_id)


class Draining:
    """Receives with a client on a thread of its own, as a context manager."""

    def __init__(self, pipeline, client, checker):
        self._pipeline, self._client, self._checker = pipeline, client, checker
        self._target = None
        self._error = None
        self._deadline = time.monotonic() + 9 * UNIT_S
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self.finish()

    def finish(self):
        """Wait until all that was written so far has come."""
        self._target = len(self._checker.writer.transactions)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self):
        try:
            while self._target is None or not self._checker.has(self._target):
                assert time.monotonic() < self._deadline, "not all has come in time"
                message = self._client.get(100, 0.2)
                self._checker.take(message.entries)
                if message:
                    self._client.ack(message.id)
        except BaseException as error:  # noqa: BLE001  # shown by the test's own thread
            self._error = error


class Player:
    """A client that gets, acks, rolls back, leaves and returns at random."""

    def __init__(self, scene, rng):
        self._scene, self._rng = scene, rng
        self._checker = scene.checkers[LATE]
        self._open = []  # batches: where the stream was before them, and their id

    def play(self, steps):
        """Do so many steps; what is not acked at the end comes again later."""
        with self._scene.pipeline.client(LATE) as client:
            for _ in range(steps):
                self._step(client)
            self._roll_back(client)
            self._scene.pipeline.settle(client)
        # A position amid a transaction: it may come again from its beginning.
        self._checker.resume(self._checker.done, self._checker.done, amid=True)

    def _step(self, client):
        choice = self._rng.random()
        if choice < 0.5 and len(self._open) < 5:
            message = client.get(self._rng.randint(1, 30), 0.2)
            if message:
                self._open.append((self._checker.mark(), message.id))
                self._checker.take(message.entries)
        elif choice < 0.9 and self._open:
            client.ack(self._open.pop(0)[1])
        else:
            self._roll_back(client)

    def _roll_back(self, client):
        client.rollback()
        if self._open:
            self._checker.rewind(self._open[0][0])
            self._open.clear()
