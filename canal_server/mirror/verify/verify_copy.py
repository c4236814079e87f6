"""A copy in the lake as of one version, read in parallel.

Leaves out how a format finds its files (`lake`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from canal_server.mirror.lake.lake_table import DELETED

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from canal_server.mirror.lake.lake_table import Files


@dataclass(frozen=True)
class CopyRows:
    """Reads one file of a copy by its number; used by executors."""

    version_files: Files
    schema: pa.Schema  # of the compared columns
    has_deleted: bool

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file that are not marked as deleted.

        Raises ArrowInvalid for a value that does not fit the source's type.
        """
        marks = [DELETED.name] if self.has_deleted else []
        names = [*self.schema.names, *marks]
        for batch in self.version_files.batches(number, names):
            rows = batch
            if self.has_deleted:
                rows = batch.filter(pc.invert(batch.column(DELETED.name)))
            yield rows.select(self.schema.names).cast(self.schema)

    @property
    def files(self) -> int:
        """Return the number of files."""
        return len(self.version_files)
