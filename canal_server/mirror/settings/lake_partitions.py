"""By what the tables of a rule are partitioned in the lake: `partition_by`.

::

    partition_by: [region, month(created_at), bucket(16, id)]

Leaves out the values of rows (`lake.partition_values`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.mirror.settings.table_values import TEXT_TYPES, LakePartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from canal_server.mirror.settings.table_values import MirrorColumn

YEAR: Final = "year"
MONTH: Final = "month"
DAY: Final = "day"
BUCKET: Final = "bucket"
PART: Final = "part"  # of a text in a Delta table
ITSELF: Final = ""
TIMES: Final = (YEAR, MONTH, DAY)
FIELDS_MAX: Final = 4
COLUMNS_SHOWN: Final = 8
BUCKETS: Final = (2, 1024)  # at least, at most

_COMMA: Final = re.compile(r",(?![^(]*\))")  # outside of parentheses
_CALL: Final = re.compile(r"(year|month|day)\(\s*(.+?)\s*\)", re.IGNORECASE)
_BUCKET: Final = re.compile(r"bucket\(\s*(\d{1,9})\s*,\s*(.+?)\s*\)", re.IGNORECASE)
_PLAIN: Final = re.compile(r"[A-Za-z0-9_]+")
_WHOLE: Final = ("tinyint", "smallint", "mediumint", "int", "bigint", "year")
_TEXTS: Final = (*TEXT_TYPES, "enum", "set")
_DATES: Final = ("date", "datetime", "timestamp")


@dataclass(frozen=True, slots=True)
class PartitionExpression:
    """A column, or a function of one, as a rule names it."""

    function: str
    column: str  # of the source
    count: int = 0  # of buckets

    @classmethod
    def parse(cls, text: str) -> PartitionExpression:
        """Return the expression that a text stands for. Raises ValueError."""
        if found := _BUCKET.fullmatch(text):
            count = int(found[1])
            least, most = BUCKETS
            if not least <= count <= most:
                raise ValueError(f"write {least} to {most:,} buckets")
            return cls(BUCKET, found[2], count)
        if found := _CALL.fullmatch(text):
            return cls(found[1].lower(), found[2])
        if "(" in text or not text.strip():
            raise ValueError(
                "write a column, year(column), month(column), day(column) or "
                "bucket(16, column)"
            )
        return cls(ITSELF, text)

    def __str__(self) -> str:
        if self.function == BUCKET:
            return f"{BUCKET}({self.count}, {self.column})"
        if self.function:
            return f"{self.function}({self.column})"
        return self.column


def expressions_of(text: str) -> tuple[PartitionExpression, ...]:
    """Return the expressions of a list, separated by commas. Raises ValueError."""
    found = tuple(map(_parsed, _COMMA.split(text)))
    if len(found) > FIELDS_MAX:
        raise ValueError(f"write at most {FIELDS_MAX} columns")
    return found


def _parsed(text: str) -> PartitionExpression:
    item = text.strip()
    try:
        return PartitionExpression.parse(item)
    except ValueError as error:
        raise ValueError(f"{item or 'an empty item'}: {error}") from error


def partitions_of(
    expressions: Sequence[PartitionExpression],
    columns: Sequence[MirrorColumn],
    form: str,
) -> tuple[LakePartition, ...]:
    """Return by what a table with these columns is partitioned.

    Expressions that do not fit the columns are left out: see `problems`.
    """
    by_name = {each.name.lower(): each for each in columns}
    found = []
    for each in expressions:
        column = by_name.get(each.column.lower())
        if column is not None and not _problem(each, column):
            function = each.function
            if not function and form == "delta" and _kind(column) in _TEXTS:
                function = PART
            found.append(LakePartition(function, column.target, each.count))
    return tuple(found)


def problems(
    expressions: Sequence[PartitionExpression],
    columns: Sequence[MirrorColumn],
    form: str,
) -> Iterator[str]:
    """Yield what prevents a table from being partitioned as a rule says."""
    by_name = {each.name.lower(): each for each in columns}
    for each in expressions:
        column = by_name.get(each.column.lower())
        if column is None:
            known = ", ".join(column.name for column in columns[:COLUMNS_SHOWN])
            more = ", …" if len(columns) > COLUMNS_SHOWN else ""
            yield (
                f"partition_by: {each}: it has no column {each.column} in the lake, "
                f"but {known}{more}: correct the name, or write another rule for this "
                "table, before this one"
            )
        elif problem := _problem(each, column):
            yield f"partition_by: {each}: {problem}"
        elif form == "delta" and not _PLAIN.fullmatch(column.target):
            yield (
                f"partition_by: the names of folders contain {column.target}, and "
                "some engines only read letters of ASCII there: use rename"
            )
    found = partitions_of(expressions, columns, form)
    names = [each.name.lower() for each in found]
    used = {target.lower() for each in columns for target in each.targets}
    for partition in found:
        name = partition.name
        if partition.is_derived and name.lower() in used:
            yield (
                f"partition_by: its partitions are named {name}, as a column is: "
                "use rename"
            )
        if names.count(name.lower()) > 1:
            yield f"partition_by: {name} is there twice"


def _problem(expression: PartitionExpression, column: MirrorColumn) -> str:
    """Return why a column cannot have a function, else ""."""
    kind = _kind(column)
    if expression.function in TIMES:
        if kind in _DATES and column.mask is None:
            return ""
        return f"column {column.name} is not a DATE, DATETIME or TIMESTAMP"
    is_text = kind in _TEXTS
    if expression.function == BUCKET and (is_text or kind in _WHOLE):
        return ""
    if expression.function == ITSELF and (is_text or kind in (*_WHOLE, "date")):
        return ""
    if kind in _DATES:
        return f"write day({column.name}), month({column.name}) or year({column.name})"
    return (
        f"column {column.name} is {column.mysql_type}: only whole numbers, texts and "
        "dates can be used"
    )


def _kind(column: MirrorColumn) -> str:
    if column.mask is not None and column.mask.kind == "hash":
        return "char"
    return re.split(r"[( ]", column.mysql_type.strip().lower(), maxsplit=1)[0]
