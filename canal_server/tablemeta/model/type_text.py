"""The text of types that depend on a character set, and what CONVERT TO makes of it.

Leaves out how types are written in statements (`tablemeta.sql.column_types`).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from canal_server.model.enum_labels import members_of
from canal_server.tablemeta.model.charset_widths import BINARY, bytes_max, written
from canal_server.tablemeta.model.enum_members import kept, member_sql, padded
from canal_server.tablemeta.model.operations import TextType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from canal_server.model.enum_labels import Member
    from canal_server.tablemeta.model.table_schema import Column

CHAR_LENGTH_MAX: Final = 255
VARCHAR_BYTES_MAX: Final = {True: 65532, False: 65535}  # by mariadb
_MARIADB_CHAR_BYTES_MAX: Final = 1023

# What MariaDB adds to the type of a column that it compresses.
COMPRESSED: Final = " /*M!100301 COMPRESSED*/"

# Bytes that the sizes of TEXT and BLOB hold.
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
        members = text.members
        if binary and text.connection:
            # The bytes that the client's text was are kept.
            members = tuple(
                written(each, text.connection) if isinstance(each, str) else each
                for each in members
            )
        return _members_type(kind, members, charset, mariadb=mariadb), shown
    if kind in ("char", "varchar"):
        return _char_type(kind, length, charset, mariadb=mariadb), shown
    if length is not None and (length or not mariadb):
        return _sized(length * bytes_max(charset), binary=binary), shown
    return (kind.replace("text", "blob") if binary else kind), shown


def _members_type(
    kind: str, members: Iterable[Member], charset: str, *, mariadb: bool
) -> str:
    texts = (member_sql(each, charset, mariadb=mariadb) for each in members)
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
    """Return the smallest text type that holds so many bytes."""
    sizes = (prefix for prefix, held in SIZES.items() if size <= held)
    return next(sizes, "long") + ("blob" if binary else "text")


def converted(
    column: Column, charset: str, *, mariadb: bool
) -> tuple[str, str | None, tuple[bytes, ...] | None]:
    """Return what CONVERT TO CHARACTER SET makes of a column with a character set.

    Type, character set to show, and the bytes of members that the type's text lost.
    """
    old = column.charset or BINARY
    mysql_type, compressed, _ = column.type.partition(COMPRESSED)
    text = text_type_of(mysql_type)
    if text.kind.endswith("text"):
        # So long that it holds as many characters as before.
        size = SIZES[text.kind.removesuffix("text")] // bytes_max(old)
        kind = _sized(size * bytes_max(charset), binary=charset == BINARY)
        return kind + compressed, None if charset == BINARY else charset, None
    if text.kind in ("enum", "set"):
        # Their bytes stay.
        members = column.members or _bytes_of(text.members, old)
        text = TextType(text.kind, None, members)
    kind, shown = finished_type(text, charset, mariadb=mariadb)
    return kind + compressed, shown, lost_members(kind, text.members, charset)


def held_text_type(old: Column, new: TextType, charset: str) -> TextType:
    """Return the TEXT or BLOB that MySQL takes where CONVERT TO is said as well.

    It holds as many characters as the column did before, whatever size was named;
    but LONGTEXT stays what it is.
    """
    if new.length is not None or new.kind not in ("tinytext", "text", "mediumtext"):
        return new
    size = _characters(old) * bytes_max(charset)
    return TextType(_sized(size, binary=False))


def _characters(column: Column) -> int:
    """Return how many characters a column shows at most."""
    head = _HEAD.match(column.type)
    assert head is not None  # it matches everything
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


def with_whole_members(text: TextType, charset: str) -> TextType:
    """Return a type whose members, written as numbers, are of whole characters."""
    if text.exact or not any(isinstance(each, bytes) for each in text.members):
        return text
    return replace(
        text,
        members=tuple(
            padded(each, charset) if isinstance(each, bytes) else each
            for each in text.members
        ),
    )


def lost_members(
    mysql_type: str, members: Iterable[Member], charset: str
) -> tuple[bytes, ...] | None:
    """Return the bytes of members when the type's text does not give them again."""
    if not any(isinstance(each, bytes) for each in members):
        return None
    before = _bytes_of(members, charset)
    again = _bytes_of(text_type_of(mysql_type).members, charset)
    return None if again == before else before


def _bytes_of(members: Iterable[Member], charset: str) -> tuple[bytes, ...]:
    return tuple(
        each if isinstance(each, bytes) else written(kept(each, charset), charset)
        for each in members
    )


def text_type_of(mysql_type: str) -> TextType:
    """Read a COLUMN_TYPE that has a character set."""
    kind, _, rest = mysql_type.partition("(")
    if kind in ("enum", "set"):
        return TextType(kind, None, members_of(rest))
    length = rest.partition(")")[0]
    return TextType(kind, int(length) if length else None)
