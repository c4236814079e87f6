"""Rows of the source to compare: chunks of a table, in the lake's form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from canal_server.mirror.lake import masks
from canal_server.mirror.rows.chunk_read import read_chunk

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from canal_server.mirror.rows.chunks import Chunk
    from canal_server.mirror.settings.table_values import MirrorTable
    from canal_server.mysql.source_settings import Access


@dataclass(frozen=True)
class SourceRows:
    """Reads one chunk of a table by its number; used by executors."""

    access: Access
    table: MirrorTable
    chunks: tuple[Chunk, ...]
    rows_per_s: int = 0  # per task; 0: no limit

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the current rows, masked. Raises SourceError, DecodeError."""
        chunk = self.chunks[number]
        for rows in read_chunk(
            self.access, self.table, chunk, rows_per_s=self.rows_per_s
        ):
            yield masks.apply(rows, self.table)
