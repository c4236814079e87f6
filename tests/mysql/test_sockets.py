"""Making TCP connections, and cutting them."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from canal_server.errors import ConnectionLost
from canal_server.mysql import sockets
from canal_server.mysql.sockets import (
    BULK_BYTES,
    BULK_PIECE,
    BULK_WINDOW_S,
    Breaker,
    BulkReads,
    connect_tcp,
)
from canal_server.mysql.source_settings import Access, Address, Credentials
from canal_server.runtime.lifecycle import Stop

NOBODY = Credentials("nobody", "")


def access(port: int, *, timeout_s: float = 30, receive_buffer: int = 0) -> Access:
    """Return how to reach a port of this host."""
    return Access(
        address=Address("127.0.0.1", port),
        credentials=NOBODY,
        connect_timeout_s=timeout_s,
        receive_buffer=receive_buffer,
    )


@pytest.fixture
def listener():
    """Yield a listening socket."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def silent_port():
    """Yield a port where connecting hangs: waiting connections are not accepted."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        port = server.getsockname()[1]
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        yield port


def test_connects_in_blocking_mode(listener):
    """The socket arrives at the listener and blocks without a limit of its own."""
    with connect_tcp(access(listener.getsockname()[1])) as sock:
        peer, address = listener.accept()
        peer.close()
        assert address == sock.getsockname()
        assert sock.gettimeout() is None
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_only_a_large_receive_buffer_is_set(listener):
    """A small receive buffer is left to the system, a larger one is set."""
    port = listener.getsockname()[1]
    with (
        connect_tcp(access(port)) as plain,
        connect_tcp(access(port, receive_buffer=16384)) as small,
        connect_tcp(access(port, receive_buffer=100_000)) as large,
    ):
        sizes = [
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
            for sock in (plain, small, large)
        ]
    assert sizes[0] == sizes[1]
    assert sizes[2] == 200_000  # Linux doubles it


def test_a_refused_connection_is_lost(listener):
    """The error for a port without a listener names its address."""
    port = listener.getsockname()[1]
    listener.close()

    with pytest.raises(ConnectionLost, match=f"127.0.0.1:{port}.*refused"):
        connect_tcp(access(port))


def test_an_unknown_host_is_reported():
    """A host name that does not resolve is named in the error."""
    key = "canal.instance.master.address"
    for named_by, remedy in (("", ""), (key, f": correct {key}")):
        nowhere = Access(
            address=Address("nowhere.invalid"), credentials=NOBODY, named_by=named_by
        )
        with pytest.raises(ConnectionLost) as caught:
            connect_tcp(nowhere)
        assert re.fullmatch(
            rf"host nowhere\.invalid is unknown \([A-Z][a-z ]+\){re.escape(remedy)}",
            str(caught.value),
        )


def test_connecting_has_a_limit(silent_port):
    """A host that does not answer fails after the connect timeout."""
    with pytest.raises(ConnectionLost, match="no answer in time"):
        connect_tcp(access(silent_port, timeout_s=0.05))


def test_one_attempt_after_another(silent_port, monkeypatch):
    """Without an answer new attempts start, and all are closed at the end."""
    made: list[socket.socket] = []

    class Noted(socket.socket):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(sockets, "AGAIN_S", 0.01)
    monkeypatch.setattr(socket, "socket", Noted)
    with pytest.raises(ConnectionLost, match="no answer in time") as failed:
        connect_tcp(access(silent_port, timeout_s=0.5))
    assert failed.value.unreachable
    assert len(made) > sockets.ATTEMPTS_MAX
    assert all(sock.fileno() == -1 for sock in made)


def test_the_first_that_answers(silent_port, listener, monkeypatch):
    """Of the addresses of a host the one that answers is used, others are closed."""
    hosts = {
        "dead": [("127.0.0.1", silent_port), listener.getsockname()],
        "refused": [("127.0.0.1", 1), listener.getsockname()],
    }
    monkeypatch.setattr(sockets, "AGAIN_S", 0.01)
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, _port, **how: [
            (socket.AF_INET, how["type"], 0, "", target) for target in hosts[host]
        ],
    )
    for host in hosts:
        found = replace(access(1), address=Address(host, 1))
        with connect_tcp(found) as sock:
            assert sock.getpeername() == listener.getsockname()
            assert sock.gettimeout() is None


def test_a_link_that_confirms_nothing_is_given_up(listener):
    """The system probes an idle peer, and ends a link that confirms nothing."""
    found = replace(access(listener.getsockname()[1]), link_timeout_s=9.0)
    with connect_tcp(found) as sock:
        level = socket.IPPROTO_TCP
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(level, socket.TCP_USER_TIMEOUT) == 9000
        idle_s = sock.getsockopt(level, socket.TCP_KEEPIDLE)
        every_s = sock.getsockopt(level, socket.TCP_KEEPINTVL)
        count = sock.getsockopt(level, socket.TCP_KEEPCNT)
        assert idle_s + every_s * count == 9


def test_a_stop_ends_connecting(silent_port):
    """A stop requested from another thread ends a connect that hangs."""
    stop = Stop()
    asker = threading.Timer(0.05, stop.request)
    asker.start()

    with pytest.raises(ConnectionLost, match="a stop was requested"):
        connect_tcp(access(silent_port, timeout_s=60), stop)
    asker.join()


def test_cutting_wakes_a_reader():
    """A thread that waits for bytes sees the end once the breaker is cut."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        breaker = Breaker()
        breaker.hold(ours, Address("db"))
        cutter = threading.Timer(0.05, breaker.cut)
        cutter.start()

        assert ours.recv(1) == b""
        cutter.join()
        assert theirs.recv(1) == b""
        assert breaker.was_cut()


def test_after_a_cut_nothing_is_held():
    """A connection that arrives too late is refused."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        breaker = Breaker()
        breaker.cut()
        breaker.cut()

        with pytest.raises(ConnectionLost, match="db:3306 was closed meanwhile"):
            breaker.hold(ours, Address("db"))


def test_releasing_leaves_the_connection_alone():
    """A released connection is ended neither then nor by a later cut."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        breaker = Breaker()
        breaker.hold(ours, Address("db"))
        breaker.release()
        breaker.cut()
        ours.sendall(b"x")

        assert theirs.recv(1) == b"x"


def least(sock: socket.socket) -> int:
    """Return how many bytes a socket reports at least."""
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)


def test_bulk_reads() -> None:
    """Only while much arrives within a short time does a socket wait for a piece."""
    with socket.socket() as sock:
        bulk = BulkReads()
        bulk.note(sock, BULK_BYTES, 100.0)  # since when is not known
        assert least(sock) == 1
        bulk.note(sock, BULK_BYTES // 2, 100.0 + BULK_WINDOW_S / 4)
        assert least(sock) == 1
        bulk.note(sock, BULK_BYTES // 2, 100.0 + BULK_WINDOW_S / 2)
        assert least(sock) == BULK_PIECE
        bulk.note(sock, BULK_BYTES - 1, 100.0 + 2 * BULK_WINDOW_S)
        assert least(sock) == 1


def test_bulk_reads_end_with_nothing_at_hand() -> None:
    """Then the next byte is reported at once, and much has to arrive again."""
    with socket.socket() as sock:
        bulk = BulkReads()
        bulk.note(sock, 1, 100.0)
        bulk.note(sock, BULK_BYTES, 100.0)
        assert least(sock) == BULK_PIECE
        bulk.end(sock)
        assert least(sock) == 1
        bulk.note(sock, BULK_BYTES, 100.0)
        assert least(sock) == 1
