"""Connections of the HTTP port: one that does not ask or read in time is closed.

Uvicorn waits without limit for a request to arrive, and for an answer to be read. It
refuses others when there are many connections: health checks would fail while somebody
holds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from canal_server.tls.certificate_names import names_of

if TYPE_CHECKING:
    import asyncio

REQUEST_S: Final = 10.0  # for the lines and headers of a request to arrive
READ_S: Final = 300.0  # for a peer to read some of an answer
SHUTDOWN_S: Final = 1.0  # the same while the server shuts down


class HttpConnection(H11Protocol):
    """A connection whose requests arrive within `REQUEST_S`."""

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
        super().connection_lost(exc)

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
