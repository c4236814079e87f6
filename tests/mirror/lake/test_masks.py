"""Rows as the lake has them: what masks make of values of every type."""

from __future__ import annotations

import datetime as dt
import hashlib
from decimal import Decimal

import pyarrow as pa
import pytest
from packed_changes import ID, rows

from canal_server.errors import TableMetaError
from canal_server.mirror.lake.masks import apply, lake_schema
from canal_server.mirror.settings.table_values import (
    Mask,
    MirrorColumn,
    MirrorTable,
    TableName,
)

SALT = "a salt"


def table_of(*columns: MirrorColumn) -> MirrorTable:
    """Return a table with these columns."""
    return MirrorTable(TableName("s", "t"), "s/t", columns)


def column(name: str, mysql_type: str, mask: Mask | None = None, target: str = ""):
    """Return a column of a table that is mirrored."""
    charset = "utf8mb4" if "char" in mysql_type else ""
    return MirrorColumn(name, mysql_type, charset, False, target or name, mask)


def sha(text: str) -> str:
    """Return the hash that a value of this text has."""
    return hashlib.sha256((SALT + text).encode()).hexdigest()


@pytest.mark.parametrize("form", [pa.RecordBatch, pa.Table])
def test_columns_are_chosen_renamed_and_masked(form):
    """Foreign columns are dropped, the mirror's own columns stay at the end."""
    table = table_of(
        column("name", "varchar(20)", Mask("truncate", 2), "N"),
        column("id", "int"),
        column("mail", "varchar(20)", Mask("hash", salt=SALT)),
        column("note", "text", Mask("null")),
    )
    rows = form.from_pydict(
        {
            "ID": pa.array([1, 2, 3], pa.int32()),
            "secret": pa.array(["x", "y", "z"]),
            "name": pa.array(["Zoë", None, "😀bc"]),
            "mail": pa.array(["a@b", None, "a@b"]),
            "note": pa.array(["n", "m", ""]),
            "_seq": pa.array([7, 8, 9], pa.int64()),
            "_unknown": pa.array([1, 1, 1]),
        }
    )
    made = apply(rows, table)

    assert isinstance(made, form)
    assert made.to_pydict() == {
        "N": ["Zo", None, "😀b"],
        "id": [1, 2, 3],
        "mail": [sha("a@b"), None, sha("a@b")],
        "note": [None, None, None],
        "_seq": [7, 8, 9],
    }
    assert made.schema.remove(4).equals(lake_schema(table))


def test_a_column_that_is_left_out_and_named_as_one_of_the_lake():
    """It does not come as the lake's own."""
    changes = rows(
        7,
        ("insert", 1, 5),
        columns=(ID, ("_deleted", "int", "", False)),
    ).data
    assert changes is not None
    made = apply(changes, table_of(column("id", "int")))
    assert "_deleted" not in made.column_names
    assert made["_seq"].to_pylist() == [7]


@pytest.mark.parametrize(
    ("mysql_type", "kind", "value", "text"),
    [
        ("bigint", pa.int64(), -5, "-5"),
        ("decimal(9,2)", pa.decimal128(9, 2), Decimal("1.50"), "1.50"),
        ("double", pa.float64(), 0.1, "0.1"),
        ("float", pa.float32(), 1.5, "1.5"),
        ("date", pa.date32(), dt.date(2020, 1, 31), "2020-01-31"),
        (
            "datetime(3)",
            pa.timestamp("us"),
            dt.datetime(2020, 1, 31, 1, 2, 3, 500_000),  # noqa: DTZ001
            "2020-01-31 01:02:03.500000",
        ),
        (
            "timestamp",
            pa.timestamp("us", "UTC"),
            dt.datetime(2020, 1, 31, 1, 2, 3, tzinfo=dt.UTC),
            "2020-01-31 01:02:03.000000",
        ),
        ("varbinary(9)", pa.binary(), b"ab", "ab"),
        ("bit(8)", pa.int64(), 255, "255"),
        ("bigint unsigned", pa.decimal128(20, 0), Decimal(2**64 - 1), str(2**64 - 1)),
    ],
)
def test_hashes_of_every_type(mysql_type: str, kind: pa.DataType, value, text: str):
    """A hash is that of the salt and the value's text; NULL stays NULL."""
    table = table_of(column("a", mysql_type, Mask("hash", salt=SALT)))
    rows = pa.record_batch({"a": pa.array([value, None, value], kind)})
    assert apply(rows, table).column(0).to_pylist() == [sha(text), None, sha(text)]
    assert apply(rows.slice(1), table).column(0).to_pylist() == [None, sha(text)]


def test_bytes_are_truncated_as_bytes():
    """Of bytes, the first ones stay, and of chunks each is masked."""
    table = table_of(column("a", "blob", Mask("truncate", 2)))
    rows = pa.table({"a": pa.chunked_array([[b"\xff\xfe\xfd"], [b"", None]])})
    assert apply(rows, table)["a"].to_pylist() == [b"\xff\xfe", b"", None]


def test_empty_rows():
    """No rows give no rows of the same columns."""
    table = table_of(column("a", "varchar(9)", Mask("hash")), column("b", "int"))
    rows = pa.table({"a": pa.array([], pa.string()), "b": pa.array([], pa.int32())})
    for each in (rows, *rows.to_batches(), rows.slice(0, 0)):
        assert apply(each, table).num_rows == 0
    null = table_of(column("b", "int", Mask("null")))
    assert apply(rows, null).schema.equals(lake_schema(null))


def test_rows_that_do_not_fit():
    """A column that is missing, or of another type than the mirror's, is refused."""
    rows = pa.record_batch({"a": pa.array([1], pa.int64())})
    with pytest.raises(TableMetaError, match="rows lack column b"):
        apply(rows, table_of(column("b", "int")))
    with pytest.raises(TableMetaError, match="has type int64, but int requires int32"):
        apply(rows, table_of(column("a", "int")))


def test_the_mirrors_own_masks_say_nothing():
    """The salt of a hash shows in no text form."""
    assert SALT not in repr(table_of(column("a", "int", Mask("hash", salt=SALT))))
