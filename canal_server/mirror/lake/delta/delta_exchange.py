"""Rows that a Delta table gives to another table, and those that it gets."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable

from canal_server.mirror.lake.delta import delta_rows
from canal_server.mirror.lake.delta.delta_log import commit_alone
from canal_server.mirror.lake.exchange.given_rows import in_batches

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deltalake import CommitProperties

    from canal_server.mirror.lake.conditions import Among
    from canal_server.mirror.lake.delta.delta_layout import Layout
    from canal_server.mirror.lake.exchange.given_rows import ReceivedRows


@dataclass(frozen=True, slots=True)
class DeltaGivenRows:
    """Rows of one version of a table that fulfil a condition; None: all of them."""

    path: str
    options: Mapping[str, str] = field(repr=False)  # with credentials
    version: int
    schema: pa.Schema  # the columns of rows
    where: Among | None
    upto: int  # position number after the statement that moves them

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows, in any order."""
        where = None if self.where is None else self.where.sql
        yield from in_batches(self._scan(where, self.schema))

    def has_others(self, where: Among) -> bool:
        """Check whether any row does not fulfil another condition."""
        first = pa.schema([self.schema.field(0)])
        others = f"({where.sql}) IS NOT TRUE"
        if self.where is not None:
            others = f"{self.where.sql} AND {others}"
        return any(len(rows) for rows in self._scan(others, first))

    def _scan(self, where: str | None, schema: pa.Schema) -> Iterator[pa.Table]:
        delta = DeltaTable(
            self.path, version=self.version, storage_options=dict(self.options)
        )
        rows = pa.RecordBatchReader.from_stream(delta.scan(schema.names, where))
        for batch in rows:
            # delta-rs returns texts as views.
            yield pa.table(batch).select(schema.names).cast(schema)


def replace_rows(
    delta: DeltaTable,
    received: ReceivedRows,
    layout: Layout,
    commit: CommitProperties,
) -> int:
    """Replace rows by those of another table; returns how many these are."""
    schema = layout.rows(pa.schema(delta.schema().to_arrow()))
    found, count = received.as_changed(schema), 0
    where = "" if received.where is None else received.where.sql
    first = next(found, None)
    if first is None:
        before = delta.version()
        if not received.adds:
            delta.delete(where or None, commit_properties=commit)
        if delta.version() == before:
            commit_alone(delta, commit)
        return 0
    found = chain([first], found)

    def following() -> pa.Table | None:
        nonlocal count
        rows = next(found, None)
        count += 0 if rows is None else len(rows)
        return rows

    delta_rows.write(
        delta, following, schema, layout, commit, where=None if received.adds else where
    )
    return count
