"""TLS over a client's socket, with the interface of a `Transport`.

OpenSSL works on memory, and the socket stays as it is: its time limits are the
kernel's, and another thread can end a wait. What is sent is encrypted in pieces of many
records, each piece sent by one system call. Leaves out whether a client begins with TLS
(`client_connection`) and certificates (`server_tls`).
"""

from __future__ import annotations

import contextlib
import ssl
from typing import TYPE_CHECKING, Final

from canal_server.errors import ProtocolError
from canal_server.runtime.lifecycle import Deadline
from canal_server.server.transport import RECEIVE_BYTES
from canal_server.tls.certificate_names import has_expired, names_of
from canal_server.tls.client_tls import in_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from canal_server.server.transport import Transport

HANDSHAKE_BYTE: Final = b"\x16"  # the first one of a client that begins with TLS
_RECORD_BYTES: Final = 16 * 1024
_PIECE_BYTES: Final = 8 * _RECORD_BYTES  # encrypted and sent at a time


class TlsTransport:
    """One accepted socket; for one thread, but for `shut_down`."""

    def __init__(self, transport: Transport, context: ssl.SSLContext) -> None:
        self._transport = transport
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.fileno = transport.fileno
        self.set_send_timeout = transport.set_send_timeout
        self.wait_for_close = transport.wait_for_close
        self.shut_down = transport.shut_down

    def handshake(self, deadline: Deadline) -> None:
        """Negotiate with the client.

        Raises ProtocolError if it cannot be, TimeoutError at the deadline, OSError when
        the connection broke.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                if not self._fill(deadline):
                    raise ConnectionResetError("closed during the handshake") from None
            except ssl.SSLError as error:
                with contextlib.suppress(OSError):  # it says why, if it still can
                    self._flush()
                raise ProtocolError(
                    f"TLS handshake failed: {in_words(error.reason)}"
                ) from error
            else:
                self._flush()
                break
        found = self._tls.getpeercert(binary_form=True)
        if found is not None and has_expired(found):
            raise ProtocolError("TLS handshake failed: certificate has expired")

    def certificate_names(self) -> tuple[str, ...]:
        """Return the names in the client's verified certificate, if it has one."""
        found = self._tls.getpeercert(binary_form=True)
        return () if found is None else names_of(found)

    def receive(self, timeout_s: float, bytes_max: int = RECEIVE_BYTES) -> bytes:
        """Wait for bytes and return them, b"" when the client has disconnected.

        Raises TimeoutError when none arrived in time, ProtocolError for what is no TLS,
        OSError when the connection broke.
        """
        deadline = Deadline(timeout_s)
        while True:
            try:
                return self._tls.read(bytes_max)
            except ssl.SSLWantReadError:
                self._flush()
            except ssl.SSLZeroReturnError:
                return b""
            except ssl.SSLError as error:
                raise ProtocolError(f"invalid TLS: {in_words(error.reason)}") from error
            # A connection that ends without a word of TLS loses nothing: a request has
            # a length.
            if not self._fill(deadline):
                return b""

    def send(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Send all bytes of the buffers; raises as `Transport.send` does."""
        for piece in _pieces(buffers):
            self._tls.write(piece)
            if self._outgoing.pending >= _PIECE_BYTES:
                self._flush()
        self._flush()

    def close(self) -> None:
        """Close the socket, with a word of TLS if the client can have it at once."""
        # The first half of the exchange; the other half is not waited for.
        with contextlib.suppress(OSError, ValueError):
            self._tls.unwrap()
        with contextlib.suppress(OSError):
            self._transport.send_at_once(self._outgoing.read())
        self._transport.close()

    def _fill(self, deadline: Deadline) -> bool:
        """Receive encrypted bytes; false when the client has disconnected."""
        left_s = deadline.remaining_s()
        assert left_s is not None
        if left_s == 0:
            raise TimeoutError("the client sends TLS too slowly")
        data = self._transport.receive(left_s)
        self._incoming.write(data)
        return bool(data)

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._transport.send((self._outgoing.read(),))


def _pieces(buffers: Sequence[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Yield the buffers, the small ones joined and the large ones cut."""
    small = bytearray()
    for buffer in buffers:
        if len(buffer) < _RECORD_BYTES:
            small += buffer
            if len(small) >= _RECORD_BYTES:
                yield bytes(small)
                small.clear()
            continue
        if small:
            yield bytes(small)
            small.clear()
        whole = memoryview(buffer)
        for start in range(0, len(whole), _PIECE_BYTES):
            yield whole[start : start + _PIECE_BYTES]
    if small:
        yield bytes(small)
