"""The row loop: bytes of a row become columns, for every type."""

from __future__ import annotations

import struct
import time
import zlib
from typing import TYPE_CHECKING

import binlog_bytes as b
import pytest
from binary_json import document as binary_json
from binlog_bytes import Binlog
from binlog_driver import Driven

from canal_server.core.blocks import BlockPool
from canal_server.decoder.events.engine import Decoder
from canal_server.decoder.rows import table_map as tm
from canal_server.decoder.rows.layout_plan import compile_layout
from canal_server.decoder.rows.table_map import parse_table_map
from canal_server.errors import DecodeError
from canal_server.model.columns_known import ColumnMeta, TableMeta

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from canal_server.protocol.entry_messages import Column, RowData

Mapped = tuple[int, bytes]


def rows_of(
    columns: Sequence[tuple[Mapped, str, str | None]],
    body: bytes,
    *,
    kind: int = b.WRITE_ROWS,
    optional: bytes = b"",
) -> list[RowData]:
    """Return the rows of an event; a column is its mapped type, SQL type, charset."""
    log = Binlog()
    log.start()
    mapped = [each for each, _, _ in columns]
    log.add(b.TABLE_MAP, b.table_map_body(mapped, optional=optional))
    log.add(kind, body)
    driven = Driven(Decoder(BlockPool()))
    driven.meta = TableMeta(
        "db",
        "t",
        tuple(
            ColumnMeta(f"c{n}", mysql_type, charset)
            for n, (_, mysql_type, charset) in enumerate(columns)
        ),
    )
    driven.feed(log.as_stream())
    return [row for entry in driven.entries for row in entry.row_change().row_datas]


def column_of(
    mapped: Mapped, mysql_type: str, raw: bytes, charset: str | None = None
) -> Column:
    """Return the only column of an inserted row, between two that must be right."""
    guard = ((tm.LONG, b""), "int", None)
    edge = (0x01020304).to_bytes(4, "little")
    (row,) = rows_of(
        [guard, (mapped, mysql_type, charset), guard],
        b.rows_body(3, b"\0" + edge + raw + edge),
    )
    first, found, last = row.after_columns
    assert first.value == last.value == str(0x01020304)
    assert found.mysql_type == mysql_type
    assert (found.index, found.name, found.updated) == (1, "c1", True)
    return found


def packed_datetime(  # noqa: PLR0917
    year: int, month: int, day: int, h: int, m: int, s: int
) -> bytes:
    """Return the five bytes of DATETIME2."""
    number = (year * 13 + month) << 22 | day << 17 | h << 12 | m << 6 | s
    return (number + (1 << 39)).to_bytes(5, "big")


def packed_time(h: int, m: int, s: int, fraction: int, size: int) -> bytes:
    """Return TIME2 with a fraction of `size` bytes, negative when h is."""
    number = (abs(h) << 12 | m << 6 | s) << 8 * size | fraction
    if h < 0:
        number = -number
    return (number + (0x800000 << 8 * size)).to_bytes(3 + size, "big")


@pytest.mark.parametrize(
    ("kind", "size", "name", "signed", "sql_type", "promoted"),
    [
        (tm.TINY, 1, "tinyint", -6, -6, 5),
        (tm.SHORT, 2, "smallint", 5, 5, 4),
        (tm.INT24, 3, "mediumint", 4, 4, 4),
        (tm.LONG, 4, "int", 4, 4, -5),
        (tm.LONGLONG, 8, "bigint", -5, -5, 3),
    ],
)
def test_integers(  # noqa: PLR0917
    kind: int, size: int, name: str, signed: int, sql_type: int, promoted: int
) -> None:
    """Signed and unsigned numbers at the edges of their ranges."""
    top = 1 << (8 * size - 1)
    for value in (-top, -1, 0, 1, top - 1):
        found = column_of(
            (kind, b""), name, value.to_bytes(size, "little", signed=True)
        )
        assert (found.value, found.sql_type) == (str(value), signed)
    for value in (0, top - 1, top, 2 * top - 1):
        found = column_of(
            (kind, b""), f"{name} unsigned", value.to_bytes(size, "little")
        )
        expected = promoted if value >= top else sql_type
        assert (found.value, found.sql_type) == (str(value), expected)


