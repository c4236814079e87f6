"""Values of ranged reads: places with an epoch, and what a range is cut into.

Leaves out how they stand on the wire (`canal_server.protocol.range_messages`) and where
cursors are kept (`canal_server.ranges.range_cursors`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from canal_server.model.positions import binlog_file_number


@dataclass(frozen=True, slots=True)
class RangePlace:
    """A boundary in the binlog that an epoch names, or a place in a transaction.

    `position` is an offset behind an event; `begin`, where it is not 0, says that this
    lies inside of the transaction that begins there. `gtids` is the set executed there,
    empty where it is not known; it is no part of what the place is.
    """

    epoch: int
    journal: str
    position: int
    begin: int = 0
    gtids: str = field(default="", compare=False)

    def order(self) -> tuple[int, int, int]:
        """Return a key that sorts places of one destination."""
        return self.epoch, binlog_file_number(self.journal), self.position

    def __str__(self) -> str:
        return f"{self.journal}:{self.position} of epoch {self.epoch}"


@dataclass(frozen=True, slots=True)
class RangeLimits:
    """How much a range may hold, one transaction at least; 0: no limit.

    Bytes of ranges are those of their events in the binlog, before compression.
    """

    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class RangeEnds:
    """Where a range ends, and what is in it.

    `latest` is how far the source was read, and `latest_ms` the time there.
    """

    end: RangePlace
    rows: int
    bytes: int
    latest: RangePlace
    latest_ms: int


@dataclass(frozen=True, slots=True)
class RangePart:
    """A part; `commit` is where a transaction ends that goes on behind it."""

    start: RangePlace
    end: RangePlace
    rows: int
    bytes: int
    commit: RangePlace | None = None
    commit_ms: int = 0


@dataclass(frozen=True, slots=True)
class Subscription:
    """A named cursor of a destination; `filter` may be empty: what is configured.

    `acked_ms` is when the cursor was moved last, 0: never. A `temporary` one ends with
    the connection that made it, and is kept in memory only.
    """

    name: str
    filter: str
    cursor: RangePlace
    acked_ms: int = field(default=0, compare=False)
    temporary: bool = False


@dataclass(frozen=True, slots=True)
class Epoch:
    """Whose binlog positions belong to.

    `source` tells the server, and the binlog is the one in which `file` was begun at
    `began_s`.
    """

    number: int
    source: str
    file: str
    began_s: int
