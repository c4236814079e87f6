"""Error messages for columns of typed rows, with remedies."""

from __future__ import annotations

import re
from datetime import date
from typing import Final

from canal_server.arrow.put_values import KINDS

# Spark's names for the types of a stream's columns, by kind.
_TYPES: Final = {
    KINDS["int8"]: "TINYINT",
    KINDS["int16"]: "SMALLINT",
    KINDS["int32"]: "INT",
    KINDS["int64"]: "BIGINT",
    KINDS["uint8"]: "TINYINT UNSIGNED",
    KINDS["uint16"]: "SMALLINT UNSIGNED",
    KINDS["uint32"]: "INT UNSIGNED",
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
    "exclude the column by option columns, or start a new stream after this event"
)


def unreadable(
    column: str, mysql_type: str, requested_kind: tuple[int, int, int], shown: str
) -> str:
    """Return the message for a value that is not of the stream's type."""
    kind, precision, scale = requested_kind
    there = _TYPES.get(kind, f"DECIMAL({precision},{scale})")
    if kind == KINDS["wide decimal"]:
        there = f"{there} (of a DECIMAL({precision},{scale}))"
    remedy = _REMEDY
    if kind in _MOMENTS and _is_no_day(shown[:10]):
        remedy = f"set zeroDates = null, {_REMEDY}"
    return (
        f"{column} has {mysql_type or 'an unknown type'} here and {there} in the "
        f"stream, which cannot hold the value {shown!r}: {remedy}"
    )


def _is_no_day(text: str) -> bool:
    """Check whether a text has the form of a date but is not a valid one."""
    if not _DAY.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return True
    return False


def not_logged(column: str) -> str:
    """Return the message for a row without a column."""
    return (
        f"{column} is not in the row image: typed columns require full rows, set "
        "binlog_row_image = FULL on the server (for its sessions, too); if the column "
        "was dropped, restart the stream with the table's new columns"
    )


def without_labels(column: str, mysql_type: str) -> str:
    """Return the message for an ENUM or SET with unknown labels."""
    return (
        f"{column}: the labels of its type ({mysql_type}) are unknown: set "
        "binlog_row_metadata = FULL on the server"
    )