@pytest.mark.parametrize(
    ("mapped", "name", "raw", "value", "sql_type"),
    [
        ((tm.FLOAT, b"\4"), "float", struct.pack("<f", 1.5), "1.5", 7),
        ((tm.FLOAT, b"\4"), "float", struct.pack("<f", 1e23), "1.0E23", 7),
        ((tm.DOUBLE, b"\x08"), "double", struct.pack("<d", -0.1), "-0.1", 8),
        ((tm.NEWDECIMAL, b"\5\2"), "decimal(5,2)", b"\x80\x7b\x2d", "123.45", 3),
        ((tm.NEWDECIMAL, b"\5\2"), "decimal(5,2)", b"\x7f\x84\xd2", "-123.45", 3),
        ((tm.BIT, b"\1\1"), "bit(9)", b"\1\xff", "511", -7),
        ((tm.BIT, b"\0\x08"), "bit(64)", b"\xff" * 8, str((1 << 64) - 1), -7),
        ((tm.YEAR, b""), "year", b"\0", "0000", 12),
        ((tm.YEAR, b""), "year", b"\x7c", "2024", 12),
        ((tm.DATE, b""), "date", b"\0\0\0", "0000-00-00", 91),
        (
            (tm.DATE, b""),
            "date",
            (2024 << 9 | 2 << 5 | 29).to_bytes(3, "little"),
            "2024-02-29",
            91,
        ),
        (
            (tm.DATETIME2, b"\0"),
            "datetime",
            packed_datetime(9999, 12, 31, 23, 59, 59),
            "9999-12-31 23:59:59",
            93,
        ),
        (
            (tm.DATETIME2, b"\3"),
            "datetime(3)",
            packed_datetime(2024, 0, 0, 1, 2, 3) + (1230).to_bytes(2, "big"),
            "2024-00-00 01:02:03.123",
            93,
        ),
        (
            (tm.DATETIME2, b"\6"),
            "datetime(6)",
            packed_datetime(0, 0, 0, 0, 0, 0) + bytes(3),
            "0000-00-00 00:00:00.000000",
            93,
        ),
        ((tm.TIMESTAMP2, b"\0"), "timestamp", bytes(4), "0000-00-00 00:00:00", 93),
        ((tm.TIME2, b"\0"), "time", packed_time(838, 59, 59, 0, 0), "838:59:59", 92),
        ((tm.TIME2, b"\0"), "time", packed_time(-100, 0, 0, 0, 0), "-100:00:00", 92),
        ((tm.TIME2, b"\1"), "time(1)", packed_time(1, 2, 3, 50, 1), "01:02:03.5", 92),
        (
            (tm.TIME2, b"\6"),
            "time(6)",
            (0x800000000000 - 1).to_bytes(6, "big"),
            "-00:00:00.000001",
            92,
        ),
        ((tm.STRING, b"\xf7\1"), "enum('a','b')", b"\2", "2", 4),
        ((tm.STRING, b"\xf7\2"), "enum('a','b')", b"\x2c\1", "300", 4),
        ((tm.STRING, b"\xf8\x08"), "set('a')", b"\xff" * 8, str((1 << 64) - 1), -7),
        ((tm.TIMESTAMP, b""), "timestamp", bytes(4), "0000-00-00 00:00:00", 93),
        (
            (tm.DATETIME, b""),
            "datetime",
            (20240229235958).to_bytes(8, "little"),
            "2024-02-29 23:59:58",
            93,
        ),
        (
            (tm.TIME, b""),
            "time",
            (-1000000).to_bytes(3, "little", signed=True),
            "-100:00:00",
            92,
        ),
        ((tm.GEOMETRY, b"\4"), "point", b"\3\0\0\0\1\x80\xff", "\1\x80\xff", 2004),
        ((tm.VECTOR, b"\4"), "vector(1)", b"\4\0\0\0\0\0\x80\x3f", "\0\0\x80?", 2004),
    ],
)
def test_types(
    mapped: Mapped, name: str, raw: bytes, value: str, sql_type: int
) -> None:
    """Each type's bytes become its text and SQL type."""
    found = column_of(mapped, name, raw)
    assert (found.value, found.sql_type, found.is_null) == (value, sql_type, False)


