"""Rows of before a column had its type become what MySQL makes of them, or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fix_pipeline import DESTINATION

from canal_server.arrow.arrow_columns import requested_column
from canal_server.client.range_client import RangedClient
from canal_server.errors import DecodeError
from canal_server.model.columns_known import ColumnMeta
from canal_server.model.entry import EntryType
from canal_server.protocol.entry_messages import decode_entry
from canal_server.protocol.packets import Messages
from canal_server.protocol.protobuf import decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canal_server.protocol.range_messages import RangePosition

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from canal_server.arrow.arrow_batches import typed_batches

pytestmark = pytest.mark.slow

# The type of before, that of the stream, values that it holds, and such as it does not.
PAIRS: list[tuple[str, str, tuple[str, ...], tuple[str, ...]]] = [
    ("DECIMAL(12,1)", "BIGINT", ("1062072888", "-3"), ("0.5",)),
    ("DECIMAL(12,1)", "DECIMAL(14,3)", ("1.5",), ()),
    ("DECIMAL(15,3)", "DECIMAL(12,1)", ("1.5", "-7"), ("1.234", "123456789012.5")),
    ("DECIMAL(60,5)", "DECIMAL(50,2)", ("1.25", "0"), ("1.234",)),
    ("DECIMAL(20,3)", "DOUBLE", ("0.1", "-12345.678"), ("12345678901234567.123",)),
    ("INT", "DECIMAL(12,2)", ("7", "-2147483648"), ()),
    ("INT", "TINYINT", ("127",), ("128",)),
    ("BIGINT UNSIGNED", "INT", ("5",), ("18446744073709551615",)),
    ("BIGINT", "DOUBLE", ("9007199254740992",), ("9007199254740993",)),
    ("INT", "FLOAT", ("16777216",), ("16777217",)),
    ("INT", "VARCHAR(20)", ("-5",), ()),
    ("FLOAT", "DOUBLE", ("0.1", "1e30"), ()),
    ("DOUBLE", "FLOAT", ("0.5", "-3"), ("0.1", "1e300")),
    ("DOUBLE", "INT", ("1e9", "-7"), ("0.5", "1e10")),
    ("DOUBLE", "DECIMAL(10,2)", ("0.25", "0.1", "1e7"), ("0.001", "1e9")),
    ("FLOAT", "BIGINT", ("16777216",), ("0.5",)),
    ("DATE", "DATETIME", ("2026-02-28",), ()),
    ("DATETIME(3)", "DATE", ("2026-02-28",), ("2026-02-28 10:00:00",)),
    ("DATETIME(1)", "DATE", ("2026-02-27",), ("2026-02-28 00:00:00.5",)),
    ("DATETIME", "TIMESTAMP NULL", (), ("2026-02-28 10:00:00",)),
    ("TIMESTAMP NULL", "DATETIME", (), ("2026-02-28 10:00:00",)),
    ("DATETIME", "DATETIME(6)", ("2026-02-28 10:00:00",), ()),
    ("VARCHAR(30)", "INT", ("12", "007"), ("x", "1.5")),
    ("VARCHAR(30)", "DECIMAL(9,2)", ("1.50",), ("1.234",)),
    ("VARCHAR(30)", "DOUBLE", ("0.1",), ("a",)),
    ("VARCHAR(30)", "DATE", ("2026-02-28",), ("28.2.2026",)),
    ("VARCHAR(30)", "DATETIME", ("2026-02-28 10:00:00",), ("2026",)),
    ("VARCHAR(30)", "TEXT", ("ß中😀",), ()),
    ("VARCHAR(30)", "VARBINARY(90)", (), ("abc",)),
    ("VARBINARY(30)", "VARCHAR(30)", (), ("abc",)),
    ("BIT(9)", "INT", ("300",), ()),
    ("YEAR", "SMALLINT", ("2026",), ()),
    ("ENUM('red','green')", "VARCHAR(9)", ("green",), ()),
    ("DATE", "VARCHAR(30)", ("2026-02-28",), ()),
]  # fmt: skip


def test_rows_of_before_are_as_the_server_alters_them(
    source_server, make_pipeline, database
) -> None:
    """What the new type holds is as ALTER TABLE makes it; the rest is refused."""
    pipeline = make_pipeline(source_server, database)
    pipeline.start()
    source, table = pipeline.source, f"{pipeline.schema}.changed"
    names = [f"c{number}" for number in range(len(PAIRS))]
    old = ", ".join(f"{n} {pair[0]}" for n, pair in zip(names, PAIRS, strict=True))
    new = ", ".join(
        f"MODIFY {n} {pair[1]}" for n, pair in zip(names, PAIRS, strict=True)
    )
    rows = [
        (number, value, value in pair[2])
        for number, pair in enumerate(PAIRS)
        for value in (*pair[2], *pair[3])
    ]
    lax = "SET sql_mode = ''"  # so that it rounds and cuts, and alters all
    source.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, {old}) CHARSET utf8mb4")
    start = _latest(pipeline)
    source.execute(
        lax,
        *(
            f"INSERT INTO {table} (id, c{number})"
            f" VALUES ({id_}, {_literal(number, value)})"
            for id_, (number, value, _) in enumerate(rows)
        ),
        f"ALTER TABLE {table} {new}",
    )
    found = dict(enumerate(_inserts(pipeline, start)))
    assert len(found) == len(rows)
    after = _altered(source, table)
    for id_, (number, value, holds) in enumerate(rows):
        pair = " -> ".join(PAIRS[number][:2])
        read = _read(found[id_], pipeline.schema, number)
        assert (read is not None) == holds, (pair, value, read)
        if holds:
            assert read == after[id_][number], (pair, value)


def _literal(number: int, value: str) -> str:
    """Return a value as the statement has it."""
    return value if PAIRS[number][0].startswith("BIT") else f"'{value}'"


def _latest(pipeline) -> RangePosition:
    with RangedClient("127.0.0.1", pipeline.server_port) as client:
        return client.locate(DESTINATION, "latest")


def _inserts(pipeline, start: RangePosition) -> Iterator[bytes]:
    """Yield the transactions with rows from a position on, as bodies of Messages."""
    with RangedClient("127.0.0.1", pipeline.server_port) as client:
        end = client.locate(DESTINATION, "latest")
        table = rf"{pipeline.schema}\.changed"
        entries: list[bytes] = []
        for piece in client.read(DESTINATION, "", start, end, filter=table):
            for entry in decode(Messages, bytes(piece)).messages:
                entries.append(bytes(entry))
                if decode_entry(entry).entry_type == EntryType.TRANSACTIONEND:
                    kinds = [decode_entry(each).entry_type for each in entries]
                    if EntryType.ROWDATA in kinds:
                        yield encode(Messages(messages=tuple(entries)))
                    entries.clear()


def _read(body: bytes, schema: str, number: int) -> Any:
    """Return the value of a column with the stream's type; None: it is refused."""
    column = ColumnMeta(f"c{number}", PAIRS[number][1].removesuffix(" NULL").lower())
    batches = typed_batches(schema, "changed", (requested_column(column),))
    try:
        assert not list(batches.feed(body))
    except DecodeError as error:
        assert "which cannot hold" in str(error)  # noqa: PT017
        return None
    rest = batches.rest()
    assert rest is not None
    return rest.column(0)[0].as_py()


def _altered(source, table: str) -> dict[int, list[Any]]:
    """Return the table's rows as the server has them now."""
    columns = [
        # A FLOAT would have six digits.
        f"c{number} * 1E0" if new == "FLOAT" else f"c{number}"
        for number, (_, new, *_) in enumerate(PAIRS)
    ]
    with source.connect() as connection:
        cursor = connection.cursor()
        cursor.execute(f"SELECT id, {', '.join(columns)} FROM {table}")
        rows = {}
        for id_, *values in cursor:
            rows[id_] = [
                str(value) if "DECIMAL(50" in pair[1] and value is not None else value
                for pair, value in zip(PAIRS, values, strict=True)
            ]
        return rows
