"""A position at which a dump begins, as each kind of server is asked for it.

Leaves out who decides on it (`source.begin.start_finder`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.model.positions import EntryPosition
from canal_server.mysql.replication import (
    DumpStart,
    FileStart,
    GtidStart,
    MariaGtidStart,
)

if TYPE_CHECKING:
    from canal_server.model.positions import LogIdentity
    from canal_server.source.read.gtid_sets import Gtids

FIRST_EVENT = 4  # offset of the first event of every file


@dataclass(frozen=True, slots=True)
class Place:
    """Where a dump begins.

    `file` and `position` name the first event; empty for a dump by GTID, which tells
    them itself. `gtids` is the executed set to go on from, None outside GTID mode.
    `timestamp_ms`: the place is behind the last transaction older than this time, 0
    when it was found in another way. `time_ms`: about when the source wrote what
    stands there, 0 when that is not known. `tracked`: the executed set outside GTID
    mode, as far as it is known; `tracked_at`: of which offset, when that is behind the
    place. `is_end`: it is the end that the binlog has now, so that it is another one at
    the next look.
    """

    file: str
    position: int
    gtids: Gtids | None
    by_gtid: bool = False
    timestamp_ms: int = 0
    time_ms: int = 0
    tracked: Gtids | None = None
    tracked_at: int = 0
    is_end: bool = False

    def dump_start(self) -> DumpStart:
        """Return what to ask the server for."""
        if self.by_gtid and isinstance(self.gtids, GtidSet):
            return GtidStart(self.gtids.encode())
        if self.by_gtid and isinstance(self.gtids, MariaGtidSet):
            return MariaGtidStart(str(self.gtids))
        return FileStart(self.file, self.position)

    def as_position(self, server_id: int, source: LogIdentity) -> EntryPosition:
        """Return the place as a position whose own entry is still to come."""
        # In GTID mode the file may only be known to the server.
        return EntryPosition(
            self.file or None,
            self.position or None,
            self.time_ms or None,
            server_id,
            gtid=str(self.gtids) if self.gtids else None,
            included=True,
            source=source,
        )

    @property
    def boundary(self) -> tuple[str, int] | None:
        """File and offset if they are known to be between two transactions."""
        if self.by_gtid or not (self.position == FIRST_EVENT or self.timestamp_ms):
            return None
        return self.file, self.position

    def __str__(self) -> str:
        if self.by_gtid:
            return f"GTID set {str(self.gtids)[:200]!r}"
        return f"{self.file}:{self.position}"
