"""The schemas of Debezium's messages, in the terms of Kafka Connect.

They are made once for each shape of a table: as a text of JSON, as the JSON converter
of Kafka Connect has them, or as objects, of which `avro_schemas` makes those of Avro.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Protocol

from canal_server.model.enum_labels import labels_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    Schema = dict[str, Any]
    # Literal type, semantic type, its parameters.
    _Type = tuple[str, str, dict[str, str] | None]

_MILLISECOND_DIGITS: Final = 3
_INTEGERS: Final = {8: "int16", 16: "int16", 24: "int32", 32: "int32", 64: "int64"}
_UNSIGNED: Final = {8: "int16", 16: "int32", 24: "int32", 32: "int64", 64: "int64"}


class SchemaColumn(Protocol):
    """What a schema shows of a column."""

    name: str
    mysql_type: str
    kind: str
    is_key: bool
    a: int
    b: int


def envelope_schema(columns: Iterable[SchemaColumn], prefix: str, decimals: str) -> str:
    """Return the schema of values; `prefix`: name of the server, database and table."""
    fields = [field_of(each, decimals) for each in columns]
    return _text(envelope_of(fields, prefix))


def key_schema(columns: Iterable[SchemaColumn], prefix: str, decimals: str) -> str:
    """Return the schema of keys; the columns are those of the primary key."""
    fields = [field_of(each, decimals) for each in columns]
    return _text(key_of(fields, prefix))


def envelope_of(fields: list[Schema], prefix: str) -> Schema:
    """Return the schema of values with these fields of a row."""
    row = {"type": "struct", "fields": fields, "optional": True}
    row["name"] = f"{prefix}.Value"
    return {
        "type": "struct",
        "fields": [
            row | {"field": "before"},
            row | {"field": "after"},
            _SOURCE,
            _field("string", "op"),
            _field("int64", "ts_ms", optional=True),
            _TRANSACTION,
        ],
        "optional": False,
        "name": f"{prefix}.Envelope",
        "version": 1,
    }


def key_of(fields: list[Schema], prefix: str) -> Schema:
    """Return the schema of keys with these fields of a row."""
    return {
        "type": "struct",
        "fields": fields,
        "optional": False,
        "name": f"{prefix}.Key",
    }


def field_of(column: SchemaColumn, decimals: str) -> Schema:
    """Return the schema of a column.

    Entries do not have whether a column is nullable; those of the primary key are not.
    """
    literal, name, parameters = _type_of(column, decimals)
    found: Schema = {"type": literal, "optional": not column.is_key}
    if literal == "array":
        found["items"] = {"type": "float", "optional": False}
    if name in _STRUCTS:
        found["fields"] = _STRUCTS[name]
    if name:
        found |= {"name": name, "version": 1}
    if parameters:
        found["parameters"] = parameters
    return found | {"field": column.name}


def _type_of(column: SchemaColumn, decimals: str) -> _Type:
    """Return the literal type, the semantic type and its parameters."""
    if column.kind in _PLAIN:
        return (*_PLAIN[column.kind], None)
    if column.kind == "decimal":
        return _decimal(column, decimals)
    return _TYPES[column.kind](column)


def _integer(column: SchemaColumn) -> _Type:
    return (_UNSIGNED if column.b else _INTEGERS)[column.a], "", None


def _float(column: SchemaColumn) -> _Type:
    # Debezium has a FLOAT(M,D) as a double.
    return "double" if column.b else "float", "", None


def _bit(column: SchemaColumn) -> _Type:
    if column.a == 1:
        return "boolean", "", None
    return "bytes", "io.debezium.data.Bits", {"length": str(column.a)}


def _datetime(column: SchemaColumn) -> _Type:
    unit = "" if column.a <= _MILLISECOND_DIGITS else "Micro"
    return "int64", f"io.debezium.time.{unit}Timestamp", None


def _labels(column: SchemaColumn) -> _Type:
    allowed = ",".join(
        each.decode("utf-8", "replace") if isinstance(each, bytes) else each
        for each in labels_of(column.mysql_type)
    )
    name = "Enum" if column.kind == "enum" else "EnumSet"
    return "string", f"io.debezium.data.{name}", {"allowed": allowed}


def _geometry(column: SchemaColumn) -> _Type:
    name = "Point" if column.a else "Geometry"
    return "struct", f"io.debezium.data.geometry.{name}", None


def _decimal(column: SchemaColumn, how: str) -> _Type:
    if how != "precise":
        return how, "", None  # string or double
    parameters = {"scale": str(column.b), "connect.decimal.precision": str(column.a)}
    return "bytes", "org.apache.kafka.connect.data.Decimal", parameters


def _field(literal: str, name: str, *, optional: bool = False) -> Schema:
    return {"type": literal, "optional": optional, "field": name}


def _text(schema: Schema) -> str:
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))


_TYPES: Final = {
    "integer": _integer,
    "bit": _bit,
    "float": _float,
    "datetime": _datetime,
    "enum": _labels,
    "set": _labels,
    "geometry": _geometry,
}
_PLAIN: Final = {
    "double": ("double", ""),
    "year": ("int32", "io.debezium.time.Year"),
    "date": ("int32", "io.debezium.time.Date"),
    "time": ("int64", "io.debezium.time.MicroTime"),
    "timestamp": ("string", "io.debezium.time.ZonedTimestamp"),
    "json": ("string", "io.debezium.data.Json"),
    "vector": ("array", "io.debezium.data.FloatVector"),
    "bytes": ("bytes", ""),
    "text": ("string", ""),
}
_SHAPE: Final = [
    _field("bytes", "wkb"),
    _field("int32", "srid", optional=True),
]
_STRUCTS: Final = {
    "io.debezium.data.geometry.Geometry": _SHAPE,
    "io.debezium.data.geometry.Point": [
        _field("double", "x"),
        _field("double", "y"),
        *(each | {"optional": True} for each in _SHAPE),
    ],
}
_SOURCE: Final = {
    "type": "struct",
    "fields": [
        _field("string", "version"),
        _field("string", "connector"),
        _field("string", "name"),
        _field("int64", "ts_ms"),
        _field("string", "snapshot", optional=True)
        | {
            "name": "io.debezium.data.Enum",
            "version": 1,
            "parameters": {"allowed": "true,last,false,incremental"},
            "default": "false",
        },
        _field("string", "db"),
        _field("string", "sequence", optional=True),
        _field("string", "table", optional=True),
        _field("int64", "server_id"),
        _field("string", "gtid", optional=True),
        _field("string", "file"),
        _field("int64", "pos"),
        _field("int32", "row"),
        _field("int64", "thread", optional=True),
        _field("string", "query", optional=True),
    ],
    "optional": False,
    "name": "io.debezium.connector.mysql.Source",
    "field": "source",
}
_TRANSACTION: Final = {
    "type": "struct",
    "fields": [
        _field("string", "id"),
        _field("int64", "total_order"),
        _field("int64", "data_collection_order"),
    ],
    "optional": True,
    "name": "event.block",
    "version": 1,
    "field": "transaction",
}
