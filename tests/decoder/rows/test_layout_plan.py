"""Whether a table map and what is known of the table agree, and what is made of it."""

from __future__ import annotations

import binlog_bytes as b
import pytest

from canal_server.decoder.rows import table_map as tm
from canal_server.decoder.rows.layout_plan import base_type, compile_layout, mismatch
from canal_server.decoder.rows.table_map import parse_table_map
from canal_server.errors import DecodeError
from canal_server.model.columns_known import ColumnMeta, TableMeta


def field(kind: int, data: bytes) -> bytes:
    """Return one field of the optional metadata."""
    return bytes((kind,)) + b.packed(len(data)) + data


def compared(
    mapped: list[tuple[int, bytes]], *known: ColumnMeta, optional: bytes = b""
) -> str | None:
    """Return what is said of a table map and the columns that are known."""
    body = b.table_map_body(mapped, optional=optional)
    return mismatch(parse_table_map(body), TableMeta("db", "t", known))


INT = (tm.LONG, b"")
VARCHAR = (tm.VARCHAR, b"\x28\0")


def test_agreement() -> None:
    """Columns of the same types say nothing."""
    assert (
        compared([INT, VARCHAR], ColumnMeta("a", "int"), ColumnMeta("b", "varchar(10)"))
        is None
    )


def test_number_of_columns() -> None:
    """Another number of columns is reported with both numbers."""
    assert compared([INT, INT], ColumnMeta("a", "int")) == (
        "column size is not match for table: db.t: 2 in the binlog vs 1 known"
    )


def test_another_type() -> None:
    """Another type is reported with the column and both types."""
    assert compared([INT, INT], ColumnMeta("a", "int"), ColumnMeta("b", "date")) == (
        "column 2 (b) of table db.t: binlog type 3 vs known type date"
    )


@pytest.mark.parametrize(
    ("kind", "metadata", "types"),
    [
        (tm.TINY, b"", "tinyint(1) bool"),
        (tm.SHORT, b"", "smallint(6)"),
        (tm.INT24, b"", "mediumint(9)"),
        (tm.LONG, b"", "int(11) INTEGER"),
        (tm.LONGLONG, b"", "bigint"),
        (tm.FLOAT, b"\4", "float(7,4)"),
        (tm.DOUBLE, b"\x08", "double"),
        (tm.NEWDECIMAL, b"\5\2", "decimal(5,2) numeric(5,2)"),
        (tm.BIT, b"\1\0", "bit(1)"),
        (tm.TIMESTAMP, b"", "timestamp"),
        (tm.TIMESTAMP2, b"\0", "timestamp"),
        (tm.DATETIME2, b"\0", "datetime"),
        (tm.DATETIME, b"", "datetime(3)"),
        (tm.TIME2, b"\0", "time"),
        (tm.TIME, b"", "time(6)"),
        (tm.DATE, b"", "date"),
        (tm.YEAR, b"", "year(4)"),
        (tm.STRING, b"\xf7\1", "enum('int','x')"),
        (tm.STRING, b"\xf8\1", "set('a')"),
        (tm.STRING, b"\xfe\x28", "char(10) binary(40) uuid inet4 inet6"),
        (tm.VARCHAR, b"\x28\0", "varchar(10) varbinary(40)"),
        (tm.BLOB, b"\1", "tinyblob tinytext"),
        (tm.BLOB, b"\4", "longblob longtext json"),
        (tm.JSON, b"\4", "json"),
        (tm.VECTOR, b"\4", "vector(3)"),
        (tm.GEOMETRY, b"\4", "point geometrycollection geomcollection"),
        (tm.BLOB_COMPRESSED, b"\2", "text blob"),
        (tm.VARCHAR_COMPRESSED, b"\x28\0", "varchar(10)"),
    ],
)
def test_types_that_agree(kind: int, metadata: bytes, types: str) -> None:
    """Each type of the binlog agrees with its types of SQL, and with no other."""
    for name in types.split():
        assert compared([(kind, metadata)], ColumnMeta("a", name)) is None, name
    others = {"int", "date", "varchar(3)", "point"} - {
        name
        for name in ("int", "date", "varchar(3)", "point")
        if base_type(name) in {base_type(each) for each in types.split()}
    }
    for name in others:
        assert compared([(kind, metadata)], ColumnMeta("a", name)), name


def test_a_decimal_that_no_server_has() -> None:
    """A damaged table map is refused with what it says."""
    table_map = parse_table_map(b.table_map_body([(tm.NEWDECIMAL, b"\0\0")]))
    meta = TableMeta("db", "t", (ColumnMeta("a", "decimal(5,2)"),))
    said = r"a column of table db\.t is a DECIMAL\(0,0\), which no server has"
    with pytest.raises(DecodeError, match=said):
        compile_layout(table_map, meta, table_ordinal=0)


def test_unknown_types_are_trusted() -> None:
    """A type of a later server contradicts nothing."""
    assert compared([VARCHAR], ColumnMeta("a", "xmltype")) is None


def test_signs() -> None:
    """A different sign is reported, with or without the column's name."""
    unsigned = field(1, b"\x80")
    known = ColumnMeta("a", "int")
    assert compared([INT], known, optional=unsigned) == (
        "column 1 (a) of table db.t: unsigned in the binlog vs known type int"
    )
    assert compared([INT], ColumnMeta("a", "int unsigned"), optional=unsigned) is None
    assert compared([INT], ColumnMeta("a", "int unsigned"), optional=field(1, b"\0"))
    assert compared([INT], known, optional=unsigned + field(4, b"\1a"))


def test_signs_that_are_not_certain() -> None:
    """The known columns decide what the binlog leaves open; all is checked else."""
    unsure = field(1, b"\x80")  # of YEAR, or of the number
    for known in ("int", "int unsigned"):
        columns = (ColumnMeta("y", "year"), ColumnMeta("a", known))
        body = b.table_map_body([(tm.YEAR, b""), INT], optional=unsure)
        meta = TableMeta("db", "t", columns)
        assert mismatch(parse_table_map(body), meta) is None
        assert (mismatch(parse_table_map(body, version=80015), meta) is None) == (
            known == "int unsigned"
        )


def test_names() -> None:
    """Full metadata contradicts a column of another name; case does not matter."""
    known = ColumnMeta("a", "int")
    assert compared([INT], known, optional=field(4, b"\1A")) is None
    assert compared([INT], known, optional=field(4, b"\1b")) == (
        "column 1 (a) of table db.t: named b in the binlog"
    )


def test_charsets() -> None:
    """Another charset is reported; utf8 and utf8mb3 are the same."""
    known = ColumnMeta("a", "varchar(10)", "latin1")
    assert compared([VARCHAR], known, optional=field(2, b"\x08")) is None
    assert compared([VARCHAR], known, optional=field(2, b"\x2d")) == (
        "column 1 (a) of table db.t: charset utf8mb4 in the binlog vs known latin1"
    )
    utf8 = ColumnMeta("a", "varchar(10)", "utf8")
    assert compared([VARCHAR], utf8, optional=field(2, b"\x21")) is None


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("bigint(20) unsigned", "bigint"),
        ("ENUM('a b')", "enum"),
        (" double precision", "double"),
        ("", ""),
        ("'x'", ""),
    ],
)
def test_base_type(text: str, base: str) -> None:
    """A type's name is what stands before arguments and attributes."""
    assert base_type(text) == base
