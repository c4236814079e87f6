"""Replayed images, kept for who reads near the same places again.

To load a snapshot takes long where tables are many. A kept image stands for any place
whose statements begin with those that were applied to it: it is copied, and follows
the rest. Leaves out where statements and snapshots come from (`tsdb`).
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

KEPT_MAX: Final = 4  # images; those that came of each other share their tables
FOLLOWED_MAX: Final = 400  # statements; with more a newer snapshot is worth loading


@dataclass(frozen=True, slots=True)
class _Base:
    """What an image was begun with, and the contained statements it expects."""

    segment: BinlogSegment  # but for its end, which moves all the time
    snapshot: EntryPosition
    contained: tuple[DdlRecord, ...]


@dataclass(frozen=True, slots=True)
class _Kept:
    base: _Base
    applied: tuple[DdlRecord, ...]
    replay: Replay  # never changed any more


class KeptReplays:
    """A few images of one destination, those used last; for many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[_Kept] = []  # used last: at the end

    def forget(self) -> None:
        """Let go of all."""
        with self._lock:
            self._kept.clear()

    def snapshot_before(
        self, segment: BinlogSegment, place: EntryPosition
    ) -> EntryPosition | None:
        """Return the last snapshot at or before a place that an image is kept of."""
        with self._lock:
            found = [
                each.base.snapshot
                for each in self._kept
                if each.base.segment.id == segment.id
                and each.base.snapshot.order() <= place.order()
            ]
        return max(found, key=lambda each: each.order(), default=None)

    def copy(
        self,
        segment: BinlogSegment,
        snapshot: EntryPosition,
        behind: Sequence[DdlRecord],
        place: EntryPosition,
    ) -> Replay | None:
        """Return an image of its own at a place; None when no kept one leads there.

        `behind` are the statements behind the snapshot as they are known now.
        """
        base, applied = _base(segment, snapshot, behind), _before(behind, place)
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
        behind: Sequence[DdlRecord],
        place: EntryPosition,
        replay: Replay,
    ) -> None:
        """Keep an image as it is at a place; it is copied."""
        base = _base(segment, snapshot, behind)
        self._put(_Kept(base, _before(behind, place), replay.copy()))

    def _put(self, kept: _Kept) -> None:
        with self._lock:
            self._kept.append(kept)
            del self._kept[:-KEPT_MAX]


def _base(
    segment: BinlogSegment, snapshot: EntryPosition, behind: Sequence[DdlRecord]
) -> _Base:
    contained = tuple(record for record in behind if record.contained)
    return _Base(replace(segment, last=segment.first), snapshot, contained)


def _before(behind: Sequence[DdlRecord], place: EntryPosition) -> tuple[DdlRecord, ...]:
    return tuple(each for each in behind if each.position.order() < place.order())
