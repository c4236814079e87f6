"""Rows that one table of the lake gives to another, as EXCHANGE PARTITION does it.

::

    p: ... version 7 ───►  8: its partition has the rows of version 4 of t
    t: ... version 4 ───►  5: has the rows of the partition in version 7 of p

Each table gets the rows in one commit, from a version of the other one that stays
readable: if the process is killed between the two, the second commit finds what it
needs. Leaves out which rows these are (`ddl.partitions`), and how formats write them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import pyarrow as pa

from canal_server.mirror.lake.keyless import row_hashes
from canal_server.mirror.lake.lake_table import HASH, ROW, SEQ, TIME, RowTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from canal_server.mirror.lake.conditions import Among

BATCH_ROWS: Final = 100_000  # that are written at once, at least


class GivenRows(Protocol):
    """Rows of one version of a table that fulfil a condition."""

    @property
    def upto(self) -> int:
        """The position number after the statement that moves them."""

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows, in any order, with the columns of the lake."""

    def has_others(self, where: Among) -> bool:
        """Check whether any row does not fulfil another condition."""


@dataclass(frozen=True, slots=True)
class ReceivedRows:
    """Rows that a table gets from another one, and those that they replace."""

    rows: GivenRows
    at_ms: int  # time of the statement that moves them; 0: unknown
    where: Among | None = None  # the rows that they replace; None: all
    adds: bool = False  # they replace none

    def as_changed(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows with the columns of the table that gets them.

        The statement becomes their last change.
        """
        at = self.at_ms * 1000 if self.at_ms else None
        time = pa.scalar(at, pa.int64()).cast(TIME.type)
        first = 0
        for table in self.rows.tables():
            found = table.select(schema.names).cast(schema)
            columns = {
                SEQ.name: pa.repeat(
                    pa.scalar(self.rows.upto - 1, SEQ.type), len(found)
                ),
                ROW.name: pa.array(range(first, first + len(found)), ROW.type),
                TIME.name: pa.repeat(time, len(found)),
            }
            if HASH.name in found.column_names:
                # The other table may have its columns in another order.
                columns[HASH.name] = row_hashes(found)
            for name, values in columns.items():
                index = found.schema.get_field_index(name)
                found = found.set_column(index, found.schema.field(index), values)
            first += len(found)
            yield found


@runtime_checkable
class ExchangeTable(RowTable, Protocol):
    """A table that can exchange rows with another one. Methods may raise LakeError."""

    def given(self, copy_id: str, where: Among | None, upto: int) -> GivenRows | None:
        """Return the rows that another table gets by a statement, from before it.

        `where`: which ones; None: all. `upto`: the position number after the statement.
        None if no version has these rows.
        """

    def exchange(
        self, copy_id: str, received: ReceivedRows, note: Mapping[str, str]
    ) -> int:
        """Commit rows of another table instead of those that they replace.

        Returns how many; 0 if the statement was applied before.
        """

    def exchanged(self, copy_id: str) -> int:
        """Return the position number after the last exchange; NOWHERE if none."""


def in_batches(rows: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the same rows in fewer tables."""
    gathered: list[pa.Table] = []
    for each in rows:
        gathered.append(each)
        if sum(map(len, gathered)) >= BATCH_ROWS:
            yield pa.concat_tables(gathered)
            gathered.clear()
    if gathered:
        yield pa.concat_tables(gathered)
