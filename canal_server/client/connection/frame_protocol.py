"""Frames on asyncio: each is received once, into memory of its own.

The streams of asyncio would copy each frame three times, which costs as much as making
changes of it.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final, cast

from canal_server.client.connection.frame_buffer import FrameBuffer
from canal_server.protocol.framing import LENGTH_BYTES, frame_length

_DROPPED_BYTES: Final = 65536  # at a time


class FrameProtocol(asyncio.BufferedProtocol):
    """The receiving end of a connection, for one frame at a time.

    A frame is received when it is asked for; before that, its length at most.
    """

    def __init__(self, server: str) -> None:
        """Set the name of the server, for errors."""
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._length = bytearray(LENGTH_BYTES)
        self._body: memoryview | None = None  # of the frame at hand
        self._rest = memoryview(self._length)  # what is received next
        self._frame: asyncio.Future[memoryview] | None = None
        self._limit = 0
        self._drops = False  # whatever arrives
        self._writable = asyncio.Event()
        self._ended = asyncio.Event()
        self._error: Exception | None = None

    # --- what a connection does ---------------------------------------------------

    def receive(self, limit: int) -> asyncio.Future[memoryview]:
        """Return a future of the body of the next frame, of so many bytes at most.

        It ends with ProtocolError if the frame is longer, with OSError if the
        connection ends. The earlier future has to be done; if it was cancelled, its
        frame is the next one's.
        """
        frame = self._frame = asyncio.get_running_loop().create_future()
        self._limit = limit
        if self._error is not None:
            frame.set_exception(self._error)
        elif not self._rest:
            self._go_on()
            self._open().resume_reading()
        return frame

    def send(self, data: bytes) -> bool:
        """Send; false if `sent` has to be awaited. Raises OSError."""
        self._raise_error()
        transport = self._open()
        transport.write(data)
        return self._writable.is_set() and not transport.is_closing()

    async def sent(self) -> None:
        """Wait while the server does not receive. Raises OSError."""
        if self._open().is_closing():
            await asyncio.sleep(0)  # until `connection_lost` is called
        await self._writable.wait()
        self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    async def drain_to_end(self) -> None:
        """Send nothing more, and drop what arrives until the server closes."""
        await self.sent()
        self._drops = True
        transport = self._open()
        if transport.can_write_eof():
            transport.write_eof()
        else:  # TLS: the end of the connection below is as good, as frames have lengths
            transport.get_extra_info("socket").shutdown(socket.SHUT_WR)
        transport.resume_reading()
        await self._ended.wait()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def _open(self) -> asyncio.Transport:
        assert self._transport is not None, "is set before a connection is returned"
        return self._transport

    # --- what asyncio calls -------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self._writable.set()

    def get_buffer(self, sizehint: int) -> memoryview | bytearray:  # noqa: ARG002  # asyncio's
        """Return where to receive."""
        if self._drops:
            return bytearray(_DROPPED_BYTES)
        return self._rest

    def buffer_updated(self, nbytes: int) -> None:
        """Go on after so many bytes."""
        if self._drops:
            return
        self._rest = self._rest[nbytes:]
        if not self._rest:
            if self._frame is None or self._frame.done():
                self._open().pause_reading()
            else:
                self._go_on()

    def _go_on(self) -> None:
        """Go on after the length, or the body, of a frame that is waited for."""
        frame = self._frame
        assert frame is not None, "it is waited for"
        if self._body is None:
            try:
                length = frame_length(self._length, self._limit)
                self._rest = self._body = memoryview(FrameBuffer(length))
            except Exception as error:  # noqa: BLE001  # is raised where it is awaited
                self._drops = True  # what follows is no frame
                frame.set_exception(error)
                return
        if not self._rest:
            frame.set_result(self._body.toreadonly())
            self._body = None
            self._rest = memoryview(self._length)

    def pause_writing(self) -> None:
        """Let senders wait."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let senders continue."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """End what waits."""
        self._error = exc or ConnectionResetError(
            f"{self._server} closed the connection"
        )
        if self._frame is not None and not self._frame.done():
            self._frame.set_exception(self._error)
        self._writable.set()
        self._ended.set()
