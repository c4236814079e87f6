"""The files of one version of a Delta table, read in parallel by processes.

Leaves out how tables of the lake are written (`delta`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from deltalake import DeltaTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

BATCH_ROWS: Final = 65_536
_TABLES_KEPT: Final = 4  # tables whose logs a process caches


@dataclass(frozen=True)
class VersionFiles:
    """The files of a version, in a stable order; can be pickled."""

    path: str
    version: int
    schema: pa.Schema
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, path: str, version: int, options: tuple[tuple[str, str], ...]) -> Self:
        """Return the files of a version, with its columns."""
        delta = DeltaTable(path, version=version, storage_options=dict(options))
        return cls(path, version, pa.schema(delta.schema().to_arrow()), options)

    def __len__(self) -> int:
        """Return the number of files."""
        return len(_opened(self.path, self.version, self.options)[1])

    def batches(
        self, number: int, names: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file, in its order; `names`: only these columns."""
        dataset, fragments = _opened(self.path, self.version, self.options)
        rows = fragments[number].scanner(
            schema=dataset.schema,
            columns=self.schema.names if names is None else list(names),
            batch_size=BATCH_ROWS,
            batch_readahead=1,
            use_threads=False,
        )
        yield from rows.to_batches()


@lru_cache(maxsize=_TABLES_KEPT)
def _opened(
    path: str, version: int, options: tuple[tuple[str, str], ...]
) -> tuple[Any, list[Any]]:
    """Return a version of a table as a dataset, and its files in a stable order."""
    delta = DeltaTable(path, version=version, storage_options=dict(options))
    dataset = delta.to_pyarrow_dataset()
    return dataset, sorted(dataset.get_fragments(), key=lambda each: each.path)
