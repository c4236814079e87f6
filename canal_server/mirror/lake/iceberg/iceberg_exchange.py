"""Rows that an Iceberg table gives to another table, and those that it gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from canal_server.mirror.lake.exchange.given_rows import in_batches
from canal_server.mirror.lake.iceberg.iceberg_columns import arrow_schema
from canal_server.mirror.lake.iceberg.iceberg_commit import Change
from canal_server.mirror.lake.iceberg.iceberg_versions import current_columns
from canal_server.mirror.lake.iceberg.iceberg_writes import rewriter, writing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyiceberg.table import Table

    from canal_server.mirror.lake.conditions import Among
    from canal_server.mirror.lake.exchange.given_rows import ReceivedRows
    from canal_server.mirror.lake.iceberg.iceberg_files import FileRows
    from canal_server.mirror.lake.iceberg.iceberg_versions import Versions
    from canal_server.mirror.settings.table_values import MirrorTable


@dataclass(frozen=True, slots=True)
class IcebergGivenRows:
    """Rows of one version of a table that fulfil a condition; None: all of them."""

    files: FileRows
    where: Among | None
    upto: int  # position number after the statement that moves them

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows, in the order of the files."""
        yield from in_batches(self._rows())

    def has_others(self, where: Among) -> bool:
        """Check whether any row does not fulfil another condition."""
        return any(
            not pc.all(where.chosen(rows[where.column].combine_chunks())).as_py()
            for rows in self._rows([where.column])
            if len(rows)
        )

    def _rows(self, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        wanted = names
        if names is not None and self.where is not None:
            wanted = [*names, self.where.column]
        for number in range(len(self.files)):
            for batch in self.files.batches(number, wanted):
                rows = batch
                if self.where is not None:
                    rows = batch.filter(
                        self.where.chosen(batch.column(self.where.column))
                    )
                yield pa.table(rows)


def replace_rows(
    versions: Versions,
    table: Table,
    definition: MirrorTable,
    received: ReceivedRows,
    record: Mapping[str, str],
) -> int:
    """Replace rows by those of another table; returns how many these are."""
    columns, count = current_columns(table), 0
    with writing(table, definition, columns) as writer:
        files = rewriter(versions, table, writer)
        change = Change() if received.adds else files.without(received.where)
        for rows in received.as_changed(arrow_schema(columns)):
            count += len(rows)
            change.added += writer.write_table(rows)
        versions.commit(table, change, record)
    return count
