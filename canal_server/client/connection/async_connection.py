"""The connection of the asyncio client: its frames, and a way to wake its wait."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from canal_server.client.connection.frame_protocol import FrameProtocol
from canal_server.client.connection.interruption import never, raise_if
from canal_server.protocol.framing import FRAME_BYTES_MAX
from canal_server.runtime.lifecycle import Deadline
from canal_server.tls.client_tls import raise_failure

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable

    from canal_server.client.connection.server_addresses import Address


class AsyncConnection:
    """As `io_steps.Connection`, with coroutines; for one task, but for `wake`."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._protocol: FrameProtocol | None = None
        self._server = ""
        self._send_timeout_s = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_woken = False
        self._waiter: asyncio.Future[None] | None = None  # of the task that waits
        self._late: asyncio.Future[memoryview] | None = None  # receives ahead

    def wake(self) -> None:
        """Interrupt a wait; from any thread and from signal handlers."""
        if self._loop is not None:
            # The loop may be closed: then nobody waits.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake_waiter)

    def _wake_waiter(self) -> None:
        self._is_woken = True
        if self._waiter is not None:
            _end(self._waiter)

    def _take_wake(self) -> bool:
        is_woken, self._is_woken = self._is_woken, False
        return is_woken

    async def connect(
        self,
        address: Address,
        timeout_s: float,
        gives_up: Callable[[], bool] = never,
    ) -> None:
        """Connect, after closing an earlier connection; see `io_steps.Connection`."""
        await self.close()
        self._loop = asyncio.get_running_loop()
        self._server, self._send_timeout_s = str(address), timeout_s
        connecting = asyncio.ensure_future(self._open_protocol(address))
        deadline = Deadline(timeout_s)
        try:
            while not connecting.done() and not deadline.passed():
                await self._wait(connecting, deadline.remaining_s(), wakeable=True)
                if self._take_wake():
                    raise_if(gives_up)
        except BaseException:  # also a cancellation
            if not connecting.cancel() and not connecting.cancelled():
                _abort(connecting)
            raise
        if not connecting.done():
            connecting.cancel()
            raise TimeoutError(f"cannot connect to {address} within the timeout")
        try:
            self._protocol = connecting.result()
        except OSError as error:
            raise_failure(self._server, error)

    async def _open_protocol(self, address: Address) -> FrameProtocol:
        _, protocol = await asyncio.get_running_loop().create_connection(
            lambda: FrameProtocol(str(address)),
            address.host,
            address.port,
            ssl=self._tls,
        )
        return protocol

    async def send(self, data: bytes) -> None:
        """Send all of the data."""
        protocol = self._open()
        if protocol.send(data):
            return
        async with _limit(self._send_timeout_s, f"{self._server} accepts no data"):
            await protocol.sent()

    async def receive(
        self, timeout_s: float | None, limit: int, *, wakeable: bool
    ) -> memoryview | None:
        """Wait for the next frame; see `io_steps.Connection`."""
        late, self._late = self._late, None
        if late is None:
            late = self._begin_to_receive(limit)
        if not late.done():
            try:
                await self._wait(late, timeout_s, wakeable=wakeable)
            except BaseException:  # also a cancellation
                late.cancel()
                raise
        if late.done():
            return late.result()
        if wakeable and self._take_wake():
            self._late = late
            return None
        late.cancel()
        raise TimeoutError(f"no answer from {self._server} within the timeout")

    async def expect(self) -> None:
        """Receive a frame while the program does other things."""
        if self._late is None:
            self._late = self._begin_to_receive(FRAME_BYTES_MAX)

    async def finish(self, timeout_s: float) -> None:
        """Wait until the server has processed all requests, then close."""
        if self._protocol is not None:
            self._end_late()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._protocol.drain_to_end()
        await self.close()

    async def close(self) -> None:
        """Close at once."""
        self._end_late()
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            # Does not wait for a server that accepts no data, so that it works in a
            # task that was cancelled.
            protocol.abort()

    async def pause(self, seconds: float) -> None:
        """Wait; ends early when interrupted."""
        await self._wait(None, seconds, wakeable=True)
        self._is_woken = False

    async def call(self, work: Callable[[], object]) -> object:
        """Return the result of a function that blocks, called in a thread."""
        self._loop = asyncio.get_running_loop()
        return await asyncio.to_thread(work)

    def _open(self) -> FrameProtocol:
        if self._protocol is None:
            raise ConnectionError("not connected; call connect")
        return self._protocol

    def _end_late(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _begin_to_receive(self, limit: int) -> asyncio.Future[memoryview]:
        frame = self._open().receive(limit)
        frame.add_done_callback(_look_at_error)
        return frame

    async def _wait(
        self,
        frame: asyncio.Future[Any] | None,
        timeout_s: float | None,
        *,
        wakeable: bool,
    ) -> None:
        """Wait for a future, for `wake` if it may, or until the time is over."""
        # Quicker than `asyncio.wait`, which takes a task for `wake`.
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()

        def end(_: object = None) -> None:
            _end(waiter)

        timer = None if timeout_s is None else loop.call_later(timeout_s, end)
        if frame is not None:
            frame.add_done_callback(end)
        if wakeable:
            self._waiter = waiter
            if self._is_woken:
                end()
        try:
            await waiter
        finally:
            self._waiter = None
            if frame is not None:
                frame.remove_done_callback(end)
            if timer is not None:
                timer.cancel()


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _abort(opened: asyncio.Future[FrameProtocol]) -> None:
    """Close the connection of an attempt that succeeded when nobody waited for it."""
    if opened.exception() is None:
        opened.result().abort()


def _look_at_error(frame: asyncio.Future[memoryview]) -> None:
    """Keep asyncio from reporting the error of a frame that nobody waits for."""
    if not frame.cancelled():
        frame.exception()


@contextlib.asynccontextmanager
async def _limit(seconds: float, text: str) -> AsyncIterator[None]:
    """Raise TimeoutError with a text after so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise TimeoutError(text) from None
