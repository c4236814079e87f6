"""Columns derived from a table map alone.

With full metadata, names, signs, character sets and keys are right. Otherwise a column
is named `@1`, `@2` …, and is assumed to be signed, UTF-8 and not part of a key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal_server.decoder.rows import table_map as tm
from canal_server.decoder.text.charset_names import charset_of_collation
from canal_server.model.columns_known import ColumnMeta, TableMeta

if TYPE_CHECKING:
    from canal_server.decoder.rows.table_map import MappedColumn, TableMap

_NUMBERS: Final = {
    tm.TINY: "tinyint",
    tm.SHORT: "smallint",
    tm.INT24: "mediumint",
    tm.LONG: "int",
    tm.LONGLONG: "bigint",
    tm.FLOAT: "float",
    tm.DOUBLE: "double",
}
_PLAIN: Final = {
    tm.DATE: "date",
    tm.YEAR: "year(4)",
    tm.TIMESTAMP: "timestamp",
    tm.DATETIME: "datetime",
    tm.TIME: "time",
    tm.JSON: "json",
    tm.GEOMETRY: "geometry",
    tm.VECTOR: "vector",
    tm.ENUM: "enum",
    tm.SET: "set",
}
_WITH_FRACTION: Final = {
    tm.TIMESTAMP2: "timestamp",
    tm.DATETIME2: "datetime",
    tm.TIME2: "time",
}
_SIZES: Final = {1: "tiny", 2: "", 3: "medium", 4: "long"}
_BINARY: Final = "binary"
_UNKNOWN_CHARSET: Final = "utf8mb4"


def has_names(table_map: TableMap) -> bool:
    """Check whether a table map has full metadata, and all of it is understood."""
    return all(
        column.name is not None and column.is_sign_known for column in table_map.columns
    )


def meta_of(table_map: TableMap) -> TableMeta:
    """Return the columns that a table map describes."""
    columns = tuple(
        ColumnMeta(
            mapped.name or f"@{number}",
            _type_of(mapped),
            _charset_of(mapped),
            bool(mapped.is_key),
        )
        for number, mapped in enumerate(table_map.columns, 1)
    )
    return TableMeta(table_map.schema, table_map.table, columns)


def _charset_of(mapped: MappedColumn) -> str | None:
    if mapped.collation is not None:
        return charset_of_collation(mapped.collation)
    # Without metadata, a BLOB looks like a TEXT: keep every byte, as of a BLOB.
    if tm.is_text(mapped.type):
        return _BINARY if _is_blob(mapped) else _UNKNOWN_CHARSET
    return None


def _is_blob(mapped: MappedColumn) -> bool:
    return mapped.type in tm.BLOBS or mapped.type == tm.BLOB_COMPRESSED


def _type_of(mapped: MappedColumn) -> str:
    kind, metadata = mapped.type, mapped.metadata
    sign = " unsigned" if mapped.unsigned else ""
    if kind in _NUMBERS:
        return _NUMBERS[kind] + sign
    if kind == tm.NEWDECIMAL:
        return f"decimal({metadata[0]},{metadata[1]}){sign}"
    if kind == tm.BIT:
        return f"bit({metadata[1] * 8 + metadata[0]})"
    if kind in _WITH_FRACTION:
        digits = f"({metadata[0]})" if metadata[0] else ""
        return _WITH_FRACTION[kind] + digits
    if kind in _PLAIN:
        return _PLAIN[kind]
    return _type_of_text(mapped)


def _type_of_text(mapped: MappedColumn) -> str:
    """Return the type of a column of bytes; its length is in bytes, not characters."""
    is_binary = _charset_of(mapped) == _BINARY
    if _is_blob(mapped):
        size = mapped.metadata[0] if mapped.metadata else 4
        return _SIZES.get(size, "long") + ("blob" if is_binary else "text")
    if mapped.type == tm.STRING:
        return f"{_BINARY if is_binary else 'char'}({mapped.string_bytes})"
    length = int.from_bytes(mapped.metadata, "little")
    return f"{'varbinary' if is_binary else 'varchar'}({length})"
