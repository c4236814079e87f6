"""Messages in the JSON of Debezium, read as its documentation has it."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from damaged_entries import damaged_body
from fix_random import longer
from form_truth import fold, in_order, is_valid, of_debezium, truth, word_of
from random_entries import random_entry
from random_reading import random_load
from row_rules import body_of, rows_of, table_entry, with_texts

from canal_server.client.frame_reader import entries_of
from canal_server.config.schema import RoutingConfig
from canal_server.errors import ProtocolError
from canal_server.model.entry import EventType
from canal_server.protocol.entry_messages import decode_entry
from canal_server.protocol.protobuf import encode
from canal_server.queues.forms.debezium_rows import DebeziumRows
from canal_server.queues.routing import Router
from canal_server.queues.table_routes import Route

if TYPE_CHECKING:
    import random

    from random_schema import RandomTable

PARTITIONS = 4
BY_KEY = RoutingConfig(
    topic="top", partitions=PARTITIONS, partition_hash=r".*\..*:$pk$"
)


def made(body: bytes, **options: Any) -> list[tuple[Any, Any]]:
    """Return keys and values of the messages of a body."""
    form = DebeziumRows(lambda *_: Route("x"), name="srv", has_keys=True, **options)
    return [
        (each[3] and json.loads(each[3]), each[2] and json.loads(each[2]))
        for each in form.convert(1, body, 2)
    ]


def test_random(source_server: Any, database: str, rng: random.Random) -> None:
    """Rows of all types are what SELECT shows, after all changes; so are schemas."""
    load, reading = random_load(source_server, database, rng, images=("FULL",))
    tables = {table.name: table for table in load.tables}
    changes = []
    for key, value in made(reading.body, has_schemas=True):
        payload = value["payload"]
        name = payload["source"]["table"]
        if name not in tables:
            continue
        table = tables[name]
        assert (key is not None) == bool(table.key)
        if key is not None:
            matches(key["schema"], key["payload"])
        matches(value["schema"], payload)
        before, after = payload["before"], payload["after"]
        assert payload["op"] == ("c" if before is None else "u" if after else "d")
        changes.append((name, values_of(table, before), values_of(table, after)))
    found, expected = fold(load.tables, changes), truth(load)
    for name, table in tables.items():
        for row in expected[name]:
            for column in table.columns:
                row[column.name] = expected_of(table, column, row[column.name])
        assert in_order(found[name]) == in_order(expected[name])


def values_of(table: RandomTable, data: dict[str, Any] | None) -> Any:
    """Return the values of a row."""
    if data is None:
        return None
    return {
        column.name: of_debezium(
            word_of(column), column.kind.definition, data[column.name]
        )
        for column in table.columns
    }


def expected_of(table: RandomTable, column: Any, value: Any) -> Any:
    """Return what a message should have for a value of the server."""
    word = word_of(column)
    if value is None:
        return None
    if word == "bigint" and value > (1 << 63) - 1:
        return value - (1 << 64)  # as a long of Java
    if is_valid(word, value):
        return value
    if column not in table.key:
        return None
    if word == "date":
        return "1970-01-01"
    return "1970-01-01 00:00:00" + value[len("1970-01-01 00:00:00") :].replace(
        value[len("1970-01-01 00:00:00") + 1 :], "0" * (len(value) - 20)
    )


def matches(schema: dict[str, Any], value: Any) -> None:
    """Check a value against its schema, as Kafka Connect's JSON converter reads it."""
    if value is None:
        assert schema["optional"], schema
        return
    kind = schema["type"]
    if kind == "struct":
        names = [each["field"] for each in schema["fields"]]
        assert set(value) <= set(names)
        for each in schema["fields"]:
            matches(each, value.get(each["field"]))
    elif kind == "array":
        for each in value:
            matches(schema["items"], each)
    elif kind in {"int16", "int32", "int64"}:
        assert isinstance(value, int)
        assert abs(value) <= 1 << int(kind[3:]) - 1
    elif kind == "bytes":
        base64.b64decode(value, validate=True)
    else:
        types = {"string": str, "boolean": bool, "float": float, "double": float}
        assert isinstance(
            value, types[kind] if types[kind] is not float else float | int
        )


