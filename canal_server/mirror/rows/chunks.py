"""Cuts a table into chunks by a key; each chunk is read on its own.

A bound is a key value of some row. The server decides what is below and above it, by
the column's own order. So each row that the table has or gets belongs to exactly one
chunk: the first and the last are open-ended.
"""

# ruff: noqa: S608  # names are quoted, values are the server's own literals

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from canal_server.errors import SourceError
from canal_server.mirror.settings.table_values import TEXT_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from canal_server.mirror.settings.table_values import MirrorTable, TableName
    from canal_server.mysql.control_connection import ControlConnection

CHUNK_ROWS: Final = 100_000
CHUNKS_MAX: Final = 20_000  # per table; beyond that, chunks are larger
SPLITS_PER_CHUNK: Final = 16  # a range of keys may have many gaps

_INTEGERS: Final = ("tinyint", "smallint", "mediumint", "int", "bigint")
_NUMBERS: Final = (*_INTEGERS, "decimal", "year")
_FLOATS: Final = ("float", "double")
_BY_NUMBER: Final = ("enum", "set", "bit")  # ordered by their numbers
_BYTES: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")

_INDEX_COLUMNS: Final = """SELECT INDEX_NAME, COLUMN_NAME, SUB_PART, NULLABLE,
    INDEX_TYPE
  FROM information_schema.STATISTICS
  WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0
  ORDER BY INDEX_NAME <> 'PRIMARY', INDEX_NAME, SEQ_IN_INDEX"""
_COLUMN_TYPES: Final = """SELECT COLUMN_NAME, DATA_TYPE, CHARACTER_SET_NAME
  FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"""


# As for reading chunks; a strict mode rejects a zero date as a bound.
_SESSION: Final = "SET SESSION time_zone = '+00:00', sql_mode = ''"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of a table whose key is above `above` and at most `upto`.

    Both are SQL literals of the columns' values, empty for an open end.
    """

    number: int
    index: str = ""  # name of the key; empty: the whole table
    columns: tuple[str, ...] = ()
    above: tuple[str, ...] = ()
    upto: tuple[str, ...] = ()

    @property
    def clauses(self) -> str:
        """Return the clauses after the table's name in a SELECT."""
        if not self.index:
            return ""
        # Without it, a large range would be read by a scan of the whole table.
        return f" FORCE INDEX ({quoted(self.index)}){self.where}"

    @property
    def where(self) -> str:
        """Return the condition; empty for the whole table."""
        names = [quoted(name) for name in self.columns]
        conditions = []
        if self.above:
            conditions.append(_beyond(names, self.above, ">", ">"))
        if self.upto:
            conditions.append(_beyond(names, self.upto, "<", "<="))
        return f" WHERE {' AND '.join(conditions)}" if conditions else ""

    def to_json(self) -> str:
        """Return the chunk as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Chunk:
        """Parse the value of `to_json`."""
        fields: dict[str, Any] = json.loads(text)
        texts = {name: tuple(fields[name]) for name in ("columns", "above", "upto")}
        return cls(number=int(fields["number"]), index=str(fields["index"]), **texts)


def quoted(name: str) -> str:
    """Return a quoted name for SQL."""
    return "`" + name.replace("`", "``") + "`"


def table_in_sql(name: TableName) -> str:
    """Return a table's quoted name for SQL."""
    return f"{quoted(name.schema)}.{quoted(name.table)}"


def cut(
    connection: ControlConnection, table: MirrorTable, chunk_rows: int = CHUNK_ROWS
) -> list[Chunk]:
    """Return the chunks of a table, of about `rows` rows each, in the key's order.

    Cuts by the primary key, or by a unique key without NULLs if the primary key has
    prefixes of columns; a table without a primary key is one chunk. Sets session
    variables. Raises SourceError, also for a missing table.
    """
    name = table.source
    connection.query(_SESSION)
    # Its error names a problem of the table, or a missing right.
    connection.query(f"SELECT 1 FROM {table_in_sql(name)} LIMIT 0")
    key = None if table.is_keyless else _usable_key(connection, name)
    if key is None:
        return [Chunk(0)]
    rows = max(1, chunk_rows, math.ceil(key.estimate(None, None) / CHUNKS_MAX))
    bounds = _by_estimates(key, rows) if key.is_integer else _by_steps(key, rows)
    ends = [(), *bounds, ()]
    return [
        Chunk(number, key.index, key.columns, above, upto)
        for number, (above, upto) in enumerate(pairwise(ends))
    ]


