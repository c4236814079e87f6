"""Character sets: the width of their characters, and the sets of collations."""

from __future__ import annotations

from functools import cache
from typing import Final

BINARY: Final = "binary"
UTF8: Final = "utf8mb3"

# Maximum bytes per character, for the sets with more than one.
_BYTES_MAX: Final = {
    **dict.fromkeys(("big5", "cp932", "euckr", "gb2312", "gbk", "sjis", "ucs2"), 2),
    **dict.fromkeys(("eucjpms", "ujis", "utf8mb3"), 3),
    **dict.fromkeys(("gb18030", "utf16", "utf16le", "utf32", "utf8mb4"), 4),
    "filename": 5,
}

# Aliases.
_ALIASES: Final = {
    "utf8": UTF8,
}

# Python's codecs.
_CODECS: Final = {
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
    "binary": "utf-8",
    "ascii": "ascii",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "gb18030": "gb18030",
    "latin1": "cp1252",
    "dec8": "latin-1",
    "swe7": "ascii",
    "hp8": "hp-roman8",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "greek": "iso8859-7",
    "hebrew": "iso8859-8",
    "tis620": "iso8859-11",
    "koi8r": "koi8-r",
    "koi8u": "koi8-u",
    "macce": "mac-latin2",
    "macroman": "mac-roman",
    **{name: name for name in ("cp1250", "cp1251", "cp1256", "cp1257")},
    **{name: name for name in ("cp850", "cp852", "cp866", "cp932", "gbk", "big5")},
    "gb2312": "gb2312",
    "euckr": "cp949",
    "sjis": "shift_jis",
    "ujis": "euc_jp",
    "eucjpms": "euc_jp",
}
_OF_UNICODE: Final = frozenset(
    (
        *("utf8mb3", "utf8mb4", "binary", "ucs2", "utf16", "utf16le", "utf32"),
        "gb18030",
    )
)
# What swe7 has instead of these signs.
_SIGNS, _SWEDISH = "@[\\]^`{|}~", "ÉÄÖÅÜéäöåü"
_FROM_SWEDISH: Final = str.maketrans(_SIGNS, _SWEDISH)
_TO_SWEDISH: Final = str.maketrans(_SWEDISH, _SIGNS)
_UNIT_BYTES: Final = {"ucs2": 2, "utf16": 2, "utf16le": 2, "utf32": 4}

# Collations of MariaDB that adapt to the character set they are used with.
_OF_EACH_SET: Final = "uca1400"


@cache
def bytes_max(charset: str | None) -> int:
    """Return the maximum number of bytes per character."""
    return _BYTES_MAX.get(charset or BINARY, 1)


@cache
def charset_named(name: str) -> str:
    """Return the canonical name of a character set, in lower case."""
    name = name.lower()
    return _ALIASES.get(name, name)


@cache
def charset_of(collation: str) -> str | None:
    """Return the character set of a collation; None if it may belong to several."""
    head = collation.lower().partition("_")[0]
    return None if head == _OF_EACH_SET else charset_named(head)


def storable(text: str, charset: str) -> str:
    """Return a text as a character set stores it, with ? for unknown characters.

    information_schema cannot store characters beyond U+FFFF either.
    """
    if charset == "swe7":
        return "".join(
            c if c in _SWEDISH or (c.isascii() and c not in _SIGNS) else "?"
            for c in text
        )
    if text.isascii():
        return text
    codec = None if charset in _OF_UNICODE else _CODECS.get(charset)
    return "".join(c if _has(codec, c) else "?" for c in text)


def written(text: str, charset: str) -> bytes:
    """Encode a text in a character set, with ? for unknown characters."""
    if charset == "swe7":
        text = storable(text, charset).translate(_TO_SWEDISH)
    return text.encode(_CODECS.get(charset, "latin-1"), "replace")


def decoded(data: bytes, charset: str) -> str | None:
    """Decode bytes in a character set; None if they are invalid."""
    if charset == "swe7":
        text = data.decode("ascii", "replace").translate(_FROM_SWEDISH)
        return None if "\ufffd" in text else text
    if len(data) % unit_bytes(charset):
        return None
    try:
        return data.decode(_CODECS.get(charset, "latin-1"))
    except UnicodeDecodeError:
        # MySQL has characters where cp1252 has gaps.
        return data.decode("latin-1") if charset == "latin1" else None


@cache
def unit_bytes(charset: str) -> int:
    """Return the number of bytes that the size of each character is a multiple of."""
    return _UNIT_BYTES.get(charset, 1)


def as_utf8(text: str, charset: str) -> str | None:
    """Decode as UTF-8 a text that was decoded in another character set.

    Returns None if that is impossible.
    """
    codec = _CODECS.get(charset)
    if text.isascii() or codec is None or charset in _OF_UNICODE:
        return None
    try:
        return b"".join(_bytes_of(codec, char) for char in text).decode()
    except UnicodeError:
        return None


def _has(codec: str | None, char: str) -> bool:
    if char > "\uffff":
        return False
    if codec is None:
        return True
    try:
        _bytes_of(codec, char)
    except UnicodeEncodeError:
        return False
    return True


def _bytes_of(codec: str, char: str) -> bytes:
    """Return the bytes of a character. Raises UnicodeEncodeError."""
    # MySQL's latin1 also has these characters, where cp1252 has gaps.
    if codec == "cp1252" and "\x80" <= char <= "\x9f":
        codec = "latin-1"
    return char.encode(codec)
