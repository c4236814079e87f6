"""Servers that answer logins as a test requires, and accounts on real ones."""

from __future__ import annotations

import socket
import threading
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

from canal_server.mysql.login_session import Session
from canal_server.mysql.sockets import Breaker

if TYPE_CHECKING:
    from canal_server.mysql.source_settings import Access


def session(access: Access) -> Session:
    """Log in."""
    return Session(access, Breaker(), None)


@contextmanager
def account(server, name: str, identified: str, *grants: str):
    """Have an account on a server."""
    server.execute(f"CREATE USER '{name}'@'%' {identified}", *grants)
    try:
        yield
    finally:
        server.execute(f"DROP USER '{name}'@'%'")


@contextmanager
def fake_server(
    *answers: bytes, heard: list[bytes] | None = None, host: str = "127.0.0.1"
):
    """Give the port of a listener that sends these bytes, each after a packet."""

    def serve() -> None:
        # A client that refuses what it got may reset the connection.
        with closing(listener.accept()[0]) as peer, suppress(ConnectionError):
            for answer in answers:
                peer.sendall(answer)
                received = peer.recv(1 << 16)
                if heard is not None:
                    heard.append(received)
                if not received:
                    return

    with socket.create_server((host, 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            thread.join()


def packet(number: int, payload: bytes) -> bytes:
    """Return a packet with its header."""
    return len(payload).to_bytes(3, "little") + bytes([number]) + payload


SALT = b"01234567890123456789"


def greeting(
    plugin: bytes = b"mysql_native_password", *, with_tls: bool = False
) -> bytes:
    """Return the first packet of a server, which offers TLS or does not."""
    salt = SALT
    offered = b"\x00\xaa" if with_tls else b"\x00\xa2"
    return packet(
        0,
        b"\x0a9.9.9\0\x01\0\0\0" + salt[:8] + b"\0" + offered + b"\x2d\x02\x00\x08\x00"
        b"\x15" + bytes(10) + salt[8:] + b"\0" + plugin + b"\0",
    )  # fmt: skip
