"""Scans binlog files of a server for what the choice of a start position needs.

Each question opens a dump of its own, as a separate replica, and ends it after the
answer. Rows are not decoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.errors import DecodeError, SourceError
from canal_server.mysql.replication import FileStart
from canal_server.mysql.server_errors import READING_BINLOG_FAILED
from canal_server.source.read.binlog_reader import Reader
from canal_server.source.read.gtid_sets import contains
from canal_server.source.read.temporary_dump import StatementCollector, TemporaryDump

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.config.schema import InstanceConfig
    from canal_server.core.blocks import Block
    from canal_server.mysql.replication import DumpStart
    from canal_server.mysql.source_settings import Access
    from canal_server.ports import Span
    from canal_server.runtime.lifecycle import Stop

FIRST_EVENT = 4
_SCANNER_REPLICA = 1

Gtids = GtidSet | MariaGtidSet


@dataclass(frozen=True, slots=True)
class SeenEvent:
    """The event at an offset: its time (s) and the times of the events packed in it.

    `packed_to`: its end offset when a whole transaction is packed in it, else 0.
    """

    times: frozenset[int]
    server_id: int
    packed_to: int = 0


class _FileReader(Reader):
    """Reads to the end of its first file; skips rows whose table maps it has not seen.

    `head` is the set that was executed before the file, in GTID mode.
    """

    head = ""
    ends_at_head = False  # stop after the set at the start of the file

    def _on_rotate(self) -> None:
        file = self.decoder.file
        super()._on_rotate()
        if self.decoder.file != file:
            self.decoder.set_limit(0)

    def _on_no_table_map(self) -> None:
        self.decoder.skip()

    def _enter_gtids(self, kind: int) -> None:
        super()._enter_gtids(kind)
        self.head = str(self.sets.gtids)
        if self.ends_at_head:
            self.decoder.set_limit(self.decoder.event_offset + 1)


class Scanner:
    """Answers questions about one server's files; for one thread.

    Files are read from their first event unless another event is given.
    """

    def __init__(
        self,
        config: InstanceConfig,
        access: Access,
        stop: Stop,
        *,
        replica: int = _SCANNER_REPLICA,
    ) -> None:
        self._dump = TemporaryDump(config, access, stop, replica=replica)

    def first_event_ms(self, file: str) -> int:
        """Return the time of a file's first event, ms."""
        reader = self._scan(file, until=FIRST_EVENT + 1)
        return reader.decoder.last_event_time * 1000

    def event_at(self, file: str, offset: int) -> SeenEvent | None:
        """Return the event at an offset, None at the file's end.

        Raises SourceError, or its subclass BinlogPurged, where no event begins.
        """
        times: set[int] = set()
        packed_to = 0

        def take(spans: list[Span]) -> bool:
            nonlocal packed_to
            for block, first, stop in spans:
                times.update(block.record(i)["time"] for i in range(first, stop))
                if block.record(stop - 1)["ordinal"]:
                    packed_to = end_of(block, stop - 1)
            return True

        try:
            reader = self._scan(file, take, start=offset, until=offset + 1)
        except DecodeError as error:
            # Some servers send whatever bytes are at the offset.
            raise SourceError(
                f"no valid event at {file}:{offset}: {error}",
                errno=READING_BINLOG_FAILED,
            ) from error
        decoder = reader.decoder
        if decoder.file != file or decoder.position <= offset:
            return None
        times.add(decoder.last_event_time)
        return SeenEvent(frozenset(times), decoder.event_server_id, packed_to)

    def first_sent_ms(self, position: DumpStart) -> int | None:
        """Return the time of the first entry that the server sends from a position, ms.

        None when it has nothing to send.
        """
        found: int | None = None

        def take(spans: list[Span]) -> bool:
            nonlocal found
            block, first, _ = spans[0]
            found = block.record(first)["time"] * 1000
            return False

        self._dump.run(
            self._dump.reader(StatementCollector(), whole=True), position, take
        )
        return found

    def boundary_before(
        self,
        file: str,
        timestamp_ms: int,
        start: int = FIRST_EVENT,
        note: Callable[[list[Span]], None] | None = None,
    ) -> int | None:
        """Return the offset after a file's last transaction older than a time.

        None when the part read starts with a younger transaction or has none. A
        transaction is older when everything before its end is. `note` receives what is
        read.
        """
        found: int | None = None

        def take(spans: list[Span]) -> bool:
            nonlocal found
            if note is not None:
                note(spans)
            for block, first, stop in spans:
                young = block.first_since(first, stop, -(-timestamp_ms // 1000))
                index = block.last_boundary(first, young)
                if index >= 0:
                    found = end_of(block, index)
                if young < stop:
                    return False
            return True

        self._scan(file, take, start=start)
        return found

    def boundary_at(self, file: str, offset: int, start: int = FIRST_EVENT) -> int:
        """Return the offset after the last transaction that ends at or before another.

        `start` when none ends there.
        """
        found = start

        def take(spans: list[Span]) -> bool:
            nonlocal found
            for block, first, stop in spans:
                index = block.last_boundary(first, stop)
                while index >= 0 and end_of(block, index) > offset:
                    # No event begins at the offset, and this one extends past it.
                    index = block.last_boundary(first, index)
                if index >= 0:
                    found = end_of(block, index)
            return True

        self._scan(file, take, start=start, until=offset)
        return found

    def count(self, file: str, start: int, stop: int) -> int:
        """Return how many transactions end after `start` and at or before `stop`.

        An event begins at `start`.
        """
        found = 0

        def take(spans: list[Span]) -> bool:
            nonlocal found
            for block, first, last in spans:
                found += block.totals(first, last)[0]
            return True

        self._scan(file, take, start=start, until=stop)
        return found

    def gtids_at(self, file: str, offset: int, *, mariadb: bool) -> Gtids:
        """Return the set that was executed before an offset of a file.

        It is the set at the start of the file and the transactions before the offset.
        """
        reader = self._scan(
            file, gtids=MariaGtidSet() if mariadb else GtidSet(), until=offset
        )
        assert reader.sets.gtids is not None
        return reader.sets.gtids

    def head_of(self, file: str, *, mariadb: bool) -> Gtids:
        """Return the set that was executed before a file."""
        reader = self._reader_of(MariaGtidSet() if mariadb else GtidSet())
        reader.ends_at_head = True
        self._dump.run(reader, FileStart(file, FIRST_EVENT), None)
        assert reader.sets.gtids is not None
        return reader.sets.gtids

    def executed_at(
        self, file: str, offset: int, *, mariadb: bool, start: int = 0, known: str = ""
    ) -> tuple[int, Gtids]:
        """Return the last boundary at or before an offset, and the set executed there.

        `known` was executed before an event at `start`, where reading begins instead
        of at the start of the file.
        """
        kind = MariaGtidSet if mariadb else GtidSet
        found = start or FIRST_EVENT
        text = known

        def take(spans: list[Span]) -> bool:
            nonlocal found, text
            for block, first, stop in spans:
                index = block.last_boundary(first, stop)
                if index >= 0:
                    found = end_of(block, index)
                    text = block.position(index)[4] or text
            return True

        reader = self._scan(
            file, take, start=found, gtids=kind.parse(known), until=offset
        )
        text = text or reader.head
        # The GTID of a transaction that started and has not ended is already in the
        # set. It stays there for a reader that starts at its end, like one that read it
        # all.
        is_inside = (
            str(reader.sets.gtids) != text
            and not reader.decoder.is_between
            and not self._ends_at(file, offset)
        )
        if is_inside:
            return found, kind.parse(text)
        return offset, kind.parse(str(reader.sets.gtids))

    def boundary_of_set(
        self, file: str, offset: int, executed: Gtids, target: Gtids
    ) -> tuple[str, int] | None:
        """Return the first boundary after another one at which a set was executed.

        `executed` is the set at that other boundary. None when the binlog ends before.
        """
        kind = type(executed)
        found: tuple[str, int] | None = None

        def has_all(block: Block, index: int) -> bool:
            return contains(kind.parse(block.position(index)[4]), target)

        def take(spans: list[Span]) -> bool:
            nonlocal found
            for block, first, stop in spans:
                last = block.last_boundary(first, stop)
                if last < 0 or not has_all(block, last):
                    continue
                index = block.first_boundary(first, stop)
                while not has_all(block, index):
                    index = block.first_boundary(index + 1, stop)
                found = block.file, end_of(block, index)
                return False
            return True

        reader = self._dump.reader(StatementCollector(), gtids=executed, whole=True)
        self._dump.run(reader, FileStart(file, offset), take)
        return found

    def _ends_at(self, file: str, offset: int) -> bool:
        """Return whether the event at an offset ends a transaction, or is one."""
        is_end = False

        def take(spans: list[Span]) -> bool:
            nonlocal is_end
            is_end |= any(
                block.last_boundary(first, stop) >= 0 for block, first, stop in spans
            )
            return True

        self._scan(file, take, start=offset, until=offset + 1)
        return is_end

    def _scan(
        self,
        file: str,
        take: Callable[[list[Span]], bool] | None = None,
        *,
        gtids: Gtids | None = None,
        start: int = FIRST_EVENT,
        until: int | None = None,
    ) -> _FileReader:
        """Read a file from an event to its end, to `until`, or until `take` refuses."""
        reader = self._reader_of(gtids, until)
        self._dump.run(reader, FileStart(file, start), take)
        return reader

    def _reader_of(self, gtids: Gtids | None, until: int | None = None) -> _FileReader:
        reader = self._dump.reader(
            StatementCollector(),
            _FileReader,
            gtids=gtids,
            until=until,
            whole=True,
        )
        assert isinstance(reader, _FileReader)
        return reader


def end_of(block: Block, i: int) -> int:
    """Return the offset after the event of a record."""
    record = block.record(i)
    return record["offset"] + record["event_length"]
