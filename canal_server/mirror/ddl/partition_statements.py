"""Statements that change the partitions of a table, by their text.

Leaves out what they mean for rows (`partitions`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from canal_server.doors.sqltext import Dialect, SqlReader, SqlTextError

_ALL: Final = "ALL"


class PartitionChange(StrEnum):
    """What a statement does with partitions."""

    DROP = "drops"  # with their rows, also if these become another table
    TRUNCATE = "empties"
    ADD = "adds"  # without rows
    REDEFINE = "redefines"  # all rows stay in the table


@dataclass(frozen=True, slots=True)
class PartitionStatement:
    """A change of partitions; no names with TRUNCATE: all of them."""

    change: PartitionChange
    names: tuple[str, ...] = ()

    @property
    def deletes(self) -> bool:
        """Whether rows disappear with it."""
        return self.change in (PartitionChange.DROP, PartitionChange.TRUNCATE)


@dataclass(frozen=True, slots=True)
class ExchangeStatement:
    """A statement by which a partition and another table exchange their rows.

    With MariaDB's CONVERT TABLE the other table becomes the partition, which is new.
    `is_checked`: all of its rows belong into the partition.
    """

    table: str  # the partitioned one, without its schema
    partition: str
    other: str
    is_convert: bool = False
    is_checked: bool = True


def exchange_statement(sql: str) -> ExchangeStatement | None:
    """Return which table exchanges rows with a partition. Never raises.

    None for anything else, and for a statement that does more than that.
    """
    try:
        return _exchange(SqlReader(sql, Dialect()))
    except SqlTextError:
        return None


def partition_statement(sql: str, table: str) -> PartitionStatement | None:
    """Return what a statement does with partitions of a table, by its name.

    None for anything else, also for changes of partitions that may change rows in
    another way, and for those that do more than that. Never raises.
    """
    try:
        return _read(SqlReader(sql, Dialect()), table)
    except SqlTextError:
        return None


def _read(reader: SqlReader, table: str) -> PartitionStatement | None:
    altered = _altered(reader)
    if altered is None or altered.lower() != table.lower():
        return None
    if reader.accept("DROP", "PARTITION"):
        reader.skip_if_exists()
        return _named(reader, PartitionChange.DROP)
    if reader.accept("TRUNCATE", "PARTITION"):
        return _named(reader, PartitionChange.TRUNCATE)
    if reader.accept("CONVERT", "PARTITION"):
        return _converted(reader)
    return _without_deletes(reader)


def _altered(reader: SqlReader) -> str | None:
    """Read up to the name of the table that is altered; returns the name."""
    if not (
        reader.accept("ALTER", "TABLE") or reader.accept("ALTER", "ONLINE", "TABLE")
    ):
        return None
    reader.skip_if_exists()
    return reader.names()[-1]


def _exchange(reader: SqlReader) -> ExchangeStatement | None:
    table = _altered(reader)
    if table is None:
        return None
    is_convert = reader.accept("CONVERT", "TABLE")
    if is_convert:
        other = reader.names()[-1]
        reader.expect("TO")
        reader.expect("PARTITION")
        partition = reader.name()
        while not reader.at_end() and reader.peek() not in (",", "WITH", "WITHOUT"):
            if reader.peek() == "(":
                reader.skip_parens()
            else:
                reader.next()
    elif reader.accept("EXCHANGE", "PARTITION"):
        partition = reader.name()
        reader.expect("WITH")
        reader.expect("TABLE")
        other = reader.names()[-1]
    else:
        return None
    is_checked = not reader.accept("WITHOUT")
    if not is_checked or reader.accept("WITH"):
        reader.expect("VALIDATION")
    if not reader.at_end():
        return None
    return ExchangeStatement(table, partition, other, is_convert, is_checked)


def _without_deletes(reader: SqlReader) -> PartitionStatement | None:
    """Read a change that leaves all rows in the table.

    A row that no partition takes is an error in the source.
    """
    if reader.accept("ADD", "PARTITION"):
        return _added(reader)
    is_so = (
        reader.accept("PARTITION", "BY")
        or (reader.accept("REMOVE", "PARTITIONING") and reader.at_end())
        or (
            reader.accept_any(("REORGANIZE", "COALESCE", "REBUILD", "OPTIMIZE"))
            and reader.peek() == "PARTITION"
        )
    )
    return PartitionStatement(PartitionChange.REDEFINE) if is_so else None


def _named(reader: SqlReader, change: PartitionChange) -> PartitionStatement | None:
    """Read the names of partitions, or ALL."""
    names = [] if reader.accept(_ALL) else [reader.name()]
    while reader.accept(","):
        names.append(reader.name())
    return PartitionStatement(change, tuple(names)) if reader.at_end() else None


def _converted(reader: SqlReader) -> PartitionStatement | None:
    """Read MariaDB's CONVERT PARTITION: another table has the rows afterwards.

    That is a new table, whose own statement this is, too; so nothing that could be a
    second change of this one may follow its name.
    """
    name = reader.name()
    if not reader.accept("TO", "TABLE"):
        return None
    reader.names()
    if reader.accept_any(("WITH", "WITHOUT")):
        reader.expect("VALIDATION")
    if not reader.at_end():
        return None
    return PartitionStatement(PartitionChange.DROP, (name,))


def _added(reader: SqlReader) -> PartitionStatement | None:
    reader.skip_if_exists()
    reader.accept_any(("NO_WRITE_TO_BINLOG", "LOCAL"))
    if not reader.accept("("):  # PARTITIONS n: hashed again, all rows stay
        return PartitionStatement(PartitionChange.REDEFINE)
    names = []
    while reader.accept("PARTITION"):
        names.append(reader.name())
        while reader.peek() not in (",", ")", ""):
            if reader.peek() == "(":
                reader.skip_parens()
            else:
                reader.next()
        if not reader.accept(","):
            break
    if not (names and reader.accept(")") and reader.at_end()):
        return PartitionStatement(PartitionChange.REDEFINE)
    return PartitionStatement(PartitionChange.ADD, tuple(names))
