"""Typed changes have the values that SELECT gives, and their types."""

from __future__ import annotations

import datetime as dt
import json
import struct
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pymysql
from fix_random import longer
from fix_servers import needs
from random_schema import random_table

from canal_server.client import CanalClient

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from random_schema import RandomTable

    from canal_server.client import Change

ROW_TOO_LARGE = (1071, 1118)  # numbers of errors: a key, a row
COLUMNS = {
    "id": "INT PRIMARY KEY",
    "ti": "TINYINT",
    "su": "SMALLINT UNSIGNED",
    "mi": "MEDIUMINT",
    "bu": "BIGINT UNSIGNED",
    "bi": "BIGINT",
    "d1": "DECIMAL(10,2)",
    "d2": "DECIMAL(65,30)",
    "d3": "DECIMAL(20)",
    "f": "FLOAT",
    "d": "DOUBLE",
    "bits": "BIT(33)",
    "y": "YEAR",
    "da": "DATE",
    "t": "TIME(6)",
    "dt": "DATETIME(6)",
    "ts": "TIMESTAMP(3) NULL",
    "c": "CHAR(10)",
    "vc": "VARCHAR(100)",
    "tx": "TEXT",
    "b": "BINARY(5)",
    "vb": "VARBINARY(10)",
    "bl": "BLOB",
    "e": "ENUM('a','b,c','it''s')",
    "s": "SET('x','y','z')",
    "j": "JSON",
    "g": "POINT",
}
NOW = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M:%S.123")
ROWS = [
    (
        "1, -128, 65535, -8388608, 18446744073709551615, -9223372036854775808, 0,"
        " -99999999999999999999999999999999999.999999999999999999999999999999,"
        " 12345678901234567890, 1.5, 0.1, b'100000000000000000000000000000001', 2155,"
        " '9999-12-31', '-838:59:59', '9999-12-31 23:59:59.999999', '{now}', '',"
        " '中😀', REPEAT('ß', 300), X'0102000000', X'FF00', X'00FF80', 'it''s', 'x,z',"
        " '{{\"a\": [1, \"ü\", null, 1.5]}}', ST_GeomFromText('POINT(1 2)')"
    ),
    "2" + ", NULL" * (len(COLUMNS) - 1),
    (
        "3, 127, 0, 8388607, 0, 9223372036854775807, 5, 1, -1, -3.25e10, 1e300, 0,"
        " 1901, '1000-01-01', '00:00:00.000001', '1000-01-01 00:00:00', '{now}', 'a',"
        " '', '', X'', X'', X'', 'a', '', '[]', ST_GeomFromText('POINT(0 0)')"
    ),
]


def plain(name: str, value: Any) -> Any:
    """Return a value of PyMySQL as the client has it."""
    if value is None:
        return None
    if name == "bits":
        return int.from_bytes(value, "big")
    if name == "ts":
        return value.replace(tzinfo=dt.UTC)
    return value


def comparable(name: str, value: Any) -> Any:
    """Return a value in which two ways of writing the same are equal."""
    if name == "j" and value is not None:
        return json.loads(value)
    if name == "f" and value is not None:
        return struct.pack("f", value)
    return value


def receive(client: CanalClient, count: int) -> Iterator[Change]:
    """Yield so many changes of rows, and ack them."""
    for message in client.messages(timeout_s=30.0):
        for change in message.changes():
            if change.after is not None or change.before is not None:
                yield change
                count -= 1
        if count <= 0:
            client.ack(message.id)
            return


def test_values_and_types(pipeline) -> None:
    """Each value equals what PyMySQL selects, and is of the same type."""
    name = f"{pipeline.schema}.all_types"
    columns = ", ".join(f"{column} {kind}" for column, kind in COLUMNS.items())
    if not pipeline.source.can("JSON as a name of a type"):
        columns = columns.replace("JSON", "TEXT")
    pipeline.source.execute(
        "SET time_zone = '+00:00'",
        f"CREATE TABLE {name} ({columns}) CHARACTER SET utf8mb4",
        *(f"INSERT INTO {name} VALUES ({row.format(now=NOW)})" for row in ROWS),
        f"UPDATE {name} SET ti = 1, vc = 'new' WHERE id = 3",
        f"DELETE FROM {name} WHERE id = 2",
    )
    local = dt.datetime.now().astimezone().tzinfo
    with CanalClient("127.0.0.1", pipeline.server_port, time_zone=local) as client:
        client.subscribe()
        changes = list(receive(client, 5))
    with pipeline.source.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(f"SELECT * FROM {name} ORDER BY id")
        selected = [
            {
                column: plain(column, value)
                for column, value in zip(COLUMNS, row, strict=True)
            }
            for row in cursor.fetchall()
        ]

    first, second, third, update, delete = changes
    assert [each.kind for each in changes] == [
        "insert", "insert", "insert", "update", "delete",
    ]  # fmt: skip
    assert first.transaction < second.transaction < delete.transaction
    assert all(each.is_last for each in changes)
    assert second.after == dict.fromkeys(COLUMNS) | {"id": 2} == delete.before
    assert delete.after is None
    assert second.before is None
    assert third.after == update.before
    assert set(update.updated) == {"ti", "vc"}
    assert update.key == delete.key | {"id": 3}
    for change, row in ((first, selected[0]), (update, selected[1])):
        assert change.after is not None
        assert list(change.after) == list(COLUMNS)
        for column, value in change.after.items():
            assert comparable(column, value) == comparable(column, row[column]), column
            assert type(value) is type(row[column]), column


