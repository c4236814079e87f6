"""How to read values of a column whose type differs from the stream's.

A stream keeps the types of its start; rows from before that, or after an accepted
change, have others. `conversions` defines each way of reading.
"""

from __future__ import annotations

import re
from typing import Final

from canal_server.arrow.conversions import READINGS
from canal_server.arrow.put_values import KINDS

_BASE: Final = re.compile(r"\s*([a-z]+)", re.IGNORECASE)
_FIXED: Final = re.compile(
    r"\s*(?:binary|char)\b\s*(?:\(\s*(\d+)\s*\))?", re.IGNORECASE
)
_FIXED_BYTES_MAX: Final = 255  # of MySQL's

# The form of a value's text, by the first word of the column's type.
# Integers, and types that entries write as integers, are read by any kind.
_TEXTS: Final = {
    **dict.fromkeys(("decimal", "numeric", "dec", "fixed"), "digits"),
    "float": "float",
    **dict.fromkeys(("double", "real"), "double"),
    "date": "date",
    "datetime": "datetime",
    "timestamp": "timestamp",
    **dict.fromkeys(
        ("bool", "boolean", "tinyint", "smallint", "mediumint", "int", "integer",
         "bigint", "serial", "year", "bit", "enum", "set"), "whole"
    ),
    **dict.fromkeys(
        ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "time"),
        "text",
    ),
    "json": "document",
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), "bytes"
    ),
}  # fmt: skip

_WHOLE: Final = (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bits"
)  # fmt: skip
_DIGITS: Final = (*_WHOLE, "decimal", "wide decimal")
_MOMENTS: Final = ("date", "datetime", "timestamp")

# By the form of the text and the stream's kind; plain if it is missing. The text of a
# TIMESTAMP is in a known zone, but the zone of a text, a DATE or a DATETIME is unknown.
_PAIRS: Final[dict[tuple[str, str], str]] = {
    **{(text, kind): "digits" for text in ("digits", "text") for kind in _WHOLE},
    ("text", "decimal"): "digits",
    ("text", "wide decimal"): "digits",
    **{("float", kind): "of float" for kind in _DIGITS},
    **{("double", kind): "of double" for kind in _DIGITS},
    **{(text, "float"): "as float" for text in ("whole", "digits", "text")},
    **{(text, "double"): "as double" for text in ("whole", "digits", "text")},
    ("float", "double"): "widened",
    ("double", "float"): "narrowed",
    ("document", "text"): "json",
    ("date", "datetime"): "midnight",
    ("datetime", "date"): "day",
    ("text", "date"): "day text",
    ("text", "datetime"): "moment text",
    **{(text, "timestamp"): "never" for text in ("date", "datetime", "text")},
    **{("timestamp", kind): "never" for kind in ("date", "datetime", "text")},
    **{("bytes", kind): "never" for kind in (*_DIGITS, *_MOMENTS, "float", "double")},
}
_READINGS: Final = {
    (text, KINDS[kind]): READINGS[way] for (text, kind), way in _PAIRS.items()
}


def reading_of(mysql_type: str, kind: int) -> int:
    """Return how a text of a column of that type is read as a value of the kind."""
    found = _BASE.match(mysql_type)
    text = _TEXTS.get(found[1].lower(), "") if found else ""
    return _READINGS.get((text, kind), READINGS["plain"])


def filled_bytes(mysql_type: str) -> int:
    """Return the size of each value of a binary type; 0: that of the text.

    The server omits trailing zeros of a BINARY, and of a binary CHAR.
    """
    found = _FIXED.match(mysql_type)
    return 0 if found is None else min(int(found[1] or 1), _FIXED_BYTES_MAX)
