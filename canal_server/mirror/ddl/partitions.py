"""Partitions of a table, as conditions on its rows in the lake.

`ALTER TABLE … DROP PARTITION` and `TRUNCATE PARTITION` delete rows without row events.
Where a partition is a range or a list of values of one column, the same rows can be
deleted in the lake. Leaves out the statements (`partition_statements`), and how
partitions are read from the source (`partition_watch`).
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from canal_server.mirror.ddl.partition_statements import PartitionChange
from canal_server.mirror.lake.conditions import Among, Interval
from canal_server.mirror.lake.lake_table import lake_schema
from canal_server.mirror.state.table_shape import Partition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from canal_server.mirror.ddl.partition_statements import PartitionStatement
    from canal_server.mirror.lake.lake_table import RowTable
    from canal_server.mirror.settings.table_values import MirrorTable
    from canal_server.mirror.state.table_shape import Partitions

_MAXVALUE: Final = "MAXVALUE"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS_BEFORE: Final = 365  # from MySQL's day 0 to the day before Python's first one
_DAY_S: Final = 86_400
_COLUMN: Final = re.compile(r"(?:(\w+)\s*\()?\s*(?:`((?:[^`]|``)+)`|(\w+))\s*\)?")
_INTEGER: Final = re.compile(r"-?\d+")
_ITEMS: Final = re.compile(r"'(?:[^'\\]|'')*'|[^,'\s]+")


class Condition(NamedTuple):
    """Which rows of the lake are in a partition.

    `never_null`: the column that must not be NULL in any row of the table, else "". The
    lake has NULL for dates that do not exist, which are in other partitions.
    """

    rows: Among
    never_null: str


class NoConditionError(Exception):
    """Why a partition's rows cannot be found by a condition."""


def partitions_after(
    partitions: Partitions, statement: PartitionStatement
) -> Partitions | None:
    """Return partitions after a statement; values of new ones are unknown.

    None if nothing is known any more.
    """
    if statement.change is PartitionChange.REDEFINE:
        return None
    parts = partitions.parts
    if statement.change is PartitionChange.ADD:
        parts += tuple(Partition(each) for each in statement.names)
    elif statement.change is PartitionChange.DROP:
        names = {each.lower() for each in statement.names}
        parts = tuple(each for each in parts if each.name.lower() not in names)
    return replace(partitions, parts=parts)


def deleted_rows(
    partitions: Partitions | None,
    statement: PartitionStatement,
    table: MirrorTable,
    lake: RowTable,
) -> Among | None:
    """Return the lake's rows that a statement deletes; None: all of them.

    Raises NoConditionError if it is not certain which ones these are, and LakeError.
    """
    if not statement.names:
        return None
    return _certain_rows(partitions, statement.names, table, lake)


def exchanged_rows(
    partitions: Partitions | None,
    partition: str,
    table: MirrorTable,
    lake: RowTable,
) -> Among:
    """Return the lake's rows of a partition that is exchanged.

    Raises NoConditionError if it is not certain which ones these are, and LakeError.
    """
    return _certain_rows(partitions, [partition], table, lake)


def _certain_rows(
    partitions: Partitions | None,
    names: Iterable[str],
    table: MirrorTable,
    lake: RowTable,
) -> Among:
    if partitions is None:
        raise NoConditionError("the partitions of the table are not known yet")
    found = condition_of(partitions, names, table)
    if found.never_null and lake.has_null(found.never_null):
        raise NoConditionError(f"column {found.never_null} has NULL, or no date")
    return found.rows


def condition_of(
    partitions: Partitions, names: Iterable[str], table: MirrorTable
) -> Condition:
    """Return the condition for the rows of some partitions.

    Raises NoConditionError.
    """
    method = partitions.method.upper()
    column, value_of = _column(partitions, table)
    intervals: list[Interval] = []
    has_null = False
    index = {each.name.lower(): n for n, each in enumerate(partitions.parts)}
    for name in names:
        number = index.get(name.lower())
        if number is None:
            raise NoConditionError(f"partition {name} is not known")
        if method.startswith("RANGE"):
            intervals.append(_range(partitions, number, value_of))
            has_null |= number == 0
        else:
            values, with_null = _list(partitions.parts[number], value_of)
            intervals += values
            has_null |= with_null
    rows = Among(column.target, column.kind, tuple(intervals), has_null)
    return Condition(rows, column.target if column.is_time else "")


class _Column(NamedTuple):
    """The column of the lake by which a table of the source is partitioned."""

    target: str
    kind: pa.DataType
    is_time: bool


