"""Sleeping until another thread wakes the sleeper, or a descriptor reports."""

from __future__ import annotations

import os
import socket

import pytest
from fix_store import PATIENCE_S, in_thread

from canal_server.runtime.lifecycle import Stop
from canal_server.store.wakeup import PEER_CLOSED, READABLE, WakeUp


def test_wake_ends_a_sleep():
    """A sleeper without limit continues when another thread wakes it."""
    with WakeUp(None, 0) as sleeper:
        sleep = in_thread(sleeper.sleep, None)
        sleeper.wake()
        assert sleep.result(PATIENCE_S) is False


def test_a_wake_before_the_sleep_counts_once():
    """It is not lost, and several of them end one sleep only."""
    with WakeUp(None, 0) as sleeper:
        sleeper.wake()
        sleeper.wake()
        assert sleeper.sleep(None) is False
        with pytest.raises(BlockingIOError):  # nothing is left to end the next one
            os.eventfd_read(sleeper._fd)
        sleeper.wake()
        assert sleeper.sleep(None) is False


def test_time_ends_a_sleep():
    """Without a wake a sleep ends after its time, at once for none."""
    with WakeUp(None, 0) as sleeper:
        assert sleeper.sleep(0) is False
        assert sleeper.sleep(0.001) is False


def test_a_stop_is_reported():
    """A request to stop ends this sleep and all later ones."""
    stop = Stop()
    with WakeUp(stop.fileno(), READABLE) as sleeper:
        assert sleeper.sleep(0) is False
        stop.request()
        assert sleeper.sleep(None) is True
        sleeper.wake()
        assert sleeper.sleep(None) is True


@pytest.mark.parametrize("kind", [socket.AF_UNIX, socket.AF_INET])
def test_a_closed_peer_is_reported(kind):
    """Closing is seen at once, even after unread bytes."""
    server, client = pair(kind)
    with server, client, WakeUp(server.fileno(), PEER_CLOSED) as sleeper:
        client.send(b"unread")
        assert sleeper.sleep(0) is False
        client.close()
        assert sleeper.sleep(None) is True


def pair(kind: int) -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets."""
    if kind == socket.AF_UNIX:
        return socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        return listener.accept()[0], client
