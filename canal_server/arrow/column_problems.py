"""What is wrong with a column of a typed row, for whoever can mend it."""

from __future__ import annotations

import re
from datetime import date
from typing import Final

from canal_server.arrow.put_values import KINDS

# The types of a stream's columns in Spark's words, by kind.
_TYPES: Final = {
    KINDS["int8"]: "TINYINT",
    KINDS["int16"]: "SMALLINT",
    KINDS["int32"]: "INT",
    KINDS["int64"]: "BIGINT",
    KINDS["bits"]: "BIGINT",
    KINDS["wide decimal"]: "STRING",
    KINDS["float"]: "FLOAT",
    KINDS["double"]: "DOUBLE",
    KINDS["date"]: "DATE",
    KINDS["datetime"]: "TIMESTAMP_NTZ",
    KINDS["timestamp"]: "TIMESTAMP",
    KINDS["text"]: "STRING",
    KINDS["binary"]: "BINARY",
}
_MOMENTS: Final = frozenset(KINDS[each] for each in ("date", "datetime", "timestamp"))
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_REMEDY: Final = (
    "leave the column out with option columns, or begin a new stream behind this event"
)


def unreadable(
    column: str, mysql_type: str, wanted: tuple[int, int, int], shown: str
) -> str:
    """Say that a value is none of the stream's type: its kind, precision and scale."""
    kind, precision, scale = wanted
    there = _TYPES.get(kind, f"DECIMAL({precision},{scale})")
    if kind == KINDS["wide decimal"]:
        there = f"{there} (of a DECIMAL({precision},{scale}))"
    remedy = _REMEDY
    if kind in _MOMENTS and _is_no_day(shown[:10]):
        remedy = f"set zeroDates = null, {_REMEDY}"
    return (
        f"{column} is {mysql_type or 'of an unknown type'} here and {there} in the "
        f"stream, which does not hold the value {shown!r}: {remedy}"
    )


def _is_no_day(text: str) -> bool:
    """Tell whether a text has the form of a day, and no calendar has it."""
    if not _DAY.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return True
    return False


def not_logged(column: str) -> str:
    """Say that a row lacks a column."""
    return (
        f"{column} is not in the row's image: typed columns need whole rows, set "
        "binlog_row_image = FULL on the server (for its sessions, too); if the column "
        "was dropped, begin the stream anew with the table's new columns"
    )


def without_labels(column: str, mysql_type: str) -> str:
    """Say that the labels of an ENUM or a SET cannot be told."""
    return (
        f"{column}: the labels of its type ({mysql_type}) are not known; "
        "binlog_row_metadata = FULL on the server makes it tell them"
    )
