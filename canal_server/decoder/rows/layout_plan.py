"""Turns a table map and a table's columns into the plan of the row loop.

Decides how each column is read (`Op`) and as which SQL type it is delivered, and
checks that the table map matches the known columns.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from canal_server.decoder.rows import table_map as tm
from canal_server.decoder.rows.row_layout import OPS, TableLayout
from canal_server.decoder.text.charset_names import charset_of_collation
from canal_server.decoder.text.charset_text import charset as charset_of

if TYPE_CHECKING:
    from canal_server.decoder.rows.row_layout import Shape
    from canal_server.decoder.text.time_zone import Zone
    from canal_server.model.columns_known import ColumnMeta, TableMeta

# java.sql.Types, as the clients know them.
BIT: Final = -7
TINYINT: Final = -6
BIGINT: Final = -5
CHAR: Final = 1
DECIMAL: Final = 3
INTEGER: Final = 4
SMALLINT: Final = 5
REAL: Final = 7
DOUBLE: Final = 8
VARCHAR: Final = 12
DATE: Final = 91
TIME: Final = 92
TIMESTAMP: Final = 93
OTHER: Final = 1111
BLOB: Final = 2004
CLOB: Final = 2005

# Signed name, bytes of the sign bit's type, SQL type, SQL type of larger values.
_INTEGERS: Final = {
    tm.TINY: ("8", TINYINT, SMALLINT),
    tm.SHORT: ("16", SMALLINT, INTEGER),
    tm.INT24: ("24", INTEGER, INTEGER),
    tm.LONG: ("32", INTEGER, BIGINT),
    tm.LONGLONG: ("64", BIGINT, DECIMAL),
}
_FIXED: Final = {
    tm.FLOAT: ("FLOAT", REAL),
    tm.DOUBLE: ("DOUBLE", DOUBLE),
    tm.DATE: ("DATE", DATE),
    tm.YEAR: ("YEAR", VARCHAR),
    tm.TIMESTAMP2: ("TIMESTAMP2", TIMESTAMP),
    tm.DATETIME2: ("DATETIME2", TIMESTAMP),
    tm.TIME2: ("TIME2", TIME),
}
# From before MySQL 5.6, and in MariaDB with mysql56_temporal_format=OFF, whose table
# map lacks the fraction digits; only the column's type has them.
_OLD_TEMPORAL: Final = {
    tm.TIMESTAMP: ("TIMESTAMP", TIMESTAMP),
    tm.DATETIME: ("DATETIME", TIMESTAMP),
    tm.TIME: ("TIME", TIME),
}
_MARIADB_FIXED: Final = {"uuid": "UUID", "inet6": "INET6", "inet4": "INET4"}

# The binlog types that the columns of a SQL type may have.
_BINLOG_TYPES: Final[dict[str, frozenset[int]]] = {
    name: frozenset(types)
    for names, types in (
        ("tinyint bool boolean", {tm.TINY}),
        ("smallint", {tm.SHORT}),
        ("mediumint", {tm.INT24}),
        ("int integer", {tm.LONG}),
        ("bigint", {tm.LONGLONG}),
        ("float", {tm.FLOAT}),
        ("double", {tm.DOUBLE}),
        ("decimal numeric", {tm.NEWDECIMAL}),
        ("bit", {tm.BIT}),
        ("timestamp", {tm.TIMESTAMP, tm.TIMESTAMP2}),
        ("datetime", {tm.DATETIME, tm.DATETIME2}),
        ("time", {tm.TIME, tm.TIME2}),
        ("date", {tm.DATE}),
        ("year", {tm.YEAR}),
        ("enum", {tm.ENUM}),
        ("set", {tm.SET}),
        ("char binary uuid inet4 inet6", {tm.STRING}),
        ("varchar varbinary", {tm.VARCHAR, tm.VAR_STRING, tm.VARCHAR_COMPRESSED}),
        (
            "tinyblob blob mediumblob longblob tinytext text mediumtext longtext",
            tm.BLOBS | {tm.BLOB_COMPRESSED},
        ),
        ("json", {tm.JSON} | tm.BLOBS),
        ("vector", {tm.VECTOR} | tm.BLOBS | {tm.VARCHAR}),
        (
            (
                "geometry point linestring polygon multipoint multilinestring "
                "multipolygon geomcollection geometrycollection"
            ),
            {tm.GEOMETRY},
        ),
    )
    for name in names.split()
}
_FRACTION_DIGITS_MAX: Final = 6
_BASE: Final = re.compile(r"[a-z0-9_]+", re.IGNORECASE)
_DIGITS: Final = re.compile(r"\((\d+)\)")


class _Reading(NamedTuple):
    """How one column is read and delivered."""

    op: str
    a: int
    b: int
    sql_type: int
    sql_type_null: int
    sql_type_promoted: int
    charset: str | None


def base_type(mysql_type: str) -> str:
    """Return the type's name without arguments and attributes, in lower case."""
    found = _BASE.match(mysql_type.strip())
    return found[0].lower() if found else ""


