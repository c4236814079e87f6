"""Messages of Debezium in Avro: those of its JSON, read by another library."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from avro_messages import AvroReader, Schemas, of_json
from damaged_entries import damaged_body
from fix_random import longer
from random_entries import random_entry
from random_reading import random_load
from row_rules import body_of, table_entry, with_texts

from canal_server.config.schema import RoutingConfig
from canal_server.errors import ProtocolError
from canal_server.protocol.protobuf import encode
from canal_server.queues.forms.avro_rows import AvroRows
from canal_server.queues.forms.debezium_rows import DebeziumRows
from canal_server.queues.producers.queue_producer import SchemaRefusedError
from canal_server.queues.routing import Router
from canal_server.queues.table_routes import Route

if TYPE_CHECKING:
    import random

BY_KEY = RoutingConfig(topic="top", partitions=4, partition_hash=r".*\..*:$pk$")
KEYED: dict[str, Any] = {"name": "srv", "has_keys": True, "has_tombstones": True}


def route(*_: str) -> Route:
    """Return the same topic for all tables."""
    return Route("x")


def made(body: bytes, **options: Any) -> list[tuple[Any, Any]]:
    """Return keys and values of the messages of a body, read again."""
    schemas = Schemas()
    read = AvroReader(schemas.text_of)
    form = AvroRows(route, id_of=schemas.id_of, **KEYED, **options)
    return [(read(each[3]), read(each[2])) for each in form.convert(1, body, 2)]


def assert_same(body: bytes, **options: Any) -> int:
    """Check that both forms say the same of a body; returns of how many messages."""
    as_json = DebeziumRows(route, has_schemas=True, **KEYED, **options)
    expected = []
    for each in as_json.convert(1, body, 2):
        pair = []
        for text in (each[3], each[2]):
            found = json.loads(text or b"null")
            pair.append(found and of_json(found["schema"], found["payload"]))
        expected.append(tuple(pair))
    found = made(body, **options)
    assert found == expected
    return len(found)


@pytest.mark.parametrize("decimals", ["precise", "string", "double"])
def test_random(
    source_server: Any, database: str, rng: random.Random, decimals: str
) -> None:
    """Rows of all types are what the form in JSON says, as are keys and tombstones."""
    _, reading = random_load(source_server, database, rng, images=("FULL",))
    assert assert_same(reading.body, decimals=decimals)


def test_rows_without_all_columns(
    source_server: Any, database: str, rng: random.Random
) -> None:
    """What is not known of a row is null."""
    _, reading = random_load(source_server, database, rng, images=("MINIMAL", "NOBLOB"))
    assert assert_same(reading.body)


def test_partitions(rng: random.Random) -> None:
    """Topics, partitions and headers are those of the form in JSON."""
    other = DebeziumRows(Router(BY_KEY), has_headers=True, **KEYED)
    form = AvroRows(Router(BY_KEY), id_of=Schemas().id_of, has_headers=True, **KEYED)
    for _ in range(longer(200)):
        body = body_of(*(with_texts(random_entry(rng)) for _ in range(3)))
        try:
            found = form.convert(1, body, 2)
        except ProtocolError:
            continue  # a key that is null
        expected = other.convert(1, body, 2)
        assert [each[:2] for each in found] == [each[:2] for each in expected]
        assert [each[2] is None for each in found] == [
            each[2] is None for each in expected
        ]
        for (*_, ours), (*_, theirs) in zip(found, expected, strict=True):
            assert [name for name, _ in ours or ()] == [
                name for name, _ in theirs or ()
            ]


TYPES = {
    "id": ("bigint unsigned", "18446744073709551615"),
    "a": ("decimal(5,2)", "-1.5"),
    "b": ("bit(1)", "1"),
    "c": ("bit(9)", "257"),
    "d": ("datetime(3)", "1969-12-31 23:59:59.999"),
    "e": ("datetime(6)", "2018-06-20 06:37:03.123456"),
    "f": ("timestamp(2)", "2018-06-20 06:37:03.12"),
    "g": ("time", "-01:00:00"),
    "h": ("enum('x','y,z')", "2"),
    "i": ("set('x','y','z')", "5"),
    "j": ("date", "0000-00-00"),
    "k": ("decimal(65,0)", "-" + 65 * "9"),
    "l": ("tinyint(1)", None),
    "m": ("year", "2026"),
    "n": ("json", '{"a": 1}'),
    "o": ("json", ""),
    "p": ("float", "1.5"),
    "q": ("float(5,2)", "1.5"),
    "r": ("geometry", ""),
    "s": ("point", None),
    "t": ("enum('a')", "2"),
    "u": ("set('a')", "0"),
    "v": ("int unsigned", "4294967295"),
    "w": ("mediumint", "-8388608"),
    "x": ("binary(4)", "\xe9"),
    "y": ("varchar(9)", 70 * "ü"),
}


def test_types() -> None:
    """Each type is written as its schema says."""
    assert assert_same(body_of(table_entry(TYPES))) == 1


@pytest.mark.parametrize(
    "mysql_type", ["enum('a')", "set('a')", "date", "timestamp", "datetime", "time(3)"]
)
def test_keys_without_a_value(mysql_type: str) -> None:
    """In a key, an invalid date is 1970-01-01, an unknown label its number."""
    text = {"enum('a')": "2", "set('a')": "2", "time(3)": "838:59:59.000"}.get(
        mysql_type, "0000-00-00" if mysql_type == "date" else "0000-00-00 00:00:00"
    )
    assert assert_same(body_of(table_entry({"a": (mysql_type, text)}))) == 1


def test_bytes() -> None:
    """The bytes of a message, written down by hand."""
    schemas = Schemas()
    schemas.texts = 257 * [""]
    form = AvroRows(route, id_of=schemas.id_of, name="srv", version="1", has_keys=True)
    columns = {"id": ("int", "-65"), "name": ("varchar(9)", "ab"), "n": ("int", None)}
    ((topic, partition, value, key, headers),) = form.convert(
        1, body_of(table_entry(columns, server_id=7)), 2
    )
    assert (topic, partition, headers) == ("x", 0, None)
    assert key == b"\0\0\0\1\x03\x81\x01"
    assert value == (
        b"\0\0\0\1\x02"  # the id of the schema
        b"\0\2"  # before is null, after is not
        b"\x81\x01"
        b"\2\4ab"
        b"\0"  # of the row
        b"\x021"
        b"\x0amysql"
        b"\6srv"
        b"\x80\xa0\xab\xfe\xf9\x62"  # 1,700,000,000,000
        b"\0\x0afalse"
        b"\x08shop"
        b"\0"
        b"\2\x0corders"
        b"\x0e"
        b"\0"
        b"\x1abinlog.000001"
        b"\xce\x49"
        b"\0"  # 4711, and the number of the row
        b"\0\0"
        b"\2c"
        b"\2\4"
        b"\0"  # the operation, now, and no transaction
    )


def test_schemas() -> None:
    """They are asked for once, for each set of columns, with their topic and record."""
    schemas = Schemas()
    form = AvroRows(route, id_of=schemas.id_of, **KEYED)
    first = body_of(table_entry({"id": ("int", "1")}))
    second = body_of(table_entry({"id": ("int", "1"), "a": ("json", "1")}))
    for body in (first, second, first, second):
        form.convert(1, body, 2)
    value, key = ("x", False, "srv.shop.orders.Envelope"), (
        "x", True, "srv.shop.orders.Key",
    )  # fmt: skip
    assert schemas.asked == [value, key, value, key]
    assert len(schemas.texts) == 3  # the key stays the same
    envelope, key_record = map(json.loads, (schemas.texts[2], schemas.texts[1]))
    assert key_record == {
        "type": "record", "name": "Key", "namespace": "srv.shop.orders",
        "fields": [{"name": "id", "type": "int"}],
        "connect.name": "srv.shop.orders.Key",
    }  # fmt: skip
    before, after = envelope["fields"][:2]
    assert before["type"][1]["fields"][1] == {
        "name": "a",
        "type": ["null", {
            "type": "string", "connect.version": 1,
            "connect.name": "io.debezium.data.Json",
        }],
        "default": None,
    }  # fmt: skip
    assert after == {
        "name": "after", "type": ["null", "srv.shop.orders.Value"], "default": None,
    }  # fmt: skip


def test_no_schema_for_keys_that_are_not_sent() -> None:
    """Nor is one registered."""
    schemas = Schemas()
    form = AvroRows(route, id_of=schemas.id_of, name="srv")
    ((*_, key, _),) = form.convert(1, body_of(table_entry({"id": ("int", "1")})), 2)
    assert key is None
    assert schemas.asked == [("x", False, "srv.shop.orders.Envelope")]


def test_names() -> None:
    """Names have the characters of Avro, and columns differ."""
    columns = dict.fromkeys(("id", "a-b", "a_b", "1x", "订单", "名称"), ("int", "1"))
    entry = table_entry(columns, schema_name="my-shop", table_name="2.订单")
    schemas = Schemas()
    form = AvroRows(route, id_of=schemas.id_of, name="srv.eu-1")
    ((_, _, value, _, _),) = form.convert(1, body_of(entry), 2)
    assert schemas.asked[0][2] == "srv.eu_1.my_shop._2___.Envelope"
    assert list(AvroReader(schemas.text_of)(value)["after"]) == [
        "id", "a_u002db", "a_b", "_1x", "_u8ba2_u5355", "_u540d_u79f0",
    ]  # fmt: skip


def test_names_that_cannot_be_told_apart() -> None:
    """The error names the columns."""
    columns = dict.fromkeys(("a-b", "a_b", "a_u002db"), ("int", "1"))
    with pytest.raises(ProtocolError, match="a-b, a_b, a_u002db: two of them"):
        made(body_of(table_entry(columns)))


@pytest.mark.parametrize(
    ("mysql_type", "text"),
    [
        ("int", "secret"), ("int", "2147483648"), ("bigint", "9223372036854775808"),
        ("decimal(5,1)", "1.25"), ("bit(1)", "x"), ("bit(9)", "x"), ("double", "x"),
        ("float", "x"), ("date", "x"), ("time", "x"), ("timestamp", "x"),
        ("enum('a')", "x"), ("set('a')", "x"), ("point", "x"), ("binary(2)", "中"),
        ("vector(1)", "abc"),
    ],
)  # fmt: skip
def test_values_that_cannot_be_sent(mysql_type: str, text: str) -> None:
    """The error names column, type and position, but not the value."""
    entry = table_entry({"id": ("int", "1"), "a": (mysql_type, text)})
    with pytest.raises(ProtocolError) as caught:
        made(body_of(entry))
    assert str(caught.value) == (
        f"column shop.orders.a of type {mysql_type}: its messages cannot have a value"
        " that does not match the type (at binlog.000001:4711)"
    )


def test_a_schema_that_is_refused() -> None:
    """The batch fails; the next one asks again."""
    answers: list[Any] = [SchemaRefusedError("no"), 5]

    def id_of(*_: object) -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return int(answer)

    form = AvroRows(route, id_of=id_of, name="srv")
    body = body_of(table_entry({"id": ("int", "1")}))
    with pytest.raises(SchemaRefusedError):
        form.convert(1, body, 2)
    ((_, _, value, _, _),) = form.convert(1, body, 2)
    assert value is not None
    assert value.startswith(b"\0\0\0\0\5")


def test_damaged(rng: random.Random) -> None:
    """Whatever the bytes are, there are messages that can be read, or ProtocolError."""
    refused = 0
    entries = [encode(random_entry(rng)) for _ in range(40)]
    for _ in range(longer(2_000)):
        try:
            made(damaged_body(rng, entries))
        except ProtocolError:
            refused += 1
    assert refused


def test_bytes_in_a_column_of_texts() -> None:
    """Bytes of a column that is a text by its type are a text of base64."""
    entry = table_entry({"id": ("int", "1"), "a": ("text", "\xe9\0")})
    change = entry.row_change()
    (row,) = change.row_datas
    key, column = row.after_columns
    blob = replace(row, after_columns=(key, replace(column, sql_type=2004)))
    changed = replace(change, row_datas=(blob,))
    assert assert_same(body_of(replace(entry, store_value=encode(changed)))) == 1
