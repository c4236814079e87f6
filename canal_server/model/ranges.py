"""Values of ranged reads: positions with an epoch, and the parts of a range.

Leaves out their wire format (`canal_server.protocol.range_messages`) and how cursors
are stored (`canal_server.ranges.range_cursors`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from canal_server.model.positions import binlog_file_number


@dataclass(frozen=True, slots=True)
class EpochPosition:
    """A transaction boundary of an epoch's binlog, or a position in a transaction.

    `position` is the offset after an event. `begin`, where it is not 0, is the offset
    where the transaction begins that contains the position. `gtids` is the set executed
    up to it, empty where it is not known; it is not compared.
    """

    epoch: int
    journal: str
    position: int
    begin: int = 0
    gtids: str = field(default="", compare=False)

    def order(self) -> tuple[int, int, int]:
        """Return a key that sorts positions of one destination."""
        return self.epoch, binlog_file_number(self.journal), self.position

    def __str__(self) -> str:
        return f"{self.journal}:{self.position} of epoch {self.epoch}"


@dataclass(frozen=True, slots=True)
class RangeLimits:
    """How much a range may hold, but at least one transaction; 0: no limit.

    The bytes are those of the events in the binlog, before compression.
    """

    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class RangeEnds:
    """Where a range ends, and how much it holds.

    `latest` is how far the source was read, and `latest_ms` the time there.
    """

    end: EpochPosition
    rows: int
    bytes: int
    latest: EpochPosition
    latest_ms: int


@dataclass(frozen=True, slots=True)
class RangePart:
    """A part of a range; `commit` is the end of a transaction that the part cuts."""

    start: EpochPosition
    end: EpochPosition
    rows: int
    bytes: int
    commit: EpochPosition | None = None
    commit_ms: int = 0


@dataclass(frozen=True, slots=True)
class Subscription:
    """A named cursor of a destination; an empty `filter` is the configured one.

    `acked_ms` is when the cursor last moved, 0: never. A `temporary` subscription ends
    with the connection that made it, and is kept in memory only.
    """

    name: str
    filter: str
    cursor: EpochPosition
    acked_ms: int = field(default=0, compare=False)
    temporary: bool = False


@dataclass(frozen=True, slots=True)
class Epoch:
    """The binlog that positions belong to.

    `source` identifies the server. Of its binlogs it is the one whose file `file` was
    created at `began_s`.
    """

    number: int
    source: str
    file: str
    began_s: int
