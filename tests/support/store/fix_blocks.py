"""Entries in blocks, made by hand, each with a number of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.core.blocks import Block, BlockPool, BlockWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Span = tuple[Block, int, int]

BEGIN, ROWS, END, HEARTBEAT, OTHER = 1, 2, 3, 4, 5
QUERY, ALTER = 7, 5
FLAG_GTID, FLAG_OPEN = 1, 2
ENTRY_BYTES = 64  # of an ordinary entry, wrapped as a field of Messages


def varint(value: int) -> bytes:
    """Return a protobuf varint."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def entry_bytes(number: int, size: int, server_id: int, gtid: str) -> bytes:
    """Return an Entry whose storeValue begins with `number`, `size` bytes wrapped."""
    header = b"\x20" + varint(server_id)
    if gtid:
        header += b"\x6a" + varint(len(gtid)) + gtid.encode()
    head = b"\x0a" + varint(len(header)) + header + b"\x1a"
    # The lengths before the filler take one to five bytes each.
    for length in range(size - len(head) - 10, size):
        entry_length = len(head) + len(varint(length)) + length
        if length >= 8 and 1 + len(varint(entry_length)) + entry_length >= size:
            filler = bytes(length - 8)
            return head + varint(length) + number.to_bytes(8, "big") + filler
    raise AssertionError(f"an entry of {size} bytes is too small")


def numbers_of(slices: Iterable[memoryview]) -> list[int]:
    """Return the numbers of the entries in a batch's slices; checks their framing."""
    data = b"".join(slices)
    found = []
    at = 0
    while at < len(data):
        assert data[at] == 0x12
        length, at = _read_varint(data, at + 1)
        entry, at = data[at : at + length], at + length
        assert len(entry) == length
        header, position = _read_varint(entry, 1)
        _, position = _read_varint(entry, position + header + 1)
        found.append(int.from_bytes(entry[position : position + 8], "big"))
    return found


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] > 127:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
    return value | data[at] << shift, at + 1


class Entries:
    """Makes entries one after another: number n at offset 100 * n of a file."""

    def __init__(
        self,
        pool: BlockPool | None = None,
        *,
        file: str = "bin.000001",
        file_number: int = 1,
        records_per_block: int = 1 << 30,
    ) -> None:
        self.pool = pool if pool is not None else BlockPool(64 * 1024)
        self.next_number = 0
        self.time = 1_000_000  # s
        self._file = (file, file_number)
        self._records_per_block = records_per_block
        self._writer = BlockWriter(self.pool, *self._file)
        self._given = 0  # records of the current block that were given out
        self._spans: list[Span] = []

    def rotate(self, file: str, file_number: int) -> None:
        """Go on in another binlog file."""
        self._file = (file, file_number)
        self._new_block()

    def add(
        self, kind: int, *, size: int = ENTRY_BYTES, gtid: str = "", **fields
    ) -> int:
        """Append an entry; returns its number."""
        number = self.next_number
        self.next_number += 1
        fields.setdefault("offset", number * 100)
        fields.setdefault("time", self.time)
        fields.setdefault("event_length", 30)
        if kind == ROWS:
            fields.setdefault("rows", 1)
            fields.setdefault("event_type", 1)
        if gtid:
            fields["flags"] = FLAG_GTID
        entry = entry_bytes(number, size, 7, gtid)
        if len(self._writer.block) >= self._records_per_block:
            self._new_block()
        try:
            self._writer.append(entry, kind, **fields)
        except ValueError:
            self._new_block()
            self._writer.append(entry, kind, **fields)
        return number

    def transaction(self, rows: int, *, begin: bool = True, **fields) -> list[int]:
        """Append BEGIN, rows and END; returns their numbers."""
        numbers = [self.add(BEGIN)] if begin else []
        numbers += [self.add(ROWS, **fields) for _ in range(rows)]
        return [*numbers, self.add(END)]

    def take(self) -> list[Span]:
        """Return the spans of what was appended since the last take."""
        self._end_block()
        spans, self._spans = self._spans, []
        return spans

    def _end_block(self) -> None:
        block = self._writer.block
        if len(block) > self._given:
            self._spans.append((block, self._given, len(block)))
        self._given = len(block)

    def _new_block(self) -> None:
        self._end_block()
        self._writer = BlockWriter(self.pool, *self._file)
        self._given = 0


def numbers_in(spans: Iterable[Span]) -> list[int]:
    """Return the numbers of the entries in spans."""
    return list(_each(spans))


def _each(spans: Iterable[Span]) -> Iterator[int]:
    for block, first, stop in spans:
        yield from numbers_of([block.slice(first, stop)])