def mismatch(table_map: tm.TableMap, meta: TableMeta) -> str | None:
    """Return how a table map contradicts the known columns; None if it does not."""
    if len(table_map.columns) != len(meta.columns):
        return (
            f"column size is not match for table: {meta}: "
            f"{len(table_map.columns)} in the binlog vs {len(meta.columns)} known"
        )
    for number, (mapped, column) in enumerate(
        zip(table_map.columns, meta.columns, strict=True), 1
    ):
        difference = _column_mismatch(mapped, column)
        if difference:
            return f"column {number} ({column.name}) of table {meta}: {difference}"
    return None


def _column_mismatch(mapped: tm.MappedColumn, column: ColumnMeta) -> str | None:
    if mapped.name is not None and mapped.name.lower() != column.name.lower():
        return f"named {mapped.name} in the binlog"
    base = base_type(column.mysql_type)
    allowed = _BINLOG_TYPES.get(base)
    if allowed is not None and mapped.type not in allowed:
        return f"binlog type {mapped.type} vs known type {column.mysql_type}"
    if (
        mapped.unsigned is not None
        and mapped.is_sign_known
        and mapped.type in (*_INTEGERS, tm.NEWDECIMAL)
        and mapped.unsigned != column.unsigned
    ):
        sign = "unsigned" if mapped.unsigned else "signed"
        return f"{sign} in the binlog vs known type {column.mysql_type}"
    if mapped.collation is not None and column.charset is not None:
        charset = charset_of_collation(mapped.collation)
        if charset is not None and charset != _charset_name(column.charset):
            return f"charset {charset} in the binlog vs known {column.charset}"
    return None


def _charset_name(name: str) -> str:
    return "utf8mb3" if name.lower() == "utf8" else name.lower()


def compile_layout(
    table_map: tm.TableMap,
    meta: TableMeta,
    *,
    table_ordinal: int,
    emitted: tuple[bool, ...] | None = None,
    shape: Shape | None = None,
    zone: Zone | None = None,
) -> TableLayout:
    """Build the layout for the row loop; `mismatch` has returned None before.

    `emitted` says per column whether it is delivered; None: all are. `shape`: with
    which rows are relayed. `zone`: the zone of TIMESTAMPs, None: this process's.
    """
    plans = []
    for index, (mapped, column) in enumerate(
        zip(table_map.columns, meta.columns, strict=True)
    ):
        reading = _reading(mapped, column)
        shown = emitted is None or emitted[index]
        plans.append(_plan(index, mapped, column, reading, emitted=shown))
    names = _header_names(table_map)
    return TableLayout(meta, names, table_ordinal, plans, shape, zone)


def _reading(  # noqa: PLR0911  # a table of types, one line each
    mapped: tm.MappedColumn, column: ColumnMeta
) -> _Reading:
    kind = mapped.type
    metadata = mapped.metadata
    if kind in _INTEGERS:
        bits, sql_type, larger = _INTEGERS[kind]
        unsigned = column.unsigned
        if mapped.unsigned is not None and mapped.is_sign_known:
            unsigned = mapped.unsigned
        op = ("U" if unsigned else "I") + bits
        return _Reading(op, 0, 0, sql_type, sql_type, larger, None)
    if kind in _FIXED:
        op, sql_type = _FIXED[kind]
        digits = metadata[0] if metadata else 0
        return _simple(op, sql_type, digits)
    if kind in _OLD_TEMPORAL:
        op, sql_type = _OLD_TEMPORAL[kind]
        found = _DIGITS.search(column.mysql_type)
        digits = min(int(found[1]), _FRACTION_DIGITS_MAX) if found else 0
        return _simple(op + "_HIRES" if digits else op, sql_type, digits)
    if kind == tm.NEWDECIMAL:
        return _simple("DECIMAL", DECIMAL, metadata[0], metadata[1])
    if kind == tm.BIT:
        return _simple("BIT", BIT, metadata[1] + (metadata[0] > 0))
    if kind == tm.ENUM:
        return _simple("ENUM", INTEGER, metadata[1])
    if kind == tm.SET:
        return _Reading("SET", metadata[1], 0, BIT, BLOB, BIT, None)
    if kind == tm.JSON:
        return _Reading("JSON", metadata[0], 0, VARCHAR, OTHER, VARCHAR, None)
    return _string_reading(mapped, column)


