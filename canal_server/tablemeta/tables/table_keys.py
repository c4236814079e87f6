"""Keys: what they make of their columns, and which MariaDB keeps as a hash."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from canal_server.tablemeta.model.charset_widths import bytes_max
from canal_server.tablemeta.model.table_schema import (
    AUTO_INCREMENT,
    INVISIBLE,
    PRIMARY,
    ROW_END,
    ROW_START,
    Column,
    Key,
    Part,
    Table,
    Versioning,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from canal_server.tablemeta.model.operations import AddPeriod, ColumnSpec

# How long the key of an engine's tree may be, in bytes. MariaDB keeps a longer unique
# key as a hash; these two refuse it.
_KEY_BYTES_MAX: Final = 3072
_KEY_BYTES_MAX_OF: Final = {"myisam": 1000}
_WITHOUT_LONG_KEYS: Final = frozenset(("memory", "aria"))


# The column of the primary key that MySQL makes by itself where there is none.
GENERATED_KEY: Final = "my_row_id"


def has_generated_key(table: Table) -> bool:
    """Tell whether the first column is a primary key that MySQL made by itself.

    It tells so by the looks of the column, as long as that is invisible. Tables of
    engines besides InnoDB have none.
    """
    first = table.columns[0] if table.columns else None
    return (
        first is not None
        and table.engine in ("", "innodb")
        and first.key == GENERATED_KEY
        and first.flags == "".join(sorted(AUTO_INCREMENT + INVISIBLE))
        and [name.lower() for name in table.primary] == [GENERATED_KEY]
    )


def own_keys(spec: ColumnSpec) -> list[Key]:
    """Return the keys that stand in the definition of a column."""
    keys = []
    parts = (Part(spec.name),)
    if spec.is_primary:
        keys.append(Key(PRIMARY, PRIMARY, parts))
    if spec.is_unique:
        keys.append(Key("", "UNIQUE", parts))
    return keys


def with_keys(table: Table, new: Iterable[Key], *, mariadb: bool) -> Table:
    """Return the table with more keys, and what a primary one makes of its columns."""
    primary = table.primary
    keys = list(table.keys)
    names = {key.name.lower() for key in keys}
    of_table = {each.key: each for each in table.columns}
    for key in new:
        if table.period:
            key = _with_period_columns(key, table.period)  # noqa: PLW2901
        if key.kind == PRIMARY:
            primary = tuple(
                of_table[part.column.lower()].name
                for part in key.parts
                if part.column.lower() in of_table
            )
            continue
        name = key.name or _free_name(key, names)
        if name.lower() in names:
            continue  # IF NOT EXISTS, or it was added already
        names.add(name.lower())
        hashed = mariadb and is_hashed(key, of_table, table.engine)
        keys.append(Key(name, key.kind, key.parts, hashed))
    table = replace(table, primary=primary, keys=tuple(keys))
    return with_never_null(table, primary)


def with_row_end(table: Table) -> Table:
    """Return the table with the end of its rows in its primary key, if that is named.

    MariaDB puts it there, in front of a period, unless the times are there already.
    """
    if not table.primary or table.versioning is not Versioning.NAMED:
        return table
    times = {each.name: each for each in table.columns if _is_row_time(each)}
    if any(name in times for name in table.primary):
        return table
    ends = [name for name, each in times.items() if ROW_END in each.flags]
    primary = table.primary
    at = len(primary)
    if table.period and primary[-2:] == table.period[:0:-1]:
        at -= 2
    return replace(table, primary=(*primary[:at], *ends, *primary[at:]))


def _is_row_time(each: Column) -> bool:
    return ROW_START in each.flags or ROW_END in each.flags


def with_period(table: Table, period: AddPeriod) -> Table:
    """Return the table with a period, whose columns are never null."""
    if period.if_not_exists and table.period and not period.is_system:
        return table
    if not period.is_system:
        table = replace(table, period=(period.name, period.start, period.end))
    return with_never_null(table, (period.start, period.end))


def _with_period_columns(key: Key, period: tuple[str, str, str]) -> Key:
    """Return a key with the columns of a period in the place of its name."""
    name, start, end = period
    if key.parts[-1].column.lower() != name.lower():
        return key
    return replace(key, parts=(*key.parts[:-1], Part(end), Part(start)))


def _free_name(key: Key, names: set[str]) -> str:
    name = first = key.parts[0].column or "functional_index"
    number = 2
    while name.lower() in names or name.upper() == PRIMARY:
        name = f"{first}_{number}"
        number += 1
    return name


def with_never_null(table: Table, names: Iterable[str]) -> Table:
    """Return the table with some columns that cannot be null."""
    keys = {name.lower() for name in names}
    if not any(each.nullable and each.key in keys for each in table.columns):
        return table
    return replace(
        table,
        columns=tuple(
            each.with_nullable(False) if each.key in keys else each
            for each in table.columns
        ),
    )


def is_hashed(key: Key, columns: dict[str, Column], engine: str) -> bool:
    """Tell whether MariaDB keeps a unique key as a hash, in a hidden column.

    `key.hashed`: it was asked for. `columns` are the table's by their keys.
    """
    if key.kind != "UNIQUE" or engine == "memory":
        return False
    if key.hashed:
        return True
    size = 0
    for part in key.parts:
        each = columns.get(part.column.lower())
        if each is None:
            return False
        head = _HEAD.match(each.type)
        assert head is not None  # it matches everything
        if not part.length and head["name"] in _WITHOUT_LENGTH:
            return True
        size += _part_bytes(each, part, head)
    if engine in _WITHOUT_LONG_KEYS:
        return False
    return size > _KEY_BYTES_MAX_OF.get(engine, _KEY_BYTES_MAX)


def with_hashes(table: Table) -> Table:
    """Return a table of MariaDB with those of its keys hashed that must be.

    So does every ALTER TABLE: what was asked for once is forgotten.
    """
    if not any(key.kind == "UNIQUE" for key in table.keys):
        return table
    columns = {each.key: each for each in table.columns}
    keys = []
    for key in table.keys:
        hashed = is_hashed(replace(key, hashed=False), columns, table.engine)
        keys.append(key if hashed == key.hashed else replace(key, hashed=hashed))
    return replace(table, keys=tuple(keys))


def _part_bytes(each: Column, part: Part, head: re.Match[str]) -> int:  # noqa: PLR0911
    """Return how many bytes a column takes in a key."""
    name, number = head["name"], int(head["number"] or 0)
    if part.length:
        return part.length * bytes_max(each.charset)
    if name in ("char", "varchar", "binary", "varbinary"):
        return number * bytes_max(each.charset)
    if name == "decimal":
        decimals = int(head["decimals"] or 0)
        return _decimal_bytes(number - decimals) + _decimal_bytes(decimals)
    if name in ("time", "datetime", "timestamp"):
        return _BYTES[name] + (number + 1) // 2
    if name == "bit":
        return (number + 7) // 8
    if name == "enum":
        return 1 if each.type.count("','") < 0xFF else 2  # noqa: PLR2004
    if name == "set":
        return min((each.type.count("','") + 8) // 8, 8)
    return _BYTES.get(name, 8)


def _decimal_bytes(digits: int) -> int:
    whole, rest = divmod(digits, 9)
    return whole * 4 + (rest + 1) // 2


_HEAD: Final = re.compile(
    r"(?P<name>\w*)(?:\((?P<number>\d+)(?:,(?P<decimals>\d+))?\))?"
)
_WITHOUT_LENGTH: Final = frozenset(
    (
        *("text", "tinytext", "mediumtext", "longtext"),
        *("blob", "tinyblob", "mediumblob", "longblob"),
        *("geometry", "point", "linestring", "polygon", "multipoint"),
        *("multilinestring", "multipolygon", "geometrycollection"),
    )
)
_BYTES: Final = {
    "tinyint": 1,
    "smallint": 2,
    "mediumint": 3,
    "int": 4,
    "bigint": 8,
    "float": 4,
    "double": 8,
    "year": 1,
    "date": 3,
    "time": 3,
    "datetime": 5,
    "timestamp": 4,
    "uuid": 16,
    "inet6": 16,
    "inet4": 4,
}
