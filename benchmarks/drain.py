"""A client that takes batches as fast as they come and reads nothing of them.

Of a frame it looks at the first bytes, for the batch id, and at the last ones, for the
text by which a load ends. It knows as much of canal's protocol as that needs.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from canal_server.protocol.packets import (
    ClientAck,
    ClientAuth,
    ClientRollback,
    Get,
    PacketType,
    Sub,
    encode_packet,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

CLIENT_ID = "1001"
BATCH_SIZE = 4096
WAIT_MS = 100
UNIT_MS = 2
HEAD_BYTES = 64  # the fields before the first entry
TAIL_BYTES = 4096  # what ends a load is within; at least HEAD_BYTES
RECEIVE_BYTES = 256 * 1024  # stays in the processor's cache
CONNECT_PAUSE_S = 0.005
SILENCE_SECONDS_MAX = 30.0

_TYPE_TAG, _BODY_TAG, _BATCH_ID_TAG = 0x18, 0x2A, 0x08
_NO_BATCH = (1 << 64) - 1  # -1 as a varint
_LENGTH_DELIMITED = 2


class DrainError(Exception):
    """The server did not do what the client was there for."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A batch: its id and size, the moment its first byte arrived, its last bytes."""

    batch_id: int
    size: int
    began_at: float
    tail: bytes


@dataclass(frozen=True, slots=True)
class DrainRun:
    """A drained load; times are of the monotonic clock, in seconds.

    Who waited no time for the first byte found work that was done before it arrived.
    """

    asked_at: float
    first_byte_at: float
    last_ack_at: float
    bytes: int
    batches: int

    @property
    def waited_s(self) -> float:
        """Return the time from the first request to the first byte."""
        return self.first_byte_at - self.asked_at

    @property
    def seconds(self) -> float:
        """Return the time from the first byte to the last ack."""
        return self.last_ack_at - self.first_byte_at