@pytest.mark.parametrize("digits", range(7))
def test_timestamps_in_the_zone_of_the_process(digits: int) -> None:
    """A timestamp is shown as this process's zone has it, with its fraction."""
    when = 1_719_792_000
    size = (digits + 1) // 2
    fraction = 123456 // 10 ** (6 - 2 * size)
    found = column_of(
        (tm.TIMESTAMP2, bytes((digits,))),
        "timestamp",
        when.to_bytes(4, "big") + fraction.to_bytes(size, "big"),
    )
    text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))
    assert found.value == text + (f".{'123456'[:digits]}" if digits else "")


@pytest.mark.parametrize(
    ("mapped", "name", "charset", "raw", "value", "sql_type"),
    [
        ((tm.VARCHAR, b"\xff\0"), "varchar(63)", "utf8mb4", b"\2\xc3\xa9", "é", 12),
        ((tm.VARCHAR, b"\0\1"), "varchar(64)", "utf8mb4", b"\1\0x", "x", 12),
        ((tm.STRING, b"\xfe\x28"), "char(10)", "latin1", b"\1\xe9", "é", 1),
        ((tm.STRING, b"\xce\xfc"), "char(255)", "utf8mb4", b"\3\0abc", "abc", 1),
        ((tm.BLOB, b"\2"), "text", "gbk", b"\2\0\xd6\xd0", "中", 2005),
        ((tm.BLOB, b"\1"), "tinytext", "utf16", b"\4\0a\x4e\x2d", "a中", 2005),
        ((tm.BLOB, b"\4"), "longblob", None, b"\2\0\0\0\xff\0", "ÿ\0", 2004),
        (
            (tm.VARCHAR, b"\x0a\0"),
            "varbinary(10)",
            None,
            b"\2\x80\x7f",
            "\x80\x7f",
            2004,
        ),
        ((tm.STRING, b"\xfe\x0a"), "binary(10)", None, b"\1\xff", "ÿ", 2004),
        ((tm.BLOB, b"\3"), "mediumtext", "utf8mb4", b"\0\0\0", "", 2005),
        ((tm.VARCHAR, b"\x0a\0"), "varchar(9)", "utf8mb4", b"\3a\xffb", "a\ufffdb", 12),
        ((tm.STRING, b"\xfe\x10"), "inet4", None, b"\4\x7f\0\0\1", "127.0.0.1", 1),
        ((tm.STRING, b"\xfe\x10"), "inet6", None, b"\0", "::", 1),
    ],
)
def test_strings(  # noqa: PLR0917
    mapped: Mapped,
    name: str,
    charset: str | None,
    raw: bytes,
    value: str,
    sql_type: int,
) -> None:
    """Character data is decoded from its own charset, binary data byte by byte."""
    found = column_of(mapped, name, raw, charset)
    assert (found.value, found.sql_type) == (value, sql_type)


def test_json_documents() -> None:
    """A document is written as the text that canal writes."""
    raw = binary_json({"a": [True, None, "x"]})
    found = column_of((tm.JSON, b"\4"), "json", len(raw).to_bytes(4, "little") + raw)
    assert (found.value, found.sql_type) == ('{"a": [true, null, "x"]}', 12)
    empty = column_of((tm.JSON, b"\4"), "json", bytes(4))
    assert (empty.value, empty.is_null) == ("", False)


@pytest.mark.parametrize(
    ("packed", "value"),
    [
        (b"\x81\x0b" + zlib.compress(b"hello world"), "hello world"),
        (b"\x89\x0b" + zlib.compress(b"hello world")[2:-4], "hello world"),
        (b"\0plain", "plain"),
        (b"", ""),
    ],
)
def test_compressed_columns(packed: bytes, value: str) -> None:
    """MariaDB's compressed columns are inflated, with a wrapper of zlib or without."""
    raw = len(packed).to_bytes(2, "little") + packed
    found = column_of((tm.BLOB_COMPRESSED, b"\2"), "text", raw, "utf8mb4")
    assert (found.value, found.sql_type) == (value, 2005)


