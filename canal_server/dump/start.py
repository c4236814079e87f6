"""Where in the binlog to begin.

One function decides, with a numbered branch per case; the first that applies wins.
Leaves out what stands in the way later (a purged file): the server says that itself.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from canal_server.core.gtid import GtidSet
from canal_server.core.maria_gtid import MariaGtidSet
from canal_server.errors import PositionError
from canal_server.mysql.binlogs import binary_logs, current_end
from canal_server.mysql.replication import (
    DumpStart,
    FileStart,
    GtidStart,
    MariaGtidStart,
)
from canal_server.position.logposition import same_server

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.config.schema import HostConfig
    from canal_server.model.positions import LogIdentity, LogPosition
    from canal_server.mysql.connection import ControlConnection
    from canal_server.mysql.flavour import ServerInfo

_log = logging.getLogger(__name__)

FIRST_EVENT = 4

Gtids = GtidSet | MariaGtidSet


@dataclass(frozen=True, slots=True)
class Place:
    """Where a dump begins.

    `file` and `position` name the first event; empty for a dump by GTID, which tells
    them itself. `gtids` is the executed set to go on from, None outside GTID mode.
    `timestamp_ms`: the place is behind the last transaction older than this time, 0
    when it was found in another way.
    """

    file: str
    position: int
    gtids: Gtids | None
    by_gtid: bool = False
    timestamp_ms: int = 0

    def dump_start(self) -> DumpStart:
        """Return what to ask the server for."""
        if self.by_gtid and isinstance(self.gtids, GtidSet):
            return GtidStart(self.gtids.encode())
        if self.by_gtid and isinstance(self.gtids, MariaGtidSet):
            return MariaGtidStart(str(self.gtids))
        return FileStart(self.file, self.position)

    def __str__(self) -> str:
        if self.by_gtid:
            return f"GTID set {str(self.gtids)[:200]!r}"
        return f"{self.file}:{self.position}"


@dataclass(slots=True)
class StartFinder:
    """Finds the place for one connection to one server.

    `scan(place, until)` reads from a place to the position `until` of its file with
    the GTID set of the place and returns the set that was executed there;
    `boundary_before(file, timestamp_ms)` returns the offset behind the last
    transaction of a file that is older, None when the file has none.
    """

    connection: ControlConnection
    info: ServerInfo
    identity: LogIdentity
    configured: HostConfig
    gtid_on: bool
    fallback_interval_s: int
    first_event_ms: Callable[[str], int]
    boundary_before: Callable[[str, int], int | None]
    scan_gtids: Callable[[str, int], Gtids]

    def find(self, stored: LogPosition | None, *, at_end: bool = False) -> Place:
        """Return where to begin. Raises PositionError, SourceError."""
        place, why = self._decide(stored, at_end=at_end)
        _log.info("begins at %s: %s", place, why)
        return place

    def _decide(  # noqa: PLR0911  # one branch per case, in their order
        self, stored: LogPosition | None, *, at_end: bool
    ) -> tuple[Place, str]:
        # 1. The operator wants the end when the stored place is gone.
        if at_end:
            return self._current_end(), "the stored position is gone, by configuration"
        # 2. A stored GTID set is good on every server of the topology.
        if stored is not None and self.gtid_on and stored.position.gtid:
            return self._by_gtid(stored.position.gtid), "stored GTID set"
        if stored is not None:
            return self._from_stored(stored)
        wanted = self.configured
        # 3. A configured GTID set.
        if self.gtid_on and wanted.gtid:
            return self._by_gtid(wanted.gtid), "configured GTID set"
        # 4. A configured file, with an offset or from its first event.
        if wanted.journal_name:
            return self._from_file(wanted.journal_name)
        # 5. A configured time alone.
        if wanted.timestamp_ms:
            return self._from_time(wanted.timestamp_ms), "configured time"
        # 6. Nothing: from now on.
        return self._current_end(), "nothing stored, nothing configured: the end"

    def _from_stored(self, stored: LogPosition) -> tuple[Place, str]:
        file, offset = stored.position.journal_name, stored.position.position
        if not same_server(stored.identity, self.identity):
            # Offsets mean nothing on another server; times do, with some overlap.
            when = (stored.position.timestamp or 0) - self.fallback_interval_s * 1000
            if when <= 0:
                raise PositionError(
                    f"stored position {stored} is of another server and has no time"
                )
            return self._from_time(when), f"time of {stored}, another server's"
        if file and offset:
            return self._at(file, offset), "stored position"
        if stored.position.timestamp:
            when = stored.position.timestamp - self.fallback_interval_s * 1000
            return self._from_time(when), "stored time"
        raise PositionError(f"stored position {stored} names no file and no time")

    def _from_file(self, file: str) -> tuple[Place, str]:
        wanted = self.configured
        if wanted.position:
            return self._at(file, wanted.position), "configured file and position"
        if wanted.timestamp_ms:
            offset = self.boundary_before(file, wanted.timestamp_ms)
            return self._at(file, offset or FIRST_EVENT), "configured file and time"
        return self._at(file, FIRST_EVENT), "configured file"

    def _from_time(self, timestamp_ms: int) -> Place:
        """Return the end of the last transaction older than a time."""
        logs = binary_logs(self.connection)
        for log in reversed(logs):
            # A file's first event tells when it was begun; all that is in the files
            # before it is older.
            if self.first_event_ms(log.name) >= timestamp_ms:
                continue
            offset = self.boundary_before(log.name, timestamp_ms)
            place = self._at(log.name, offset or FIRST_EVENT)
            return replace(place, timestamp_ms=timestamp_ms)
        oldest = logs[0].name if logs else "none"
        raise PositionError(
            f"can't find start position for time {timestamp_ms} ms: the oldest binlog "
            f"file, {oldest}, begins later; configure a later time or "
            f"canal.instance.master.journal.name = {oldest} to take what is left"
        )

    def _at(self, file: str, offset: int) -> Place:
        gtids = self.scan_gtids(file, offset) if self.gtid_on else None
        return Place(file, offset, gtids)

    def _by_gtid(self, text: str) -> Place:
        try:
            if self.info.is_mariadb:
                return Place("", 0, MariaGtidSet.parse(text), by_gtid=True)
            return Place("", 0, GtidSet.parse(text), by_gtid=True)
        except ValueError as error:
            raise PositionError(f"GTID set {text[:200]!r}: {error}") from error

    def _current_end(self) -> Place:
        end = current_end(self.connection, self.info)
        if not self.gtid_on:
            return Place(end.file, end.position, None)
        if self.info.is_mariadb:
            return Place(end.file, end.position, MariaGtidSet.parse(end.gtids))
        return Place(end.file, end.position, GtidSet.parse(end.gtids))
