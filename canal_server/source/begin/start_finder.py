"""Where in the binlog to start.

One function decides, with a numbered branch per case; the first that applies wins.
Leaves out the queries of the binlog itself (`search`), and the outcome of an earlier
session (`session_start`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol

from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.errors import BinlogPurged, PositionError, SourceError
from canal_server.mysql.binlogs import current_end, executed_gtids, server_time_s
from canal_server.mysql.server_errors import is_refusal
from canal_server.mysql.standby import gtids_of
from canal_server.position.log_position_managers import same_server
from canal_server.source.archive.source_binlogs import readable_logs
from canal_server.source.read.start_position import FIRST_EVENT, StartPosition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canal_server.config.schema import HostConfig
    from canal_server.model.positions import (
        EntryPosition,
        Executed,
        LogIdentity,
        LogPosition,
    )
    from canal_server.mysql.control_connection import ControlConnection
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.source.read.available_positions import SourceFiles
    from canal_server.source.read.binlog_scan import SeenEvent
    from canal_server.source.read.gtid_sets import Gtids

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS: Final = 253_402_300_799_000  # of the year 9999
OLDEST: Final = "oldest"  # as a file name: the first file that the source has


class Search(Protocol):
    """Queries of one server's binlog."""

    def event_at(self, file: str, offset: int) -> SeenEvent | None:
        """Return the event at an offset, None at the file's end.

        Raises SourceError where no event begins.
        """

    def boundary_before(self, files: Sequence[str], timestamp_ms: int) -> Found | None:
        """Return the end of the last transaction older than a time, in these files.

        The oldest file is first. None when all of them start later.
        """

    def transaction_start(self, file: str, offset: int) -> Found:
        """Return the end of the last transaction that ends at or before an offset."""

    def executed_at(
        self, file: str, offset: int, since: Executed | None = None
    ) -> tuple[Found, Gtids]:
        """Return the last boundary at or before an offset, and the set executed there.

        `since`: a set of the same file to continue from.
        """

    def head_of(self, file: str) -> Gtids:
        """Return the set that was executed before a file."""

    def covers(self, gtids: Gtids, file: str, offset: int) -> bool:
        """Return whether a set has everything this server executed up to an offset."""


@dataclass(frozen=True, slots=True)
class Found:
    """A position in a binlog, and how it was found."""

    file: str
    offset: int
    means: str


@dataclass(frozen=True, slots=True)
class Start:
    """A position with its reason, and what it implies for stored positions."""

    position: StartPosition
    why: str
    # Stored files and offsets do not belong to this server's binlog.
    voids_stored: bool = False


