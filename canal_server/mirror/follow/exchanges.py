"""Statements by which a partition and another table exchange their rows.

::

    ALTER TABLE p EXCHANGE PARTITION a WITH TABLE t
    ALTER TABLE p CONVERT TABLE t TO PARTITION a

The binlog has no rows for them. If the lake has both tables up to the statement, each
gets the rows from the other one's table in the lake. Leaves out how rows are written
(`lake`), and what follows if this is not possible (`ddl.evolve`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from canal_server.mirror.ddl.partition_statements import (
    PartitionChange,
    PartitionStatement,
    exchange_statement,
)
from canal_server.mirror.ddl.partitions import (
    NoConditionError,
    exchanged_rows,
    partitions_after,
)
from canal_server.mirror.lake.exchange.given_rows import ExchangeTable
from canal_server.mirror.lake.reshape import are_alike
from canal_server.mirror.state.lake_tables import UnusableTableError
from canal_server.spark.packed.packed_rows import STATEMENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canal_server.mirror.ddl.partition_statements import ExchangeStatement
    from canal_server.mirror.follow.follower import Follower
    from canal_server.mirror.lake.conditions import Among
    from canal_server.mirror.lake.exchange.given_rows import GivenRows
    from canal_server.spark.packed.packed_rows import Packed


class _NotInLakeError(Exception):
    """Why rows cannot be exchanged in the lake."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A statement, as it is delivered for either table."""

    statement: ExchangeStatement
    partitioned: Packed
    other: Packed

    @property
    def items(self) -> tuple[Packed, Packed]:
        """Both of them, the partitioned table's first."""
        return self.partitioned, self.other


def exchange_of(one: Packed | None, two: Packed) -> Exchange | None:
    """Return the exchange whose items these are, in any order; None if not."""
    if one is None or (one.kind, one.seq, one.sql) != (two.kind, two.seq, two.sql):
        return None
    statement = exchange_statement(one.sql) if may_exchange(one) else None
    if statement is None:
        return None
    wanted = statement.table.lower(), statement.other.lower()
    for items in ((one, two), (two, one)):
        if tuple(each.table.table.lower() for each in items) == wanted:
            return Exchange(statement, *items)
    return None


def may_exchange(item: Packed) -> bool:
    """Check whether an item may be one of the two of an exchange."""
    if item.kind != STATEMENT or not item.is_ddl or not item.table.table:
        return False
    text = item.sql.upper()
    return "PARTITION" in text and ("EXCHANGE" in text or "CONVERT" in text)


class Exchanging:
    """One exchange of two followed tables; for one thread.

    The steps are to be called in their order. Each finds out if it was done before the
    process was killed.
    """

    def __init__(
        self,
        exchange: Exchange,
        partitioned: Follower,
        other: Follower,
        note: Mapping[str, str],
    ) -> None:
        """Set the tables; nothing is read yet."""
        self._exchange = exchange
        self._partitioned = partitioned
        self._other = other
        self._note = note
        self._where: Among | None = None  # the rows of the partition; None: it is new
        self._waiting: set[Follower] = set()  # that lack what the statement does
        self._rows: dict[Follower, GivenRows] = {}  # that a table gets

    def begin_partitioned(self) -> None:
        """Write the partitioned table's earlier changes; raises what `flush` raises."""
        follower, item = self._partitioned, self._exchange.partitioned
        if follower.awaits(item, self._note):
            self._waiting.add(follower)

    def begin_other(self) -> None:
        """Write the other table's earlier changes. Raises what `flush` raises."""
        follower, item = self._other, self._exchange.other
        if follower.awaits(item, self._note):
            self._waiting.add(follower)

    def find(self) -> str:
        """Find the rows that each table gets, unless it has got them.

        Returns why not, if that is not certain. Raises LakeError.
        """
        if not self._waiting:
            return self._missed()
        try:
            self._find()
        except (NoConditionError, _NotInLakeError) as error:
            return str(error)
        except UnusableTableError as error:
            return f"their rows cannot be read: {error}"
        return ""

    def _missed(self) -> str:
        """Return why the other table lacks the rows, although it is after this."""
        if self._other.lacks(self._exchange.other):
            return f"{_name(self._other)} was copied meanwhile"
        return ""

    def _find(self) -> None:
        statement, sides = self._exchange.statement, (self._partitioned, self._other)
        partitioned, other = (_checked(each) for each in sides)
        _check_alike(*sides)
        if self._other not in self._waiting and (why := self._missed()):
            raise _NotInLakeError(why)
        if not statement.is_convert:
            partitions, table = self._partitioned.columns.partitions, sides[0].table
            name = statement.partition
            found = exchanged_rows(partitions, name, table, partitioned)
            self._where = found
        elif not statement.is_checked:
            raise _NotInLakeError("the rows of the new partition were not checked")
        upto = self._exchange.partitioned.seq + 1
        if self._partitioned in self._waiting:
            rows = _given(other.given(self._other.copy_id, None, upto), self._other)
            if self._where is not None and rows.has_others(self._where):
                raise _NotInLakeError(
                    f"{_name(self._other)} has rows that do not belong into partition "
                    f"{statement.partition}"
                )
            self._rows[self._partitioned] = rows
        if self._other in self._waiting and self._where is not None:
            copy = self._partitioned.copy_id
            given = partitioned.given(copy, self._where, upto)
            self._rows[self._other] = _given(given, self._partitioned)

    def finish_partitioned(self) -> None:
        """Give the partitioned table its rows. Raises what `Follower.get` raises."""
        follower, item = self._partitioned, self._exchange.partitioned
        rows = self._rows.get(follower)
        if rows is not None:
            adds = self._exchange.statement.is_convert
            follower.get(item, rows, self._where, self._note, adds=adds)
        statement, partitions = self._exchange.statement, follower.columns.partitions
        if statement.is_convert and partitions is not None:
            added = PartitionStatement(PartitionChange.ADD, (statement.partition,))
            follower.use_partitions(partitions_after(partitions, added))

    def finish_other(self) -> None:
        """Give the other table its rows. Raises what `Follower.get` raises."""
        rows = self._rows.get(self._other)
        if rows is not None:
            self._other.get(self._exchange.other, rows, None, self._note)


def _checked(follower: Follower) -> ExchangeTable:
    """Return the lake's table of one side."""
    lake, table = follower.lake, follower.table
    if not isinstance(lake, ExchangeTable):
        raise _NotInLakeError(f"{_name(follower)} is a log of changes")
    if table.deletes == "soft":
        raise _NotInLakeError(f"{_name(follower)} keeps deleted rows")
    return lake


def _check_alike(*sides: Follower) -> None:
    """Raise unless both tables have the same columns, in the same form."""
    forms, schemas = [], []
    for each in sides:
        forms.append({column.target: column for column in each.table.columns})
        derived = {part.name for part in each.table.partitions if part.is_derived}
        schema = each.lake.arrow_schema()
        assert schema is not None  # it is followed
        schemas.append(pa.schema([f for f in schema if f.name not in derived]))
    if not (forms[0] == forms[1] and are_alike(*schemas)):
        raise _NotInLakeError(
            f"{' and '.join(map(_name, sides))} have other columns, types or masks in "
            "the lake"
        )


def _given(rows: GivenRows | None, follower: Follower) -> GivenRows:
    if rows is None:
        raise _NotInLakeError(f"{_name(follower)} was changed since the statement")
    return rows


def _name(follower: Follower) -> str:
    return f"table {follower.table.source}"
