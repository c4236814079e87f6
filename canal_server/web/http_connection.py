"""Connections of the HTTP port: one that does not ask in time is closed.

Uvicorn waits without limit for a request to arrive, and refuses others when there are
many connections: health checks would fail while somebody holds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

REQUEST_S: Final = 10.0  # for the lines and headers of a request to arrive


class HttpConnection(H11Protocol):
    """A connection whose requests arrive within `REQUEST_S`."""

    _last_cycle: Any = None
    _request_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching."""
        if self._request_timer is not None:
            self._request_timer.cancel()
        super().connection_lost(exc)

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