@dataclass(slots=True)
class StartFinder:
    """Finds the start position for one connection to one server.

    `last_source_is_other`, `was_read` and the like describe the servers read before:
    whether the last one was another than this, whether this one was among them, and
    whether others were. `follows_sets`: outside GTID mode, use the sets stored with
    positions.
    """

    connection: ControlConnection
    info: ServerInfo
    identity: LogIdentity
    configured: HostConfig
    gtid_on: bool
    fallback_interval_s: int
    files: SourceFiles
    search: Search
    last_source_is_other: bool = False
    was_read: bool = False
    others_were_read: bool = False
    follows_sets: bool = False

    def find(self, stored: LogPosition | None) -> Start:
        """Return where to start. Raises PositionError, SourceError."""
        # 1. A stored GTID set is valid on every server of the topology.
        if stored is not None and self.gtid_on and stored.position.gtid:
            note = stored.position.gtid[:200]
            return Start(
                self.by_gtid(stored.position.gtid),
                f"stored GTID set {note!r}, as of {stored}",
                voids_stored=self.last_source_is_other
                or not same_server(stored.identity, self.identity),
            )
        # 2. A stored position, or its time.
        if stored is not None:
            return self._from_stored(stored)
        configured = self.configured
        # 3. A configured GTID set.
        if self.gtid_on and configured.gtid:
            position = self.by_gtid(configured.gtid, what="canal.instance.master.gtid")
            return Start(position, f"configured GTID set {configured.gtid[:200]!r}")
        # 4. A configured file, with an offset, a time, or from its first event.
        if configured.journal_name:
            return self._from_configured_file(configured.journal_name)
        # 5. A configured time only.
        if configured.timestamp_ms:
            position, means = self.by_time(configured.timestamp_ms)
            note = f"configured time {configured.timestamp_ms}"
            if configured.timestamp_ms > self.now_ms():
                note += f" ({_time_text(configured.timestamp_ms)}, in the future)"
            return Start(position, f"{note}, {means}")
        # 6. Nothing: start from now on.
        return Start(self.end(), "nothing stored, nothing configured: the current end")

    # --- stored -----------------------------------------------------------------------

    def _from_stored(self, stored: LogPosition) -> Start:
        position = stored.position
        if not same_server(stored.identity, self.identity):
            # Offsets mean nothing on another server; times do, with some redelivery.
            return self._by_stored_time(stored, "of another server")
        if not position.journal_name or not position.position:
            return self._by_stored_time(stored, "without a file", voids=False)
        # A server read before may be the source again: the event there decides.
        event_decides = self.was_read and position.timestamp and not position.included
        if self.last_source_is_other and not event_decides:
            return self._by_stored_time(
                stored, f"of another server than {self.info} at this address"
            )
        try:
            self._check_position(position)
        except SourceError as error:
            has_time = self._time_before(position) > 0
            if not has_time or not self._is_of_another(position, error):
                raise
            # The server that first wrote an event may be the one that is there now.
            was = f"of server id {position.server_id}, now it is {self.info}"
            if position.server_id in (None, 0, self.info.server_id):
                was = f"of another server than {self.info}"
            return self._by_stored_time(stored, f"{was} at this address")
        start_position, means = self.at(position.journal_name, position.position)
        return Start(start_position, f"stored position {stored}{means}")

    def _check_position(self, position: EntryPosition) -> None:
        """Raise SourceError when a stored position is not in this server's binlog."""
        file, offset = position.journal_name or "", position.position or 0
        if not self.files.had(file, offset):
            raise BinlogPurged(
                self._refusal(position, f"is not in the binlog, which has {self.files}")
            )
        if not position.timestamp or position.included:
            return  # it names the next event, which may not exist yet
        seen = self.search.event_at(file, offset)
        if seen is None or position.timestamp // 1000 not in seen.times:
            found_there = (
                "no event" if seen is None else f"an event of {max(seen.times)} s"
            )
            raise BinlogPurged(
                self._refusal(
                    position,
                    f"is of an event of {position.timestamp // 1000} s, but there the"
                    f" binlog has {found_there}",
                )
            )

    def _refusal(self, position: EntryPosition, why: str) -> str:
        return (
            f"{self.identity.address}:{self.identity.port}: stored position"
            f" {position} {why}: the binlog was reset, or this is another server"
        )

    def _is_of_another(self, position: EntryPosition, error: SourceError) -> bool:
        """Return whether a position is refused because it is another server's.

        An event names the server that wrote it first; that may be another one although
        the position is this server's, so it counts only when the position is not there.
        """
        if not (isinstance(error, BinlogPurged) or is_refusal(error)):
            return False
        if self.others_were_read:
            return True
        return bool(position.server_id) and position.server_id != self.info.server_id

    def _by_stored_time(
        self, stored: LogPosition, why: str, *, voids: bool = True
    ) -> Start:
        gtids = gtids_of(self.info, stored.executed) if self.follows_sets else None
        if gtids is not None:
            gtids, note = self._with_past(gtids, stored.position)
            return Start(
                StartPosition("", 0, gtids, by_gtid=True),
                f"stored position {stored}, {why}: the GTID set stored with it{note}",
                voids_stored=voids,
            )
        when = self._time_before(stored.position)
        if when <= 0:
            raise PositionError(
                f"stored position {stored} is {why}, and has no time to search by;"
                " remove the destination's stored cursors to start as configured"
            )
        try:
            position, means = self.by_time(when)
        except PositionError as error:
            # Equivalent to purged, if the operator chose the end in that case.
            raise BinlogPurged(f"stored position {stored}, {why}: {error}") from error
        return Start(
            position,
            f"stored position {stored}, {why}: its time {stored.position.timestamp}"
            f" less {self.fallback_interval_s} s, {means}",
            voids_stored=voids,
        )

    def _with_past(self, gtids: Gtids, position: EntryPosition) -> tuple[Gtids, str]:
        """Return a set with what only this server had executed before a position.

        A reader by position does not expect that. It is found by time, as if there were
        no set: up to then, only what does not follow the set is added.
        """
        here = executed_gtids(self.connection, self.info)
        if not independent_part(type(gtids).parse(here), gtids):
            return gtids, ""
        when = self._time_before(position)
        try:
            start_position, _ = self.by_time(when)
            if start_position.position == FIRST_EVENT:
                before = self.search.head_of(start_position.file)
            else:
                _, before = self.search.executed_at(
                    start_position.file, start_position.position
                )
        except PositionError:
            before = self.search.head_of(self.oldest().file)  # the rest is younger
        past = independent_part(before, gtids)
        if not past:
            return gtids, ""
        note = f", plus what only this server had before, {str(past)[:200]!r}"
        return gtids.union(past), note  # type: ignore[arg-type]  # both of one kind

    def _time_before(self, position: EntryPosition) -> int:
        return (position.timestamp or 0) - self.fallback_interval_s * 1000

    # --- configured -------------------------------------------------------------------

    def _from_configured_file(self, file: str) -> Start:
        configured = self.configured
        if file.lower() == OLDEST:
            return Start(self.oldest(), "configured: the oldest file")
        if configured.position:
            position, means = self.at(file, configured.position)
            return Start(position, f"configured file and position{means}")
        if configured.timestamp_ms:
            position, means = self.by_time(configured.timestamp_ms, files=(file,))
            note = f"configured file {file} and time {configured.timestamp_ms}"
            return Start(position, f"{note}, {means}")
        position, _ = self.at(file, FIRST_EVENT)
        return Start(position, "configured file, from its first event")

    # --- kinds of positions -----------------------------------------------------------

    def at(self, file: str, offset: int) -> tuple[StartPosition, str]:
        """Return a position of a file, and what to log about it.

        In GTID mode it is the start of a transaction: a set that contains a transaction
        of which only a part follows would lose the rest for every reader that resumes
        there.
        """
        if not self.gtid_on:
            return StartPosition(file, offset, None), ""
        found, gtids = self.search.executed_at(file, offset)
        note = ""
        if found.offset != offset:
            note = f" {file}:{offset} is inside a transaction, moved back to its start"
        return StartPosition(file, found.offset, gtids), f",{note} by {found.means}"

    def by_time(
        self, timestamp_ms: int, *, files: Sequence[str] = ()
    ) -> tuple[StartPosition, str]:
        """Return the end of the last transaction older than a time, and the means.

        `files`: where to search, empty for all. A given file is read from its beginning
        when all of it is newer. Raises PositionError.
        """
        names = files or tuple(log.name for log in readable_logs(self.connection))
        found = self.search.boundary_before(names, timestamp_ms)
        if found is None and files:
            found = Found(files[0], FIRST_EVENT, "all of it is newer")
        if found is None:
            oldest = names[0] if names else "none"
            raise PositionError(
                f"can't find start position for time {timestamp_ms} ms"
                f" ({_time_text(timestamp_ms)}): the oldest binlog file, {oldest},"
                " starts later; configure a later time (in milliseconds), or"
                " canal.instance.master.journal.name = oldest to start at that file"
            )
        position, _ = self.at(found.file, found.offset)
        return replace(
            position, timestamp_ms=timestamp_ms, time_ms=timestamp_ms
        ), f"by {found.means}"

    def by_gtid(self, text: str, *, what: str = "GTID set") -> StartPosition:
        """Return the position after a GTID set, which errors call `what`.

        Raises PositionError.
        """
        try:
            kind = MariaGtidSet if self.info.is_mariadb else GtidSet
            return StartPosition("", 0, kind.parse(text), by_gtid=True)
        except ValueError as error:
            raise PositionError(f"{what} {text[:200]!r}: {error}") from error

    def oldest(self) -> StartPosition:
        """Return the start of the oldest file. Raises PositionError without any."""
        logs = readable_logs(self.connection)
        if not logs:
            raise PositionError(
                f"{self.identity.address}: the source lists no binlog files; check that"
                " log_bin is on there"
            )
        position, _ = self.at(logs[0].name, FIRST_EVENT)
        return position

    def end(self) -> StartPosition:
        """Return the current end. Raises SourceRefused without a binlog."""
        now_ms = self.now_ms()  # before what is written from there on
        end = current_end(self.connection, self.info)
        position = StartPosition(
            end.file, end.position, None, time_ms=now_ms, is_end=True
        )
        kind = MariaGtidSet if self.info.is_mariadb else GtidSet
        if self.gtid_on:
            return replace(position, gtids=kind.parse(end.gtids))
        if self.follows_sets and end.gtids:
            return replace(position, tracked=kind.parse(end.gtids))
        return position

    def now_ms(self) -> int:
        """Return the server's current time."""
        return server_time_s(self.connection) * 1000


def independent_part(gtids: Gtids, other: Gtids) -> Gtids:
    """Return what is not in another set of its kind and does not follow it."""
    return gtids.beside(other)  # type: ignore[arg-type]


def _time_text(timestamp_ms: int) -> str:
    """Return a readable time: seconds mistaken for milliseconds show as 1970."""
    moment = _EPOCH + timedelta(milliseconds=min(timestamp_ms, _LAST_MS))
    return moment.isoformat(timespec="seconds")
