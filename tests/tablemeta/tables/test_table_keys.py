"""Keys: their names, and which of them MariaDB keeps as a hash."""

from __future__ import annotations

import pytest

from canal_server.tablemeta.model.session_context import Context
from canal_server.tablemeta.tables.memory_tables import MemoryTableMeta


def hashed(*statements: str, mariadb: bool = True) -> list[str]:
    """Return the names of those keys of t that are hashed after statements."""
    model = MemoryTableMeta(mariadb=mariadb)
    model.load_database("d", "latin1")
    for sql in statements:
        assert not model.apply(None, "d", sql, Context(mariadb=mariadb)).problem
    table = model.find("d", "t")
    assert table is not None
    return [key.name for key in table.keys if key.hashed]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("(a TEXT, UNIQUE (a))", ["a"]),
        ("(a BLOB UNIQUE, b TEXT UNIQUE, c INT UNIQUE)", ["a", "b"]),
        ("(a TEXT, UNIQUE (a(3000)))", []),
        ("(a TEXT, UNIQUE (a(4000)))", ["a"]),
        ("(a TEXT, KEY (a(10)))", []),
        ("(a GEOMETRY NOT NULL, UNIQUE (a))", ["a"]),
        ("(a JSON UNIQUE)", ["a"]),
        ("(a VARCHAR(3072) UNIQUE)", []),
        ("(a VARCHAR(3073) UNIQUE)", ["a"]),
        ("(a VARCHAR(769) UNIQUE) CHARSET utf8mb4", ["a"]),
        ("(a VARCHAR(768), b TINYINT, UNIQUE (a, b)) CHARSET utf8mb4", ["a"]),
        ("(a VARCHAR(5000), KEY (a))", []),
        ("(a BIT(9), b VARCHAR(3070), UNIQUE (a, b))", []),
        ("(a BIT(9), b VARCHAR(3071), UNIQUE (a, b))", ["a"]),
        ("(a DECIMAL(10,2), b VARCHAR(3067), UNIQUE (a, b))", []),
        ("(a DECIMAL(10,2), b VARCHAR(3068), UNIQUE (a, b))", ["a"]),
        ("(a DATETIME(6), b VARCHAR(3064), UNIQUE (a, b))", []),
        ("(a DATETIME(6), b VARCHAR(3065), UNIQUE (a, b))", ["a"]),
        ("(a ENUM('x'), b VARCHAR(3071), UNIQUE (a, b))", []),
        ("(a UUID, b VARCHAR(3057), UNIQUE (a, b))", ["a"]),
        ("(a VARCHAR(1000) UNIQUE) ENGINE=MyISAM", []),
        ("(a VARCHAR(1001) UNIQUE) ENGINE=MyISAM", ["a"]),
        ("(a VARCHAR(2300) UNIQUE) ENGINE=Aria", []),
        ("(a INT, UNIQUE USING HASH (a))", ["a"]),
        ("(a INT, UNIQUE (a) USING HASH)", ["a"]),
        ("(a INT, UNIQUE USING HASH (a)) ENGINE=MEMORY", []),
        ("(a INT, KEY USING HASH (a))", []),
    ],
)
def test_hashed(body: str, expected: list[str]) -> None:
    """A unique key that is too long for a tree, or specified so, is a hash."""
    assert hashed(f"CREATE TABLE t {body}") == expected


def test_not_on_mysql() -> None:
    """MySQL has no such keys."""
    assert hashed("CREATE TABLE t (a INT, UNIQUE (a) USING HASH)", mariadb=False) == []


@pytest.mark.parametrize(
    ("alter", "expected"),
    [
        ("DROP INDEX a", ["b"]),
        ("DROP COLUMN a", ["b"]),
        ("MODIFY a VARCHAR(50)", ["b"]),
        ("RENAME KEY a TO x", ["x", "b"]),
        ("CHANGE a z TEXT", ["a", "b"]),
        ("ADD UNIQUE (a)", ["a", "b", "a_2"]),
        ("DROP KEY a, ADD UNIQUE a (a(10))", ["b"]),
        ("ADD KEY IF NOT EXISTS a (a(5))", ["a", "b"]),
        ("ADD c INT UNIQUE", ["a", "b"]),
        ("ADD c TEXT UNIQUE", ["a", "b", "c"]),
    ],
)
def test_altered(alter: str, expected: list[str]) -> None:
    """Each ALTER decides again which keys are hashes."""
    create = "CREATE TABLE t (a TEXT UNIQUE, b TEXT UNIQUE)"
    assert hashed(create, f"ALTER TABLE t {alter}") == expected


def test_converted() -> None:
    """A key may become too long by a wider character set."""
    create = "CREATE TABLE t (a VARCHAR(1000) UNIQUE)"
    assert hashed(create) == []
    assert hashed(create, "ALTER TABLE t CONVERT TO CHARSET utf8mb4") == ["a"]


def test_asked_for_once() -> None:
    """That a hash was asked for is forgotten at the next ALTER."""
    create = "CREATE TABLE t (a INT, UNIQUE (a) USING HASH)"
    assert hashed(create, "ALTER TABLE t ADD b INT") == []
    assert hashed(create, "ALTER TABLE t RENAME u", "RENAME TABLE u TO t") == ["a"]


def test_names() -> None:
    """Keys without a name get that of their first column, with a number."""
    model = MemoryTableMeta()
    model.apply(
        None,
        "d",
        "CREATE TABLE t (a INT UNIQUE, b INT, KEY (a, b), CONSTRAINT c UNIQUE (b),"
        " CONSTRAINT d UNIQUE KEY e (b), UNIQUE KEY (b), KEY ((a + 1)), `primary` INT,"
        " KEY (`primary`))",
    )
    table = model.find("d", "t")
    assert table is not None
    names = ["a", "a_2", "c", "e", "b", "functional_index", "primary_2"]
    assert [key.name for key in table.keys] == names
