"""Who is informed of the progress of copies: what a person sees, and the metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from canal_server.mirror.copy.copying import CopyProgress
    from canal_server.mirror.settings.table_values import TableName


class CopyWatch(Protocol):
    """Is informed of copies, by their threads."""

    def copying(
        self, name: TableName, progress: CopyProgress, expected: int = 0
    ) -> None:
        """Record a copy's progress; `expected` is the database's estimate of rows."""

    def copied(self, name: TableName) -> None:
        """Record that a copy is in the lake, or was abandoned; may be repeated."""


class CopyWatches:
    """Informs several."""

    def __init__(self, *watches: CopyWatch) -> None:
        self._watches = watches

    def copying(
        self, name: TableName, progress: CopyProgress, expected: int = 0
    ) -> None:
        """Inform all of a copy's progress."""
        for each in self._watches:
            each.copying(name, progress, expected)

    def copied(self, name: TableName) -> None:
        """Inform all of a copy's end."""
        for each in self._watches:
            each.copied(name)
