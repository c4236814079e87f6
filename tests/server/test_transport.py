"""Sending and receiving on a real socket."""

from __future__ import annotations

import fcntl
import socket
import sys
import termios
import threading
from contextlib import closing

import pytest
from fix_server import PATIENCE_S

from canal_server.server.transport import Transport


@pytest.fixture
def pair():
    """Give a transport and the client's socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname(), PATIENCE_S)
        transport = Transport(listener.accept()[0])
    transport.set_send_timeout(PATIENCE_S)
    with client:
        yield transport, client
    transport.close()


def read_all(sock: socket.socket) -> bytes:
    """Return all bytes until the end."""
    data = bytearray()
    while more := sock.recv(1 << 20):
        data += more
    return bytes(data)


def test_many_buffers(pair, rng):
    """More bytes and buffers than one call accepts all arrive, and in order."""
    transport, client = pair
    buffers = [rng.randbytes(rng.choice([0, 1, 700, 20_000])) for _ in range(3000)]
    views = [memoryview(each) for each in buffers]

    def send() -> None:
        transport.send(views)
        transport.shut_down()

    thread = threading.Thread(target=send)
    thread.start()
    got = read_all(client)
    thread.join(PATIENCE_S)
    assert got == b"".join(buffers)


def test_client_that_takes_nothing(pair):
    """A client that reads nothing ends the sending after the configured time."""
    transport, _ = pair
    transport.set_send_timeout(0.01)
    with pytest.raises(TimeoutError, match=r"accepted no data for 0\.01 s"):
        transport.send([bytes(1 << 20)] * 64)


def test_what_the_kernel_keeps_for_a_client_that_takes_nothing(pair):
    """Its memory for TCP is common to all connections of the machine."""
    transport, client = pair
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    transport.set_send_timeout(0.01)
    with pytest.raises(TimeoutError):
        transport.send([bytes(64 * 1024)] * 1024)
    kept = fcntl.ioctl(transport.fileno(), termios.TIOCOUTQ, bytes(4))
    assert int.from_bytes(kept, sys.byteorder) < 1 << 20


def test_client_that_says_nothing(pair):
    """Receiving ends after its time; the connection still works."""
    transport, client = pair
    with pytest.raises(TimeoutError, match=r"nothing received for 0\.01 s"):
        transport.receive(0.01)
    client.sendall(b"late")
    assert transport.receive(PATIENCE_S) == b"late"


def test_shut_down_ends_waits(pair):
    """A thread that waits for bytes returns when another one shuts the socket down."""
    transport, _ = pair
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.append(transport.receive(PATIENCE_S)))
    thread.start()
    transport.shut_down()
    thread.join(PATIENCE_S)
    assert got == [b""]


def test_shut_down_of_what_is_closed(pair):
    """Shutting a socket down twice, or after the client disconnected, is allowed."""
    transport, client = pair
    client.close()
    transport.shut_down()
    transport.shut_down()


def test_options():
    """Small replies leave at once, and peers that vanished are noticed."""
    with socket.socket() as sock, closing(Transport(sock)):
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
