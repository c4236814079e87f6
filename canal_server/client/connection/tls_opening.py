"""Begins TLS over a connection so that `stop` ends the attempt."""

from __future__ import annotations

import select
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from canal_server.runtime.lifecycle import Deadline

if TYPE_CHECKING:
    import socket

    from canal_server.client.connection.interruption import Interrupt

# What TLS raises when it would block, and what to wait for then.
WOULD_BLOCK: Final[dict[type[OSError], int]] = {
    ssl.SSLWantReadError: select.POLLIN,
    ssl.SSLWantWriteError: select.POLLOUT,
}


def encrypt(
    sock: socket.socket,
    context: ssl.SSLContext,
    host: str,
    timeout_s: float,
    interrupt: Interrupt,
) -> ssl.SSLSocket:
    """Begin TLS over a connection, which is closed if that fails. Raises OSError."""
    deadline = Deadline(timeout_s)
    encrypted: socket.socket = sock
    try:
        found = context.wrap_socket(
            sock, server_hostname=host, do_handshake_on_connect=False
        )
        encrypted = found
        found.setblocking(False)
        while (events := _handshake(found)) is not None:
            interrupt.wait(found, events, deadline)
    except BaseException:
        with suppress(OSError):
            encrypted.close()
        raise
    return found


def _handshake(sock: ssl.SSLSocket) -> int | None:
    """Go on with a handshake; return the event that it waits for, None: it is done."""
    try:
        sock.do_handshake()
    except tuple(WOULD_BLOCK) as error:
        return WOULD_BLOCK[type(error)]
    return None