def test_random_tables(pipeline, rng) -> None:
    """Rows of tables with random columns have the values that PyMySQL selects."""
    source, schema = pipeline.source, pipeline.schema
    with CanalClient("127.0.0.1", pipeline.server_port) as client:
        client.subscribe()
        tables = {}
        for number in range(longer(12)):
            table = created(source, rng, schema, number)
            tables[table.name] = table
            for _ in range(4):
                insert = table.insert(rng).replace("REPLACE", "INSERT IGNORE", 1)
                source.execute("SET sql_mode = '', time_zone = '+00:00'", insert)
        source.execute(f"CREATE TABLE {schema}.the_end (id INT)")
        source.execute(f"INSERT INTO {schema}.the_end VALUES (1)")
        inserted: dict[str, list[Change]] = {}
        for change in client:
            if change.kind == "insert":
                inserted.setdefault(change.table, []).append(change)
            if change.table == "the_end" and change.kind == "insert":
                break
    compared = 0
    for name, table in tables.items():
        try:
            selected = selected_rows(source, table.quoted)
        except UnicodeDecodeError:
            continue  # PyMySQL cannot read what this table has
        changes = inserted.get(name, [])
        types = changes[0].mysql_types if changes else {}
        ours = Counter(shown(each.after or {}, types) for each in changes)
        assert ours == Counter(shown(row, types) for row in selected), table.create()
        compared += len(selected)
    assert compared >= len(tables)


def created(source, rng, schema, number) -> RandomTable:
    """Create a random table; one that the server refuses is drawn again."""
    while True:
        table = random_table(
            rng, schema, number, source.flavour, extras=number % 2 > 0, can=source.can
        )
        try:
            source.execute("SET sql_mode = '', time_zone = '+00:00'", table.create())
        except pymysql.err.OperationalError as error:
            if error.args[0] not in ROW_TOO_LARGE:
                raise
        else:
            return table


def selected_rows(source, table: str) -> list[dict[str, Any]]:
    """Return all rows by column name."""
    with source.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(f"SELECT * FROM {table}")
        names = [each[0] for each in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def shown(row: Mapping[str, Any], types: Mapping[str, str]) -> str:
    """Return a row as text with the types of its values, the same for both sides."""
    return repr(sorted((name, one_form(types[name], row[name])) for name in row))


def one_form(mysql_type: str, value: Any) -> Any:
    """Return a value in which two ways of writing the same are equal."""
    kind = mysql_type.lower().partition("(")[0].split()[0]
    if value is None:
        return None
    if kind == "bit" and isinstance(value, bytes):
        return int.from_bytes(value, "big")
    if kind == "timestamp" and isinstance(value, dt.datetime):
        return value.replace(tzinfo=dt.UTC)
    if kind == "float":
        value = type(value)  # SELECT rounds it to six digits
    elif kind == "double" and "," in mysql_type:  # SELECT rounds what is stored
        value = round(value, int(mysql_type.partition(",")[2].partition(")")[0]))
    elif kind == "json":
        value = json.loads(value)
    return value


def test_zero_dates_stay_texts(pipeline) -> None:
    """A date that Python cannot hold is the text of the protocol."""
    name = f"{pipeline.schema}.zero"
    pipeline.source.execute(
        "SET sql_mode = ''",
        f"CREATE TABLE {name} (id INT PRIMARY KEY, da DATE, dt DATETIME)",
        f"INSERT INTO {name} VALUES (1, '0000-00-00', '2024-00-01 00:00:00')",
    )
    with CanalClient("127.0.0.1", pipeline.server_port) as client:
        client.subscribe()
        (change,) = receive(client, 1)
    assert change.after == {"id": 1, "da": "0000-00-00", "dt": "2024-00-01 00:00:00"}


def test_documents_of_no_bytes(make_pipeline, mysql_server, database) -> None:
    """A document that a new JSON column has in old rows is null, as SELECT shows it.

    The protocol has an empty text for it, as the Java server does.
    """
    needs(mysql_server, "columns of type JSON")
    pipeline = make_pipeline(mysql_server, database)
    pipeline.start()
    name = f"{database}.documents"
    loads: list[tuple[Any, Any]] = [("typed", None), ("typed", json.loads)]
    with ExitStack() as opened:
        clients = []
        for number, (values, load) in enumerate([*loads, ("text", None)]):
            client = CanalClient(
                port=pipeline.server_port,
                client_id=number + 1,
                values=values,
                load_json=load,
            )
            clients.append(opened.enter_context(client))
            client.subscribe()
        pipeline.source.execute(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, n INT)",
            f"INSERT INTO {name} VALUES (1, 1)",
            f"ALTER TABLE {name} ADD COLUMN j JSON NOT NULL",
            f"UPDATE {name} SET n = 2",
        )
        updates = [list(receive(client, 2))[-1] for client in clients]
    assert [
        (each.before["j"], each.after["j"])
        for each in updates
        if each.before is not None and each.after is not None
    ] == [
        ("null", "null"), (None, None), ("", ""),
    ]  # fmt: skip
    assert mysql_server.execute(f"SELECT j FROM {name}")[0][0] == "null"
