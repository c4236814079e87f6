"""A copy in the lake as of one version, read in parallel.

Leaves out how tables of the lake are written (`delta`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from deltalake import DeltaTable

from canal_server.mirror.lake.lake_table import DELETED

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCH_ROWS: Final = 65_536
_TABLES_KEPT: Final = 4  # tables whose logs a process caches


@dataclass(frozen=True)
class CopyRows:
    """Reads one file of a copy by its number; used by executors."""

    path: str
    version: int
    schema: pa.Schema  # of the compared columns
    has_deleted: bool
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file that are not marked as deleted.

        Raises ArrowInvalid for a value that does not fit the source's type.
        """
        dataset, fragments = _opened(self.path, self.version, self.options)
        rows = fragments[number].scanner(
            schema=dataset.schema,
            columns=self.schema.names,
            filter=~pa.compute.field(DELETED.name) if self.has_deleted else None,
            batch_size=BATCH_ROWS,
            batch_readahead=1,
            use_threads=False,
        )
        for batch in rows.to_batches():
            yield batch.cast(self.schema)

    @property
    def files(self) -> int:
        """Return the number of files."""
        return len(_opened(self.path, self.version, self.options)[1])


@lru_cache(maxsize=_TABLES_KEPT)
def _opened(
    path: str, version: int, options: tuple[tuple[str, str], ...]
) -> tuple[Any, list[Any]]:
    """Return a version of a table as a dataset, and its files in a stable order."""
    delta = DeltaTable(path, version=version, storage_options=dict(options))
    dataset = delta.to_pyarrow_dataset()
    return dataset, sorted(dataset.get_fragments(), key=lambda each: each.path)