def test_keys(rng: random.Random) -> None:
    """A change of the key is a deletion and an insertion, with tombstones."""
    form = DebeziumRows(Router(BY_KEY), name="srv", has_keys=True, has_tombstones=True)
    moves = 0
    for _ in range(longer(200)):
        body = body_of(*(with_texts(random_entry(rng)) for _ in range(3)))
        found = form.convert(1, body, 2)
        expected: list[tuple[int, str | None]] = []
        for entry in map(decode_entry, entries_of(body)):
            for row in rows_of(entry):
                old, new = row.key(old=True), row.key(old=False)
                there = row.partition("key", PARTITIONS, old=True)
                here = row.partition("key", PARTITIONS, old=False)
                if row.is_deleted or row.moved:
                    expected.append((there, "d"))
                    expected += [(there, None)] if old else []
                if not row.is_deleted:
                    kind = "u" if row.kind is EventType.UPDATE else "c"
                    expected.append((here, "c" if row.moved else kind))
                if row.moved:
                    moves += 1
                    assert list(old) == list(new)
        assert [
            (each[1], each[2] and json.loads(each[2])["op"]) for each in found
        ] == expected
    assert moves


def test_types() -> None:
    """What a schema says of each type, and how its values look."""
    columns = {
        "id": ("bigint unsigned", "18446744073709551615"),
        "a": ("decimal(5,2)", "-1.5"),
        "b": ("bit(1)", "1"),
        "c": ("bit(9)", "257"),
        "d": ("datetime(3)", "2018-06-20 06:37:03.123"),
        "e": ("datetime(6)", "2018-06-20 06:37:03.123456"),
        "f": ("timestamp(2)", "2018-06-20 06:37:03.12"),
        "g": ("time", "-01:00:00"),
        "h": ("enum('x','y,z')", "2"),
        "i": ("set('x','y')", "3"),
        "j": ("date", "0000-00-00"),
        "k": ("decimal(65,0)", "-" + 65 * "9"),
        "l": ("tinyint(1)", None),
        "m": ("year", "2026"),
        "n": ("json", '{"a": 1}'),
        "o": ("json", ""),
        "p": ("float", "1.5"),
        "q": ("float(5,2)", "1.5"),
    }
    ((key, value),) = made(body_of(table_entry(columns)), has_schemas=True)
    fields = value["schema"]["fields"][1]["fields"]
    types = {each["field"]: (each["type"], each.get("name")) for each in fields}
    time, data = "io.debezium.time.", "io.debezium.data."
    assert types == {
        "id": ("int64", None),
        "a": ("bytes", "org.apache.kafka.connect.data.Decimal"),
        "b": ("boolean", None),
        "c": ("bytes", f"{data}Bits"),
        "d": ("int64", f"{time}Timestamp"),
        "e": ("int64", f"{time}MicroTimestamp"),
        "f": ("string", f"{time}ZonedTimestamp"),
        "g": ("int64", f"{time}MicroTime"),
        "h": ("string", f"{data}Enum"),
        "i": ("string", f"{data}EnumSet"),
        "j": ("int32", f"{time}Date"),
        "k": ("bytes", "org.apache.kafka.connect.data.Decimal"),
        "l": ("int16", None),
        "m": ("int32", f"{time}Year"),
        "n": ("string", f"{data}Json"),
        "o": ("string", f"{data}Json"),
        "p": ("float", None),
        "q": ("double", None),
    }
    assert [each["optional"] for each in fields] == [False] + 17 * [True]
    assert value["schema"]["name"] == "srv.shop.orders.Envelope"
    assert key["schema"]["name"] == "srv.shop.orders.Key"
    after = value["payload"]["after"]
    big = -(10**65 - 1)
    size = (big.bit_length() + 8) // 8
    assert after == {
        "id": -1,
        "a": base64.b64encode((-150).to_bytes(2, "big", signed=True)).decode(),
        "b": True,
        "c": base64.b64encode(b"\x01\x01").decode(),
        "d": 1529476623123,
        "e": 1529476623123456,
        "f": "2018-06-20T06:37:03.12Z",
        "g": -3_600_000_000,
        "h": "y,z",
        "i": "x,y",
        "j": None,
        "k": base64.b64encode(big.to_bytes(size, "big", signed=True)).decode(),
        "l": None,
        "m": 2026,
        "n": '{"a": 1}',
        "o": None,
        "p": 1.5,
        "q": 1.5,
    }
    assert key["payload"] == {"id": -1}