@pytest.mark.parametrize(
    "packed",
    [
        b"\x81\x0c" + zlib.compress(b"hello world"),
        b"\x81\x0a" + zlib.compress(b"hello world"),
        b"\x81\x0b" + zlib.compress(b"hello world")[:-4],  # no checksum at its end
        b"\x89\x0b" + zlib.compress(b"hello world")[2:-5],  # no end of its block
        b"\x81\x0bnonsense",
        b"\x87\x0b",
        b"\x91\x0b" + zlib.compress(b"hello world"),
    ],
)
def test_broken_compressed_columns(packed: bytes) -> None:
    """A compressed value that contradicts itself is refused, and its column named."""
    raw = len(packed).to_bytes(2, "little") + packed
    with pytest.raises(DecodeError, match="column 2"):
        column_of((tm.BLOB_COMPRESSED, b"\2"), "text", raw, "utf8mb4")


@pytest.mark.parametrize(
    ("mapped", "name", "null_type"),
    [
        ((tm.LONGLONG, b""), "bigint unsigned", -5),
        ((tm.VARCHAR, b"\x0a\0"), "varchar(10)", 12),
        ((tm.STRING, b"\xf8\1"), "set('a')", 2004),
        ((tm.JSON, b"\4"), "json", 1111),
        ((tm.BLOB, b"\2"), "text", 2005),
    ],
)
def test_nulls(mapped: Mapped, name: str, null_type: int) -> None:
    """NULL has no value, and some types another SQL type for it."""
    (row,) = rows_of([(mapped, name, "utf8mb4")], b.rows_body(1, b"\1"))
    (found,) = row.after_columns
    assert (found.is_null, found.value, found.sql_type) == (True, "", null_type)
    assert found.updated


INTS = [((tm.LONG, b""), "int", None)] * 3


def test_updated_columns() -> None:
    """An update marks the columns whose value changed, NULL counted as a value."""
    before, after = b.int_row(1, 2, None), b.int_row(1, None, 3)
    (row,) = rows_of(INTS, b.rows_body(3, before + after, images=2), kind=b.UPDATE_ROWS)
    assert [c.text for c in row.before_columns] == ["1", "2", None]
    assert [c.text for c in row.after_columns] == ["1", None, "3"]
    assert [c.updated for c in row.before_columns] == [False] * 3
    assert [c.updated for c in row.after_columns] == [False, True, True]


def test_deleted_rows() -> None:
    """A delete has the old row, and nothing else."""
    rows = rows_of(INTS, b.rows_body(3, b.int_row(1, 2, 3) * 2), kind=b.DELETE_ROWS)
    assert len(rows) == 2
    for row in rows:
        assert [c.value for c in row.before_columns] == ["1", "2", "3"]
        assert not row.after_columns
        assert not any(c.updated for c in row.before_columns)


def test_images_without_all_columns() -> None:
    """Columns that an image leaves out are left out; what was not there is updated."""
    head = (5).to_bytes(6, "little") + b"\1\0\2\0" + b"\3"
    body = head + b"\1" + b"\6" + b.int_row(7) + b.int_row(8, None)
    (row,) = rows_of(INTS, body, kind=b.UPDATE_ROWS)
    assert [(c.index, c.text) for c in row.before_columns] == [(0, "7")]
    found = [(c.index, c.text, c.updated) for c in row.after_columns]
    assert found == [(1, "8", True), (2, None, True)]


def test_compares_text_of_strings() -> None:
    """Strings count as updated when their text differs."""
    columns = [((tm.VARCHAR, b"\x0a\0"), "varchar(10)", "latin1")] * 2
    before = b"\0" + b"\1\xe9" + b"\1a"
    after = b"\0" + b"\1\xe9" + b"\1b"
    (row,) = rows_of(
        columns, b.rows_body(2, before + after, images=2), kind=b.UPDATE_ROWS
    )
    assert [(c.value, c.updated) for c in row.after_columns] == [
        ("é", False),
        ("b", True),
    ]


