"""Compressed events, inflated piece by piece.

The inflated size has a limit, and only one piece of it is in memory. Leaves out what
the plain events mean (`source.read.binlog_reader`).
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.decoder.rows.checked_bytes import CheckedBytes
from canal_server.doors.zstd import ZstdError, inflated
from canal_server.errors import DecodeError
from canal_server.source.read.python_events import POST_HEADER

if TYPE_CHECKING:
    from collections.abc import Iterator

ZSTD: Final = 0
UNCOMPRESSED: Final = 255
# MariaDB's compressed events and the plain events that they replace.
_QUERY: Final = 2
_PLAIN: Final = {165: _QUERY, 166: 23, 167: 24, 168: 25, 169: 30, 170: 31, 171: 32}
_SECOND_VERSION: Final = (30, 31, 32)
_UPDATES: Final = (24, 31)
# Fields of a TRANSACTION_PAYLOAD event.
_ALGORITHM: Final = 2
_INFLATED_SIZE: Final = 3
PIECE_BYTES: Final = 128 * 1024  # inflated at a time
HEAD_BYTES_MAX: Final = 256 * 1024  # of an event before its compressed data


@dataclass(frozen=True, slots=True)
class Compressed:
    """A MariaDB event that is compressed except for its head.

    `kind` is the type of the plain event, `head` precedes the compressed tail, `size`
    is the length of the inflated tail.
    """

    kind: int
    head: memoryview
    size: int
    data: memoryview

    def header(self, time: int, server_id: int) -> bytes:
        """Return the plain event's header, without a position."""
        length = 19 + len(self.head) + self.size
        return struct.pack("<IBIIIH", time, self.kind, server_id, length, 0, 0)

    def pieces(self) -> Iterator[memoryview | bytes]:
        """Yield the plain event's body. Raises DecodeError when its length differs."""
        yield self.head
        inflater = zlib.decompressobj()
        left = self.size
        try:
            for at in range(0, len(self.data), PIECE_BYTES):
                waiting: memoryview | bytes = self.data[at : at + PIECE_BYTES]
                while waiting and not inflater.eof:
                    # One byte more than needed reveals excess data.
                    piece = inflater.decompress(waiting, min(left, PIECE_BYTES) + 1)
                    waiting = inflater.unconsumed_tail
                    left -= len(piece)
                    if left < 0:
                        raise DecodeError(
                            f"compressed event inflates to more than {self.size} "
                            "bytes, the size in its header"
                        )
                    yield piece
        except zlib.error as error:
            raise DecodeError("compressed data cannot be inflated") from error
        if left:
            raise DecodeError(
                f"inflates to {self.size - left} bytes, expected {self.size}"
            )
        if not inflater.eof:
            raise DecodeError("compressed data is truncated")


def _compressed(kind: int, body: memoryview, at: int, bytes_max: int) -> Compressed:
    """Read the head of the part that MariaDB compressed (log_bin_compress).

    First byte: bit 7 set, bits 4-6 the algorithm (0: zlib), bits 0-2 how many bytes
    hold the length, big-endian; then zlib data. Raises DecodeError.
    """
    data = body[at:]
    if not data or data[0] & 0xF0 != 0x80:  # noqa: PLR2004  # bit 7, zlib
        raise DecodeError(f"unknown compression algorithm ({bytes(data[:1]).hex()})")
    length_n = data[0] & 7
    length = int.from_bytes(data[1 : 1 + length_n], "big")
    if at + length > bytes_max:
        raise DecodeError(
            f"inflates to {at + length} bytes, above "
            f"canal.instance.event.bytes.max = {bytes_max}"
        )
    return Compressed(kind, body[:at], length, data[1 + length_n :])


def compressed_event(kind: int, body: memoryview, bytes_max: int) -> Compressed:
    """Read one of MariaDB's compressed events: a statement or rows."""
    plain = _PLAIN[kind]
    source = CheckedBytes(bytes(body[:HEAD_BYTES_MAX]), "a compressed event")
    if plain == _QUERY:
        head = source.take(POST_HEADER.size)
        _, _, schema_n, _, status_n = POST_HEADER.unpack(head)
        source.take(status_n + schema_n + 1)
    else:
        source.take(8)
        if plain in _SECOND_VERSION:
            source.take(max(source.number(2), 2) - 2)
        width = source.packed()
        source.take((width + 7) // 8 * (2 if plain in _UPDATES else 1))
    return _compressed(plain, body, source.at, bytes_max)


@dataclass(frozen=True, slots=True)
class Payload:
    """A compressed transaction; `size`: when inflated, None if not given."""

    algorithm: int
    size: int | None
    data: memoryview

    def pieces(self) -> Iterator[memoryview | bytes]:
        """Yield the inner events. Raises DecodeError, also when they exceed `size`."""
        if self.algorithm == UNCOMPRESSED:
            for at in range(0, len(self.data), PIECE_BYTES):
                yield self.data[at : at + PIECE_BYTES]
            return
        if self.algorithm != ZSTD:
            raise DecodeError(f"unknown payload compression algorithm {self.algorithm}")
        inflated_bytes = 0
        inflater = inflated(self.data)
        try:
            while piece := inflater.read(PIECE_BYTES):
                inflated_bytes += len(piece)
                if self.size is not None and inflated_bytes > self.size:
                    raise DecodeError(
                        f"payload inflates to more than {self.size} bytes, the size in "
                        "its header"
                    )
                yield piece
        except ZstdError as error:
            raise DecodeError(f"payload cannot be inflated: {error}") from error


def payload_of(body: memoryview) -> Payload:
    """Read a TRANSACTION_PAYLOAD event.

    Fields: type, length, value, all numbers length-encoded; 0 ends them (no length),
    1 size of the data, 2 algorithm, 3 size when inflated.
    """
    source = CheckedBytes(bytes(body[:HEAD_BYTES_MAX]), "a transaction's payload")
    kind, size = ZSTD, None
    while True:
        field = source.packed()
        if field == 0:
            return Payload(kind, size, body[source.at :])
        value = CheckedBytes(source.take(source.packed()), "a payload's field")
        if field == _ALGORITHM:
            kind = value.packed()
        elif field == _INFLATED_SIZE:
            size = value.packed()
