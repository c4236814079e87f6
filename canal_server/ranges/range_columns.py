"""What tables are at a place, for those who ask again and again.

Tasks of a stream ask what their tables were where they begin, and behind each
statement. To find out takes a look at the source and at the history; the image that is
found is kept, for all tables of the place, for all places behind it while no statement
came, and as the base of others that lie further on.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from canal_server.model.positions import EntryPosition, binlog_file_number
from canal_server.ranges.range_schemas import RangeSchemas

if TYPE_CHECKING:
    from canal_server.model.columns_known import TableMeta
    from canal_server.model.ranges import RangePlace
    from canal_server.ranges.range_access import RangeAccess
    from canal_server.ranges.range_schemas import KeptSchema

IMAGES_MAX: Final = 8  # that are kept; they share the tables that are the same in them


class TablesAt:
    """Tells what tables are at a place; thread-safe."""

    def __init__(self, access: RangeAccess) -> None:
        self._access = access
        self._lock = threading.Lock()  # guards what follows, and looking into images
        self._epoch: int | None = None  # whose places the images are of
        self._images: list[KeptSchema] = []  # used last: at the end
        self._steady: tuple[int, KeptSchema] | None = None  # behind the last statement

    def find(self, schema: str, table: str, at: RangePlace) -> TableMeta | None:
        """Return what a table is at a place; None when there is none.

        Raises ClientError when that cannot be told.
        """
        number = self._state_at(at)
        place = EntryPosition(at.journal, at.begin or at.position)
        with self._lock:
            image = self._image_of(at.epoch, number, place)
            if image is not None:
                return image.find(schema, table)
        with self._access.dump() as dump:
            images, found_place = dump.images(at)
            # Before it is asked, as that may lead it further on.
            if isinstance(images, RangeSchemas) and dump.epoch.number == at.epoch:
                image = images.kept_at(place)
            found = images.find(schema, table, found_place)
        if image is not None:
            # A session that began meanwhile may be one of another server.
            if self._state_at(at) != number:
                number = None
            with self._lock:
                self._keep(at.epoch, number, image)
        return found

    def forget(self) -> None:
        """Let go of all images."""
        with self._lock:
            self._epoch = self._steady = None
            self._images.clear()

    def _image_of(
        self, epoch: int, number: int | None, place: EntryPosition
    ) -> KeptSchema | None:
        assert self._lock.locked()
        if epoch != self._epoch:
            return None
        if self._steady is not None and self._steady[0] == number:
            return self._steady[1]
        nearest = max(
            (each for each in self._images if each.covers(place)),
            key=lambda each: each.place.order(),
            default=None,
        )
        if nearest is None:
            return None
        self._images.remove(nearest)
        self._images.append(nearest)
        if nearest.place.order() == place.order():
            return nearest
        image = nearest.at(place)
        self._keep(epoch, number, image)
        return image

    def _keep(self, epoch: int, number: int | None, image: KeptSchema) -> None:
        assert self._lock.locked()
        if epoch != self._epoch:
            self._epoch, self._steady = epoch, None
            self._images.clear()
        if number is not None:
            self._steady = number, image
        if image.covers(image.place):
            self._images.append(image)
            del self._images[:-IMAGES_MAX]

    def _state_at(self, at: RangePlace) -> int | None:
        """Return the history's state at a place; None where it may not be the last one.

        The tail first: a statement is in the history before the tail has what follows
        it, so one that comes in between the two looks lies behind the place.
        """
        live = self._access.stages()
        epoch, latest = self._access.epoch_of(live), live.tail.latest()
        steady = live.pump.steady
        if epoch is None or latest is None or steady is None or at.epoch != epoch:
            return None
        end = binlog_file_number(latest[0]), latest[1]
        if (binlog_file_number(at.journal), at.position) > end:
            return None
        place = EntryPosition(at.journal, at.begin or at.position)
        return steady.number if steady.since.order() <= place.order() else None