def test_partial_json() -> None:
    """A partial update gives an expression; a document left alone stays what it was."""
    columns = [((tm.LONG, b""), "int", None)] + [((tm.JSON, b"\4"), "json", None)] * 2
    raw = binary_json({"a": "x"})
    document = len(raw).to_bytes(4, "little") + raw
    path = b"$.a"
    value = binary_json("y")
    diff = b"\0" + b.packed(len(path)) + path + b.packed(len(value)) + value
    before = b"\0" + (1).to_bytes(4, "little") + document + document
    after = (
        b"\1" + b"\3"  # options: partial JSON; both documents as differences
        + b"\0" + (1).to_bytes(4, "little")
        + len(diff).to_bytes(4, "little") + diff
        + bytes(4)
    )  # fmt: skip
    (row,) = rows_of(
        columns,
        b.rows_body(3, before + after, images=2),
        kind=b.PARTIAL_UPDATE_ROWS,
    )
    _, changed, left = row.after_columns
    assert changed.value == "JSON_REPLACE(c1, '$.a', \"y\")"
    assert (left.value, left.updated) == ('{"a": "x"}', False)


def test_row_sizes_around_the_guess(rng: random.Random) -> None:
    """Rows shorter and longer than those before them are framed right."""
    column = ((tm.BLOB, b"\4"), "longblob", None)
    for size in (0, 1, 100, 127, 128, 16_380, 16_390, 2_097_140, 2_097_160, 5, 0):
        value = rng.randbytes(size)
        body = b.rows_body(1, b"\0" + len(value).to_bytes(4, "little") + value)
        (row,) = rows_of([column], body)
        assert row.after_columns[0].value.encode("latin-1") == value


def test_columns_that_are_filtered_out() -> None:
    """Excluded columns are left out; the indexes of the others stay."""
    mapped = parse_table_map(b.table_map_body([(tm.LONG, b"")] * 3))
    columns = tuple(ColumnMeta(f"c{n}", "int") for n in range(3))
    meta = TableMeta("db", "t", columns)
    log = Binlog()
    log.start()
    log.add(b.TABLE_MAP, b.table_map_body([(tm.LONG, b"")] * 3))
    log.add(b.WRITE_ROWS, b.rows_body(3, b.int_row(1, 2, 3) + b.int_row(4, None, 6)))
    driven = Driven()
    driven.layout = compile_layout(
        mapped, meta, table_ordinal=1, emitted=(True, False, True)
    )
    driven.feed(log.as_stream())
    found = [
        [(c.index, c.value) for c in row.after_columns]
        for row in driven.entries[0].row_change().row_datas
    ]
    assert found == [[(0, "1"), (2, "3")], [(0, "4"), (2, "6")]]


def test_damaged_rows_are_read_or_refused(rng: random.Random) -> None:
    """Whatever the bytes of rows of all types are, nothing but DecodeError comes."""
    columns = [
        ((tm.LONG, b""), "int", None),
        ((tm.VARCHAR, b"\x28\0"), "varchar(10)", "utf8mb4"),
        ((tm.JSON, b"\4"), "json", None),
        ((tm.NEWDECIMAL, b"\x41\x1e"), "decimal(65,30)", None),
        ((tm.DATETIME2, b"\6"), "datetime(6)", None),
        ((tm.TIME2, b"\6"), "time(6)", None),
        ((tm.BLOB_COMPRESSED, b"\2"), "text", "gbk"),
        ((tm.STRING, b"\xfe\x10"), "uuid", None),
        ((tm.BLOB, b"\4"), "longtext", "utf32"),
        ((tm.DOUBLE, b"\x08"), "double", None),
        ((tm.TIMESTAMP2, b"\6"), "timestamp(6)", None),
    ]
    refused = 0
    for _ in range(1500):
        size = rng.randint(0, 200)
        rows = bytes(
            rng.choice((0, 0, 0, 1, 2, 4, 255, rng.randrange(256))) for _ in range(size)
        )
        kind = rng.choice((b.WRITE_ROWS, b.UPDATE_ROWS, b.PARTIAL_UPDATE_ROWS))
        images = 1 if kind == b.WRITE_ROWS else 2
        try:
            rows_of(columns, b.rows_body(11, rows, images=images), kind=kind)
        except DecodeError as error:
            refused += 1
            assert error.file  # noqa: PT017  # every message has a position
    assert 0 < refused < 1500
