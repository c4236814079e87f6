"""The connection of the client that blocks: one socket, and a way to wake its wait."""

from __future__ import annotations

import contextlib
import select
import threading
import time
from typing import TYPE_CHECKING, Final

from canal_server.client.connection.client_link import Link
from canal_server.client.connection.interruption import Interrupt, Waker, never
from canal_server.protocol.framing import FRAME_BYTES_MAX

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator

    from canal_server.client.connection.server_addresses import Address


class BlockingConnection:
    """A `io_steps.Connection`; for one thread, but for `wake`."""

    def __init__(
        self, link: Link | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        """Begin without a connection, or with one that exists; `tls`: for new ones."""
        self._link = link
        self._tls = tls
        self._waker = Waker()
        self._late: _LateReader | None = None

    def __del__(self) -> None:
        # Of a client that nobody closed; its thread would keep the link open. It may be
        # the thread on which this runs.
        if self._late is not None:
            self._late.abandon()

    @property
    def link(self) -> Link:
        """The open connection. Raises ConnectionError without one."""
        if self._link is None:
            raise ConnectionError("not connected; call connect")
        return self._link

    def wake(self) -> None:
        """Interrupt a wait; from any thread and from signal handlers."""
        self._waker.wake()

    def connect(
        self,
        address: Address,
        timeout_s: float,
        gives_up: Callable[[], bool] = never,
    ) -> None:
        """Connect, after closing an earlier connection; see `io_steps.Connection`."""
        self.close()
        interrupt = Interrupt(self._waker, gives_up)
        self._link = Link(address.host, address.port, timeout_s, self._tls, interrupt)

    def send(self, data: bytes) -> None:
        """Send all of the data."""
        if self._late is None:
            self.link.send_frames(data)
        else:
            with self._late.paused():
                self.link.send_frames(data)

    def receive(
        self,
        timeout_s: float | None,
        limit: int = FRAME_BYTES_MAX,
        *,
        wakeable: bool = False,
    ) -> memoryview | None:
        """Wait for the next frame; see `io_steps.Connection`."""
        link = self.link
        if self._late is not None:
            frame = self._late.take()
            if frame is not None:
                return frame
        waker = self._waker if wakeable else None
        frame = link.receive_unless_woken(timeout_s, limit, waker)
        if frame is None:
            self._waker.clear()
        return frame

    def expect(self) -> None:
        """Announce that a frame will arrive before `receive` is called."""
        if self._late is None:
            self._late = _LateReader(self.link)
        self._late.expect()

    def finish(self, timeout_s: float) -> None:
        """Wait until the server has processed all requests, then close."""
        if self._link is not None:
            self._end_late_reader()
            self._link.finish(timeout_s)
            self._link = None

    def close(self) -> None:
        """Close at once."""
        if self._link is not None:
            self._end_late_reader()
            self._link.close()
            self._link = None

    def pause(self, seconds: float) -> None:
        """Wait; ends early when interrupted."""
        poll = select.poll()
        poll.register(self._waker.fileno(), select.POLLIN)
        if poll.poll(seconds * 1000):
            self._waker.clear()

    def call(self, work: Callable[[], object]) -> object:
        """Return the result of a function that blocks."""
        return work()

    def _end_late_reader(self) -> None:
        if self._late is not None:
            self._late.end()
            self._late = None


class _LateReader:
    """Receives an expected frame when the program does not come for it.

    The next message is requested before the program handles this one, so that it is in
    the buffers of the kernel when it is needed. If it does not fit in there and the
    program takes long, the server would wait with sending, and close the connection at
    last. So a thread receives it then. A program that is quick enough never meets it.
    """

    AFTER_S: Final = 1.0
    TIMEOUT_S: Final = 60.0  # for the frame; the server answers such requests at once

    def __init__(self, link: Link) -> None:
        self._link = link
        self._waker = Waker()  # ends a wait for data
        self._lock = threading.Lock()  # held by who uses the link
        self._ended = threading.Event()
        self._is_abandoned = False  # set where the event's lock may be held
        self._since: float | None = None
        self._frame: memoryview | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(
            target=self._run, name="canal client prefetch", daemon=True
        )
        self._thread.start()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Let the caller use the link; what has arrived of a frame is kept there."""
        if not self._lock.acquire(blocking=False):
            self._waker.wake()
            self._lock.acquire()
            self._waker.clear()
        try:
            yield
        finally:
            self._lock.release()

    def expect(self) -> None:
        """Note that a frame is under way."""
        with self.paused():
            self._since = time.monotonic()

    def take(self) -> memoryview | None:
        """Return the frame if it was received here; from now on the caller receives."""
        with self.paused():
            self._since = None
            frame, self._frame = self._frame, None
            error, self._error = self._error, None
        if error is not None:
            raise error
        return frame

    def abandon(self) -> None:
        """Have the thread end soon; from finalizers, which run anywhere."""
        self._is_abandoned = True
        self._waker.wake()

    def end(self) -> None:
        """Return when the thread does not use the link any more."""
        self._ended.set()
        self._waker.wake()
        with self._lock:
            self._since = None

    def _run(self) -> None:
        while not (self._ended.wait(self.AFTER_S) or self._is_abandoned):
            with self._lock:
                if (
                    self._since is not None
                    and time.monotonic() - self._since >= self.AFTER_S
                ):
                    self._receive()

    def _receive(self) -> None:
        try:
            self._frame = self._link.receive_unless_woken(
                self.TIMEOUT_S, FRAME_BYTES_MAX, self._waker
            )
        except Exception as error:  # noqa: BLE001  # raised where it is asked for
            self._error = error
        if self._frame is not None or self._error is not None:
            self._since = None
