"""The text of types that depend on a character set, and the effect of CONVERT TO.

How types are written in statements: `tablemeta.sql.column_types`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from canal_server.model.enum_labels import labels_of
from canal_server.tablemeta.model.charset_widths import BINARY, bytes_max, written
from canal_server.tablemeta.model.label_charsets import kept, label_sql, padded
from canal_server.tablemeta.model.operations import TextType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from canal_server.model.enum_labels import Label
    from canal_server.tablemeta.model.table_schema import Column

CHAR_LENGTH_MAX: Final = 255
VARCHAR_BYTES_MAX: Final = {True: 65532, False: 65535}  # by mariadb
_MARIADB_CHAR_BYTES_MAX: Final = 1023

# Appended by MariaDB to the type of a compressed column.
COMPRESSED: Final = " /*M!100301 COMPRESSED*/"

# Capacities of the sizes of TEXT and BLOB in bytes.
SIZES: Final = {"tiny": 255, "": 65535, "medium": 16777215, "long": 4294967295}

GEOMETRIES: Final = (
    *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring"),
    *("multipolygon", "geomcollection", "geometrycollection"),
)


def finished_type(
    text: TextType, charset: str, *, mariadb: bool
) -> tuple[str, str | None]:
    """Return COLUMN_TYPE and CHARACTER_SET_NAME of a type in a character set."""
    kind, length = text.kind, text.length
    binary = charset == BINARY
    shown = None if binary else charset
    if kind in ("enum", "set"):
        if binary:
            shown = BINARY if mariadb else None
        labels = text.labels
        if binary and text.connection:
            # The bytes of the client's text are kept.
            labels = tuple(
                written(each, text.connection) if isinstance(each, str) else each
                for each in labels
            )
        return _labels_type(kind, labels, charset, mariadb=mariadb), shown
    if kind in ("char", "varchar"):
        return _char_type(kind, length, charset, mariadb=mariadb), shown
    if length is not None and (length or not mariadb):
        return _sized(length * bytes_max(charset), binary=binary), shown
    return (kind.replace("text", "blob") if binary else kind), shown


def _labels_type(
    kind: str, labels: Iterable[Label], charset: str, *, mariadb: bool
) -> str:
    texts = (label_sql(each, charset, mariadb=mariadb) for each in labels)
    return f"{kind}({','.join(texts)})"


def _char_type(kind: str, length: int | None, charset: str, *, mariadb: bool) -> str:
    binary = charset == BINARY
    if length is None:
        length = 1
    size = length * bytes_max(charset)
    if kind == "char" and length > CHAR_LENGTH_MAX:
        return _sized(size, binary=binary)
    if kind == "varchar" and size > VARCHAR_BYTES_MAX[mariadb]:
        return _sized(size, binary=binary)
    if kind == "char" and mariadb and size > _MARIADB_CHAR_BYTES_MAX:
        kind = "varchar"
    if binary:
        kind = kind.replace("char", "binary")
    return f"{kind}({length})"


def _sized(size: int, *, binary: bool) -> str:
    """Return the smallest text type that can hold this many bytes."""
    sizes = (prefix for prefix, held in SIZES.items() if size <= held)
    return next(sizes, "long") + ("blob" if binary else "text")


def converted(
    column: Column, charset: str, *, mariadb: bool
) -> tuple[str, str | None, tuple[bytes, ...] | None]:
    """Return the result of CONVERT TO CHARACTER SET for a column with a character set.

    That is its type, its visible character set, and the label bytes that the text of
    the type does not preserve.
    """
    old = column.charset or BINARY
    mysql_type, compressed, _ = column.type.partition(COMPRESSED)
    text = text_type_of(mysql_type)
    if text.kind.endswith("text"):
        # Long enough for as many characters as before.
        size = SIZES[text.kind.removesuffix("text")] // bytes_max(old)
        kind = _sized(size * bytes_max(charset), binary=charset == BINARY)
        return kind + compressed, None if charset == BINARY else charset, None
    if text.kind in ("enum", "set"):
        # The bytes are kept.
        labels = column.labels or _bytes_of(text.labels, old)
        text = TextType(text.kind, None, labels)
    kind, shown = finished_type(text, charset, mariadb=mariadb)
    return kind + compressed, shown, lost_labels(kind, text.labels, charset)


def held_text_type(old: Column, new: TextType, charset: str) -> TextType:
    """Return the TEXT or BLOB type that MySQL uses if CONVERT TO is specified as well.

    It holds as many characters as the column did before, whatever size was specified;
    but LONGTEXT is unchanged.
    """
    if new.length is not None or new.kind not in ("tinytext", "text", "mediumtext"):
        return new
    size = _characters(old) * bytes_max(charset)
    return TextType(_sized(size, binary=False))


def _characters(column: Column) -> int:
    """Return the maximum number of characters of a column."""
    head = _HEAD.match(column.type)
    assert head is not None  # the pattern matches everything
    kind, length = head["kind"], int(head["length"] or 0)
    size = SIZES.get(kind.removesuffix("text").removesuffix("blob"))
    if size is not None and kind.endswith(("text", "blob")):
        return size // bytes_max(column.charset)
    if kind in ("json", *GEOMETRIES):
        return SIZES["long"]
    if kind == "decimal":
        decimals = int(head["decimals"] or 0)
        return length + (decimals > 0) + ("unsigned" not in column.type)
    return length


_HEAD: Final = re.compile(
    r"(?P<kind>[a-z]*)(?:\((?P<length>\d+)(?:,(?P<decimals>\d+))?\))?"
)


def with_whole_labels(text: TextType, charset: str) -> TextType:
    """Return a type with labels written as numbers padded to complete characters."""
    if text.exact or not any(isinstance(each, bytes) for each in text.labels):
        return text
    return replace(
        text,
        labels=tuple(
            padded(each, charset) if isinstance(each, bytes) else each
            for each in text.labels
        ),
    )


def lost_labels(
    mysql_type: str, labels: Iterable[Label], charset: str
) -> tuple[bytes, ...] | None:
    """Return the label bytes that the text of the type does not preserve."""
    if not any(isinstance(each, bytes) for each in labels):
        return None
    before = _bytes_of(labels, charset)
    again = _bytes_of(text_type_of(mysql_type).labels, charset)
    return None if again == before else before


def _bytes_of(labels: Iterable[Label], charset: str) -> tuple[bytes, ...]:
    return tuple(
        each if isinstance(each, bytes) else written(kept(each, charset), charset)
        for each in labels
    )


def text_type_of(mysql_type: str) -> TextType:
    """Parse a COLUMN_TYPE that has a character set."""
    kind, _, rest = mysql_type.partition("(")
    if kind in ("enum", "set"):
        return TextType(kind, None, labels_of(rest))
    length = rest.partition(")")[0]
    return TextType(kind, int(length) if length else None)
