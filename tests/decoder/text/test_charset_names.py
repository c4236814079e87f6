"""Character sets by collation id, against what servers list."""

from __future__ import annotations

import pytest

from canal_server.decoder.text.charset_names import charset_of_collation


@pytest.mark.parametrize(
    ("collation_id", "charset"),
    [
        (1, "big5"),
        (8, "latin1"),
        (33, "utf8mb3"),
        (45, "utf8mb4"),
        (63, "binary"),
        (83, "utf8mb3"),
        (101, "utf16"),
        (159, "ucs2"),
        (192, "utf8mb3"),
        (224, "utf8mb4"),
        (248, "gb18030"),
        (255, "utf8mb4"),
        (323, "utf8mb4"),
        (576, "utf8mb3"),
        (640, "ucs2"),
        (1025, "big5"),
        (1069, "utf8mb4"),
        (2048, "utf8mb3"),
        (2304, "utf8mb4"),
        (3271, "utf32"),
    ],
)
def test_knows_the_set_of_a_collation(collation_id, charset):
    """Plain, NO PAD and UCA 14.0.0 collations belong to their character sets."""
    assert charset_of_collation(collation_id) == charset


@pytest.mark.parametrize("collation_id", [-1, 0, 768, 1024, 1024 + 768, 3328, 2**31])
def test_does_not_guess(collation_id):
    """An id outside every range has no character set."""
    assert charset_of_collation(collation_id) is None


def test_agrees_with_mysql(mysql_server):
    """Every collation that a real MySQL lists belongs to the set that it says."""
    rows = mysql_server.execute(
        "SELECT id, character_set_name FROM information_schema.collations"
    )
    assert rows
    for collation_id, charset in rows:
        assert charset_of_collation(collation_id) == charset, collation_id


def test_agrees_with_mariadb(mariadb_server):
    """Every collation that a real MariaDB lists belongs to the set that it says."""
    rows = mariadb_server.execute(
        "SELECT id, character_set_name"
        " FROM information_schema.collation_character_set_applicability"
    )
    assert rows
    for collation_id, charset in rows:
        expected = "utf8mb3" if charset == "utf8" else charset
        assert charset_of_collation(collation_id) == expected, collation_id
