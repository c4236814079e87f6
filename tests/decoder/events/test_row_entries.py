"""Row events with very many rows become several entries, the same for each reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import binlog_bytes as b
import pytest
from fix_blocks import ROWS
from reader_driver import Images, Reading, log_with

from canal_server.decoder.rows.relayed_rows import Renderer
from canal_server.decoder.rows.table_shapes import layout_of
from canal_server.errors import DecodeError
from canal_server.source.pump.delivered import Delivered
from canal_server.source.read.start_position import StartPosition

if TYPE_CHECKING:
    from fix_blocks import Span

INT = (b.LONG, b"")
WIDTH = 8
PIECE_ROWS = (1 << 19) // WIDTH + 1  # as row_events.pxd says
ROWS_SENT = 3 * PIECE_ROWS + 7


def sent(rows: int = ROWS_SENT, *, end: bytes = b"", update: bool = False) -> bytes:
    """Return the stream of a transaction with one event, whose values are NULL."""
    log = log_with()
    log.begin()
    log.add(b.TABLE_MAP, b.table_map_body([INT] * WIDTH))
    body = b.rows_body(WIDTH, b"\xff" * rows + end, images=2 if update else 1)
    log.add(b.UPDATE_ROWS if update else b.WRITE_ROWS, body)
    log.xid()
    return log.as_stream()


def images() -> Images:
    """Return a table of so many columns."""
    return Images(t=("int",) * WIDTH)


def counts_of(reading: Reading) -> list[int]:
    """Return how many rows each entry has, according to its header."""
    return [
        int(pair.value)
        for entry in reading.entries
        for pair in entry.header.props
        if pair.key == "rowsCount"
    ]


def test_many_rows_become_several_entries() -> None:
    """Each piece has as many rows as it may have, the last one what is left."""
    reading = Reading(images())
    reading.run(sent())
    assert counts_of(reading) == [
        PIECE_ROWS, PIECE_ROWS, PIECE_ROWS, 7,
    ]  # fmt: skip
    kinds = [entry.entry_type for entry in reading.entries]
    assert kinds == [1, 2, 2, 2, 2, 3]
    offsets = [entry.header.logfile_offset for entry in reading.entries]
    assert len(set(offsets[1:5])) == 1
    assert len(reading.entries[4].row_change().row_datas) == 7


def test_an_event_as_servers_write_it_is_one_entry() -> None:
    """Rows of 8 KiB, a server's default, stay together, whatever they hold."""
    reading = Reading(images())
    reading.run(sent(8192))
    assert counts_of(reading) == [8192]


def test_updates_count_both_images() -> None:
    """Of an update half as many rows are in a piece."""
    reading = Reading(images())
    reading.run(sent(2 * PIECE_ROWS, update=True))
    half = (1 << 19) // (2 * WIDTH) + 1
    assert counts_of(reading) == [half, PIECE_ROWS - half]


def test_relayed_pieces_are_rendered_the_same() -> None:
    """Who relays rows cuts them as who renders them, so that all entries are equal."""
    plain, relayed = Reading(images()), Reading(images(), relay_from=(0, 0))
    plain.run(sent())
    relayed.run(sent())
    assert len(relayed.fields) < len(plain.fields) // 10
    renderer = Renderer(layout_of)
    rest, made = memoryview(bytearray(relayed.fields)), bytearray()
    while rest:
        received, part = renderer.render(rest, 1 << 20)
        rest = rest[received:]
        made += part
    assert made == plain.fields


def test_counting_cuts_the_same() -> None:
    """Who only counts rows has entries for the same pieces."""
    reading = Reading(images(), counts=True)
    reading.run(sent())
    assert counts_of(reading) == [PIECE_ROWS] * 3 + [7]


def test_rows_are_numbered_within_the_event() -> None:
    """An error in a later piece has the number of its row in the event."""
    reading = Reading(images())
    with pytest.raises(DecodeError, match=rf"row {PIECE_ROWS + 6} of table db\.t"):
        reading.run(sent(PIECE_ROWS + 5, end=b"\0\1"))
    assert counts_of(reading) == [PIECE_ROWS]


class Stopping(Reading):
    """Delivers some records, each of them to `Delivered`, and ends there."""

    def __init__(self, delivered: Delivered, records: int) -> None:
        super().__init__(images())
        self.delivered = delivered
        self.left = records
        self.pieces: list[int] = []
        delivered.begin(StartPosition("bin.000001", 4, None), "one", truncated=False)

    def deliver(self, spans: list[Span]) -> bool:
        """Note records until there were enough."""
        for block, first, stop in self.delivered.rest_of(spans):
            for at in range(first, stop):
                if not self.left:
                    return False
                self.left -= 1
                self.delivered.note([(block, at, at + 1)], "one")
                if block.record(at)["kind"] == ROWS:
                    self.pieces.append(block.record(at)["rows"])
        return True


@pytest.mark.parametrize("before", range(7))
def test_nothing_is_lost_where_a_connection_breaks(before: int) -> None:
    """A session that begins again inside of an event delivers its other pieces."""
    delivered = Delivered()
    first = Stopping(delivered, before)
    first.run(sent())
    second = Stopping(delivered, 99)
    second.run(sent())
    assert first.pieces + second.pieces == [PIECE_ROWS] * 3 + [7]
    assert before + (99 - second.left) == 6