class DrainClient:
    """One connection to one destination; a context manager.

    Tries to connect until the server listens, as long as it is `alive` and `timeout_s`
    at the longest. It subscribes with the filter that the instance is configured with.
    """

    def __init__(
        self,
        address: tuple[str, int],
        destination: str,
        *,
        alive: Callable[[], bool] = lambda: True,
        timeout_s: float = 30.0,
        tls: ssl.SSLContext | None = None,
        client_id: str = CLIENT_ID,
    ) -> None:
        self._destination = destination
        self._client_id = client_id
        self._view = memoryview(bytearray(RECEIVE_BYTES))
        self._began_at = 0.0
        self._socket = _connect(address, alive, timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(SILENCE_SECONDS_MAX)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=address[0])
        try:
            self._receive_whole()  # the handshake
            self._send(PacketType.CLIENTAUTHENTICATION, ClientAuth())
            self._receive_ack()
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def subscribe(self) -> None:
        """Subscribe and take back what an earlier connection left unacked."""
        self._send(PacketType.SUBSCRIPTION, Sub(self._destination, self._client_id))
        self._receive_ack()
        self._send(
            PacketType.CLIENTROLLBACK,
            ClientRollback(self._destination, self._client_id, 0),
        )

    def get(self, batch_size: int, timeout_ms: int) -> Frame | None:
        """Take a batch but keep nothing of its entries; None when there is none."""
        frame, _ = self._get(batch_size, timeout_ms, keep=False)
        return frame

    def get_whole(self, batch_size: int, timeout_ms: int) -> tuple[Frame, bytes] | None:
        """Ask for a batch and return it with the bytes of its entries."""
        frame, body = self._get(batch_size, timeout_ms, keep=True)
        return None if frame is None else (frame, body)

    def ack(self, batch_id: int) -> None:
        """Acknowledge a batch; there is no answer."""
        self._send(
            PacketType.CLIENTACK,
            ClientAck(self._destination, self._client_id, batch_id),
        )

    def _get(
        self, batch_size: int, timeout_ms: int, *, keep: bool
    ) -> tuple[Frame | None, bytes]:
        request = Get(
            self._destination,
            self._client_id,
            batch_size,
            timeout_ms,
            UNIT_MS,
            auto_ack=False,
        )
        self._send(PacketType.GET, request)
        if keep:
            body = self._receive_whole()
            size, head, tail = len(body), body[:HEAD_BYTES], body[-TAIL_BYTES:]
        else:
            body = b""
            size, head, tail = self._receive_past()
        kind, batch_id = read_head(head)
        if kind != PacketType.MESSAGES:
            raise DrainError(f"instead of a batch came packet {kind}: {tail[:500]!r}")
        if batch_id is None:
            return None, b""
        return Frame(batch_id, size, self._began_at, tail), body

    def _send(self, kind: PacketType, content: object) -> None:
        packet = encode_packet(kind, content)
        self._socket.sendall(len(packet).to_bytes(4, "big") + packet)

    def _receive_ack(self) -> None:
        body = self._receive_whole()
        kind, code = read_head(body)
        if kind != PacketType.ACK or code:
            raise DrainError(f"the server refuses: {body[:500]!r}")

    def _receive_length(self) -> int:
        header = self._receive_exactly(4)
        self._began_at = time.monotonic()
        return int.from_bytes(header, "big")

    def _receive_whole(self) -> bytes:
        return self._receive_exactly(self._receive_length())

    def _receive_exactly(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            view = view[self._receive_into(view) :]
        return bytes(data)

    def _receive_past(self) -> tuple[int, bytes, bytes]:
        """Receive a frame; return its size, its first and its last bytes."""
        size = self._receive_length()
        if size <= TAIL_BYTES:
            whole = self._receive_exactly(size)
            return size, whole, whole
        head = self._receive_exactly(HEAD_BYTES)
        left = size - HEAD_BYTES
        while left > TAIL_BYTES:
            left -= self._receive_into(self._view[: left - TAIL_BYTES])
        return size, head, self._receive_exactly(left)

    def _receive_into(self, view: memoryview) -> int:
        try:
            count = self._socket.recv_into(view)
        except TimeoutError:
            raise DrainError(
                f"the server was silent for {SILENCE_SECONDS_MAX:g} seconds"
            ) from None
        if not count:
            raise DrainError("the server closed the connection")
        return count


def drain(client: DrainClient, end: bytes, batch_size: int = BATCH_SIZE) -> DrainRun:
    """Take and acknowledge batches until one has `end` in its last bytes."""
    first_byte_at = 0.0
    size = batches = 0
    asked_at = time.monotonic()
    give_up_at = asked_at + SILENCE_SECONDS_MAX
    while True:
        frame = client.get(batch_size, WAIT_MS)
        if frame is None:
            if time.monotonic() > give_up_at:
                raise DrainError(
                    f"after {batches} batches nothing came for "
                    f"{SILENCE_SECONDS_MAX:g} seconds, and the last batch did not end "
                    f"with {end.decode()}: does somebody else write to the server?"
                )
            continue
        client.ack(frame.batch_id)
        last_ack_at = time.monotonic()
        first_byte_at = first_byte_at or frame.began_at
        give_up_at = last_ack_at + SILENCE_SECONDS_MAX
        size += frame.size
        batches += 1
        if end in frame.tail:
            return DrainRun(asked_at, first_byte_at, last_ack_at, size, batches)


def read_head(packet: bytes) -> tuple[int, int | None]:
    """Return a packet's type and the first number in its body.

    That is the batch id of MESSAGES, None for the empty one, and the error code of an
    ACK, None when there was no error.
    """
    kind = at = 0
    while at < len(packet):
        tag, at = packet[at], at + 1
        value, at = _varint(packet, at)
        if tag == _TYPE_TAG:
            kind = value
        elif tag == _BODY_TAG:
            if at < len(packet) and packet[at] == _BATCH_ID_TAG:
                number, _ = _varint(packet, at + 1)
                return kind, None if number == _NO_BATCH else number
            break
        elif tag & 7 == _LENGTH_DELIMITED:
            at += value
    return kind, None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _connect(
    address: tuple[str, int], alive: Callable[[], bool], timeout_s: float
) -> socket.socket:
    give_up_at = time.monotonic() + timeout_s
    while True:
        try:
            return socket.create_connection(address, timeout_s)
        except ConnectionRefusedError:
            if not alive():
                raise DrainError("the server has ended") from None
            if time.monotonic() > give_up_at:
                raise DrainError(
                    f"nobody listens on {address[0]}:{address[1]} after "
                    f"{timeout_s:g} seconds"
                ) from None
            time.sleep(CONNECT_PAUSE_S)
