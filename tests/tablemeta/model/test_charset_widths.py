"""Character sets: their names, their width, and what they hold."""

from __future__ import annotations

import pytest

from canal_server.tablemeta.model.charset_widths import (
    as_utf8,
    bytes_max,
    charset_named,
    charset_of,
    decoded,
    storable,
    written,
)


@pytest.mark.parametrize(
    ("collation", "charset"),
    [
        ("latin1_swedish_ci", "latin1"),
        ("utf8_general_ci", "utf8mb3"),
        ("utf8mb4_0900_ai_ci", "utf8mb4"),
        ("UTF8MB4_BIN", "utf8mb4"),
        ("binary", "binary"),
        ("utf8mb4", "utf8mb4"),
        ("utf8mb4_uca1400_ai_ci", "utf8mb4"),
        ("uca1400_ai_ci", None),
    ],
)
def test_charset_of(collation: str, charset: str | None) -> None:
    """A collation names its character set, unless it is one of each set."""
    assert charset_of(collation) == charset


def test_names() -> None:
    """Case and old names are of no account."""
    assert charset_named("UTF8") == "utf8mb3"
    assert charset_named("Latin1") == "latin1"


@pytest.mark.parametrize(
    ("charset", "width"),
    [("latin1", 1), ("binary", 1), ("gbk", 2), ("ujis", 3), ("utf8mb4", 4), (None, 1)],
)
def test_bytes_max(charset: str | None, width: int) -> None:
    """The widest character decides about the sizes of texts."""
    assert bytes_max(charset) == width


@pytest.mark.parametrize(
    ("text", "charset", "expected"),
    [
        ("abc", "ascii", "abc"),
        ("é日", "latin1", "é?"),
        ("\x81", "latin1", "\x81"),
        ("日😀", "utf8mb4", "日?"),
        ("日😀", "ucs2", "日?"),
        ("é日", "cp932", "?日"),
        ("Г", "euckr", "Г"),
    ],
)
def test_storable(text: str, charset: str, expected: str) -> None:
    """What a set, or information_schema, does not have becomes a question mark."""
    assert storable(text, charset) == expected


@pytest.mark.parametrize(
    ("data", "charset", "expected"),
    [
        (b"\xe6", "latin1", "æ"),
        (b"\x81", "latin1", "\x81"),
        (b"\xc3\xa6", "utf8mb3", "æ"),
        (b"\xe6", "utf8mb4", None),
        (b"a", "utf16", None),
        (b"\x00a", "ucs2", "a"),
        (b"\\", "swe7", "Ö"),
        (b"\xff", "swe7", None),
    ],
)
def test_decoded(data: bytes, charset: str, expected: str | None) -> None:
    """Bytes are read in the set, or they are none of it."""
    assert decoded(data, charset) == expected


def test_swedish() -> None:
    """The seven-bit Swedish set has letters instead of some signs."""
    assert storable("a\\Ö", "swe7") == "a?Ö"
    assert written("aÖ", "swe7") == b"a\\"


def test_as_utf8() -> None:
    """Text that was decoded by the wrong set is found out, other text is not."""
    wrong = "größe".encode().decode("cp1252")
    assert as_utf8(wrong, "latin1") == "größe"
    assert as_utf8("größe", "latin1") is None
    assert as_utf8("abc", "latin1") is None
    assert as_utf8(wrong, "utf8mb4") is None
