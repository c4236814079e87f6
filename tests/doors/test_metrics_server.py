"""What a slow or silent peer may hold of the port for Prometheus, on a real socket."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from contextlib import ExitStack, closing

import pytest
from fix_server import PATIENCE_S
from fix_store import eventually

from canal_server.doors.prometheus import metrics_server, scrape_peers
from canal_server.observe import all_metrics
from canal_server.runtime.admission import Limits
from canal_server.runtime.lifecycle import Deadline
from canal_server.tls.server_tls import ServerTls

GET = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
HALF = GET[:30]


@pytest.fixture
def scrape():
    """Give an event that metrics wait for, and one that is set when they do."""
    done, asked = threading.Event(), threading.Event()
    done.set()
    return done, asked


@pytest.fixture(params=["clear", "tls"])
def tls(request, authority):
    """Give TLS, or none."""
    return ServerTls(authority.server()) if request.param == "tls" else None


@pytest.fixture
def connect(scrape, tls, authority, request):
    """Return a function that connects to a port, in clear text or by TLS."""
    done, asked = scrape

    def collect():
        asked.set()
        assert done.wait(PATIENCE_S)
        return []

    port = all_metrics.metrics_server(
        "127.0.0.1",
        0,
        all_metrics.metrics_text(collect, "1"),
        tls,
        limits=getattr(request, "param", metrics_server.LIMITS),
    )
    port.start()
    with ExitStack() as opened:

        def make(address="127.0.0.1", *, encrypted=True):
            peer = socket.create_connection(
                ("127.0.0.1", port.port), PATIENCE_S, (address, 0)
            )
            if tls is not None and encrypted:
                context = authority.client_context()
                peer = context.wrap_socket(peer, server_hostname="127.0.0.1")
            return opened.enter_context(closing(peer))

        yield make
        done.set()
        port.request_stop()
        assert port.join(Deadline(PATIENCE_S))


def received(peer) -> bytes:
    """Return all that comes until the server closes the connection."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while part := peer.recv(65536):
            data += part
    return data


def is_answered(peer) -> bool:
    """Return whether a scrape is answered."""
    peer.sendall(GET)
    return received(peer).startswith(b"HTTP/1.0 200")


@pytest.mark.parametrize(
    ("sent", "encrypted"), [(b"", True), (HALF, True), (b"", False)]
)
def test_many_peers_that_ask_nothing(connect, sent, encrypted, caplog):
    """Scrapes are answered at once, and the oldest of the others is closed."""
    idle = []
    for _ in range(metrics_server.SCRAPES_MAX):
        idle.append(connect(encrypted=encrypted))
        idle[-1].sendall(sent)
    for address in ("127.0.0.1", "127.0.0.2"):
        assert is_answered(connect(address))
    assert not received(idle[0])
    refused = [each for each in caplog.messages if "idle connection" in each]
    assert len(refused) == 1  # the others are counted
    assert refused[0].startswith("port for metrics: closed an idle connection of 127.")


def test_a_header_at_a_time(connect, monkeypatch):
    """A request that never ends is closed at its deadline, whatever comes meanwhile."""
    monkeypatch.setattr(scrape_peers, "REQUEST_S", 0.2)
    peer = connect()
    peer.sendall(GET[:-2])

    def is_closed() -> bool:
        try:
            peer.sendall(b"A: b\r\n")
        except OSError:
            return True
        return False

    eventually(is_closed)


@pytest.mark.parametrize("connect", [Limits(2, 1, 2, 2)], indirect=True)
def test_an_address_has_a_limit(connect, scrape, caplog):
    """With as many requests as it may have, another one is refused, and not others'."""
    done, asked = scrape
    done.clear()
    busy = connect()
    busy.sendall(GET)
    assert asked.wait(PATIENCE_S)
    with contextlib.suppress(OSError):  # during TLS
        assert not is_answered(connect())
    other = connect("127.0.0.2")
    other.sendall(GET)
    done.set()
    assert received(other).startswith(b"HTTP/1.0 200")
    assert received(busy).startswith(b"HTTP/1.0 200")
    assert "refused 127.0.0.1:" in caplog.text


def test_peers_that_break_off(connect, caplog, capfd):
    """Neither the log nor the output has a line for each of them."""
    for encrypted in (False, True):
        peer = connect(encrypted=encrypted)
        peer.sendall(b"\x00" * 100)
        peer.close()
    assert is_answered(connect())
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert "Traceback" not in capfd.readouterr().err
