"""How far a position is behind the end of a source's binlog, or from another position.

Bytes are counted from the files' sizes, transactions by reading them, by GTID sets or
by the index of boundaries, seconds by the source's own clock. Unknown values are None.
Leaves out where the positions come from, and how they are shown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.errors import BinlogPurged
from canal_server.model.positions import (
    EntryPosition,
    LogIdentity,
    LogPosition,
    binlog_file_number,
)
from canal_server.mysql.binlogs import BinlogEnd, current_end
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.flavour import ServerInfo, read_server_info
from canal_server.mysql.replication import FIRST_EVENT
from canal_server.mysql.server_answers import answer_about
from canal_server.position.log_position_managers import same_server
from canal_server.runtime.lifecycle import Stop
from canal_server.source.archive.source_binlogs import readable_logs, unreadable_gtids
from canal_server.source.begin.boundary_index import FILE_NAME, BoundaryIndex
from canal_server.source.begin.survey import Surveyor
from canal_server.source.read.available_positions import SourceFiles
from canal_server.source.read.binlog_scan import Scanner
from canal_server.source.schema.source_traits import source_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

    from canal_server.config.schema import InstanceConfig
    from canal_server.mysql.source_settings import Access

LOOKED_AT_BYTES_MAX: Final = 64 * 1024 * 1024  # of binlog read to count one distance

_INTERVAL: Final = re.compile(r":(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True)
class Distance:
    """What lies between two positions; `first_ms`: end of its first transaction."""

    bytes: int | None = None
    transactions: int | None = None
    first_ms: int | None = None


@dataclass(frozen=True, slots=True)
class PurgedPart:
    """What a position needs and the source no longer has.

    Files `first` to `last`, their number; written from `since_ms`, the time of the
    position, to `until_ms`, when the oldest remaining file was created.
    """

    first: str
    last: str
    files: int
    since_ms: int | None
    until_ms: int | None
    transactions: int | None = None


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a position is behind the end; `problem` says why it is unknown."""

    bytes: int | None = None
    seconds: float | None = None
    transactions: int | None = None
    purged: PurgedPart | None = None
    problem: str = ""


