"""Labels of ENUM and SET: their bytes are kept, the set gives them a meaning."""

from __future__ import annotations

import pytest

from canal_server.model.enum_labels import labels_of
from canal_server.tablemeta.model.label_charsets import label_sql, padded, shown
from canal_server.tablemeta.model.session_context import Context
from canal_server.tablemeta.tables.memory_tables import MemoryTableMeta


@pytest.mark.parametrize(
    ("data", "charset", "mysql", "mariadb"),
    [
        (b"n79", "ucs2", "渷", "渷?"),
        (b"n79", "utf32", "", "???"),
        (b"\xfc", "utf8mb4", "", "?"),
        (b"\xfc", "utf8mb3", None, "?"),
        (b"\xfc", "binary", None, "?"),
        (b"\xe9a", "utf8mb4", "", "?a"),
        (b"\xa8\xb9", "utf8mb4", "??", "??"),
        (b"\xe9\0a\0", "utf8mb4", "?\0a\0", "?\0a\0"),
        (b"\xe6\x97\xa5", "gbk", "鏃", "鏃?"),
        (b"\xe6\x97\xa5", "euckr", "?", "??"),
        (b"\xfc\0", "gbk", "?", "?\0"),
        (b"\xd0\x93\xd1\x98", "big5", "??", "????"),
        (b"\xfc\0", "sjis", "?\0", "?\0"),
        (b"\0n\x007\x009", "utf32", "?", "??????"),
        (b"\xc3\xbc", "ascii", "??", "??"),
        (b"\xc3\xbc", "latin1", "Ã¼", "Ã¼"),
    ],
)
def test_shown(data: bytes, charset: str, mysql: str | None, mariadb: str) -> None:
    """Bytes that are not of the set are shown in the way of each server."""
    assert shown(data, charset, mariadb=False) == mysql
    assert shown(data, charset, mariadb=True) == mariadb


def test_hex() -> None:
    """MySQL shows invalid UTF-8 in hex, and omits its zeros."""
    text = label_sql(b"\0\xfc", "utf8mb3", mariadb=False)
    assert text == "x'0fc'"
    assert labels_of(text) == (b"\0\xfc",)


def test_padded() -> None:
    """Numbers are filled up in front to whole characters."""
    assert padded(b"a", "utf32") == b"\0\0\0a"
    assert padded(b"a", "gbk") == b"a"


def types_after(*statements: str, mariadb: bool = False) -> str:
    """Return the type of a column after statements on its table."""
    model = MemoryTableMeta(mariadb=mariadb)
    for sql in statements:
        context = Context(schema="d", mariadb=mariadb, sql_mode=0)
        assert not model.apply(None, "d", sql, context).problem
    table = model.find("d", "t")
    assert table is not None
    # What is written down and read again is the same.
    again = MemoryTableMeta(mariadb=mariadb)
    again.load("d", table.create_sql())
    assert again.find("d", "t") == table
    return table.columns[0].type


@pytest.mark.parametrize(
    ("old", "new", "mysql", "mariadb"),
    [
        ("utf8mb4", "latin1", "enum('n79','Ã¼')", "enum('n79','Ã¼')"),
        ("latin1", "utf8mb4", "enum('n79','')", "enum('n79','?')"),
        ("utf8mb3", "ucs2", "enum('渷','쎼')", "enum('渷?','쎼')"),
        ("utf8mb3", "utf8mb4", "enum('n79','ü')", "enum('n79','ü')"),
        ("utf8mb4", "utf32", "enum('','')", "enum('???','??')"),
        (
            "utf16le",
            "latin1",
            r"enum('n\07\09\0','ü\0')",
            r"enum('n\07\09\0','ü\0')",
        ),
    ],
)
def test_converted_table(old: str, new: str, mysql: str, mariadb: str) -> None:
    """CONVERT TO keeps the bytes, so the labels change; and back again."""
    create = f"CREATE TABLE t (e ENUM('n79', 'ü')) CHARACTER SET {old}"
    convert = f"ALTER TABLE t CONVERT TO CHARACTER SET {new}"
    for is_mariadb, expected in ((False, mysql), (True, mariadb)):
        assert types_after(create, convert, mariadb=is_mariadb) == expected
        more = "ALTER TABLE t ADD x INT, RENAME COLUMN e TO f"
        assert types_after(create, convert, more, mariadb=is_mariadb) == expected
        back = f"ALTER TABLE t CONVERT TO CHARACTER SET {old}"
        found = types_after(create, convert, back, mariadb=is_mariadb)
        assert found == "enum('n79','ü')"


def test_spaces_after_labels() -> None:
    """They are removed before the bytes are stored, also next to labels in hex."""
    create = "CREATE TABLE t (e ENUM(x'6372', 'a ')) CHARACTER SET ucs2"
    convert = "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb3"
    assert types_after(create, convert) == r"enum('cr','\0a')"
