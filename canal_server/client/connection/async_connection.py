"""The connection of the asyncio client: a stream, and a way to wake its wait."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from canal_server.protocol.framing import (
    FRAME_BYTES_MAX,
    LENGTH_BYTES,
    frame_length,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from canal_server.client.connection.server_addresses import Address

# Bytes that the stream reads ahead. The next message is received while the program
# handles this one; a larger one is received in part.
_AHEAD_BYTES: Final = 8 * 1024 * 1024
_DROPPED_BYTES: Final = 65536


class AsyncConnection:
    """As `io_steps.Connection`, with coroutines; for one task, but for `wake`."""

    def __init__(self) -> None:
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._server = ""
        self._send_timeout_s = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        self._late: asyncio.Task[memoryview] | None = None  # receives ahead

    def wake(self) -> None:
        """Interrupt a wait; from any thread and from signal handlers."""
        if self._loop is not None:
            # The loop may be closed: then nobody waits.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._woken.set)

    async def connect(self, address: Address, timeout_s: float) -> None:
        """Connect, after closing an earlier connection."""
        await self.close()
        self._loop = asyncio.get_running_loop()
        self._server, self._send_timeout_s = str(address), timeout_s
        async with _limit(timeout_s, f"cannot connect to {address} within the timeout"):
            self._reader, self._writer = await asyncio.open_connection(
                address.host, address.port, limit=_AHEAD_BYTES // 2
            )

    async def send(self, data: bytes) -> None:
        """Send all of the data."""
        _, writer = self._open()
        writer.write(data)
        async with _limit(self._send_timeout_s, f"{self._server} accepts no data"):
            await writer.drain()

    async def receive(
        self, timeout_s: float | None, limit: int, *, wakeable: bool
    ) -> memoryview | None:
        """Wait for the next frame; see `io_steps.Connection`."""
        late, self._late = self._late, None
        if late is None:
            late = self._begin_to_receive(limit)
        try:
            if not wakeable:
                await asyncio.wait((late,), timeout=timeout_s)
            elif not await self._wait_or_wake(late, timeout_s):
                self._late = late
                return None
        except BaseException:  # also a cancellation
            late.cancel()
            raise
        if late.done():
            return late.result()
        late.cancel()
        raise TimeoutError(f"no answer from {self._server} within the timeout")

    async def expect(self) -> None:
        """Receive a frame while the program does other things."""
        if self._late is None:
            self._late = self._begin_to_receive(FRAME_BYTES_MAX)

    async def finish(self, timeout_s: float) -> None:
        """Wait until the server has processed all requests, then close."""
        if self._writer is not None:
            late = self._late
            self._end_late()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(timeout_s):
                    if late is not None:
                        await asyncio.wait((late,))  # two must not read at once
                    await self._drain_to_end(*self._open())
        await self.close()

    async def _drain_to_end(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await writer.drain()
        writer.write_eof()
        while await reader.read(_DROPPED_BYTES):
            pass

    async def close(self) -> None:
        """Close at once."""
        self._end_late()
        writer, self._writer, self._reader = self._writer, None, None
        if writer is not None:
            # Not `close`, which would wait for a server that accepts no data. Does
            # not wait itself, so that it works in a task that was cancelled.
            writer.transport.abort()

    async def pause(self, seconds: float) -> None:
        """Wait; ends early when interrupted."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        self._woken.clear()

    async def call(self, work: Callable[[], object]) -> object:
        """Return the result of a function that blocks, called in a thread."""
        self._loop = asyncio.get_running_loop()
        return await asyncio.to_thread(work)

    def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._reader is None or self._writer is None:
            raise ConnectionError("not connected; call connect")
        return self._reader, self._writer

    def _end_late(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _begin_to_receive(self, limit: int) -> asyncio.Task[memoryview]:
        task = asyncio.create_task(self._receive_frame(limit))
        task.add_done_callback(_look_at_error)
        return task

    async def _receive_frame(self, limit: int) -> memoryview:
        reader, _ = self._open()
        try:
            length = frame_length(await reader.readexactly(LENGTH_BYTES), limit)
            return memoryview(await reader.readexactly(length))
        except asyncio.IncompleteReadError:
            raise ConnectionResetError(
                f"{self._server} closed the connection"
            ) from None

    async def _wait_or_wake(
        self, frame: asyncio.Task[memoryview], timeout_s: float | None
    ) -> bool:
        """Wait for a frame; false if `wake` was called before it was there."""
        if frame.done():
            return True
        woken = asyncio.create_task(self._woken.wait())
        try:
            await asyncio.wait(
                (frame, woken), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            woken.cancel()
        if frame.done() or not self._woken.is_set():
            return True
        self._woken.clear()
        return False


def _look_at_error(task: asyncio.Task[memoryview]) -> None:
    """Keep asyncio from reporting the error of a task that nobody waits for."""
    if not task.cancelled():
        task.exception()


@contextlib.asynccontextmanager
async def _limit(seconds: float, text: str) -> AsyncIterator[None]:
    """Raise TimeoutError with a text after so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise TimeoutError(text) from None
