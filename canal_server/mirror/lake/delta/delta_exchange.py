"""Rows that one Delta table gives to another, as EXCHANGE PARTITION does it.

::

    p: ... version 7 ───►  8: its partition has the rows of version 4 of t
    t: ... version 4 ───►  5: has the rows of the partition in version 7 of p

Each table gets the rows in one commit, from a version of the other one that stays
readable: if the process is killed between the two, the second commit finds what it
needs. Leaves out which rows these are (`ddl.partitions`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from deltalake import DeltaTable

from canal_server.mirror.lake.delta import delta_rows
from canal_server.mirror.lake.delta.delta_log import commit_alone
from canal_server.mirror.lake.keyless import row_hashes
from canal_server.mirror.lake.lake_table import HASH, ROW, SEQ, TIME

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deltalake import CommitProperties

    from canal_server.mirror.lake.delta.delta_layout import Layout

BATCH_ROWS: Final = 100_000  # that are written at once, at least


@dataclass(frozen=True, slots=True)
class GivenRows:
    """Rows of one version of a table that fulfil a condition; "": all of them."""

    path: str
    options: Mapping[str, str]
    version: int
    schema: pa.Schema  # the columns of rows
    where: str
    upto: int  # position number after the statement that moves them

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows, in any order."""
        yield from self._scan(self.where, self.schema)

    def has_others(self, where: str) -> bool:
        """Check whether any row does not fulfil another condition."""
        first = pa.schema([self.schema.field(0)])
        return any(len(each) for each in self._scan(f"({where}) IS NOT TRUE", first))

    def _scan(self, where: str, schema: pa.Schema) -> Iterator[pa.Table]:
        delta = DeltaTable(
            self.path, version=self.version, storage_options=dict(self.options)
        )
        rows = pa.RecordBatchReader.from_stream(delta.scan(schema.names, where or None))
        gathered: list[pa.Table] = []
        for batch in rows:
            # delta-rs returns texts as views.
            gathered.append(pa.table(batch).select(schema.names).cast(schema))
            if sum(map(len, gathered)) >= BATCH_ROWS:
                yield pa.concat_tables(gathered)
                gathered.clear()
        if gathered:
            yield pa.concat_tables(gathered)


def replace_rows(
    delta: DeltaTable,
    given: GivenRows,
    layout: Layout,
    commit: CommitProperties,
    *,
    where: str | None,
    at_ms: int,
) -> int:
    """Replace rows by those of another table; returns how many these are.

    Those that fulfil `where` are replaced; "": all, None: none. The statement, at the
    time `at_ms`, becomes the last change of the other table's rows.
    """
    schema = layout.rows(pa.schema(delta.schema().to_arrow()))
    found, count = given.tables(), 0
    first = next(found, None)
    if first is None:
        before = delta.version()
        if where is not None:
            delta.delete(where or None, commit_properties=commit)
        if delta.version() == before:
            commit_alone(delta, commit)
        return 0
    found = chain([first], found)

    def following() -> pa.Table | None:
        nonlocal count
        rows = next(found, None)
        if rows is None:
            return None
        rows = rows.select(schema.names).cast(schema)
        rows = _as_changed(rows, given.upto - 1, at_ms, count)
        count += len(rows)
        return rows

    delta_rows.write(delta, following, schema, layout, commit, where=where)
    return count


def _as_changed(rows: pa.Table, seq: int, at_ms: int, first: int) -> pa.Table:
    """Return rows with the mirror's columns of a change."""
    time = pa.scalar(at_ms * 1000 if at_ms else None, pa.int64()).cast(TIME.type)
    columns = {
        SEQ.name: pa.repeat(pa.scalar(seq, SEQ.type), len(rows)),
        ROW.name: pa.array(range(first, first + len(rows)), ROW.type),
        TIME.name: pa.repeat(time, len(rows)),
    }
    if HASH.name in rows.column_names:
        # The other table may have its columns in another order.
        columns[HASH.name] = row_hashes(rows)
    for name, values in columns.items():
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, rows.schema.field(index), values)
    return rows
