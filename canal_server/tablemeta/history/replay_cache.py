"""Replayed table schemas, cached for readers near the same positions.

Loading a snapshot of many tables is slow. A cached replay is usable for any position
whose statements start with those applied to it: it is copied, and follows the rest.
Where statements and snapshots come from is left to `tsdb`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canal_server.model.positions import EntryPosition
    from canal_server.tablemeta.history.replay import Replay
    from canal_server.tablemeta.storage.history_storage import BinlogSegment, DdlRecord

KEPT_MAX: Final = 4  # replays; copies of each other share their tables
FOLLOWED_MAX: Final = 400  # statements; for more, loading a newer snapshot is faster


@dataclass(frozen=True, slots=True)
class _Base:
    """The start of a replay, and the contained statements it expects."""

    segment: BinlogSegment  # except its end, which moves all the time
    snapshot: EntryPosition
    contained: tuple[DdlRecord, ...]


@dataclass(frozen=True, slots=True)
class _Kept:
    base: _Base
    applied: tuple[DdlRecord, ...]
    replay: Replay  # never changed


class KeptReplays:
    """The most recently used replays of one destination; for many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[_Kept] = []  # least recently used first

    def forget(self) -> None:
        """Drop all cached replays."""
        with self._lock:
            self._kept.clear()

    def snapshot_before(
        self, segment: BinlogSegment, position: EntryPosition
    ) -> EntryPosition | None:
        """Return the last snapshot at or before a position that has a cached replay."""
        with self._lock:
            found = [
                each.base.snapshot
                for each in self._kept
                if each.base.segment.id == segment.id
                and each.base.snapshot.order() <= position.order()
            ]
        return max(found, key=lambda each: each.order(), default=None)

    def copy(
        self,
        segment: BinlogSegment,
        snapshot: EntryPosition,
        later: Sequence[DdlRecord],
        position: EntryPosition,
    ) -> Replay | None:
        """Return a copy of a replay at a position; None if no cached one leads there.

        `later` are the currently known statements after the snapshot.
        """
        base, applied = _base(segment, snapshot, later), _before(later, position)
        with self._lock:
            nearest: _Kept | None = None
            for each in self._kept:
                count = len(each.applied)
                if (
                    (nearest is None or count > len(nearest.applied))
                    and each.base == base
                    and applied[:count] == each.applied
                ):
                    nearest = each
            if nearest is None or len(applied) - len(nearest.applied) > FOLLOWED_MAX:
                return None
            self._kept.remove(nearest)
            self._kept.append(nearest)
            replay = nearest.replay.copy()
        rest = applied[len(nearest.applied) :]
        for record in rest:
            replay.apply(record)
        if rest:
            self._put(_Kept(base, applied, replay.copy()))
        return replay

    def keep(
        self,
        segment: BinlogSegment,
        snapshot: EntryPosition,
        later: Sequence[DdlRecord],
        position: EntryPosition,
        replay: Replay,
    ) -> None:
        """Cache a copy of a replay in its state at a position."""
        base = _base(segment, snapshot, later)
        self._put(_Kept(base, _before(later, position), replay.copy()))

    def _put(self, kept: _Kept) -> None:
        with self._lock:
            self._kept.append(kept)
            del self._kept[:-KEPT_MAX]


def _base(
    segment: BinlogSegment, snapshot: EntryPosition, later: Sequence[DdlRecord]
) -> _Base:
    contained = tuple(record for record in later if record.contained)
    return _Base(replace(segment, last=segment.first), snapshot, contained)


def _before(
    later: Sequence[DdlRecord], position: EntryPosition
) -> tuple[DdlRecord, ...]:
    return tuple(each for each in later if each.position.order() < position.order())