@pytest.mark.parametrize(("how", "expected"), [("string", "-1.50"), ("double", -1.5)])
def test_decimals(how: str, expected: Any) -> None:
    """A DECIMAL may be a text or a number."""
    body = body_of(table_entry({"id": ("int", "1"), "a": ("decimal(5,2)", "-1.5")}))
    ((_, value),) = made(body, decimals=how)
    assert value["after"] == {"id": 1, "a": expected}


@pytest.mark.parametrize(
    ("mysql_type", "text"),
    [("enum('a')", "2"), ("set('a')", "2"), ("geometry", ""), ("point", "")],
)
def test_values_that_a_type_does_not_have(mysql_type: str, text: str) -> None:
    """They are null, in a key the number."""
    body = body_of(table_entry({"id": ("int", "1"), "a": (mysql_type, text)}))
    for options in ({}, {"has_schemas": True}, {"cloud_events": True}):
        ((_, value),) = made(body, **options)
        rows = value.get("payload") or value.get("data") or value
        assert rows["after"] == {"id": 1, "a": None}
    if text:
        ((key, value),) = made(body_of(table_entry({"a": (mysql_type, text)})))
        assert key == value["after"] == {"a": "2"}


@pytest.mark.parametrize(
    ("mysql_type", "text", "unscaled"),
    [
        ("decimal(3,0)", "12345", 12345),
        ("decimal(3,1)", "-12345.5", -123455),
        ("decimal(65,30)", 100 * "9", (10**100 - 1) * 10**30),
        ("decimal(38,0)", "-" + 50 * "9", 1 - 10**50),
        ("decimal(3,0)", "5.0", 5),
    ],
)
def test_wide_decimals(mysql_type: str, text: str, unscaled: int) -> None:
    """A DECIMAL may have more digits than its type."""
    body = body_of(table_entry({"id": ("int", "1"), "a": (mysql_type, text)}))
    ((_, value),) = made(body)
    number = base64.b64decode(value["after"]["a"])
    assert int.from_bytes(number, "big", signed=True) == unscaled


def test_decimals_beyond_their_scale() -> None:
    """A text has all their digits; an unscaled number cannot."""
    body = body_of(table_entry({"id": ("int", "1"), "a": ("decimal(5,1)", "1.25")}))
    ((_, value),) = made(body, decimals="string")
    assert value["after"]["a"] == "1.25"
    with pytest.raises(ProtocolError, match=r"column shop\.orders\.a of type decimal"):
        made(body)


@pytest.mark.parametrize("cloud_events", [False, True])
def test_values_that_cannot_be_sent(cloud_events: bool) -> None:
    """The error names column, type and position, but not the value."""
    entry = table_entry({"id": ("int", "1"), "a": ("int", "secret")})
    with pytest.raises(ProtocolError) as caught:
        made(body_of(entry), cloud_events=cloud_events)
    assert str(caught.value) == (
        "column shop.orders.a of type int: its messages cannot have a value that does"
        " not match the type (at binlog.000001:4711)"
    )


def test_source() -> None:
    """Where a row comes from."""
    entry = table_entry({"id": ("int", "1")}, server_id=7)
    ((key, value),) = made(body_of(entry), version="1.2")
    assert key == {"id": 1}
    assert value == {
        "before": None,
        "after": {"id": 1},
        "source": {
            "version": "1.2", "connector": "mysql", "name": "srv",
            "ts_ms": 1_700_000_000_000, "snapshot": "false", "db": "shop",
            "sequence": None, "table": "orders", "server_id": 7, "gtid": None,
            "file": "binlog.000001", "pos": 4711, "row": 0, "thread": None,
            "query": None,
        },
        "op": "c",
        "ts_ms": 2,
        "transaction": None,
    }  # fmt: skip


