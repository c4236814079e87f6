"""A client that catches up while the source is replaced by its standby lacks nothing.

Two real servers, one the replica of the other, and a ring that has continued without
it.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import pytest
from fix_failover import BY_SET, GTID_MODE, Scene

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fix_pipeline import Pipeline

REPLICA_OPTIONS = ("--log-bin=second",)
LATE, LIVE = 1001, 1002
MODES = {"gtid": GTID_MODE, "set": BY_SET}
SMALL: dict[str, object] = {
    "canal.instance.cursor.pin.seconds": 0,
    "canal.instance.memory.buffer.size": 64,
    "canal.instance.transaction.size": 16,
}


@contextlib.contextmanager
def live_client(pipeline: Pipeline) -> Iterator[None]:
    """Have another client, which takes all that comes."""
    is_over = threading.Event()

    def take() -> None:
        with pipeline.client(LIVE) as client:
            while not is_over.is_set():
                message = client.get(100, 0.2)
                if message:
                    client.ack(message.id)

    thread = threading.Thread(target=take)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.mark.parametrize("by", ["gtid", "set"])
def test_amid_catching_up(make_scene: Callable[..., Scene], by: str) -> None:
    """Its reader turns to the new source with the instance, and meets the ring there.

    By GTID nothing comes twice.
    """
    scene = make_scene(MODES[by] | SMALL, exact=by == "gtid")
    pipeline = scene.pipeline
    with live_client(pipeline):
        with pipeline.client(LATE) as client:
            scene.writer.write(3)
            scene.receive(client)
        scene.writer.write(80)
        pipeline.wait_for_status(
            lambda status: (
                str(LATE) in status["late_clients"]
                and not status["late_clients"][str(LATE)]["in_ring"]
            )
        )
        with pipeline.client(LATE) as client:
            scene.receive(client, some=1)
            assert pipeline.status()["late_clients"][str(LATE)]["reading"]
            scene.die()
            scene.wait_until_reads("standby")
            with writes_around(scene):
                scene.receive(client, some=3)
            scene.receive(client)
            if by == "set":
                # The ring lacks a set that the client's position says nothing about:
                # they meet in the next file, which says it.
                scene.replicas.source.execute("FLUSH BINARY LOGS")
                scene.writer.write(5)
                scene.receive(client)
            pipeline.process.wait_for_log(f"client {LATE} of example has caught up")
            scene.writer.write(5)
            scene.receive(client)
    assert scene.follower.changes == 1


@contextlib.contextmanager
def writes_around(scene: Scene) -> Iterator[None]:
    """Write before and after what is done in the context."""
    scene.writer.write(10)
    yield
    scene.writer.write(10)
