"""A client's TCP connection: packets out, packets in, with a deadline."""

from __future__ import annotations

import contextlib
import select
import socket
from typing import TYPE_CHECKING

from canal_server.client.connection.frame_buffer import FrameBuffer
from canal_server.client.connection.interruption import Interrupt, Waker, never
from canal_server.client.connection.socket_opening import open_socket
from canal_server.protocol.framing import (
    FRAME_BYTES_MAX,
    LENGTH_BYTES,
    frame,
    frame_length,
)
from canal_server.protocol.packets import Packet, PacketType, encode_packet
from canal_server.protocol.protobuf import decode
from canal_server.runtime.lifecycle import Deadline
from canal_server.tls.client_tls import raise_failure

if TYPE_CHECKING:
    import ssl
    from typing import Self

_DROPPED_BYTES = 65536  # at a time
_POLL_MS_MAX = 2**31 - 1  # 24 days


class Link:
    """One connection; for one thread.

    All methods raise ConnectionError if the server closed the connection, TimeoutError
    if an answer takes too long, and other OSErrors if the network fails. After an error
    the stream may end inside a packet: close the link.
    """

    def __init__(
        self,
        host: str,
        port: int,
        timeout_s: float,
        tls: ssl.SSLContext | None = None,
        interrupt: Interrupt | None = None,
    ) -> None:
        """Connect; raises InterruptedError if that is interrupted."""
        self._timeout_s = timeout_s  # to connect, and to send a request
        self._server = f"{host}:{port}"
        interrupt = interrupt or Interrupt(Waker(), never)
        self._sock = open_socket(host, port, timeout_s, interrupt)
        # The frame that is being received: its length, its body, and how much of the
        # one that is not complete is there.
        self._head = bytearray(LENGTH_BYTES)
        self._body: FrameBuffer | None = None
        self._filled = 0
        # What receiving raises when it would block, and what to wait for then.
        self._would_block: dict[type[OSError], int] = {BlockingIOError: select.POLLIN}
        if tls is not None:
            # Most programs have no need of it.
            from canal_server.client.connection.tls_opening import (  # noqa: PLC0415
                WOULD_BLOCK,
                encrypt,
            )

            self._would_block = WOULD_BLOCK
            try:
                self._sock = encrypt(self._sock, tls, host, timeout_s, interrupt)
            except OSError as error:
                raise_failure(self._server, error)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def send(self, kind: PacketType, content: object) -> None:
        """Send one packet with a message of `protocol.packets`."""
        self.send_frames(frame(encode_packet(kind, content)))

    def send_frames(self, data: bytes) -> None:
        """Send complete frames."""
        self._sock.settimeout(self._timeout_s)
        self._sock.sendall(data)

    def receive(self, timeout_s: float | None, limit: int = FRAME_BYTES_MAX) -> Packet:
        """Wait for the next packet; None waits without limit.

        Raises ProtocolError if the data is not a packet, or longer than `limit` bytes.
        """
        return decode(Packet, bytes(self.receive_frame(timeout_s, limit)))

    def receive_frame(
        self, timeout_s: float | None, limit: int = FRAME_BYTES_MAX
    ) -> memoryview:
        """Wait for the next frame and return its body, undecoded."""
        frame = self.receive_unless_woken(timeout_s, limit, None)
        assert frame is not None, "nothing wakes it"
        return frame

    def receive_unless_woken(
        self, timeout_s: float | None, limit: int, waker: Waker | None
    ) -> memoryview | None:
        """Wait for the next frame, for so long before it and again within it.

        None if the waker ended a wait; what has arrived is kept for the next call.
        """
        if self._body is None:
            if not self._fill(memoryview(self._head), Deadline(timeout_s), waker):
                return None
            self._body = FrameBuffer(frame_length(bytes(self._head), limit))
            self._filled = 0
        body = memoryview(self._body)
        if not self._fill(body, Deadline(timeout_s), waker):
            return None
        self._body, self._filled = None, 0
        return body.toreadonly()

    def close(self) -> None:
        """Close the connection; may be called again, and from another thread."""
        with contextlib.suppress(OSError):  # it is closed already
            # Wakes a thread that receives; as the method of `SSLSocket` does not.
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)
        self._sock.close()

    def finish(self, timeout_s: float) -> None:
        """Wait until the server has processed all requests, then close.

        For requests without an answer: a server reads all data before it sees the end
        of our stream, and then closes its own. Received answers are discarded. Never
        raises; after `timeout_s` it just closes.
        """
        deadline = Deadline(timeout_s)
        try:
            socket.socket.shutdown(self._sock, socket.SHUT_WR)
            while left_s := deadline.remaining_s():
                self._sock.settimeout(left_s)
                if not self._sock.recv(_DROPPED_BYTES):
                    break
        except OSError:
            pass  # closed, or no answer
        finally:
            self._sock.close()

    def _fill(self, data: memoryview, deadline: Deadline, waker: Waker | None) -> bool:
        """Receive the rest of what `_filled` counts; false if woken before."""
        self._sock.settimeout(0)
        while self._filled < len(data):
            try:
                count = self._sock.recv_into(data[self._filled :])
            except tuple(self._would_block) as error:
                if not self._wait(self._would_block[type(error)], deadline, waker):
                    return False
                continue
            except OSError as error:
                raise_failure(self._server, error)
            if not count:
                raise ConnectionResetError(f"{self._server} closed the connection")
            self._filled += count
        return True

    def _wait(self, events: int, deadline: Deadline, waker: Waker | None) -> bool:
        """Wait until these events happen; false if woken before."""
        poll = select.poll()
        poll.register(self._sock, events)
        if waker is not None:
            poll.register(waker, select.POLLIN)
        left_s = deadline.remaining_s()
        ready = poll.poll(None if left_s is None else min(left_s * 1000, _POLL_MS_MAX))
        if not ready:
            raise TimeoutError(f"no answer from {self._server} within the timeout")
        return waker is None or all(fd != waker.fileno() for fd, _ in ready)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
