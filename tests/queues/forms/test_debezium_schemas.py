"""Schemas of Kafka Connect for the types of columns."""

from __future__ import annotations

import json
from typing import Any

import pytest
from shown_columns import shown_column

from canal_server.queues.forms.debezium_schemas import (
    envelope_schema,
    field_of,
    key_schema,
)


@pytest.mark.parametrize(
    ("mysql_type", "literal", "name"),
    [
        ("tinyint", "int16", None),
        ("tinyint unsigned", "int16", None),
        ("smallint unsigned", "int32", None),
        ("mediumint unsigned", "int32", None),
        ("int unsigned", "int64", None),
        ("bigint unsigned", "int64", None),
        ("double", "double", None),
        ("year", "int32", "io.debezium.time.Year"),
        ("datetime(3)", "int64", "io.debezium.time.Timestamp"),
        ("datetime(4)", "int64", "io.debezium.time.MicroTimestamp"),
        ("point", "struct", "io.debezium.data.geometry.Point"),
        ("polygon", "struct", "io.debezium.data.geometry.Geometry"),
        ("vector(3)", "array", "io.debezium.data.FloatVector"),
        ("longblob", "bytes", None),
        ("uuid", "string", None),
    ],
)
def test_types(mysql_type: str, literal: str, name: str | None) -> None:
    """A type has a literal type, and perhaps a name with version 1."""
    found = field_of(shown_column("a", mysql_type), "precise")
    assert (found["type"], found.get("name")) == (literal, name)
    assert found.get("version") == (name and 1)
    assert (found["optional"], found["field"]) == (True, "a")


def test_parameters() -> None:
    """Labels, lengths and the digits of decimals are parameters."""
    types = {
        "enum('x','it''s','')": {"allowed": "x,it's,"},
        "set('a','b')": {"allowed": "a,b"},
        "bit(9)": {"length": "9"},
        "decimal(12,2)": {"scale": "2", "connect.decimal.precision": "12"},
        "int": None,
    }
    for mysql_type, expected in types.items():
        found = field_of(shown_column("a", mysql_type), "precise")
        assert found.get("parameters") == expected


@pytest.mark.parametrize("how", ["string", "double"])
def test_decimals_of_other_types(how: str) -> None:
    """They have no name then, whose readers would expect bytes."""
    found = field_of(shown_column("a", "decimal(12,2)"), how)
    assert found == {"type": how, "optional": True, "field": "a"}


def test_envelope() -> None:
    """Rows before and after have one record; the key has its columns alone."""
    columns = [
        shown_column("id", "int", is_key=True),
        shown_column("näme", "varchar(9)"),
    ]
    found = json.loads(envelope_schema(columns, "srv.shop.orders", "precise"))
    assert found["name"] == "srv.shop.orders.Envelope"
    fields: dict[str, Any] = {each["field"]: each for each in found["fields"]}
    assert list(fields) == ["before", "after", "source", "op", "ts_ms", "transaction"]
    before, after = fields["before"], fields["after"]
    assert before["name"] == "srv.shop.orders.Value"
    assert before | {"field": "after"} == after
    assert [(each["field"], each["optional"]) for each in after["fields"]] == [
        ("id", False), ("näme", True),
    ]  # fmt: skip
    key = json.loads(key_schema(columns[:1], "srv.shop.orders", "precise"))
    assert key["name"] == "srv.shop.orders.Key"
    assert key["fields"] == after["fields"][:1]
