"""Schemas of Avro: valid for another library, and with names that differ."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from fix_random import longer
from shown_columns import Shown, shown_column

from canal_server.errors import ProtocolError
from canal_server.queues.forms.avro_schemas import (
    adjusted,
    field_names,
    key_schema,
    record_prefix,
    value_schema,
)

if TYPE_CHECKING:
    import random

fastavro: Any = pytest.importorskip("fastavro", reason="fastavro is not installed")

TYPES = (
    "int", "bigint unsigned", "tinyint(1)", "float", "double", "decimal(12,2)",
    "bit(1)", "bit(9)", "year", "date", "datetime", "datetime(6)", "timestamp", "time",
    "enum('a','b')", "set('a')", "json", "vector(2)", "point", "polygon", "blob",
    "varchar(9)",
)  # fmt: skip


@pytest.mark.parametrize("decimals", ["precise", "string", "double"])
def test_all_types(decimals: str) -> None:
    """Another library reads the schema, also with several columns of one record."""
    columns = [shown_column("id", "int", is_key=True)]
    columns += [shown_column(f"a{n}", each) for n, each in enumerate(2 * TYPES)]
    name, text = value_schema(columns, "srv.shop.orders", decimals)
    assert name == "srv.shop.orders.Envelope"
    fastavro.parse_schema(json.loads(text))
    name, text = key_schema(columns, "srv.shop.orders", decimals)
    assert name == "srv.shop.orders.Key"
    assert [each["name"] for each in json.loads(text)["fields"]] == ["id"]


def test_fields() -> None:
    """What Avro does not have is a property; a column that is optional may be null."""
    columns = [
        shown_column("id", "smallint", is_key=True),
        shown_column("price", "decimal(12,2)"),
        shown_column("spot", "point"),
        shown_column("other", "point"),
    ]
    _, text = value_schema(columns, "srv.shop.orders", "precise")
    before, after, source = json.loads(text)["fields"][:3]
    assert after["type"] == ["null", "srv.shop.orders.Value"]
    key, price, spot, other = before["type"][1]["fields"]
    assert key == {"name": "id", "type": {"type": "int", "connect.type": "int16"}}
    assert price == {
        "name": "price",
        "type": ["null", {
            "type": "bytes", "scale": 2, "precision": 12, "connect.version": 1,
            "connect.parameters": {"scale": "2", "connect.decimal.precision": "12"},
            "connect.name": "org.apache.kafka.connect.data.Decimal",
            "logicalType": "decimal",
        }],
        "default": None,
    }  # fmt: skip
    assert spot["type"][1]["name"] == "Point"
    assert other["type"] == ["null", "io.debezium.data.geometry.Point"]
    snapshot = source["type"]["fields"][4]
    assert snapshot["default"] == "false"
    assert snapshot["type"][1] == "null", "the type of the default comes first"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a", "a"), ("1a", "_1a"), ("a-b.c", "a_b_c"), ("", "_"), ("名", "_"), ("_", "_")],
)
def test_adjusted(name: str, expected: str) -> None:
    """Letters, digits and _ stay, a digit at the begin has _ before it."""
    assert adjusted(name) == expected


def test_prefix() -> None:
    """A dot in a name of the source separates parts, one in the others does not."""
    assert record_prefix(("eu.srv", "my.shop", "2x")) == "eu.srv.my_shop._2x"


def test_field_names(rng: random.Random) -> None:
    """Names differ, are valid, and stay as they are if they are valid: or an error."""
    refused = 0
    for _ in range(longer(2_000)):
        names = {
            "".join(rng.choices("ab_-1ü订", k=rng.randint(1, 4)))
            for _ in range(rng.randint(1, 6))
        }
        given = sorted(names)
        try:
            found = field_names(given)
        except ProtocolError:
            refused += 1
            continue
        assert len(set(found)) == len(given)
        assert all(adjusted(each) == each for each in found)
        for name, made in zip(given, found, strict=True):
            assert made == name or adjusted(name) != name
    assert refused < longer(200), "names are seldom refused"


def test_a_name_that_is_a_code() -> None:
    """The error names the columns and the remedy."""
    columns: list[Shown] = [
        shown_column(each, "int") for each in ("a-b", "a_b", "a_u002db")
    ]
    with pytest.raises(ProtocolError, match=r"a-b, a_b, a_u002db: .* rename one"):
        value_schema(columns, "srv.shop.orders", "precise")
