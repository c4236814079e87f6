"""Values that went from a parent, and which columns can be looked for."""

from __future__ import annotations

import pyarrow as pa
import pytest
from packed_changes import rows

from canal_server.mirror.follow.key_values import (
    KeyValues,
    changed_values,
    distinct,
    has_values,
)
from canal_server.mirror.settings.mirror_settings import TableRule
from canal_server.mirror.settings.selected_tables import table_by_rule
from canal_server.mirror.settings.table_values import Mask, TableName
from canal_server.model.columns_known import ColumnMeta
from canal_server.mysql.silent_foreign_keys import ForeignKey

KEY = ForeignKey("fk", ("s", "c"), ("s", "t"), ("p",), ("id",), "CASCADE")
ID = ("id", "int", "", True)
V = ("v", "int", "", False)


def went(*changes, columns=(ID, V), key=KEY) -> tuple[list[object], list[object]]:
    """Return the lost values, and those that replaced them."""
    received = KeyValues()
    data = rows(100, *changes, columns=columns).data
    assert data is not None
    received.add(data, key.referenced)
    old, new = changed_values(received, key, None)
    assert old.column_names == list(key.columns)
    return sorted(old["p"].to_pylist()), sorted(new["p"].to_pylist())


def test_the_primary_key() -> None:
    """Only what is deleted goes; other changes keep it."""
    assert went(("insert", 1, 1), ("update_postimage", 2, 2)) == ([], [])
    assert went(("delete", 3, 1), ("insert", 4, 1), ("delete", 3, 1)) == ([3], [])


def test_another_key() -> None:
    """A row that had two values had another one; NULL is referred to by none."""
    key = ForeignKey("fk", ("s", "c"), ("s", "t"), ("p",), ("v",), "CASCADE")
    changes = [("insert", 1, 5), ("update_postimage", 1, 6), ("insert", 2, 7)]
    assert went(*changes, key=key) == ([5, 6], [5, 6])
    assert went(("delete", 1, None), ("delete", 2, 9), key=key) == ([9], [])


def test_a_key_with_the_primary_one_in_it() -> None:
    """The other columns of it may change while the primary key stays."""
    key = ForeignKey("fk", ("s", "c"), ("s", "t"), ("p", "w"), ("id", "v"), "CASCADE")
    changes = [("insert", 1, 5), ("update_postimage", 1, 6), ("insert", 2, 7)]
    assert went(*changes, key=key) == ([1, 1], [1, 1])


def test_a_parent_without_a_primary_key() -> None:
    """Its updates have what was before."""
    id_ = ("id", "int", "", False)
    changes = [("update_preimage", 1, 5), ("update_postimage", 2, 5)]
    assert went(*changes, columns=(id_, V)) == ([1], [])


def test_names_have_no_case() -> None:
    """A foreign key may write a column in another way than the table."""
    key = ForeignKey("fk", ("s", "c"), ("s", "t"), ("p",), ("ID",), "CASCADE")
    assert went(("delete", 3, 1), key=key) == ([3], [])


def test_distinct() -> None:
    """Each row comes once, with NULLs, too."""
    found = distinct(pa.table({"a": [1, 1, None, None], "b": ["x", "x", "y", "y"]}))
    assert sorted(map(str, found.to_pylist())) == [
        "{'a': 1, 'b': 'x'}",
        "{'a': None, 'b': 'y'}",
    ]


@pytest.mark.parametrize(
    ("column", "has"),
    [("id", True), ("T", True), ("f", False), ("hidden", False), ("none", False)],
)
def test_columns_that_can_be_looked_for(column, has) -> None:
    """Not those that are masked or left out, and no floating numbers."""
    metas = [
        ColumnMeta("id", "int", is_key=True),
        ColumnMeta("t", "varchar(9)", "utf8mb4"),
        ColumnMeta("f", "double"),
        ColumnMeta("hidden", "varchar(9)", "utf8mb4"),
    ]
    rule = TableRule(match=".*", masks={"hidden": Mask("hash", salt="12345678")})
    table = table_by_rule(TableName("s", "t"), metas, rule)
    assert has_values(table, column) is has
