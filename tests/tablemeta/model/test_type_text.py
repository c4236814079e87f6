"""The text of types in a character set, and what CONVERT TO makes of it."""

from __future__ import annotations

import pytest

from canal_server.tablemeta.model.operations import TextType
from canal_server.tablemeta.model.table_schema import Column
from canal_server.tablemeta.model.type_text import (
    converted,
    held_text_type,
    text_type_of,
)


@pytest.mark.parametrize(
    ("mysql_type", "old", "new", "expected"),
    [
        ("text", "latin1", "utf8mb4", ("mediumtext", "utf8mb4")),
        ("tinytext", "latin1", "utf8mb4", ("text", "utf8mb4")),
        ("mediumtext", "utf8mb3", "utf8mb4", ("longtext", "utf8mb4")),
        ("longtext", "latin1", "utf8mb4", ("longtext", "utf8mb4")),
        ("text", "utf8mb4", "latin1", ("text", "latin1")),
        ("tinytext", "utf8mb4", "latin1", ("tinytext", "latin1")),
        ("text", "utf8mb4", "binary", ("blob", None)),
        ("varchar(60000)", "latin1", "utf8mb4", ("mediumtext", "utf8mb4")),
        ("char(255)", "latin1", "utf8mb4", ("char(255)", "utf8mb4")),
        ("char(5)", "latin1", "binary", ("binary(5)", None)),
        ("enum('a','b''c')", "latin1", "utf8mb4", ("enum('a','b''c')", "utf8mb4")),
    ],
)
def test_converted(mysql_type: str, old: str, new: str, expected: object) -> None:
    """A converted column holds as many characters as before."""
    column = Column("c", mysql_type, charset=old)
    assert converted(column, new, mariadb=False)[:2] == expected


def test_labels_come_back() -> None:
    """The labels in the text of a type are parsed back to the original."""
    shown = r"enum('a','b''c','d\\e','f\ng','h,i','\0','\r')"
    labels = ("a", "b'c", "d\\e", "f\ng", "h,i", "\0", "\r")
    assert text_type_of(shown).labels == labels


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("int", "mediumtext", "tinytext"),
        ("decimal(65,10)", "text", "text"),
        ("decimal(61,0) unsigned", "text", "tinytext"),
        ("varchar(300)", "tinytext", "text"),
        ("tinyblob", "mediumtext", "text"),
        ("bit(64)", "mediumtext", "text"),
        ("json", "text", "longtext"),
        ("point", "text", "longtext"),
        ("int", "longtext", "longtext"),
    ],
)
def test_held_text_type(old: str, new: str, expected: str) -> None:
    """MySQL's CONVERT TO makes a TEXT that holds what the column showed before."""
    found = held_text_type(Column("c", old), TextType(new), "utf8mb4")
    assert found.kind == expected


def test_a_length_is_kept() -> None:
    """With a length the size follows from that."""
    said = TextType("text", 100)
    assert held_text_type(Column("c", "int"), said, "utf8mb4") == said
