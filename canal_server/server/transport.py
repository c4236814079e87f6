"""Bytes to and from one client's socket, with timeouts enforced by the kernel.

The sockets stay in blocking mode: a reply of some megabytes is one system call, and
so is reading a request. The limits are SO_RCVTIMEO and SO_SNDTIMEO; another thread
ends a wait with `shut_down`.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_TIMEVAL = struct.Struct("@ll")  # seconds, microseconds
RECEIVE_BYTES = 64 * 1024
_IOV_MAX = os.sysconf("SC_IOV_MAX")  # buffers in one sendmsg

# The kernel keeps this much for a client that reads nothing, not the 4 MiB to which it
# lets a socket grow: some hundred such clients would fill its memory for TCP.
_UNSENT_BYTES = 256 * 1024
# A peer that vanished silently is noticed after about two minutes.
_KEEPALIVE_IDLE_S, _KEEPALIVE_INTERVAL_S, _KEEPALIVE_PROBES = 60, 10, 6


class Transport:
    """One accepted socket. Closed by its owner; see `shut_down` for other threads."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._receive_timeout_s = 0.0  # as last set in the kernel; 0: no limit
        sock.setblocking(True)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            (socket.TCP_NODELAY, 1),
            (socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES),
            (socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE_S),
            (socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL_S),
            (socket.TCP_KEEPCNT, _KEEPALIVE_PROBES),
        ):
            sock.setsockopt(socket.IPPROTO_TCP, option, value)

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
        return self._sock.fileno()

    def receive(self, timeout_s: float, bytes_max: int = RECEIVE_BYTES) -> bytes:
        """Wait for bytes and return them, b"" when the client has disconnected.

        Raises TimeoutError when none arrived in time, OSError when the connection
        broke.
        """
        if timeout_s != self._receive_timeout_s:
            self._set_timeout(socket.SO_RCVTIMEO, timeout_s)
            self._receive_timeout_s = timeout_s
        try:
            return self._sock.recv(bytes_max)
        except BlockingIOError:
            raise TimeoutError(f"nothing received for {timeout_s:g} s") from None

    def first_byte(self, timeout_s: float) -> bytes:
        """Return the first byte that the client sends, without receiving it.

        It is b"" if none arrives in time, or if the client has disconnected.
        """
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        if not poll.poll(timeout_s * 1000):
            return b""
        return self._sock.recv(1, socket.MSG_PEEK)

    def set_send_timeout(self, timeout_s: float) -> None:
        """Limit how long `send` waits for the client to accept any byte."""
        self._set_timeout(socket.SO_SNDTIMEO, timeout_s)
        self._send_timeout_s = timeout_s

    def send(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Send all bytes of the buffers.

        Raises TimeoutError when the client accepts nothing for the time set, OSError
        when the connection broke; some of the bytes may have been sent then.
        """
        first = 0  # index of the buffer with the next byte
        while first < len(buffers):
            window = buffers[first : first + _IOV_MAX]
            try:
                sent = self._sock.sendmsg(window)
            except BlockingIOError:
                raise TimeoutError(
                    f"the client accepted no data for {self._send_timeout_s:g} s"
                ) from None
            # Usually everything was sent; otherwise find where to continue.
            for buffer in window:
                size = len(buffer)
                if sent < size:
                    buffers = (memoryview(buffer)[sent:], *buffers[first + 1 :])
                    first = 0
                    break
                sent -= size
                first += 1

    def send_at_once(self, data: bytes) -> None:
        """Send what fits, without waiting. Raises OSError."""
        self._sock.send(data, socket.MSG_DONTWAIT)

    def wait_for_close(self, timeout_s: float) -> bool:
        """Wait for this time, or until the client disconnects, or `shut_down`.

        Returns whether it ended before the time.
        """
        poll = select.poll()
        poll.register(self._sock, select.POLLRDHUP)
        return bool(poll.poll(timeout_s * 1000))

    def shut_down(self) -> None:
        """End every wait on this socket; from any thread, while it is not closed."""
        with contextlib.suppress(OSError):  # the client disconnected first
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()

    def _set_timeout(self, option: int, timeout_s: float) -> None:
        # At least a microsecond: 0 would mean no limit.
        microseconds = max(1, int(timeout_s * 1e6))
        self._sock.setsockopt(
            socket.SOL_SOCKET, option, _TIMEVAL.pack(*divmod(microseconds, 1_000_000))
        )
