"""Reads messages in Avro that were made here, for notes about them.

Of the types, those that `avro_schemas` makes are read. Bytes are in base64, as JSON has
them.
"""

from __future__ import annotations

import base64
import json
import struct
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER: Final = struct.Struct(">bI")  # a zero, and the id of the schema
_FLOATING: Final = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}


def schema_id(message: bytes) -> int | None:
    """Return the id of the schema of a message, None: it is not in Avro."""
    if len(message) < HEADER.size or message[0] != 0:
        return None
    number: int = HEADER.unpack_from(message)[1]
    return number


def read_message(message: bytes, schema: str) -> Any:
    """Return what is in a message with this schema, as JSON has it."""
    parsed = json.loads(schema)
    return _Reader(message[HEADER.size :], dict(_records(parsed))).value(parsed)


def _records(schema: Any) -> Iterator[tuple[str, Any]]:
    """Yield the records of a schema, with their full names."""
    if isinstance(schema, list):
        for each in schema:
            yield from _records(each)
    elif isinstance(schema, dict) and schema["type"] == "record":
        yield f"{schema['namespace']}.{schema['name']}", schema
        for field in schema["fields"]:
            yield from _records(field["type"])


class _Reader:
    def __init__(self, data: bytes, records: dict[str, Any]) -> None:
        self._data = data
        self._at = 0
        self._records = records  # which a schema repeats by name

    def value(self, schema: Any) -> Any:
        """Return the next value."""
        if isinstance(schema, list):
            return self.value(schema[self._long()])
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind in self._records:
            return self.value(self._records[kind])
        if kind == "record":
            return {each["name"]: self.value(each["type"]) for each in schema["fields"]}
        if kind == "array":
            return self._array(schema["items"])
        return self._plain(kind)

    def _plain(self, kind: str) -> Any:
        if kind == "null":
            return None
        if kind == "boolean":
            return self._bytes(1) == b"\1"
        if kind in {"int", "long"}:
            return self._long()
        if kind in _FLOATING:
            layout = _FLOATING[kind]
            return layout.unpack(self._bytes(layout.size))[0]
        data = self._bytes(self._long())
        return data.decode() if kind == "string" else base64.b64encode(data).decode()

    def _array(self, items: Any) -> list[Any]:
        found: list[Any] = []
        while count := self._long():
            found += [self.value(items) for _ in range(count)]
        return found

    def _long(self) -> int:
        number = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:  # noqa: PLR2004  # the last byte
                return (number >> 1) ^ -(number & 1)

    def _bytes(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at]