def _column(
    partitions: Partitions, table: MirrorTable
) -> tuple[_Column, Callable[[str], Any]]:
    """Return the column in the lake, and what converts values of partitions."""
    method = partitions.method.upper()
    found = _COLUMN.fullmatch(partitions.expression.strip())
    if method not in _METHODS or found is None:
        raise NoConditionError(
            f"partitions BY {partitions.method} ({partitions.expression}) are no "
            "ranges or lists of one column"
        )
    function, name = (found[1] or "").lower(), found[2] or found[3]
    name = name.replace("``", "`")
    column = next((c for c in table.columns if c.name.lower() == name.lower()), None)
    if column is None or column.mask is not None:
        raise NoConditionError(f"column {name} is masked or left out")
    kind = lake_schema(table).field(column.target).type
    base = column.mysql_type.partition("(")[0].partition(" ")[0].lower()
    if function and (base not in _TIMES or function not in _FUNCTIONS):
        raise NoConditionError(f"{function}({name}) has no known order")
    if function and not method.startswith("RANGE"):
        raise NoConditionError(f"a list of {function}({name}) is not a list of values")
    if not function and base not in (*_INTEGERS, "date", "datetime"):
        raise NoConditionError(f"column {name} is {column.mysql_type}")
    convert = _FUNCTIONS[function] if function else _plain

    def value_of(text: str) -> Any:
        try:
            return convert(text, kind)
        except (ValueError, OverflowError) as error:
            raise NoConditionError(f"value {text} of a partition: {error}") from None

    return _Column(column.target, kind, base in _TIMES), value_of


def _range(
    partitions: Partitions, number: int, value_of: Callable[[str], Any]
) -> Interval:
    """Return the values of a range: from the previous one's bound to its own.

    NULL is in the first one.
    """
    known = [each.values for each in partitions.parts[: number + 1]]
    least, most = (known[-2] if number else None), known[-1]
    if "" in (least, most):
        raise NoConditionError(
            f"the bounds of partition {partitions.parts[number].name} are not known yet"
        )
    return Interval(
        None if least is None else value_of(least),
        None if most.upper() == _MAXVALUE else value_of(most),
    )


def _list(
    part: Partition, value_of: Callable[[str], Any]
) -> tuple[list[Interval], bool]:
    """Return the values of a list, and whether NULL is one of them."""
    items = _ITEMS.findall(part.values)
    if not items or "(" in part.values:
        raise NoConditionError(f"the values of partition {part.name} are not known")
    if any(each.upper() == "DEFAULT" for each in items):
        raise NoConditionError(f"partition {part.name} has all other values")
    values = [value_of(each) for each in items if each.upper() != "NULL"]
    found = [Interval(value, value, is_closed=True) for value in values]
    return found, len(values) < len(items)


def _plain(text: str, kind: pa.DataType) -> Any:
    """Return a value of the column itself."""
    if text.startswith("'"):
        text = text[1:-1]
        if pa.types.is_date(kind):
            return date.fromisoformat(text)
        if pa.types.is_timestamp(kind):
            return datetime.fromisoformat(text)
    if not _INTEGER.fullmatch(text) or pa.types.is_temporal(kind):
        raise ValueError("it is not a number or a date")
    if pa.types.is_decimal(kind):  # a BIGINT UNSIGNED, which catalogs show with a sign
        return Decimal(int(text) % (1 << 64))
    return int(text)


def _year(text: str, kind: pa.DataType) -> Any:
    return _as_time(date(int(text), 1, 1), kind)


def _to_days(text: str, kind: pa.DataType) -> Any:
    return _as_time(date.fromordinal(int(text) - _DAYS_BEFORE), kind)


def _to_seconds(text: str, kind: pa.DataType) -> Any:
    days, seconds = divmod(int(text), _DAY_S)
    if pa.types.is_date(kind):
        if seconds:
            raise ValueError("a date has no seconds")
        return _to_days(str(days), kind)
    return _to_days(str(days), kind) + timedelta(seconds=seconds)


def _unix_timestamp(text: str, kind: pa.DataType) -> Any:
    if not (pa.types.is_timestamp(kind) and kind.tz):
        raise ValueError("it depends on the time zone")
    return _EPOCH + timedelta(seconds=float(text))


def _as_time(day: date, kind: pa.DataType) -> Any:
    """Return the start of a day. A time zone would make it another moment."""
    if pa.types.is_date(kind):
        return day
    if pa.types.is_timestamp(kind) and not kind.tz:
        return datetime(day.year, day.month, day.day)  # noqa: DTZ001  # as in the lake
    raise ValueError("it depends on the time zone")


_METHODS: Final = ("RANGE", "RANGE COLUMNS", "LIST", "LIST COLUMNS")
_INTEGERS: Final = ("tinyint", "smallint", "mediumint", "int", "bigint")
_TIMES: Final = ("date", "datetime", "timestamp")
# Those that grow with the column's value.
_FUNCTIONS: Final[Mapping[str, Callable[[str, pa.DataType], Any]]] = {
    "year": _year,
    "to_days": _to_days,
    "to_seconds": _to_seconds,
    "unix_timestamp": _unix_timestamp,
}
