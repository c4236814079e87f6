"""The position at which a dump starts, in the form each kind of server asks for.

Leaves out how it is chosen (`source.begin.start_finder`).
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
class StartPosition:
    """Where a dump starts.

    `file` and `position` name the first event; they are empty for a dump by GTID, where
    the server sends them. `gtids` is the executed set to continue from, None outside
    GTID mode. `timestamp_ms`: the position is after the last transaction older than
    this time, 0 when it was found in another way. `time_ms`: approximate time at which
    the source wrote the event there, 0 when unknown. `tracked`: the executed set
    outside GTID mode, as far as it is known; `tracked_at`: its offset, when that is
    after the position. `is_end`: the position is the current end of the binlog, so the
    next search finds another one.
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
        """Return the request for the server."""
        if self.by_gtid and isinstance(self.gtids, GtidSet):
            return GtidStart(self.gtids.encode())
        if self.by_gtid and isinstance(self.gtids, MariaGtidSet):
            return MariaGtidStart(str(self.gtids))
        return FileStart(self.file, self.position)

    def as_position(self, server_id: int, source: LogIdentity) -> EntryPosition:
        """Return it as an EntryPosition whose own entry is not yet delivered."""
        # In GTID mode only the server may know the file.
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
        """Return file and offset if they are known to lie between two transactions."""
        if self.by_gtid or not (self.position == FIRST_EVENT or self.timestamp_ms):
            return None
        return self.file, self.position

    def __str__(self) -> str:
        if self.by_gtid:
            return f"GTID set {str(self.gtids)[:200]!r}"
        return f"{self.file}:{self.position}"
