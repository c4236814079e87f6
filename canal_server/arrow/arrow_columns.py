"""Maps MySQL columns to columns of Arrow and Spark: kinds of values, types of Spark.

It does not import pyarrow, so that a schema is available without it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.errors import DecodeError

if TYPE_CHECKING:
    from canal_server.model.columns_known import ColumnMeta

DECIMAL_DIGITS_MAX: Final = 38  # of decimals in Spark and Arrow
_BIGINT_UNSIGNED_DIGITS: Final = 20
_DECIMAL_DEFAULT: Final = (10, 0)

# By signedness.
_INTEGERS: Final = {
    "tinyint": ("int8", "int16"),
    "bool": ("int8", "int16"),
    "boolean": ("int8", "int16"),
    "smallint": ("int16", "int32"),
    "mediumint": ("int32", "int32"),
    "int": ("int32", "int64"),
    "integer": ("int32", "int64"),
    "bigint": ("int64", "decimal"),
    "serial": ("int64", "decimal"),
}
_UNSIGNED: Final = {
    "tinyint": "uint8",
    "bool": "uint8",
    "boolean": "uint8",
    "smallint": "uint16",
    "mediumint": "uint32",
    "int": "uint32",
    "integer": "uint32",
    "bigint": "uint64",
    "serial": "uint64",
    "bit": "uint64",
}
_PLAIN: Final = {
    "float": "float",
    "double": "double",
    "real": "double",
    "date": "date",
    "datetime": "datetime",
    "timestamp": "timestamp",
    "year": "int32",
    "bit": "bits",
}
_DECIMALS: Final = ("decimal", "numeric", "dec", "fixed")
_TEXTS: Final = frozenset(
    ("time", "char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum",
     "set", "json", "uuid", "inet4", "inet6", "xmltype")
)  # fmt: skip
_BYTES: Final = frozenset(
    ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector",
     "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring",
     "multipolygon", "geomcollection", "geometrycollection")
)  # fmt: skip

SPARK_TYPES: Final = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "bits": "BIGINT",
    "wide decimal": "STRING",
    "float": "FLOAT",
    "double": "DOUBLE",
    "date": "DATE",
    "datetime": "TIMESTAMP_NTZ",
    "timestamp": "TIMESTAMP",
    "text": "STRING",
    "binary": "BINARY",
    "floats": "ARRAY<FLOAT>",  # only of a lake; the compiled part does not have it
}
_BASE: Final = re.compile(r"\s*([a-z0-9_]+)", re.IGNORECASE)
_ARGUMENTS: Final = re.compile(r"\((\d+)(?:\s*,\s*(\d+))?\)")


@dataclass(frozen=True, slots=True)
class RequestedColumn:
    """A column of the output; `kind` is one of the compiled part."""

    name: str
    kind: str
    precision: int = 0
    scale: int = 0

    @property
    def spark_type(self) -> str:
        """Return the type in Spark DDL."""
        if self.kind == "decimal":
            return f"DECIMAL({self.precision},{self.scale})"
        return SPARK_TYPES[self.kind]

    def as_field(self) -> tuple[str, str, int, int]:
        """Return the arguments of the compiled part."""
        return self.name, self.kind, self.precision, self.scale


def requested_column(column: ColumnMeta) -> RequestedColumn:
    """Return the output column for a column of a table.

    Raises DecodeError for an unknown type.
    """
    found = _BASE.match(column.mysql_type)
    base = found[1].lower() if found else ""
    if base in _INTEGERS:
        kind = _INTEGERS[base][column.unsigned]
        digits = _BIGINT_UNSIGNED_DIGITS if kind == "decimal" else 0
        return RequestedColumn(column.name, kind, digits)
    if base in _DECIMALS:
        return _decimal(column)
    if base in _PLAIN:
        return RequestedColumn(column.name, _PLAIN[base])
    if base in _BYTES or (base in _TEXTS and _is_binary(column, base)):
        return RequestedColumn(column.name, "binary")
    if base in _TEXTS:
        return RequestedColumn(column.name, "text")
    raise DecodeError(
        f"column {column.name}: unknown type {column.mysql_type!r}; exclude the column "
        "from the query"
    )


def exact_column(column: ColumnMeta) -> RequestedColumn:
    """Return the output column in types of Arrow, which has integers without a sign.

    Raises DecodeError for an unknown type.
    """
    found = _BASE.match(column.mysql_type)
    base = found[1].lower() if found else ""
    if base == "bit" or (base in _UNSIGNED and column.unsigned):
        return RequestedColumn(column.name, _UNSIGNED[base])
    return requested_column(column)


def _decimal(column: ColumnMeta) -> RequestedColumn:
    found = _ARGUMENTS.search(column.mysql_type)
    precision, scale = _DECIMAL_DEFAULT
    if found:
        precision, scale = int(found[1]), int(found[2] or 0)
    kind = "decimal" if precision <= DECIMAL_DIGITS_MAX else "wide decimal"
    return RequestedColumn(column.name, kind, precision, scale)


def _is_binary(column: ColumnMeta, base: str) -> bool:
    """Return whether a string type holds bytes: CHAR(9) CHARACTER SET binary."""
    return column.charset == "binary" and base.endswith(("char", "text"))
