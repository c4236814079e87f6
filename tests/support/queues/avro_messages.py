"""Messages in Avro, read by another library, beside those of Debezium's JSON."""

from __future__ import annotations

import base64
import io
import json
import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from canal_server.queues.forms.avro_schemas import field_names

if TYPE_CHECKING:
    from collections.abc import Callable

HEADER_BYTES = 5
DECIMAL = "org.apache.kafka.connect.data.Decimal"


class Schemas:
    """A registry in this process: the schemas of ids, in the order they came in."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.asked: list[tuple[str, bool, str]] = []

    def id_of(self, topic: str, is_key: bool, record: str, schema: str) -> int:
        """Return the number of a schema."""
        self.asked.append((topic, is_key, record))
        if schema not in self.texts:
            self.texts.append(schema)
        return self.texts.index(schema) + 1

    def text_of(self, number: int) -> str:
        """Return the schema of a number."""
        return self.texts[number - 1]


class AvroReader:
    """Reads messages; `text_of` returns the schema of an id."""

    def __init__(self, text_of: Callable[[int], str]) -> None:
        self._avro: Any = pytest.importorskip("fastavro")
        self._text_of = text_of
        self._parsed: dict[int, Any] = {}

    def __call__(self, message: bytes | None) -> Any:
        """Return a key or a value; all of its bytes have to be read."""
        if message is None:
            return None
        assert message[0] == 0
        number = int.from_bytes(message[1:HEADER_BYTES], "big")
        if number not in self._parsed:
            self._parsed[number] = self._avro.parse_schema(
                json.loads(self._text_of(number))
            )
        source = io.BytesIO(message[HEADER_BYTES:])
        found = self._avro.schemaless_reader(source, self._parsed[number], None)
        assert not source.read()
        return found


def of_json(schema: dict[str, Any], value: Any) -> Any:
    """Return what Avro has for a value of JSON with this schema of Kafka Connect."""
    if value is None:
        return None
    kind = schema["type"]
    if kind == "struct":
        names = field_names([each["field"] for each in schema["fields"]])
        # A field that is not known is missing in JSON.
        return {
            name: of_json(each, value.get(each["field"]))
            for name, each in zip(names, schema["fields"], strict=True)
        }
    if kind == "array":
        return [of_json(schema["items"], each) for each in value]
    if kind in {"float", "double"}:
        code = f"<{kind[0]}"
        return struct.unpack(code, struct.pack(code, value))[0]
    return value if kind != "bytes" else _of_bytes(schema, base64.b64decode(value))


def _of_bytes(schema: dict[str, Any], data: bytes) -> Any:
    if schema.get("name") != DECIMAL:
        return data
    scale = int(schema["parameters"]["scale"])
    number = int.from_bytes(data, "big", signed=True)
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))
