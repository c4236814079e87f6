"""Which files of a table are to be rewritten together, in the order of its key.

Changes mix the rows of files and add small ones, so the files' key ranges come to
overlap: keys that change together spread over more and more files, all of which the
next change rewrites. This chooses overlapping files and small neighbours:

    1────────5                    1──3
      2────────7       ──►            4──6
             6─7 8                        7─8

Leaves out how they are rewritten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# Rows of files that are sorted at once, in memory. Larger groups of overlapping files
# are left alone: keys all over the table change, which would mix them again.
ROWS_MAX: Final = 1_000_000
BYTES_MAX: Final = 48 << 20
SMALL: Final = 2  # files of less than this share of the target size are merged


class KeyedFile(NamedTuple):
    """A file, with the least and the greatest value of the key's first column."""

    least: Any
    greatest: Any
    path: str
    size: int
    rows: int


class Room(NamedTuple):
    """The budget of rows and bytes of one rewrite."""

    rows: int = ROWS_MAX
    size: int = BYTES_MAX

    def has(self, files: Sequence[KeyedFile]) -> bool:
        """Check whether files fit into it."""
        return self.count(files) == len(files)

    def count(self, files: Sequence[KeyedFile]) -> int:
        """Return how many of the files fit into it."""
        left: Room = self
        for number, file in enumerate(files):
            left = left.without([file])
            if left.rows < 0 or left.size < 0:
                return number
        return len(files)

    def without(self, files: Sequence[KeyedFile]) -> Room:
        """Return what is left of it."""
        return Room(
            self.rows - sum(file.rows for file in files),
            self.size - sum(file.size for file in files),
        )


WHOLE_ROOM: Final = Room()


def groups_of(
    partitions: Iterable[Sequence[KeyedFile]], size: int
) -> Iterator[list[KeyedFile]]:
    """Yield groups as `groups` does, each of files of one partition.

    Starts with the partition of the greatest keys.
    """
    room = WHOLE_ROOM
    ordered = sorted(
        partitions, key=lambda files: max(each.greatest for each in files), reverse=True
    )
    for files in ordered:
        for group in groups(files, size, room):
            room = room.without(group)
            yield group


def groups(
    files: Iterable[KeyedFile], size: int, room: Room = WHOLE_ROOM
) -> Iterator[list[KeyedFile]]:
    """Yield groups of files to rewrite together; `size` is the target size of a file.

    They overlap, or are small neighbours. Starts with the greatest keys, which are the
    most likely to change.
    """
    group: list[KeyedFile] = []
    for cluster in reversed(_clusters(files)):
        chosen = cluster if len(cluster) > 1 and room.has(cluster) else []
        if not chosen:
            small = [file for file in cluster if file.size < size // SMALL]
            chosen = small[: room.count(small)]
        room = room.without(chosen)
        group += chosen
        if len(chosen) < len(cluster):  # a remaining file separates its neighbours
            if len(group) > 1:
                yield group
            group = []
    if len(group) > 1:
        yield group


def _clusters(files: Iterable[KeyedFile]) -> list[list[KeyedFile]]:
    """Return groups of overlapping files, in the order of keys."""
    clusters: list[list[KeyedFile]] = []
    greatest = None
    for file in sorted(files, key=lambda each: (each.least, each.greatest)):
        # With a key of several columns, files may share one value of the first column.
        if greatest is None or file.least >= greatest:
            clusters.append([file])
            greatest = file.greatest
        else:
            clusters[-1].append(file)
            greatest = max(greatest, file.greatest)
    return clusters