class SourceView:
    """A source's binlog as it is now; for one thread.

    A context manager: the connection is open inside it.
    """

    def __init__(self, config: InstanceConfig, access: Access) -> None:
        """Store what to query."""
        self.config = config
        self.access = access
        self.identity = LogIdentity(access.address.host, access.address.port)
        self.connection = ControlConnection(access)
        self.surveyor = Surveyor(config, access, Stop())
        self.scanner = Scanner(config, access, Stop())
        self._index = _index_of(config)
        self.info: ServerInfo
        self.files: SourceFiles  # oldest first; the end gives the last one's size
        self.end: BinlogEnd
        self.purged = ""  # GTID set
        self.now_ms = 0  # by the source's clock

    def __enter__(self) -> Self:
        """Connect and query. Raises SourceError."""
        self.connection.open()
        try:
            self._look()
            if self._index is not None:
                self._index.open()
        except BaseException:
            self.connection.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.connection.close()
        if self._index is not None:
            self._index.close()

    def _look(self) -> None:
        connection = self.connection
        self.info = read_server_info(connection)
        # The files first: what is written meanwhile is after the end.
        logs = readable_logs(connection)
        self.end = current_end(connection, self.info)
        if logs and logs[-1].name != self.end.file:
            logs = readable_logs(connection)  # a file was created in between
        self.files = SourceFiles(
            tuple(
                replace(each, size=self.end.position)
                if each.name == self.end.file
                else each
                for each in logs
            )
        )
        if self.has_gtids:
            self.purged = unreadable_gtids(connection, self.info)
        # In ms, independent of the session's time zone.
        rows = connection.query("SELECT UNIX_TIMESTAMP(NOW(3))")
        with answer_about("its clock", connection.access.address):
            self.now_ms = round(float(str(rows[0][0])) * 1000)

    @property
    def has_gtids(self) -> bool:
        """Return whether transactions have GTIDs here."""
        return self.info.gtid_mode == "ON"

    @property
    def end_position(self) -> EntryPosition:
        """Return the end of the binlog as a start position."""
        return EntryPosition(
            self.end.file,
            self.end.position,
            self.now_ms,
            self.info.server_id,
            self.end.gtids if self.config.source.gtid_on else None,
            included=True,
        )

    # --- distances --------------------------------------------------------------------

    def lag_of(self, position: LogPosition) -> Lag:
        """Return how far a position is behind the end. Raises SourceError."""
        start_position = position.position
        if (
            not same_server(position.identity, self.identity)
            or not start_position.journal_name
        ):
            other = f"{position.identity.address}:{position.identity.port}"
            return self._lag_by_set(start_position, f"a position of {other}")
        if not self.files.had(start_position.journal_name, start_position.position):
            return Lag(
                problem=f"{start_position} is not in the binlog of"
                f" {self.access.address}, which has {self.files}: the binlog was reset,"
                " or this is another server"
            )
        purged = self.purged_after(start_position)
        if purged is not None:
            return Lag(seconds=self._seconds(start_position.timestamp), purged=purged)
        try:
            distance = self.between(start_position, self.end_position)
        except BinlogPurged as error:  # purged just now
            return Lag(problem=str(error))
        if distance.transactions == 0:
            # Only ends and headers of files and the like lie between.
            return Lag(0, 0.0, 0)
        since_ms = distance.first_ms or start_position.timestamp
        return Lag(distance.bytes, self._seconds(since_ms), distance.transactions)

    def _lag_by_set(self, position: EntryPosition, problem: str) -> Lag:
        number = self._executed_since(position)
        seconds = 0.0 if number == 0 else self._seconds(position.timestamp)
        if number is None:
            return Lag(
                None, seconds, None, problem=f"{problem}, only its time is known"
            )
        return Lag(None, seconds, number)

    def between(self, start: EntryPosition, stop: EntryPosition) -> Distance:
        """Return what lies between two positions of this binlog, the first one earlier.

        Raises SourceError.
        """
        size = self.bytes_between(start, stop)
        if size is not None and size <= LOOKED_AT_BYTES_MAX:
            survey = self.surveyor.between(start, stop)
            return Distance(size, survey.transactions, survey.first_ms)
        number = self._in_sets(start, stop)
        if number is None:
            number = self._in_index(start, stop)
        return Distance(size, number, start.timestamp)

    def bytes_between(self, start: EntryPosition, stop: EntryPosition) -> int | None:
        """Return the bytes of binlog from one position to a later one."""
        names = {each.name: each.size for each in self.files.files}
        if start.journal_name not in names or stop.journal_name not in names:
            return None
        first, last = start.order(), stop.order()
        before = sum(
            size
            for name, size in names.items()
            if first[0] <= binlog_file_number(name) < last[0]
        )
        return max(0, before + last[1] - first[1])

    def _executed_since(self, position: EntryPosition) -> int | None:
        """Return how many transactions the source executed that a position lacks."""
        return self._in_sets(position, self.end_position)

    def _in_sets(self, start: EntryPosition, stop: EntryPosition) -> int | None:
        """Return by how many transactions the sets of two positions differ.

        MariaDB's sets have no counts.
        """
        if not self.config.source.gtid_on or self.info.is_mariadb:
            return None
        if not start.gtid or not stop.gtid:
            return None
        before, after = GtidSet.parse(start.gtid), GtidSet.parse(stop.gtid)
        return transactions_in(str(after.subtract(before)))

    def _in_index(self, start: EntryPosition, stop: EntryPosition) -> int | None:
        """Return how many transactions the index knows between two positions.

        What it lacks is read, unless that is too much.
        """
        if self._index is None:
            return None
        source, found, left = source_of(self.info), 0, LOOKED_AT_BYTES_MAX
        for file, first, last in self._segments(start, stop):
            key = self._index.key_of(source, file)
            # Another file of this name has another start time.
            if key is None or key.began_s * 1000 != self.scanner.first_event_ms(file):
                return None
            counted = self._index.count_between(key, first, last)
            left -= sum(end - begin for begin, end in counted.missing)
            if left < 0:
                return None
            found += counted.transactions + sum(
                self.scanner.count(file, *missing) for missing in counted.missing
            )
        return found

    def _segments(
        self, start: EntryPosition, stop: EntryPosition
    ) -> Iterator[tuple[str, int, int]]:
        """Return the files between two positions, with the offsets counted in each."""
        first, last = start.order(), stop.order()
        for log in self.files.files:
            number = binlog_file_number(log.name)
            begin = first[1] if number == first[0] else FIRST_EVENT
            end = last[1] if number == last[0] else log.size
            if first[0] <= number <= last[0] and begin < end:
                yield log.name, begin, end

    def _seconds(self, since_ms: int | None) -> float | None:
        """Return the age of a time, by the source's clock."""
        return max(0.0, (self.now_ms - since_ms) / 1000) if since_ms else None

    # --- purged data
    # -------------------------------------------------------------------

    def purged_after(self, position: EntryPosition) -> PurgedPart | None:
        """Return what was purged after a position, None when nothing was."""
        purged = self.files.purged_from(position.journal_name)
        if purged is None:
            return None
        return PurgedPart(
            first=purged.first,
            last=purged.last,
            files=purged.number,
            since_ms=position.timestamp,
            until_ms=self.scanner.first_event_ms(self.files.files[0].name),
            transactions=self._transactions_purged_after(position),
        )

    def _transactions_purged_after(self, position: EntryPosition) -> int | None:
        if not self.purged or not position.gtid or not self.config.source.gtid_on:
            return None
        lost = GtidSet.parse(self.purged).subtract(GtidSet.parse(position.gtid))
        return transactions_in(str(lost))


def _index_of(config: InstanceConfig) -> BoundaryIndex | None:
    """Return the index that a server here has written, None without one."""
    path = config.position.data_dir / config.destination / FILE_NAME
    return BoundaryIndex(path, read_only=True) if path.exists() else None


def transactions_in(gtids: str) -> int:
    """Return how many transactions a GTID set of MySQL holds, given as its text."""
    return sum(
        int(last or first) - int(first) + 1 for first, last in _INTERVAL.findall(gtids)
    )
