"""What is read of messages in Avro is what the form in JSON has."""

from __future__ import annotations

import json
from ctypes import c_float
from typing import TYPE_CHECKING, Any

from avro_messages import Schemas
from random_reading import random_load

from canal_server.queues.avro_reader import read_message, schema_id
from canal_server.queues.forms.avro_rows import AvroRows
from canal_server.queues.forms.avro_schemas import field_names
from canal_server.queues.forms.debezium_rows import DebeziumRows
from canal_server.queues.table_routes import Route

if TYPE_CHECKING:
    import random


def test_random(source_server: Any, database: str, rng: random.Random) -> None:
    """Keys and values of random tables are the same."""
    _, reading = random_load(source_server, database, rng, images=("FULL",))
    schemas = Schemas()

    def route(*_: str) -> Route:
        return Route("x")

    form = AvroRows(route, name="srv", id_of=schemas.id_of, has_keys=True)
    other = DebeziumRows(route, name="srv", has_keys=True)
    found = form.convert(1, reading.body, 2)
    expected = other.convert(1, reading.body, 2)
    assert len(found) == len(expected) > 0
    for ours, theirs in zip(found, expected, strict=True):
        for message, text in zip(ours[2:4], theirs[2:4], strict=True):
            if message is None:
                assert text is None
                continue
            number = schema_id(message)
            assert number is not None
            value = read_message(message, schemas.text_of(number))
            assert renamed(value) == renamed(json.loads(text or b""))


def renamed(value: Any) -> Any:
    """Return a value of JSON with the names that Avro has, and four bytes a number."""
    if isinstance(value, dict):
        names = field_names(list(value))
        return {
            name: renamed(each)
            for name, each in zip(names, value.values(), strict=True)
        }
    if isinstance(value, list):
        return [renamed(each) for each in value]
    if isinstance(value, float):
        return c_float(value).value  # infinite beyond them
    return value


def test_other_messages() -> None:
    """Those of JSON and protobuf have no schema."""
    for message in (b"", b'{"a": 1}', b"\x18\x01", b"\0\0"):
        assert schema_id(message) is None
