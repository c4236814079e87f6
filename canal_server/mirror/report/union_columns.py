"""The columns of a view that has the rows of several tables.

A column is found by its name, whatever the case. Where a table lacks it, the view has
NULL. Columns of one name need types that an engine compares without a conversion: a
number and a text under one name would be a mistake that nobody sees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from canal_server.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canal_server.mirror.report.engine_dialects import LakeEntry

MIRROR: Final = "_mirror"  # the mirror from whose lake a row is
TABLE: Final = "_table"  # the source's schema.table


def union_columns(
    view: str, entries: Sequence[LakeEntry]
) -> list[tuple[str, list[str]]]:
    """Return the columns of a view: its name, and readers' name in each table or "".

    The column that marks deleted rows is one column of the view, whatever its name is.

    The order is that of the first table, then what others have in addition. Raises
    ConfigError for a type that differs too much, and for a table that has a column of
    the name of one that the view adds.
    """
    found: dict[str, list[pa.Field | None]] = {}
    for number, entry in enumerate(entries):
        for field in entry.columns:
            fields = found.setdefault(field.name.lower(), [None] * len(entries))
            fields[number] = field
    problems = [
        *_taken(view, entries),
        *(
            problem
            for fields in found.values()
            if (problem := _unlike(view, entries, fields))
        ),
    ]
    if problems:
        raise ConfigError(problems)
    return [
        (
            next(field.name for field in fields if field is not None),
            [
                "" if field is None else _shown(entry, field.name)
                for entry, field in zip(entries, fields, strict=True)
            ],
        )
        for fields in found.values()
    ]


def _shown(entry: LakeEntry, name: str) -> str:
    number: int = entry.columns.get_field_index(name)
    return entry.names[number]


def _taken(view: str, entries: Sequence[LakeEntry]) -> list[str]:
    return [
        f"view {view}: table {entry.source} of mirror {entry.mirror} has a column "
        f"{name}, which the view adds: rename it in the mirror's settings"
        for entry in entries
        for name in entry.columns.names
        if name.lower() in (MIRROR, TABLE)
    ]


def _unlike(
    view: str, entries: Sequence[LakeEntry], fields: Sequence[pa.Field | None]
) -> str:
    """Return the problem if types of a column differ in kind, else ""."""
    typed = [
        (entry, field)
        for entry, field in zip(entries, fields, strict=True)
        if field is not None
    ]
    first, one = typed[0]
    for entry, field in typed[1:]:
        if _kind(field.type) != _kind(one.type):
            return (
                f"view {view}: column {one.name} is {one.type} in {first.source} of "
                f"mirror {first.mirror} and {field.type} in {entry.source} of mirror "
                f"{entry.mirror}: leave one of the tables out, or rename the column in "
                "the settings of its mirror"
            )
    return ""


def _kind(kind: pa.DataType) -> str:
    """Return what values of a type can be compared with."""
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return "number"
    if pa.types.is_decimal(kind):
        return "number"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "text"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "bytes"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "time without a zone"
    return str(kind)