def test_cloud_events() -> None:
    """Attributes have the source, the data both images; Kafka's header the type."""
    entry = table_entry({"id": ("int", "1")}, server_id=7)
    form = DebeziumRows(
        lambda *_: Route("x"), name="srv", version="1.2", cloud_events=True
    )
    ((_, _, value, _, headers),) = form.convert(1, body_of(entry), 2)
    assert headers == [("content-type", b"application/cloudevents+json; charset=UTF-8")]
    message = json.loads(value or b"")
    where, _, hashed = message.pop("id").rpartition(":")
    assert where == "7:binlog.000001:4711:shop.orders:0:c"
    assert len(bytes.fromhex(hashed)) == 8
    assert datetime.fromisoformat(message.pop("time")).timestamp() == 1_700_000_000
    assert message == {
        "specversion": "1.0",
        "type": "io.debezium.connector.mysql.DataChangeEvent",
        "source": "/debezium/mysql/srv",
        "datacontenttype": "application/json",
        "iodebeziumversion": "1.2", "iodebeziumconnector": "mysql",
        "iodebeziumname": "srv", "iodebeziumsnapshot": "false",
        "iodebeziumtsms": "1700000000000", "iodebeziumdb": "shop",
        "iodebeziumtable": "orders", "iodebeziumserverid": "7",
        "iodebeziumfile": "binlog.000001", "iodebeziumpos": "4711",
        "iodebeziumrow": "0", "iodebeziumop": "c",
        "data": {"before": None, "after": {"id": 1}},
    }  # fmt: skip


def ids_of(*bodies: bytes) -> list[list[str]]:
    """Return the ids of CloudEvents, of each body, as one program makes them."""
    form = DebeziumRows(lambda *_: Route("x"), name="srv", cloud_events=True)
    return [
        [
            json.loads(each[2] or b"")["id"]
            for each in form.convert(number, body, number)
        ]
        for number, body in enumerate(bodies)
    ]


def test_events_at_one_position_have_distinct_ids() -> None:
    """The events of a compressed transaction, or the parts of a large one.

    They are the same whenever they are sent, and whatever was sent before.
    """
    columns = {"id": ("int", "1")}
    others = [
        table_entry(columns, server_id=7),
        table_entry(columns, server_id=7),  # once more
        table_entry({"id": ("int", "2")}, server_id=7),
        table_entry(columns, server_id=7, table_name="lines"),
        table_entry(columns, server_id=7, schema_name="depot"),
        table_entry(columns, server_id=8),
        table_entry(columns, server_id=8, execute_time=1_700_000_001_000),
    ]
    body = body_of(*others)
    first, other, again = ids_of(body, body_of(others[0]), body)
    assert len(set(first)) == len(others)
    assert again == first
    assert other == first[:1]


def test_cloud_events_have_distinct_ids(rng: random.Random) -> None:
    """Also if a change of a key is a deletion and an insertion."""
    form = DebeziumRows(Router(BY_KEY), name="srv", has_keys=True, cloud_events=True)
    plain = DebeziumRows(Router(BY_KEY), name="srv", has_keys=True)
    for _ in range(longer(100)):
        body = body_of(with_texts(random_entry(rng)))
        found = [json.loads(each[2] or b"") for each in form.convert(1, body, 2)]
        assert len({each["id"] for each in found}) == len(found)
        others = [json.loads(each[2] or b"") for each in plain.convert(1, body, 2)]
        assert [each["data"] for each in found] == [
            {"before": each["before"], "after": each["after"]} for each in others
        ]


def test_damaged(rng: random.Random) -> None:
    """Whatever the bytes are, there are messages or a ProtocolError."""
    refused = 0
    entries = [encode(random_entry(rng)) for _ in range(40)]
    for number in range(longer(2_000)):
        try:
            made(
                damaged_body(rng, entries),
                has_schemas=number % 3 == 0,
                cloud_events=number % 3 == 1,
            )
        except ProtocolError:
            refused += 1
    assert refused