def _simple(op: str, sql_type: int, a: int = 0, b: int = 0) -> _Reading:
    return _Reading(op, a, b, sql_type, sql_type, sql_type, None)


def _string_reading(mapped: tm.MappedColumn, column: ColumnMeta) -> _Reading:
    kind = mapped.type
    base = base_type(column.mysql_type)
    if kind == tm.STRING:
        length_bytes = 2 if mapped.string_bytes > 255 else 1  # noqa: PLR2004
    elif kind in (tm.VARCHAR, tm.VAR_STRING, tm.VARCHAR_COMPRESSED):
        size = int.from_bytes(mapped.metadata, "little")
        length_bytes = 2 if size > 255 else 1  # noqa: PLR2004
    else:
        length_bytes = mapped.metadata[0] if mapped.metadata else 4
    op = _MARIADB_FIXED.get(base, "STRING") if kind == tm.STRING else "STRING"
    if kind in (tm.BLOB_COMPRESSED, tm.VARCHAR_COMPRESSED):
        op = "COMPRESSED"
    sql_type, charset = _string_kind(mapped, column, base)
    return _Reading(op, length_bytes, 0, sql_type, sql_type, sql_type, charset)


def _string_kind(  # noqa: PLR0911  # a table of rules, the first match counts
    mapped: tm.MappedColumn, column: ColumnMeta, base: str
) -> tuple[int, str]:
    """Return SQL type and character set of a column of bytes."""
    if base in _MARIADB_FIXED:
        return CHAR, "binary"  # its text shows the bytes, without decoding them
    if mapped.type in (tm.GEOMETRY, tm.VECTOR):
        return BLOB, "binary"
    if "binary" in base or "blob" in base or base == "vector":
        return BLOB, "binary"
    charset = column.charset
    if mapped.collation is not None:
        charset = charset_of_collation(mapped.collation) or charset
    if charset == "binary":
        return BLOB, "binary"
    if base.endswith("text") or base == "json":
        return CLOB, charset or "utf8mb4"
    if mapped.type == tm.STRING:
        return CHAR, charset or "utf8mb4"
    if mapped.type in tm.BLOBS or mapped.type == tm.BLOB_COMPRESSED:
        return BLOB, "binary"
    return VARCHAR, charset or "utf8mb4"


def _plan(
    index: int,
    mapped: tm.MappedColumn,
    column: ColumnMeta,
    reading: _Reading,
    *,
    emitted: bool,
) -> tuple[Any, ...]:
    """Return the tuple of a column for TableLayout."""
    name = (mapped.name or column.name).encode()
    is_key = column.is_key if mapped.is_key is None else mapped.is_key

    def front(sql_type: int, *, updated: bool) -> bytes:
        head = b"\x08" + _varint(index) if index else b""
        head += b"\x10" + _varint(sql_type) if sql_type else b""
        head += _text_field(0x1A, name)
        head += b"\x20\x01" if is_key else b""
        return head + (b"\x28\x01" if updated else b"")

    tail = _text_field(0x52, column.mysql_type.encode())

    def null_whole(*, updated: bool) -> bytes:
        body = front(reading.sql_type_null, updated=updated) + b"\x30\x01" + tail
        return b"\x12" + _varint(len(body)) + body

    def head(sql_type: int, *, updated: bool) -> bytes:
        return front(sql_type, updated=updated) + b"\x30\x00\x42"

    return (
        OPS[reading.op],
        emitted,
        reading.a,
        reading.b,
        head(reading.sql_type, updated=False),
        head(reading.sql_type, updated=True),
        head(reading.sql_type_promoted, updated=False),
        head(reading.sql_type_promoted, updated=True),
        null_whole(updated=False),
        null_whole(updated=True),
        tail,
        name,
        None if reading.charset is None else charset_of(_charset_name(reading.charset)),
    )


def _header_names(table_map: tm.TableMap) -> bytes:
    return _text_field(0x42, table_map.schema.encode()) + _text_field(
        0x4A, table_map.table.encode()
    )


def _text_field(tag: int, text: bytes) -> bytes:
    return bytes((tag,)) + _varint(len(text)) + text if text else b""


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:  # noqa: PLR2004  # seven bits per byte
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
