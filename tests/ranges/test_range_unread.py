"""Statements that the pump has not read yet: scanned once, without a gap."""

from __future__ import annotations

from canal_server.model.ddl_statement import DdlStatement, Examined, Stale
from canal_server.model.positions import EntryPosition
from canal_server.ranges.range_unread import UnreadStatements


def at(offset: int) -> EntryPosition:
    """Return a position of one file."""
    return EntryPosition("bin.000001", offset)


class Binlog:
    """Statements at the multiples of 100, and the parts that were scanned."""

    def __init__(self) -> None:
        self.read: list[tuple[int | None, int | None]] = []

    def scan(self, start: EntryPosition, stop: EntryPosition) -> list[DdlStatement]:
        """Return the statements of a part."""
        self.read.append((start.position, stop.position))
        assert start.position is not None
        assert stop.position is not None
        return [
            DdlStatement(at(n), "", "", "", Examined([], Stale()))
            for n in range(0, 1000, 100)
            if start.position <= n < stop.position
        ]


def offsets(events: list[DdlStatement]) -> list[int | None]:
    """Return where statements begin."""
    return [each.position.position for each in events]


def test_only_what_is_new_is_read() -> None:
    """Later positions extend the scan; earlier ones are answered without reading."""
    binlog, unread = Binlog(), UnreadStatements()
    assert offsets(unread.between(1, at(50), at(250), binlog.scan)) == [100, 200]
    assert offsets(unread.between(1, at(50), at(150), binlog.scan)) == [100]
    assert offsets(unread.between(1, at(50), at(450), binlog.scan)) == [
        100,
        200,
        300,
        400,
    ]
    assert offsets(unread.between(1, at(250), at(500), binlog.scan)) == [300, 400]
    assert binlog.read == [(50, 250), (250, 450), (450, 500)]


def test_another_start_or_binlog_is_read_again() -> None:
    """What was found counts neither before its start nor in another binlog."""
    binlog, unread = Binlog(), UnreadStatements()
    unread.between(1, at(250), at(350), binlog.scan)
    assert offsets(unread.between(1, at(150), at(350), binlog.scan)) == [200, 300]
    assert offsets(unread.between(2, at(150), at(250), binlog.scan)) == [200]
    assert offsets(unread.between(2, at(650), at(750), binlog.scan)) == [700]
    assert binlog.read == [(250, 350), (150, 350), (150, 250), (650, 750)]
