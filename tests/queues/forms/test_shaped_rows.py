"""Schemas belong to the columns that a row has, however many combinations there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from avro_messages import AvroReader, Schemas
from fix_random import longer
from row_rules import body_of, table_entry

from canal_server.queues.forms.avro_rows import AvroRows
from canal_server.queues.forms.debezium_rows import DebeziumRows
from canal_server.queues.table_routes import Route

if TYPE_CHECKING:
    import random

    from canal_server.protocol.entry_messages import Entry

SHAPES_MAX = 64  # of a table, that are kept
NAMES = [f"c{number}" for number in range(9)]
pytest.importorskip("fastavro", reason="fastavro is not installed")


def entry_of(names: list[str], value: int, table: str = "orders") -> Entry:
    """Return the insertion of a row that has these columns."""
    columns = {name: ("int", str(value)) for name in names}
    return table_entry(columns, table_name=table)


def form_of(schemas: Schemas) -> AvroRows:
    """Return what makes the messages."""
    return AvroRows(lambda *_: Route("x"), name="srv", id_of=schemas.id_of)


def test_any_columns(rng: random.Random) -> None:
    """A message can be read by its schema, in whatever order shapes and tables come."""
    schemas = Schemas()
    form, read = form_of(schemas), AvroReader(schemas.text_of)
    shapes = [
        (sorted(rng.sample(NAMES, rng.randint(1, len(NAMES)))), rng.choice("abc"))
        for _ in range(2 * SHAPES_MAX)
    ]
    for _ in range(longer(100)):
        chosen = rng.choices(shapes, k=rng.randint(1, 8))
        entries = [
            entry_of(names, value, table) for value, (names, table) in enumerate(chosen)
        ]
        found = [read(each[2]) for each in form.convert(1, body_of(*entries), 2)]
        assert [each["after"] for each in found] == [
            dict.fromkeys(names, value) for value, (names, _) in enumerate(chosen)
        ]
        assert [each["source"]["table"] for each in found] == [
            table for _, table in chosen
        ]


def test_a_schema_is_made_once() -> None:
    """Alternating shapes are kept; those of more than that many are made again."""
    schemas = Schemas()
    form = form_of(schemas)
    few = [NAMES[: number + 1] for number in range(len(NAMES))]
    for _ in range(3):
        form.convert(1, body_of(*(entry_of(names, 1) for names in few)), 2)
    assert len(schemas.asked) == len(few)
    many = [[f"d{number}"] for number in range(SHAPES_MAX + 1)]
    for _ in range(2):
        form.convert(1, body_of(*(entry_of(names, 1) for names in many)), 2)
    assert len(schemas.texts) == len(few) + len(many), "each has one id"
    assert len(schemas.asked) > len(few) + len(many), "some were forgotten"


def test_shapes_of_json() -> None:
    """Messages in JSON have the schema of their own columns."""
    form = DebeziumRows(lambda *_: Route("x"), name="srv", has_schemas=True)
    body = body_of(entry_of(["a"], 1), entry_of(["a", "b"], 1), entry_of(["a"], 1))
    first, second, third = (each[2] for each in form.convert(1, body, 2))
    assert first == third
    assert second is not None
    assert b'"field":"b"' in second
    assert b'"field":"b"' not in (first or b"")
