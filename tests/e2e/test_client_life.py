"""Iterating clients outlive servers, links and tasks: all at least once, in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import aclosing

import pytest
from fix_daemon import child_environ
from fix_pipeline import DESTINATION, UNIT_S
from fix_random import longer
from followed_ledger import Followed
from iterating_follower import IteratingFollower
from load import Load
from tcp_proxy import Proxy

from canal_server.client import AsyncCanalClient, CanalClient

PATIENCE_S = 12 * UNIT_S


@pytest.fixture
def link(pipeline):
    """Give a proxy between clients and the server, which keeps its port."""
    pipeline.keep_port()
    proxy = Proxy("127.0.0.1", pipeline.server_port)
    yield proxy
    proxy.close()


def options_of(followed, link, rng, **more):
    """Return the options of a client that follows a ledger."""
    options = {
        "host": "127.0.0.1",
        "port": link.port,
        "destination": DESTINATION,
        "values": "text",
        "batch_size": rng.choice((1, 7, 200)),
        "timeout_s": UNIT_S,
        "on_redelivery": followed.may_repeat,
    }
    return options | more


class Faults:
    """Disturbs a server and its link at random moments, until the time is over."""

    def __init__(self, pipeline, link, rng, count):
        self._pipeline, self._link, self._rng = pipeline, link, rng
        self._count = count
        self._error = None
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        try:
            for _ in range(self._count):
                time.sleep(self._rng.uniform(0.1, 0.8))
                self._rng.choice((self.kill, self.stop, self.reset, self.cut))()
        except BaseException as error:  # noqa: BLE001  # shown by the test's own thread
            self._error = error

    def kill(self):
        """Kill the server and start it again."""
        self._pipeline.kill()
        self._pipeline.start()

    def stop(self):
        """Stop the server and start it again."""
        self._pipeline.stop()
        self._pipeline.start()

    def reset(self):
        """End all connections at once."""
        self._link.end_all()

    def cut(self):
        """End the connection after some bytes of an answer."""
        after = self._rng.randrange(3000)
        with self._link.cut(after, reset=self._rng.random() < 0.5):
            self._link.end_all()
            time.sleep(self._rng.uniform(0.1, 0.5))

    def __enter__(self):
        self._thread.start()
        return self

    def join(self):
        """Wait for the last fault."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def __exit__(self, *_):
        self._thread.join()


ACKS = ("message", "transaction", 0.2)


@pytest.mark.parametrize("whole", [False, True])
def test_faults_sync(pipeline, link, rng, whole):
    """A loop sees every change in order, whatever ends under it; transactions whole."""
    writer = pipeline.writer(rng)
    followed = Followed(writer)
    client = CanalClient(
        **options_of(
            followed, link, rng, whole_transactions=whole, ack=rng.choice(ACKS)
        )
    )
    give_up_at = time.monotonic() + PATIENCE_S
    with Faults(pipeline, link, rng, longer(6)) as faults:
        load = Load(writer, pause_s=0.02)
        with load:
            ender = threading.Thread(target=faults.join)
            ender.start()
            for message in client.messages(timeout_s=0.1):
                followed.take(message.changes())
                assert not whole or followed.is_at_end_of_transaction
                if not ender.is_alive():
                    break
        for message in client.messages(timeout_s=0.1):
            followed.take(message.changes())
            if followed.is_complete or time.monotonic() > give_up_at:
                client.stop()
        faults.join()
    client.close()
    assert followed.is_complete
    print(f"{followed.next} changes, {followed.repeated} repeated, {followed.resumes}")


@pytest.mark.parametrize("whole", [False, True])
def test_faults_async(pipeline, link, rng, whole):
    """The client of asyncio does the same, also when its task is cancelled."""
    writer = pipeline.writer(rng)
    followed = Followed(writer)
    options = options_of(
        followed, link, rng, whole_transactions=whole, ack=rng.choice(ACKS)
    )

    async def follow(client, until):
        async with aclosing(client.messages(timeout_s=0.1)) as messages:
            async for message in messages:
                followed.take(message.changes())
                assert not whole or followed.is_at_end_of_transaction
                if until():
                    break

    async def main():
        client = AsyncCanalClient(**options)
        with Faults(pipeline, link, rng, longer(6)) as faults, Load(writer, 0.02):
            ender = threading.Thread(target=faults.join)
            ender.start()
            while ender.is_alive():
                task = asyncio.create_task(follow(client, lambda: not ender.is_alive()))
                await asyncio.wait((task,), timeout=rng.uniform(0.05, 1.0))
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
                followed.may_repeat()
            faults.join()
        await asyncio.wait_for(follow(client, lambda: followed.is_complete), PATIENCE_S)
        await client.close()

    asyncio.run(main())
    assert followed.is_complete
    print(f"{followed.next} changes, {followed.repeated} repeated, {followed.resumes}")


