"""Waiting at an idle source: what repeats is dropped, all else is left to be read."""

from __future__ import annotations

import select
import socket
import struct
import threading
import time

import pytest

from canal_server.core.heartbeats import Heartbeats
from canal_server.runtime.lifecycle import Stop

HEARTBEAT, HEARTBEAT_2, XID = 27, 41, 16
LONG_S = 60.0


def packet(body: bytes = b"binlog.000001", kind: int = HEARTBEAT, number: int = 0):
    """Return the packet of an event."""
    event = struct.pack("<IBIIIH", 0, kind, 1, 19 + len(body), 4711, 0) + body
    return struct.pack("<I", 1 + len(event))[:3] + bytes((number,)) + b"\0" + event


@pytest.fixture
def ends():
    """Give two connected sockets; the second one is waited at."""
    server, client = socket.socketpair()
    client.setblocking(False)
    with server, client:
        yield server, client


class Waiter:
    """What is tested, with its own stop."""

    def __init__(self, client: socket.socket) -> None:
        self.client, self.stop = client, Stop()
        self.heartbeats = Heartbeats()
        self.heartbeats.heard_at = time.monotonic()

    def wait(self, silence_s: float = LONG_S, limit_s: float = LONG_S) -> None:
        """Wait for something to read."""
        self.heartbeats.wait(
            self.client.fileno(), self.stop.fileno(), silence_s, limit_s
        )

    def read(self) -> bytes:
        """Return what is left."""
        return self.client.recv(1 << 16)


@pytest.fixture
def waiter(ends):
    """Give a waiter at the second socket."""
    return Waiter(ends[1])


@pytest.mark.parametrize("kind", [HEARTBEAT, HEARTBEAT_2])
def test_repeated_ones_are_dropped(ends, waiter, kind):
    """The first heartbeat is left; its repetitions, with other numbers, are taken."""
    server, _ = ends
    beats = [packet(kind=kind, number=number) for number in range(5)]
    server.sendall(beats[0])
    waiter.wait()
    assert waiter.read() == beats[0]
    before = waiter.heartbeats.heard_at
    change = packet(b"xid", XID)
    server.sendall(b"".join(beats[1:]) + change)
    waiter.wait()
    assert waiter.read() == change
    assert waiter.heartbeats.dropped == 4
    assert waiter.heartbeats.dropped_bytes == 4 * len(beats[0])
    assert waiter.heartbeats.heard_at > before


@pytest.mark.parametrize(
    "other",
    [
        packet(b"binlog.000002"),
        packet(b"binlog.000001", HEARTBEAT_2),
        packet(kind=XID),
        packet()[:12],
        packet()[:5],
        b"\xff\xff\xff" + packet()[3:],
        packet()[:4] + b"\xff" + packet()[5:],
        b"\x01\0\0\0\0\0\0\0\0\x1b" * 2,
        packet(b"x" * 2000),
    ],
    ids=["moved", "type", "event", "part", "start", "long", "error", "short", "large"],
)
def test_all_else_is_left(ends, waiter, other):
    """What is not the very heartbeat of before stays to be read, byte for byte."""
    server, _ = ends
    server.sendall(packet())
    waiter.wait()
    waiter.read()
    server.sendall(packet(number=1) + other)
    waiter.wait()
    assert waiter.read() == other
    assert waiter.heartbeats.dropped == 1


def test_another_event_between(ends, waiter):
    """A heartbeat of another position is read once, and then dropped when repeated."""
    server, _ = ends
    for text in (b"binlog.000001", b"binlog.000002"):
        server.sendall(packet(text))
        waiter.wait()
        assert waiter.read() == packet(text)
        server.sendall(packet(text, number=1) + packet(b"", XID))
        waiter.wait()
        assert waiter.read() == packet(b"", XID)


def test_the_end_of_the_connection(ends, waiter):
    """A connection that ends is noticed at once, and its end is left to be read."""
    server, _ = ends
    server.close()
    waiter.wait()
    assert waiter.read() == b""


@pytest.mark.parametrize("limits", [{"silence_s": 0.0}, {"limit_s": 0.0}])
def test_limits(waiter, limits):
    """A silent source, and a limit that is over, end the wait with nothing to read."""
    waiter.wait(**limits)
    assert not select.select([waiter.client], [], [], 0)[0]


def test_heartbeats_do_not_prolong_the_limit(ends, waiter):
    """The limit counts from the call, however many heartbeats are dropped."""
    server, _ = ends
    server.sendall(packet())
    waiter.wait()
    waiter.read()
    ended = threading.Event()

    def send() -> None:
        while not ended.wait(0.01):
            server.sendall(packet())

    thread = threading.Thread(target=send)
    thread.start()
    try:
        waiter.wait(limit_s=0.2)
    finally:
        ended.set()
        thread.join()
    assert waiter.heartbeats.dropped > 0


def test_a_stop(waiter):
    """A stop that is requested, before or while it waits, ends the wait."""
    thread = threading.Thread(target=waiter.wait, daemon=True)
    thread.start()
    waiter.stop.request()
    thread.join(LONG_S / 2)
    assert not thread.is_alive()
    waiter.wait()
