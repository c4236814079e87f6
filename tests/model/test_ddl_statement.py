"""The names by which filters judge an entry."""

from __future__ import annotations

import pytest

from canal_server.model.ddl_statement import filtered_names_of, names_of
from canal_server.tablemeta.sql.statement_classes import classify


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("CREATE TABLE t (a INT)", (("db", "t"),)),
        ("DROP TABLE t, o.u, t", (("db", "t"), ("o", "u"))),
        ("RENAME TABLE a TO b, b TO c", (("db", "b"), ("db", "a"), ("db", "c"))),
        ("ALTER TABLE a ADD b INT, RENAME c", (("db", "a"), ("db", "c"))),
        ("CREATE DATABASE o", ()),
        ("INSERT INTO t VALUES (1)", ()),
        ("REPAIR TABLE t", ()),
        ("GRANT ALL ON *.* TO u", ()),
    ],
)
def test_names(sql, expected):
    """DDL on tables has the names of all of them, once each; all else has none."""
    assert names_of(classify(sql, "db")) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (
            "ALTER TABLE p EXCHANGE PARTITION a WITH TABLE o.t",
            (("db", "p"), ("o", "t", True)),
        ),
        ("RENAME TABLE a TO b", (("db", "b"), ("db", "a"))),
        ("CREATE DATABASE o", ()),
    ],
)
def test_names_beside(sql, expected):
    """Tables whose rows a statement on another one moves are marked as such."""
    assert filtered_names_of(classify(sql, "db")) == expected
