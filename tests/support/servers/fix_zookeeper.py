"""Real ZooKeepers, each a process of our own; skipped with the reason without one."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
from typing import TYPE_CHECKING

import pytest
from server_folders import Unavailable
from zookeepers import PrivateZooKeeper, ZooKeepersOfOneMind

from canal_server.doors.zookeeper import ZooKeeper
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    from collections.abc import Iterator

CLOSE_SESSION = -11

_numbers = itertools.count(1)


def _running() -> Iterator[PrivateZooKeeper]:
    try:
        server = PrivateZooKeeper().start()
    except Unavailable as error:
        pytest.skip(f"no ZooKeeper: {error}")
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def zookeeper_server() -> Iterator[PrivateZooKeeper]:
    """Give a running ZooKeeper that all tests share: leave it running."""
    yield from _running()


@pytest.fixture
def own_zookeeper() -> Iterator[PrivateZooKeeper]:
    """Give a ZooKeeper of the test's own, to kill, pause and restart."""
    yield from _running()


@pytest.fixture
def three_zookeepers() -> Iterator[ZooKeepersOfOneMind]:
    """Give three ZooKeepers of the test's own that serve as long as two of them run."""
    servers = ZooKeepersOfOneMind()
    try:
        servers.start()
    except Unavailable as error:
        pytest.skip(f"no three ZooKeepers: {error}")
    try:
        yield servers
    finally:
        servers.stop()


@pytest.fixture
def zookeeper(zookeeper_root: str) -> Iterator[ZooKeeper]:
    """Give a session of a test's own, to look at its nodes and to change them."""
    session = ZooKeeper(zookeeper_root)
    session.start()
    session.wait_until_connected(Stop())
    yield session
    session.close()


@pytest.fixture
def zookeeper_root(zookeeper_server: PrivateZooKeeper) -> str:
    """Give `canal.zkServers` of a fresh tree of nodes on the shared ZooKeeper."""
    root = f"/test{next(_numbers)}"
    admin = ZooKeeper(zookeeper_server.servers)
    admin.start()
    try:
        admin.wait_until_connected(Stop())
        admin.create(root)
    finally:
        admin.close()
    return f"{zookeeper_server.servers}{root}"


def end_session(session: ZooKeeper) -> None:
    """End a session behind the back of its owner, as ZooKeeper does by its time.

    A connection of our own takes the session over and closes it in the same breath, as
    the owner comes back at once; when that was faster, it is tried again.
    """
    assert session.key is not None
    number, password = session.key
    # ConnectRequest: protocol version, last zxid, time-out, session, password.
    connect = struct.pack(">iqiq", 0, 0, 10_000, number)
    connect += struct.pack(">i", len(password)) + password
    close = struct.pack(">ii", 1, CLOSE_SESSION)
    requests = b"".join(
        struct.pack(">i", len(request)) + request for request in (connect, close)
    )
    host, _, port = session.servers.partition("/")[0].partition(":")
    while True:
        with (
            contextlib.suppress(OSError),
            socket.create_connection((host, int(port))) as connection,
        ):
            connection.sendall(requests)
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
            if len(answer) < 12:
                continue
            # Its length, protocol version, then the time-out: 0 without a session.
            length, _, granted = struct.unpack(">iii", answer[:12])
            if granted == 0 or len(answer) > 4 + length:
                return
