"""What a slow or silent peer may hold of the HTTP port, on a real socket."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import socket
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, cast

import pytest
from fix_server import PATIENCE_S
from fix_store import eventually

from canal_server.runtime.admission import Limits
from canal_server.runtime.lifecycle import Deadline
from canal_server.web import http_connection, request_bodies, web_server
from canal_server.web.web_server import WebServer

if TYPE_CHECKING:
    from canal_server.web.server_operations import Operations

SOON_S = 0.2  # instead of the ten seconds that a peer has
MUCH = 32 * 1024 * 1024  # bytes
HALF = b"GET /healthz HTTP/1.1\r\nHost: local"
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
PUT = (
    b"PUT /api/v1/log-levels HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n"
)

# Two connections at a time, and one of an address.
FEW = pytest.mark.parametrize("connect", [Limits(2, 1, 2, 2)], indirect=True)


class Nothing:
    """A server without destinations, and a status that fills all buffers."""

    def readings(self):
        """Return none."""
        return []

    def received(self):
        """Return nothing."""
        return {}

    def status(self):
        """Return one."""
        return {"much": "x" * MUCH}


@pytest.fixture
def connect(monkeypatch, request):
    """Return a function that connects to a port with short limits."""
    monkeypatch.setattr(http_connection, "REQUEST_S", SOON_S)
    monkeypatch.setattr(http_connection, "READ_S", SOON_S)
    monkeypatch.setattr(request_bodies, "_BODY_S", SOON_S)
    operations = cast("Operations", Nothing())
    limits = getattr(request, "param", web_server.LIMITS)
    server = WebServer("127.0.0.1", 0, operations, "1.2.3", limits=limits)
    server.start()
    with ExitStack() as opened:

        def make(address="127.0.0.1"):
            peer = socket.create_connection(
                ("127.0.0.1", server.port), PATIENCE_S, (address, 0)
            )
            return opened.enter_context(closing(peer))

        yield make
        server.request_stop()
        assert server.join(Deadline(PATIENCE_S))


def received(peer) -> bytes:
    """Return all that comes until the server closes the connection."""
    parts: list[bytes] = []
    with contextlib.suppress(ConnectionResetError):  # something was not read
        parts.extend(iter(lambda: peer.recv(65536), b""))
    return b"".join(parts)


def is_alive(peer) -> bool:
    """Ask whether the server is alive; no, if it refuses the connection."""
    answer = http.client.HTTPResponse(peer)
    try:
        peer.sendall(GET)
        answer.begin()
    except (OSError, http.client.HTTPException):
        return False
    return answer.status == 200 and b"alive" in answer.read()


@pytest.mark.parametrize("sent", [b"", HALF])
def test_a_peer_that_asks_nothing(connect, sent):
    """It is disconnected, also within the headers of a request."""
    peer = connect()
    peer.sendall(sent)
    assert received(peer) == b""


@pytest.fixture
def patient(monkeypatch):
    """Wait long for requests and bodies."""
    monkeypatch.setattr(request_bodies, "_BODY_S", PATIENCE_S)
    monkeypatch.setattr(http_connection, "REQUEST_S", PATIENCE_S)


@pytest.mark.parametrize("sent", [b"", HALF, GET])
def test_many_peers_that_ask_nothing(connect, patient, sent, caplog):
    """Health checks are answered at once: the oldest of the others is closed."""
    idle = []
    for _ in range(2 * web_server.VISITORS_MAX):
        peer = connect()
        peer.sendall(sent)
        if sent == GET:
            assert peer.recv(1)
        idle.append(peer)
    assert is_alive(connect())
    received(idle[0])  # until it is closed
    assert is_alive(connect("127.0.0.2"))
    refused = [each for each in caplog.messages if "idle connection" in each]
    assert len(refused) == 1  # the others are counted
    assert refused[0].startswith("page and REST interface: closed an idle")
    assert "concurrency" not in caplog.text


def test_damaged_requests_fill_no_log(connect, patient, caplog):
    """Each gets 400, and the log has none of them."""
    for _ in range(3):
        peer = connect()
        peer.sendall(b"GET /\r\n\r\n")
        assert received(peer).startswith(b"HTTP/1.1 400")
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


@FEW
def test_an_address_has_a_limit(connect, patient):
    """With as many requests as it may have, another one is refused, and not others'."""
    busy = connect()
    busy.sendall(PUT.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
    assert busy.recv(100).startswith(b"HTTP/1.1 100")
    assert received(connect()).startswith(b"HTTP/1.1 503")
    assert is_alive(connect("127.0.0.2"))


def test_a_peer_that_asks_again(connect, monkeypatch):
    """A connection is kept from one request to the next."""
    monkeypatch.setattr(http_connection, "REQUEST_S", PATIENCE_S)
    peer = connect()
    assert is_alive(peer)
    assert is_alive(peer)


def test_a_body_that_does_not_end(connect):
    """The request is answered with 408, and the connection closed."""
    peer = connect()
    peer.sendall(PUT + b"{")
    head, _, body = received(peer).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408")
    assert "did not end within" in json.loads(body)["detail"]


def test_peers_that_break_off_fill_no_log(connect, patient, caplog):
    """A request whose body is cut off is no error of the server."""
    for _ in range(3):
        peer = connect()
        expecting = PUT.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")
        peer.sendall(expecting)
        assert peer.recv(100).startswith(b"HTTP/1.1 100")  # the body is read
        peer.sendall(b"{")
        peer.close()
    assert is_alive(connect())
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


STATUS = b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_a_peer_that_does_not_read(connect, monkeypatch):
    """It is disconnected, without the rest of its answer."""
    monkeypatch.setattr(http_connection, "READ_S", 0.0)
    peer = connect()
    peer.sendall(STATUS)
    assert len(received(peer)) < MUCH


@FEW
def test_peers_that_do_not_read(connect, monkeypatch):
    """Health checks are answered: one of those that hold the port is closed."""
    monkeypatch.setattr(http_connection, "READ_S", PATIENCE_S)
    silent = [connect(), connect("127.0.0.2")]
    for peer in silent:
        peer.sendall(STATUS)
        assert peer.recv(1)
    eventually(lambda: is_alive(connect()))  # once their answers are complete
    assert len(received(silent[0])) < MUCH
