"""Columns of an Iceberg table after a DDL, by Iceberg's own rules where these suffice.

A column keeps its id when it is renamed, or gets a type in which readers read its old
files. Otherwise it becomes a new column, whose values are written again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from canal_server.mirror.lake.iceberg.iceberg_columns import Column, can_become
from canal_server.mirror.lake.keyless import row_hashes
from canal_server.mirror.lake.lake_table import HASH
from canal_server.mirror.lake.steps import AddColumn, DropColumn, RenameColumn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from canal_server.mirror.lake.reshape import Reshape
    from canal_server.mirror.lake.steps import Step


@dataclass(frozen=True, slots=True)
class Plan:
    """The columns after a DDL; `rewrites`: some have values that no file has."""

    columns: Sequence[Column]
    rewrites: bool
    reshape: Reshape

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows with the new columns. UnlikeError for values that do not fit."""
        for batch in batches:
            table = self.reshape.rows(pa.table(batch))
            if HASH.name in table.column_names:
                index = table.schema.get_field_index(HASH.name)
                table = table.set_column(index, HASH, row_hashes(table))
            yield from table.to_batches()


def reshaped(
    columns: Sequence[Column], last_id: int, reshape: Reshape, steps: Sequence[Step]
) -> Plan:
    """Return the columns after steps; `last_id` is the greatest id ever used."""
    known = {each.name: each for each in columns}
    rewrites = False
    for step in steps:
        if isinstance(step, RenameColumn):
            known[step.new] = known.pop(step.old)._replace(name=step.new)
        elif isinstance(step, DropColumn):
            known.pop(step.name, None)
        elif isinstance(step, AddColumn):
            rewrites |= step.writes
    found = []
    for field in reshape.schema:
        old = known.get(field.name)
        if old is not None and can_become(old.kind, field.type):
            found.append(old._replace(kind=field.type))
            continue
        rewrites |= old is not None
        last_id += 1
        found.append(Column(last_id, field.name, field.type))
    return Plan(found, rewrites, reshape)
