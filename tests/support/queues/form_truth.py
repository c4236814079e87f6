"""Rows of random tables as SELECT shows them, and as forms of messages have them.

All values take one form: numbers, texts, bytes, lists, documents; a moment is the text
of the server, in UTC.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from random_columns import as_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from random_schema import RandomColumn, RandomLoad, RandomTable

WHOLE = ("tinyint", "smallint", "mediumint", "int", "bigint", "year", "bit")
BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
FLOATING = ("float", "double")
NAMES = {1: "POINT", 2: "LINESTRING", 4: "MULTIPOINT"}


def word_of(column: RandomColumn) -> str:
    """Return the first word of a column's type."""
    found = re.match(r"[a-z0-9]+", column.kind.definition)
    assert found
    return found[0]


def truth(load: RandomLoad) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of all tables."""
    connection = load.server.connect(init_command="SET SESSION time_zone = '+00:00'")
    with connection, connection.cursor() as cursor:
        return {table.name: _rows(cursor, table) for table in load.tables}


def _rows(cursor: Any, table: RandomTable) -> list[dict[str, Any]]:
    expressions = ", ".join(map(_selected, table.columns))
    cursor.execute(f"SELECT {expressions} FROM {table.quoted}")
    return [
        {
            column.name: None if value is None else _shown(column, value)
            for column, value in zip(table.columns, row, strict=True)
        }
        for row in cursor.fetchall()
    ]


def _selected(column: RandomColumn) -> str:
    word = word_of(column)
    if word in {"enum", "set"}:
        text = "CONCAT(CAST({c} AS UNSIGNED), ':', CAST({c} AS CHAR))"
    elif word in {"decimal", "timestamp"}:
        text = "CAST({c} AS CHAR)"
    else:
        text = column.kind.select
    return text.format(c=column.quoted)


def _shown(column: RandomColumn, value: Any) -> Any:
    word = word_of(column)
    if word in FLOATING:
        return float(column.kind.text(value))
    text = as_text(value)
    return _SHOWN[word](text) if word in _SHOWN else text


_SHOWN: Final[dict[str, Callable[[str], Any]]] = {
    "decimal": Decimal,
    "enum": lambda text: text.partition(":")[2] if text[0] != "0" else "",
    "set": lambda text: text.partition(":")[2],
    "geometry": bytes.fromhex,
    "vector": lambda text: numbers_of(bytes.fromhex(text)),
    "json": json.loads,
    **dict.fromkeys(WHOLE, int),
    **dict.fromkeys(BYTES, bytes.fromhex),
}


def numbers_of(data: bytes) -> list[float]:
    """Return the numbers of a vector."""
    return [each for (each,) in struct.iter_unpack("<f", data)]


def fold(
    tables: list[RandomTable], changes: list[tuple[str, Any, Any]]
) -> dict[str, list[dict[str, Any]]]:
    """Return the rows after changes of (table, row before, row after)."""
    found: dict[str, list[dict[str, Any]]] = {each.name: [] for each in tables}
    for name, before, after in changes:
        rows = found[name]
        if before is not None:
            rows.remove(before)
        if after is not None:
            rows.append(after)
    return found


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    """Return rows in an order that two lists of them share."""
    return sorted(map(repr, rows))


# --- Maxwell --------------------------------------------------------------------------


def of_maxwell(word: str, definition: str, value: Any) -> Any:
    """Return a value of Maxwell's JSON."""
    del definition  # values are what they look like
    if value is None:
        return "" if word == "enum" else None
    return _MAXWELL[word](value) if word in _MAXWELL else value


def of_vector(value: list[Any]) -> list[float]:
    """Return the numbers of their texts, which identify one of four bytes."""
    return numbers_of(struct.pack(f"<{len(value)}f", *map(float, value)))


_MAXWELL: Final[dict[str, Callable[[Any], Any]]] = {
    "decimal": Decimal,
    "set": ",".join,
    "vector": of_vector,
    **dict.fromkeys(FLOATING, float),
    **dict.fromkeys(BYTES, partial(base64.b64decode, validate=True)),
}


def text_of_geometry(data: bytes) -> tuple[str, list[float]]:
    """Return the name and the numbers of a stored geometry."""
    (kind,) = struct.unpack_from("<I", data, 5)
    rest = data[9:]
    if kind == 1:
        numbers = rest
    elif kind == 2:
        numbers = rest[4:]
    else:
        numbers = b"".join(rest[at + 5 : at + 21] for at in range(4, len(rest), 21))
    return NAMES[kind], [each for (each,) in struct.iter_unpack("<d", numbers)]


def of_wkt(text: str) -> tuple[str, list[float]]:
    """Return the same of a WKT."""
    name, _, rest = text.partition(" ")
    return name, [float(each) for each in re.findall(r"[-\d.E]+", rest)]


# --- Debezium -------------------------------------------------------------------------

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def of_debezium(word: str, definition: str, value: Any) -> Any:
    """Return a value of Debezium's JSON with the default settings."""
    if value is None or word not in _DEBEZIUM:
        return value
    found = re.search(r"\((\d+)(?:,(\d+))?\)", definition)
    first, second = (0, 0) if found is None else (int(found[1]), int(found[2] or 0))
    return _DEBEZIUM[word](value, second if word == "decimal" else first)


def _decimal(value: str, scale: int) -> Decimal:
    number = int.from_bytes(base64.b64decode(value), "big", signed=True)
    return Decimal(f"{number}e-{scale}")


def _bit(value: Any, bits: int) -> int:
    assert isinstance(value, bool) == (bits == 1)
    if bits == 1:
        return int(value)
    return int.from_bytes(base64.b64decode(value), "little")


def _datetime(value: int, digits: int) -> str:
    unit = 1 if digits > 3 else 1000
    return moment(EPOCH + timedelta(microseconds=value * unit), digits)


def _timestamp(value: str, digits: int) -> str:
    text = value.removesuffix("Z").replace("T", " ")
    assert len(text) == len("2026-01-01 00:00:00") + (digits and digits + 1), value
    return text


def _time(value: int, digits: int) -> str:
    sign, rest = ("-", -value) if value < 0 else ("", value)
    seconds, fraction = divmod(rest, 10**6)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return sign + clock + (f".{fraction:06}"[: digits + 1] if digits else "")


def _geometry(value: dict[str, Any], _: int) -> bytes:
    return struct.pack("<I", value["srid"] or 0) + base64.b64decode(value["wkb"])


_DEBEZIUM: Final[dict[str, Callable[[Any, int], Any]]] = {
    "decimal": _decimal,
    "bit": _bit,
    "date": lambda value, _: str(date(1970, 1, 1) + timedelta(value)),
    "datetime": _datetime,
    "timestamp": _timestamp,
    "time": _time,
    "geometry": _geometry,
    "vector": lambda value, _: of_vector(value),
    "json": lambda value, _: json.loads(value),
    **dict.fromkeys(FLOATING, lambda value, _: float(value)),
    **dict.fromkeys(BYTES, lambda value, _: base64.b64decode(value, validate=True)),
}


def moment(when: datetime, digits: int) -> str:
    """Return the text of a moment."""
    text = f"{when.year:04}-{when:%m-%d %H:%M:%S}"
    return text + (f".{when.microsecond:06}"[: digits + 1] if digits else "")


def is_valid(word: str, text: Any) -> bool:
    """Return whether a text of the server is a valid date or moment."""
    if word not in {"date", "datetime", "timestamp"}:
        return True
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