# --- keys -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _KeyColumn:
    name: str
    base: str  # DATA_TYPE
    charset: str

    @property
    def selected(self) -> str:
        """Return the expression whose text is the argument of `literal`."""
        name = quoted(self.name)
        if self.base in TEXT_TYPES or self.base in _BYTES:
            return f"HEX({name})"
        if self.base in _BY_NUMBER:
            return f"CAST({name} AS UNSIGNED)"
        if self.base in _FLOATS:
            name = f"{name} * 1e0"
        return f"CAST({name} AS CHAR)"

    def literal(self, value: object) -> str:
        """Return a value as a SQL literal that compares like the column's values."""
        text = value.decode() if isinstance(value, bytes) else str(value)
        if self.base in TEXT_TYPES and self.charset:
            # In the column's own character set, so that its collation applies.
            return f"_{self.charset} X'{text}'"
        if self.base in TEXT_TYPES or self.base in _BYTES:
            return f"X'{text}'"
        if self.base in _NUMBERS or self.base in _BY_NUMBER:
            return text
        if self.base in _FLOATS:
            return text if "e" in text else f"{text}e0"
        return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class _Key:
    """A key of a table, with the queries that use it."""

    connection: ControlConnection
    table: str  # quoted
    index: str
    parts: tuple[_KeyColumn, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(part.name for part in self.parts)

    @property
    def is_integer(self) -> bool:
        return len(self.parts) == 1 and self.parts[0].base in _INTEGERS

    def ends(self) -> tuple[int, int] | None:
        """Return the least and the greatest integer; None if there are no rows."""
        name = quoted(self.parts[0].name)
        ((least, most),) = self.connection.query(
            f"SELECT MIN({name}), MAX({name}) FROM {self.table}"
        )
        return None if least is None else (int(least), int(most))

    def neighbours(self, middle: int) -> tuple[int | None, int | None]:
        """Return the greatest integer up to a value, and the least one above it."""
        name = quoted(self.parts[0].name)
        ((up_to, next_key),) = self.connection.query(
            f"SELECT (SELECT MAX({name}) FROM {self.table} WHERE {name} <= {middle}),"
            f" (SELECT MIN({name}) FROM {self.table} WHERE {name} > {middle})"
        )
        return up_to, next_key

    def estimate(self, above: int | None, upto: int | None) -> int:
        """Return the optimizer's estimate of the rows in a range of the key."""
        texts = [() if end is None else (str(end),) for end in (above, upto)]
        where = Chunk(0, self.index, self.columns, *texts).where
        # With FORCE INDEX, MySQL would not look into the index.
        (fields, *_) = self.connection.query_named(
            f"EXPLAIN FORMAT=TRADITIONAL SELECT {quoted(self.columns[0])} "
            f"FROM {self.table} USE INDEX ({quoted(self.index)}){where}"
        )
        share = float(str(fields.get("filtered") or 100.0)) / 100
        return int(float(str(fields.get("rows") or 0)) * share)

    def step(self, above: tuple[str, ...], rows: int) -> tuple[str, ...] | None:
        """Return the `rows`-th row after a bound; None if there are fewer."""
        clauses = Chunk(0, self.index, self.columns, above).clauses
        order = ", ".join(quoted(name) for name in self.columns)
        found = self.connection.query(
            f"SELECT {', '.join(part.selected for part in self.parts)} "
            f"FROM {self.table}{clauses} ORDER BY {order} LIMIT 1 OFFSET {rows - 1}"
        )
        if not found:
            return None
        return tuple(
            part.literal(value)
            for part, value in zip(self.parts, found[0], strict=True)
        )


def _usable_key(connection: ControlConnection, name: TableName) -> _Key | None:
    """Return the primary key, else a unique key, of full columns without NULLs."""
    types = {
        str(column): _KeyColumn(str(column), str(base).lower(), str(charset or ""))
        for column, base, charset in connection.query(_COLUMN_TYPES, name)
    }
    parts: dict[str, list[_KeyColumn]] = {}
    unusable = set()
    for index, column, prefix, nullable, kind in connection.query(_INDEX_COLUMNS, name):
        known = None if column is None else types.get(str(column))  # None: expression
        if known is None or prefix or nullable == "YES" or kind != "BTREE":
            unusable.add(index)
        else:
            parts.setdefault(str(index), []).append(known)
    for index, columns in parts.items():
        if index not in unusable:
            return _Key(connection, table_in_sql(name), index, tuple(columns))
    return None


# --- bounds -----------------------------------------------------------------------


def _by_estimates(key: _Key, rows: int) -> Iterator[tuple[str, ...]]:
    """Yield bounds of an integer key: halves ranges until they are small enough.

    Each query costs a few index lookups, for a table of any size. A range begins and
    ends with existing keys, so gaps cost nothing.
    """
    ends = key.ends()
    if ends is None:
        return
    total = key.estimate(None, None)
    left = SPLITS_PER_CHUNK * (total // rows + 1)
    gathered = 0  # rows since the last bound
    ranges = [(*ends, total)]  # the last is the next
    while ranges:
        first, last, count = ranges.pop()
        count = min(count, last - first + 1)
        if count > rows and left > 0:
            up_to, next_key = key.neighbours((first + last) // 2)
            if next_key is not None:  # else rows were deleted meanwhile
                ranges.append((next_key, last, key.estimate(next_key - 1, last)))
            if up_to is not None:
                ranges.append((first, up_to, key.estimate(first - 1, up_to)))
            left -= 1
            continue
        if gathered and gathered + count > rows:
            yield (str(first - 1),)
            gathered = 0
        gathered += count


def _by_steps(key: _Key, rows: int) -> Iterator[tuple[str, ...]]:
    """Yield bounds of any key, one for every `rows` rows, by scanning the key."""
    at: tuple[str, ...] = ()
    for _ in range(CHUNKS_MAX):
        found = key.step(at, rows)
        if found is None:
            return
        if found == at:
            raise SourceError(
                f"table {key.table}: the server does not read key {key.index} past "
                f"({', '.join(at)}): exclude the table, or check it (CHECK TABLE)"
            )
        yield found
        at = found


def _beyond(
    names: Sequence[str], values: Sequence[str], strictly: str, at_last: str
) -> str:
    """Return the condition that a key is beyond values, as ranges of the key.

    The optimizer does not use a row comparison, `(a, b) > (1, 2)`, as a range.
    """
    ways = []
    for last in range(len(names)):
        equal = [f"{names[i]} = {values[i]}" for i in range(last)]
        sign = at_last if last == len(names) - 1 else strictly
        ways.append(" AND ".join([*equal, f"{names[last]} {sign} {values[last]}"]))
    return f"({' OR '.join(ways)})"
