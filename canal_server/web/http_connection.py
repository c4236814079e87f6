"""Connections of the HTTP port: one that does not ask or read in time is closed.

Uvicorn waits without limit for a request to arrive, and for an answer to be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from uvicorn.protocols.http.h11_impl import H11Protocol

from canal_server.tls.certificate_names import names_of

if TYPE_CHECKING:
    import asyncio

REQUEST_S: Final = 10.0  # for the lines and headers of a request to arrive
READ_S: Final = 300.0  # for a peer to read some of an answer
SHUTDOWN_S: Final = 1.0  # the same while the server shuts down


class Counted(Protocol):
    """A connection as the limits of the port know it."""

    def is_asking(self, *, asks: bool) -> None:
        """Note that a request has arrived, or was answered."""

    def end(self) -> None:
        """Note that the connection was lost."""


class HttpConnection(H11Protocol):
    """A connection whose requests arrive within `REQUEST_S`."""

    counted: Counted | None = None
    _last_cycle: Any = None
    _request_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None  # while the peer does not read

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        certificate = None if tls is None else tls.getpeercert(binary_form=True)
        if certificate is not None:  # it was verified
            names = names_of(certificate)
            self.app_state = {**self.app_state, "certificate_names": names}
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching."""
        for timer in (self._request_timer, self._read_timer):
            if timer is not None:
                timer.cancel()
        if self.counted is not None:
            self.counted.end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read requests, and note when one has arrived."""
        super().data_received(data)
        self._note_request()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request, unless it is here already."""
        super().on_response_complete()
        self._note_request()

    def _note_request(self) -> None:
        """Note whether a request is being answered, or the next one is waited for."""
        if self.counted is not None:
            cycle = self.cycle
            asks = cycle is not None and not cycle.response_complete
            self.counted.is_asking(asks=asks)

    def pause_writing(self) -> None:
        """Begin to wait for the peer to read."""
        super().pause_writing()
        self._abort_in(READ_S)

    def resume_writing(self) -> None:
        """Stop waiting: the peer has read."""
        super().resume_writing()
        if self._read_timer is not None:
            self._read_timer.cancel()

    def shutdown(self) -> None:
        """Complete the answer, if the peer reads it."""
        super().shutdown()
        self._abort_in(SHUTDOWN_S)

    def _abort_in(self, seconds: float) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
        self._read_timer = self.loop.call_later(seconds, self._abort_if_unread)

    def _abort_if_unread(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def _watch(self) -> None:
        self._request_timer = self.loop.call_later(REQUEST_S, self._close_if_silent)

    def _close_if_silent(self) -> None:
        """Close if no request has arrived since the last look, and none is answered."""
        cycle, before = self.cycle, self._last_cycle
        self._last_cycle = cycle
        is_idle = cycle is None or cycle.response_complete
        if is_idle and cycle is before:
            self.transport.close()
        else:
            self._watch()
