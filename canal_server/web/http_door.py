"""Where connections of the HTTP port begin: each is admitted, then TLS is negotiated.

::

    accepted ─► Door ─► limits ─► TLS, if there is any ─► HttpConnection

Uvicorn would count only those whose TLS is complete, and answer 503 to everybody while
there are too many.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from canal_server.runtime.port_connections import PortConnections
    from canal_server.web.http_connection import HttpConnection

HANDSHAKE_S: Final = 10.0  # of TLS
_BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\n"
    b"Connection: close\r\nContent-Length: 0\r\n\r\n"
)


class Door(asyncio.Protocol):
    """One connection, until it is one of HTTP; and what closes it later."""

    def __init__(
        self,
        make: Callable[[], HttpConnection],
        context: ssl.SSLContext | None,
        connections: PortConnections[Door],
    ) -> None:
        self._make = make
        self._context = context
        self._connections = connections
        self._raw: asyncio.Transport | None = None  # below TLS
        self._handshake: asyncio.Task[None] | None = None
        self._early = bytearray()  # that came with the end of the handshake
        self._is_lost = False

    # --- called by the event loop -----------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit the connection, or close it."""
        self._raw = transport
        host, port = (transport.get_extra_info("peername") or ("?", 0))[:2]
        if self._connections.admit(self, host, f"{host}:{port}"):
            if self._context is None:
                transport.write(_BUSY)
                transport.close()
            else:
                transport.abort()
        elif self._context is None:
            self._hand_over(transport)
        else:
            transport.pause_reading()  # nothing comes before TLS begins
            self._handshake = asyncio.get_running_loop().create_task(
                self._negotiate(transport, self._context)
            )

    def data_received(self, data: bytes) -> None:
        """Keep the first bytes of a request, which are limited by a record of TLS."""
        if not self._raw_is_closing():
            self._early += data

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Forget the connection."""
        self._is_lost = True
        self.end()

    # --- called by the connection, and by the limits ----------------------------------

    def abort(self) -> None:
        """Close the connection at once, for another one."""
        assert self._raw is not None, "it was admitted"
        self._raw.abort()

    def end(self) -> None:
        """Note that the connection was lost."""
        self._connections.remove(self)

    def is_asking(self, *, asks: bool) -> None:
        """Note that a request has arrived, or was answered."""
        self._connections.is_asking(self, asks=asks)

    def _raw_is_closing(self) -> bool:
        return self._raw is None or self._raw.is_closing()

    async def _negotiate(
        self, transport: asyncio.Transport, context: ssl.SSLContext
    ) -> None:
        """Negotiate TLS; a peer that does not begin it holds no connection."""
        loop = asyncio.get_running_loop()
        try:
            encrypted: Any = await loop.start_tls(
                transport,
                self,
                context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_S,
            )
        except OSError:  # of the peer alone, TLS's errors included
            self.end()
            return
        except BaseException:
            self.end()
            raise
        if encrypted is None or self._is_lost or encrypted.is_closing():
            self.end()
            return
        self._hand_over(encrypted)

    def _hand_over(self, transport: asyncio.Transport) -> None:
        """Let the connection be one of HTTP."""
        http = self._make()
        http.counted = self
        transport.set_protocol(http)
        http.connection_made(transport)
        if self._early:
            http.data_received(bytes(self._early))
            self._early.clear()