PROGRAM = """
import sys
from canal_server.client import CanalClient
ack = sys.argv[2]
client = CanalClient("127.0.0.1", int(sys.argv[1]), "example", values="text",
                     batch_size=7, ack=float(ack) if ack[0].isdigit() else ack)
for message in client.messages(timeout_s=0.1):
    for change in message.changes():
        if change.kind in ("insert", "update", "delete"):
            values = change.after or change.before
            print(change.kind, values["tx"], values["n"], flush=True)
    if ack == "manual":
        client.ack(message.id)
"""


@pytest.mark.parametrize("ack", ["message", "transaction", "0.05", "manual"])
def test_killed_client(pipeline, rng, ack):
    """A client that is killed again and again has seen every change in the end."""
    writer = pipeline.writer(rng)
    seen: set[str] = set()
    with Load(writer, pause_s=0.02):
        for _ in range(longer(3)):
            read_for(pipeline, ack, rng.uniform(0.3, 1.2), seen)
    give_up_at = time.monotonic() + PATIENCE_S
    missing = expected(writer) - seen
    seconds = 1.0
    while missing and time.monotonic() < give_up_at:
        read_for(pipeline, ack, seconds, seen)
        left = expected(writer) - seen
        if left == missing:  # it was killed before it had begun, on a busy machine
            seconds *= 2
        missing = left
    assert not missing


def expected(writer):
    """Return what the program prints of the changes that were written."""
    return {
        f"{each.kind.lower()} {values['tx']} {values['n']}"
        for transaction in writer.transactions
        for each in transaction
        for values in [each.after or each.before]
    }


def read_for(pipeline, ack, seconds, seen):
    """Run the program for so long, kill it, and add what it printed."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(pipeline.server_port), ack],
        stdout=subprocess.PIPE,
        env=child_environ(),
        text=True,
    )
    killer = threading.Timer(seconds, os.kill, (process.pid, signal.SIGKILL))
    killer.start()
    assert process.stdout
    with process.stdout:
        seen.update(line.strip() for line in process.stdout)
    process.wait()
    killer.join()


def test_silent_server(pipeline, link, rng):
    """A loop whose server falls silent reconnects, and `stop` ends one that waits."""
    writer = pipeline.writer(rng)
    followed = Followed(writer)
    client = CanalClient(**options_of(followed, link, rng, timeout_s=0.5))
    writer.write(3)
    messages = client.messages(timeout_s=0.1)

    def receive_all():
        while not followed.is_complete:
            followed.take(next(messages).changes())

    receive_all()
    with link.silence():
        writer.write(3)
        time.sleep(0.1)
    receive_all()
    with link.silence():
        stopper = threading.Timer(0.2, client.stop)
        stopper.start()
        # The end of the last transaction may have been in a message of its own.
        assert not any(message.rows for message in messages)
        stopper.join()
    client.close()


@pytest.mark.parametrize("kind", [CanalClient, AsyncCanalClient])
def test_source_dies(make_pipeline, own_server, rng, kind):
    """A loop waits for a source that is killed, and receives all it wrote."""
    source = own_server(rng.choice(("mysql", "mariadb")))
    source.execute("CREATE DATABASE test_life CHARACTER SET utf8mb4")
    pipeline = make_pipeline(source, "test_life")
    pipeline.start()
    writer = pipeline.writer(rng)
    options = {"host": "127.0.0.1", "port": pipeline.server_port, "batch_size": 3}
    with IteratingFollower(writer, kind, **options, whole_transactions=True) as seen:
        for _ in range(longer(2)):
            writer.write(10)
            source.kill()
            source.restart()
            writer.write(10)
            seen.wait_for_all()
    assert len(seen.servers) == 1
