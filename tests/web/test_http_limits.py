"""What a slow or silent peer may hold of the HTTP port, on a real socket."""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, cast

import pytest
from fix_server import PATIENCE_S
from fix_store import eventually

from canal_server.runtime.lifecycle import Deadline
from canal_server.web import http_connection, request_bodies, web_server
from canal_server.web.web_server import WebServer

if TYPE_CHECKING:
    from canal_server.web.server_operations import Operations

SOON_S = 0.2  # instead of the ten seconds that a peer has
MUCH = 32 * 1024 * 1024  # bytes
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
PUT = (
    b"PUT /api/v1/log-levels HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n"
)


class Nothing:
    """A server without destinations, and a status that fills all buffers."""

    def readings(self):
        """Return none."""
        return []

    def status(self):
        """Return one."""
        return {"much": "x" * MUCH}


@pytest.fixture
def connect(monkeypatch):
    """Return a function that connects to a port with short limits."""
    monkeypatch.setattr(http_connection, "REQUEST_S", SOON_S)
    monkeypatch.setattr(http_connection, "READ_S", SOON_S)
    monkeypatch.setattr(request_bodies, "_BODY_S", SOON_S)
    server = WebServer("127.0.0.1", 0, cast("Operations", Nothing()), "1.2.3")
    server.start()
    with ExitStack() as opened:

        def make():
            peer = socket.create_connection(("127.0.0.1", server.port), PATIENCE_S)
            return opened.enter_context(closing(peer))

        yield make
        server.request_stop()
        assert server.join(Deadline(PATIENCE_S))


def received(peer) -> bytes:
    """Return all that comes until the server closes the connection."""
    return b"".join(iter(lambda: peer.recv(65536), b""))


def is_alive(peer) -> bool:
    """Ask whether the server is alive."""
    peer.sendall(GET)
    answer = http.client.HTTPResponse(peer)
    answer.begin()
    return answer.status == 200 and b"alive" in answer.read()


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: local"])
def test_a_peer_that_asks_nothing(connect, sent):
    """It is disconnected, also within the headers of a request."""
    peer = connect()
    peer.sendall(sent)
    assert received(peer) == b""


def test_many_silent_peers(connect, monkeypatch):
    """Health checks are answered again once those that held the port are closed."""
    silent = [connect() for _ in range(150)]
    assert not silent[-1].recv(1)
    monkeypatch.setattr(http_connection, "REQUEST_S", PATIENCE_S)
    eventually(lambda: is_alive(connect()))
    assert silent[0].recv(1) == b""


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


@pytest.fixture
def few(monkeypatch):
    """Let the port have two connections at a time; comes before `connect`."""
    monkeypatch.setattr(web_server, "_CONNECTIONS_MAX", 2)


def test_peers_that_do_not_read(few, connect):
    """Health checks are answered again once those that held the port are closed."""
    silent = [connect(), connect()]
    for peer in silent:
        peer.sendall(b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert peer.recv(1)
    eventually(lambda: is_alive(connect()))
    assert len(received(silent[0])) < MUCH
