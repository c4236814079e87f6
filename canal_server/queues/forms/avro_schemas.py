"""Schemas of Avro from those of Kafka Connect, as Confluent's converter makes them.

What Avro does not have stays in properties `connect.…`, so that a consumer with Kafka
Connect gets the schema of Debezium back. Names have the characters that Avro allows.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from canal_server.errors import ProtocolError
from canal_server.queues.forms.debezium_schemas import envelope_of, field_of, key_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from canal_server.queues.forms.debezium_schemas import Schema, SchemaColumn

_INVALID: Final = re.compile(r"[^A-Za-z0-9_]")
_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_PROPERTIES: Final = ("version", "parameters", "default", "name")
_TYPES: Final = {
    "int16": "int", "int32": "int", "int64": "long", "float": "float",
    "double": "double", "boolean": "boolean", "string": "string", "bytes": "bytes",
}  # fmt: skip


def value_schema(
    columns: Sequence[SchemaColumn], prefix: str, decimals: str
) -> tuple[str, str]:
    """Return the name of the record of values, and its schema as a text.

    Raises ProtocolError for names that become the same in Avro.
    """
    return _made(envelope_of(_fields(columns, decimals), prefix))


def key_schema(
    columns: Sequence[SchemaColumn], prefix: str, decimals: str
) -> tuple[str, str]:
    """Return the same of keys; `columns` are all of the table."""
    fields = _fields(columns, decimals)
    keys = [
        field for field, column in zip(fields, columns, strict=True) if column.is_key
    ]
    return _made(key_of(keys, prefix))


def record_prefix(names: Iterable[str]) -> str:
    """Return the namespace of the source, the database and the table.

    Only in the name of the source, a dot separates parts.
    """
    source, *others = names
    return ".".join(map(adjusted, [*source.split("."), *others]))


def adjusted(name: str) -> str:
    """Return a name with `_` for each character that Avro does not allow.

    A digit at its begin has `_` before it.
    """
    found = _INVALID.sub("_", name)
    return f"_{found}" if found[:1].isdigit() or not found else found


def field_names(names: Sequence[str]) -> list[str]:
    """Return names of fields, which differ. Raises ProtocolError.

    Of columns that would have one name, one that is valid keeps it; in those of the
    others, a character is its code, as in `_u7528`.
    """
    counts = Counter(map(adjusted, names))
    found = [
        name if adjusted(name) == name or counts[adjusted(name)] == 1 else _coded(name)
        for name in names
    ]
    found = [adjusted(each) for each in found]
    if len(set(found)) < len(found):
        raise ProtocolError(
            f"columns {', '.join(names)}: two of them have one name in Avro, which"
            " allows letters, digits and _ only; rename one"
        )
    return found


def _coded(name: str) -> str:
    return _INVALID.sub(lambda each: f"_u{ord(each[0]):04x}", name)


def _fields(columns: Sequence[SchemaColumn], decimals: str) -> list[Schema]:
    names = field_names([each.name for each in columns])
    return [
        field_of(column, decimals) | {"field": name}
        for column, name in zip(columns, names, strict=True)
    ]


def _made(schema: Schema) -> tuple[str, str]:
    text = json.dumps(_type(schema, set()), ensure_ascii=False, separators=(",", ":"))
    return schema["name"], text


def _field(schema: Schema, known: set[str]) -> dict[str, Any]:
    """Return the field of a record; an optional one is a union with null."""
    found = {"name": schema["field"], "type": _type(schema, known)}
    if not schema.get("optional"):
        return found
    default = schema.get("default")
    # The type of the default comes first.
    types = ["null", found["type"]]
    found["type"] = types if default is None else types[::-1]
    return found | {"default": default}


def _type(schema: Schema, known: set[str]) -> Any:
    """Return a type, by its name if it is a record that is `known`."""
    kind, name = schema["type"], schema.get("name", "")
    found: dict[str, Any]
    if kind == "struct":
        if name in known:
            return name
        known.add(name)
        namespace, _, short = name.rpartition(".")
        found = {"type": "record", "name": short, "namespace": namespace}
        found["fields"] = [_field(each, known) for each in schema["fields"]]
    elif kind == "array":
        found = {"type": "array", "items": _type(schema["items"], known)}
    else:
        found = {"type": _TYPES[kind]}
    if kind == "int16":
        found["connect.type"] = kind
    parameters = schema.get("parameters", {})
    if name == _DECIMAL:
        found["scale"] = int(parameters["scale"])
        found["precision"] = int(parameters["connect.decimal.precision"])
    for each in _PROPERTIES:
        if schema.get(each):
            found[f"connect.{each}"] = schema[each]
    if name == _DECIMAL:
        found["logicalType"] = "decimal"
    return found["type"] if len(found) == 1 else found
