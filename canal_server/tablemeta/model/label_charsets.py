"""The labels of ENUM and SET: bytes in a character set, shown as text.

A server keeps the bytes, and CONVERT TO CHARACTER SET does not change them: from then
on it shows their meaning in the new set, whether or not it makes sense.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal_server.tablemeta.model.charset_widths import (
    BINARY,
    UTF8,
    decoded,
    storable,
    unit_bytes,
)

if TYPE_CHECKING:
    from canal_server.model.enum_labels import Label


def label_sql(label: Label, charset: str, *, mariadb: bool) -> str:
    """Return a label as in COLUMN_TYPE, in the character set of a column."""
    if isinstance(label, bytes):
        text = shown(label, charset, mariadb=mariadb)
        if text is None:
            # MySQL omits the zeros.
            return f"x'{''.join(f'{byte:x}' for byte in label)}'"
        label = text
    return f"'{kept(label, charset).translate(_ESCAPED)}'"


def kept(label: str, charset: str) -> str:
    """Return the stored form of a label: without trailing spaces, unless binary."""
    label = storable(label, charset)
    return label if charset == BINARY else label.rstrip(" ")


_ESCAPED: Final = str.maketrans(
    {"\\": "\\\\", "\0": "\\0", "'": "''", "\n": "\\n", "\r": "\\r"}
)


def padded(data: bytes, charset: str) -> bytes:
    """Return bytes that were written as a number, padded to complete characters."""
    return b"\0" * (-len(data) % unit_bytes(charset)) + data


def shown(data: bytes, charset: str, *, mariadb: bool) -> str | None:
    """Return the text that a server shows for bytes; None if MySQL shows them as hex.

    An invalid byte is shown as a question mark. MySQL stops at a truncated character.
    """
    text = decoded(data, charset)
    if text is not None:
        return text
    if charset in (BINARY, UTF8) and not mariadb:
        return None
    found = []
    at = 0
    while at < len(data):
        size = _size(data, at, charset, mariadb=mariadb)
        if at + size > len(data):
            if not mariadb:
                break
            size = 1
        char = decoded(data[at : at + size], charset)
        if char is None:
            size = _bad_bytes(data, at, size, charset, mariadb=mariadb)
        found.append("?" if char is None else char)
        at += size
    return "".join(found)


def _size(data: bytes, at: int, charset: str, *, mariadb: bool) -> int:
    """Return the apparent number of bytes of the character that starts here."""
    first = data[at]
    unit = unit_bytes(charset)
    if unit > 1:
        return unit
    if charset in _UTF8:
        if first >= _UTF8_OF_FOUR:
            return 1 if mariadb else 4
        return 1 + (first >= _UTF8_OF_TWO) + (first >= _UTF8_OF_THREE)
    if first < _HIGH or decoded(data[at : at + 1], charset) is not None:
        return 1
    if charset in _OF_THREE and first == _THREE_FOLLOW:
        return 3
    return 2 if charset in _OF_TWO else 1


def _bad_bytes(data: bytes, at: int, size: int, charset: str, *, mariadb: bool) -> int:
    """Return the number of bytes that one question mark replaces."""
    if unit_bytes(charset) > 1:
        return 1 if mariadb else size
    if charset not in _OF_TWO or size == 1:
        return 1
    if charset in _BLIND and not mariadb:
        return size
    if charset in _HIGH_HEADS and data[at] < _HIGH_HEAD:
        return 1
    return size if data[at + 1] in _SECOND_BYTES[charset] else 1


_HIGH: Final = 0x80
_UTF8: Final = frozenset(("utf8mb3", "utf8mb4", BINARY))
_UTF8_OF_TWO, _UTF8_OF_THREE, _UTF8_OF_FOUR = 0xC2, 0xE0, 0xF0
_OF_THREE: Final = frozenset(("eucjpms", "ujis"))
_THREE_FOLLOW: Final = 0x8F
# For these, MySQL ignores the second byte.
_BLIND: Final = frozenset(("big5", "gbk", "euckr"))


def _bytes(*ranges: tuple[int, int]) -> frozenset[int]:
    return frozenset(byte for first, last in ranges for byte in range(first, last + 1))


_SECOND_BYTES: Final = {
    "big5": _bytes((0x40, 0x7E), (0xA1, 0xFE)),
    "euckr": _bytes((0x41, 0x5A), (0x61, 0x7A), (0x81, 0xFE)),
    "gb18030": _bytes((0x40, 0x7E), (0x80, 0xFE)),
    "gb2312": _bytes((0xA1, 0xFE)),
    "gbk": _bytes((0x40, 0x7E), (0x80, 0xFE)),
    "ujis": _bytes((0xA1, 0xFE)),
    "eucjpms": _bytes((0xA1, 0xFE)),
    "sjis": _bytes((0x40, 0x7E), (0x80, 0xFC)),
    "cp932": _bytes((0x40, 0x7E), (0x80, 0xFC)),
}
_OF_TWO: Final = frozenset(_SECOND_BYTES)
_HIGH_HEADS: Final = frozenset(("big5", "gb2312", "ujis", "eucjpms"))
_HIGH_HEAD: Final = 0xA1
