"""Statements that end a table: they are recognized whatever else they contain."""

from __future__ import annotations

import pytest

from canal_server.mirror.ddl.table_statements import ends
from canal_server.mirror.settings.table_values import TableName

T = TableName("shop", "t")


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE t",
        "DROP TABLE IF EXISTS other, `Shop`.`t` CASCADE",
        "drop /* all of it */ database Shop",
        "RENAME TABLE a TO b, t TO old.t",
        "ALTER TABLE t RENAME TO u",
        "ALTER TABLE t ADD COLUMN c INT, RENAME u",
    ],
)
def test_what_ends_a_table(sql) -> None:
    """It has no rows under its name afterwards, unless it is created again."""
    assert ends(sql, T, "shop")


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE other.t",
        "DROP TEMPORARY TABLE t",
        "DROP DATABASE shops",
        "DROP VIEW v",
        "TRUNCATE TABLE t",
        "RENAME TABLE u TO t",
        "ALTER TABLE u RENAME TO t",
        "ALTER TABLE t RENAME COLUMN a TO b",
        "ALTER TABLE t DROP COLUMN t",
        "CREATE OR REPLACE TABLE t (id INT)",
        "GRANT DROP ON t TO somebody",
        "nothing that is known of t",
    ],
)
def test_what_leaves_a_table(sql) -> None:
    """Other statements do not: what a stopped table waits for is not decided."""
    assert not ends(sql, T, "shop")
