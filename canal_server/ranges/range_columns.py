"""The columns of tables at a position, for callers that ask repeatedly.

Tasks of a stream look up their tables where they start, and after each statement. A
look-up queries the source and the history; the schema found is cached: for all tables
at the position, for all later positions until the next statement, and as the base for
positions after that.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from canal_server.model.positions import EntryPosition, binlog_file_number
from canal_server.ranges.range_schemas import RangeSchemas

if TYPE_CHECKING:
    from canal_server.model.columns_known import TableMeta
    from canal_server.model.ranges import EpochPosition
    from canal_server.ranges.range_access import RangeAccess
    from canal_server.ranges.range_schemas import SchemaSnapshot

IMAGES_MAX: Final = 8  # cached; they share the tables that are equal


class TablesAt:
    """Finds tables' columns at a position; thread-safe."""

    def __init__(self, access: RangeAccess) -> None:
        self._access = access
        self._lock = threading.Lock()  # guards what follows, and reading the schemas
        self._epoch: int | None = None  # the epoch of the schemas' positions
        self._images: list[SchemaSnapshot] = []  # most recently used last
        # The snapshot after the last statement.
        self._steady: tuple[int, SchemaSnapshot] | None = None

    def find(self, schema: str, table: str, at: EpochPosition) -> TableMeta | None:
        """Return a table's columns at a position; None when it does not exist.

        Raises ClientError when they are unknown.
        """
        number = self._state_at(at)
        position = EntryPosition(at.journal, at.begin or at.position)
        with self._lock:
            image = self._image_of(at.epoch, number, position)
            if image is not None:
                return image.find(schema, table)
        with self._access.dump() as dump:
            images, found_at = dump.images(at)
            # Before it is queried, because that may move it forward.
            if isinstance(images, RangeSchemas) and dump.epoch.number == at.epoch:
                image = images.snapshot_at(position)
            found = images.find(schema, table, found_at)
        if image is not None:
            # A session that started meanwhile may be one of another server.
            if self._state_at(at) != number:
                number = None
            with self._lock:
                self._keep(at.epoch, number, image)
        return found

    def forget(self) -> None:
        """Clear the cache."""
        with self._lock:
            self._epoch = self._steady = None
            self._images.clear()

    def _image_of(
        self, epoch: int, number: int | None, position: EntryPosition
    ) -> SchemaSnapshot | None:
        assert self._lock.locked()
        if epoch != self._epoch:
            return None
        if self._steady is not None and self._steady[0] == number:
            return self._steady[1]
        nearest = max(
            (each for each in self._images if each.covers(position)),
            key=lambda each: each.position.order(),
            default=None,
        )
        if nearest is None:
            return None
        self._images.remove(nearest)
        self._images.append(nearest)
        if nearest.position.order() == position.order():
            return nearest
        image = nearest.at(position)
        self._keep(epoch, number, image)
        return image

    def _keep(self, epoch: int, number: int | None, image: SchemaSnapshot) -> None:
        assert self._lock.locked()
        if epoch != self._epoch:
            self._epoch, self._steady = epoch, None
            self._images.clear()
        if number is not None:
            self._steady = number, image
        if image.covers(image.position):
            self._images.append(image)
            del self._images[:-IMAGES_MAX]

    def _state_at(self, at: EpochPosition) -> int | None:
        """Return the history's state at a position, None if it may have changed since.

        The tail is read first: a statement is in the history before the tail has what
        follows it, so one added between the two reads lies after the position.
        """
        live = self._access.stages()
        epoch, latest = self._access.epoch_of(live), live.tail.latest()
        steady = live.pump.schemas.steady
        if epoch is None or latest is None or steady is None or at.epoch != epoch:
            return None
        end = binlog_file_number(latest[0]), latest[1]
        if (binlog_file_number(at.journal), at.position) > end:
            return None
        position = EntryPosition(at.journal, at.begin or at.position)
        return steady.number if steady.since.order() <= position.order() else None
