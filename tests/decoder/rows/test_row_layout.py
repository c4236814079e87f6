"""Images of tables: plans packed for the row loop."""

from __future__ import annotations

import binlog_bytes as b
import pytest
from binlog_bytes import Binlog
from binlog_driver import INT, Driven

from canal_server.decoder.rows.layout_plan import compile_layout
from canal_server.decoder.rows.row_layout import OPS, TableLayout
from canal_server.decoder.rows.table_map import parse_table_map
from canal_server.model.columns_known import ColumnMeta, TableMeta


def test_operations() -> None:
    """Each way to read a column has a unique number, none of them 0."""
    assert len(set(OPS.values())) == len(OPS)
    assert 0 not in OPS.values()


def test_images() -> None:
    """An image knows its table, its number for filters, and that it is one."""
    body = b.table_map_body([INT])
    meta = TableMeta("db", "t", (ColumnMeta("a", "int"),))
    image = compile_layout(parse_table_map(body), meta, table_ordinal=42)
    assert (image.table_ordinal, image.meta) == (42, meta)
    assert repr(image) == "<TableLayout db.t 1 columns>"


def test_image_of_very_many_columns() -> None:
    """A table as wide as the server allows has an image."""
    columns = tuple(ColumnMeta(f"column_{n}", "int") for n in range(4096))
    body = b.table_map_body([INT] * 4096)
    image = compile_layout(
        parse_table_map(body), TableMeta("db", "t", columns), table_ordinal=1
    )
    assert "4096 columns" in repr(image)


def test_longest_names_and_types() -> None:
    """Names of 64 characters and a type of thousands come out whole."""
    name = "表" * 64
    labels = ",".join(f"'member {n}'" for n in range(500))
    column = ColumnMeta(name, f"enum({labels})")
    mapped = b.table_map_body([(b.STRING, b"\xf7\2")], table=name[:60], schema="s" * 64)
    log = Binlog()
    log.start()
    log.add(b.TABLE_MAP, mapped)
    log.add(b.WRITE_ROWS, b.rows_body(1, b"\0\1\0"))
    driven = Driven()
    driven.meta = TableMeta("s" * 64, name[:60], (column,))
    driven.feed(log.as_stream())
    (entry,) = driven.entries
    assert (entry.header.schema_name, entry.header.table_name) == ("s" * 64, name[:60])
    (found,) = entry.row_change().row_datas[0].after_columns
    assert (found.name, found.mysql_type) == (name, column.mysql_type)


def test_keys() -> None:
    """Columns of the primary key are marked; the table map precedes the known key."""
    columns = (ColumnMeta("a", "int", is_key=True), ColumnMeta("b", "int"))
    for optional, keys in ((b"", [True, False]), (b"\x08\1\1", [False, True])):
        log = Binlog()
        log.start()
        log.add(b.TABLE_MAP, b.table_map_body([INT, INT], optional=optional))
        log.add(b.WRITE_ROWS, b.rows_body(2, b.int_row(1, 2)))
        driven = Driven()
        driven.meta = TableMeta("db", "t", columns)
        driven.feed(log.as_stream())
        (row,) = driven.entries[0].row_change().row_datas
        assert [column.is_key for column in row.after_columns] == keys


def test_plans_must_be_whole() -> None:
    """A plan of another shape is our own mistake, not memory that is read past."""
    with pytest.raises((IndexError, TypeError, ValueError)):
        TableLayout("db.t", b"", 1, [(1, True, 0, 0)])
    with pytest.raises((IndexError, TypeError, ValueError)):
        TableLayout("db.t", b"", 1, [(1, True, 0, 0, *["text"] * 8, None)])
