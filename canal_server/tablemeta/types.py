"""The types of columns: as they are written, and as the server writes them.

What depends on a character set comes as a TextType and is finished by
`finished_type` where that is known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from canal_server.sqltext import STRING
from canal_server.tablemeta.charsets import (
    BINARY,
    UTF8,
    bytes_max,
    charset_named,
    charset_of,
    storable,
    written,
)
from canal_server.tablemeta.context import MAXDB, ORACLE, REAL_AS_FLOAT
from canal_server.tablemeta.members import member_sql, members_of, padded
from canal_server.tablemeta.operations import TextType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from canal_server.sqltext import SqlReader
    from canal_server.tablemeta.context import Context
    from canal_server.tablemeta.image import Column
    from canal_server.tablemeta.members import Member

_WIDTHS_GONE_SINCE = 80019  # MySQL
_GEOMCOLLECTION_SINCE = 80011

CHAR_LENGTH_MAX: Final = 255
VARCHAR_BYTES_MAX: Final = {True: 65532, False: 65535}  # by mariadb
_MARIADB_CHAR_BYTES_MAX: Final = 1023
_FLOAT_BITS_MAX: Final = 24

# What MariaDB adds to the type of a column that it compresses.
COMPRESSED: Final = " /*M!100301 COMPRESSED*/"

# Bytes that the sizes of TEXT and BLOB hold.
SIZES: Final = {"tiny": 255, "": 65535, "medium": 16777215, "long": 4294967295}


@dataclass(slots=True)
class TypeFound:
    """A type; `charset` when one was said, "" for the default that is not told."""

    type: str = ""
    text: TextType | None = None
    charset: str | None = None
    is_serial: bool = False
    is_timestamp: bool = False
    is_compressed: bool = False


if TYPE_CHECKING:
    _Reader = Callable[[SqlReader, str, Context], TypeFound]


def read_type(words: SqlReader, context: Context) -> TypeFound:
    """Read a type and the character set behind it. Raises SqlTextError."""
    schema = _SCHEMAS.get(words.peek()) if words.peek(1) == "." else None
    if schema is None:
        schema = context.sql_mode & (ORACLE | MAXDB) if context.mariadb else 0
    else:
        words.next()
        words.next()
    word = words.next()
    if (word, schema) in _DATETIMES:
        return _temporal(words, "DATETIME", context)
    if word in _ORACLE and (context.oracle or word not in _TYPES):
        return _ORACLE[word](words, word, context)
    if word not in _TYPES:
        words.raise_error(f"a type {word[:40]!r} that is not known")
    return _TYPES[word](words, word, context)


# MariaDB: whose types are meant, by a word in front or by the mode.
_SCHEMAS: Final = {"MARIADB_SCHEMA": 0, "ORACLE_SCHEMA": ORACLE, "MAXDB_SCHEMA": MAXDB}
_DATETIMES: Final = frozenset((("DATE", ORACLE), ("TIMESTAMP", MAXDB)))


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
    if kind in ("json", *_GEOMETRIES):
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
        each if isinstance(each, bytes) else written(each, charset) for each in members
    )


def text_type_of(mysql_type: str) -> TextType:
    """Read a COLUMN_TYPE that has a character set."""
    kind, _, rest = mysql_type.partition("(")
    if kind in ("enum", "set"):
        return TextType(kind, None, members_of(rest))
    length = rest.partition(")")[0]
    return TextType(kind, int(length) if length else None)


# Reading


def _numbers(words: SqlReader) -> tuple[int | None, int | None]:
    """Read (m) or (m, d), if it stands here."""
    if words.peek() != "(":
        return None, None
    words.next()
    if words.accept(")"):
        return None, None  # MariaDB: `float()`
    numbers = [_number(words)]
    while words.accept(","):
        numbers.append(_number(words))
    if words.peek() in ("CHAR", "BYTE"):  # Oracle
        words.next()
    words.expect(")")
    return numbers[0], numbers[1] if len(numbers) > 1 else None


def _number(words: SqlReader) -> int:
    word = words.next()
    try:
        return int(word, 0) if word.startswith("0X") else int(word.split(".")[0])
    except ValueError:
        words.raise_error(f"no number but {word[:40]!r}")
        raise


def _sign(words: SqlReader) -> tuple[bool, bool]:
    unsigned = zerofill = False
    while word := words.accept_any(("UNSIGNED", "SIGNED", "ZEROFILL")):
        unsigned = unsigned or word == "UNSIGNED"
        zerofill = zerofill or word == "ZEROFILL"
    return unsigned or zerofill, zerofill


def _suffix(*, unsigned: bool, zerofill: bool) -> str:
    return (" unsigned" if unsigned else "") + (" zerofill" if zerofill else "")


_INTEGERS: Final = {
    "tinyint": (4, 3),
    "smallint": (6, 5),
    "mediumint": (9, 8),
    "int": (11, 10),
    "bigint": (20, 20),
}


def _has_widths(context: Context) -> bool:
    return context.mariadb or 0 < context.server_version < _WIDTHS_GONE_SINCE


def _integer(name: str) -> _Reader:
    widths = _INTEGERS[name]

    def read(words: SqlReader, _word: str, context: Context) -> TypeFound:
        width, _ = _numbers(words)
        unsigned, zerofill = _sign(words)
        if not width:
            said, width = False, widths[unsigned]
        else:
            said = True
        shows = _has_widths(context) or zerofill
        if not shows:
            shows = said and width == 1 and name == "tinyint" and not unsigned
        shown = f"({width})" if shows else ""
        suffix = _suffix(unsigned=unsigned, zerofill=zerofill)
        return TypeFound(name + shown + suffix)

    return read


def _bool(_words: SqlReader, _word: str, _context: Context) -> TypeFound:
    return TypeFound("tinyint(1)")


def _serial(_words: SqlReader, _word: str, context: Context) -> TypeFound:
    shown = "bigint(20)" if _has_widths(context) else "bigint"
    return TypeFound(f"{shown} unsigned", is_serial=True)


def _decimal(words: SqlReader, _word: str, _context: Context) -> TypeFound:
    digits, decimals = _numbers(words)
    unsigned, zerofill = _sign(words)
    if not digits and not decimals:
        digits = 10
    shown = f"decimal({digits},{decimals or 0})"
    return TypeFound(shown + _suffix(unsigned=unsigned, zerofill=zerofill))


def _float(words: SqlReader, word: str, context: Context) -> TypeFound:
    name = "float"
    if word in ("DOUBLE", "FLOAT8") or (
        word == "REAL" and not context.sql_mode & REAL_AS_FLOAT
    ):
        name = "double"
    if word == "DOUBLE":
        words.accept("PRECISION")
    digits, decimals = _numbers(words)
    unsigned, zerofill = _sign(words)
    shown = ""
    if decimals is not None:
        shown = f"({digits},{decimals})"
    elif digits is not None and digits > _FLOAT_BITS_MAX:
        name = "double"
    return TypeFound(name + shown + _suffix(unsigned=unsigned, zerofill=zerofill))


def _bit(words: SqlReader, _word: str, _context: Context) -> TypeFound:
    bits, _ = _numbers(words)
    return TypeFound(f"bit({bits or 1})")


def _year(words: SqlReader, _word: str, context: Context) -> TypeFound:
    digits, _ = _numbers(words)
    _sign(words)
    if not _has_widths(context):
        return TypeFound("year")
    return TypeFound("year(2)" if digits == 2 else "year(4)")  # noqa: PLR2004


def _temporal(words: SqlReader, word: str, _context: Context) -> TypeFound:
    digits, _ = _numbers(words)
    shown = word.lower() + (f"({digits})" if digits else "")
    return TypeFound(shown, is_timestamp=word == "TIMESTAMP")


def _plain(name: str) -> _Reader:
    def read(words: SqlReader, _word: str, _context: Context) -> TypeFound:
        words.skip_parens()
        return TypeFound(name)

    return read


def _geometry_collection(_words: SqlReader, _word: str, context: Context) -> TypeFound:
    old = context.mariadb or 0 < context.server_version < _GEOMCOLLECTION_SINCE
    return TypeFound("geometrycollection" if old else "geomcollection")


def _vector(words: SqlReader, _word: str, _context: Context) -> TypeFound:
    size, _ = _numbers(words)
    return TypeFound(f"vector({2048 if size is None else size})")


def _json(words: SqlReader, _word: str, context: Context) -> TypeFound:
    if not context.mariadb:
        return TypeFound("json")
    return _with_charset(words, TextType("longtext"), "utf8mb4")


def _char(words: SqlReader, word: str, _context: Context) -> TypeFound:
    charset = UTF8 if word in ("NCHAR", "NATIONAL", "NVARCHAR") else None
    if word == "NATIONAL":
        word = words.next()
    kind = "varchar" if word in (*_VARCHARS, "NVARCHAR") else "char"
    if words.accept_any(("VARYING", *_VARCHARS)):
        kind = "varchar"
    length, _ = _numbers(words)
    return _with_charset(words, TextType(kind, length), charset)


def _binary(words: SqlReader, word: str, _context: Context) -> TypeFound:
    length, _ = _numbers(words)
    text = TextType("varchar" if word == "VARBINARY" else "char", length)
    return _with_charset(words, text, BINARY)


def _text(words: SqlReader, word: str, _context: Context) -> TypeFound:
    length, _ = _numbers(words) if word in ("TEXT", "BLOB") else (None, None)
    charset = BINARY if word.endswith("BLOB") else None
    kind = word.lower().replace("blob", "text")
    return _with_charset(words, TextType(kind, length), charset)


def _long(words: SqlReader, _word: str, _context: Context) -> TypeFound:
    text = TextType("mediumtext")
    if words.accept("VARBINARY"):
        return _with_charset(words, text, BINARY)
    if words.peek(1) == "VARYING":
        words.next()  # CHAR or CHARACTER
        words.next()
    else:
        words.accept_any(_VARCHARS)
    return _with_charset(words, text, None)


def _members_of(words: SqlReader, word: str, context: Context) -> TypeFound:
    connection = charset_of(context.collation_connection or "") or ""
    words.expect("(")
    members = [_member(words, connection)]
    while words.accept(","):
        members.append(_member(words, connection))
    words.expect(")")
    text = TextType(word.lower(), None, tuple(members), connection)
    return _with_charset(words, text, None)


def _member(words: SqlReader, connection: str) -> str | bytes:
    """Read a string, or a number that stands for the bytes of one."""
    if words.peek().startswith("_"):
        words.next()  # an introducer
    elif words.peek() == STRING:
        # The server has it in the connection's set first.
        plain = not connection or words.text_of()[:1] in "nN"
        text = words.string()
        return text if plain else storable(text, connection)
    if words.peek() == STRING:
        return words.string()
    word = words.next()
    if word in ("X", "B", "N") and words.peek() == STRING:
        digits = words.string()
    else:
        word, digits = word[1:2], word[2:]
    try:
        if word == "B":
            return int(digits, 2).to_bytes((len(digits) + 7) // 8, "big")
        return bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2))
    except ValueError:
        words.raise_error("a member that is no string")
        raise


_CHARSET_WORDS: Final = frozenset(
    (
        *("CHARACTER", "CHARSET", "CHAR", "ASCII", "UNICODE", "BYTE", "BINARY"),
        "COMPRESSED",
    )
)


def _with_charset(words: SqlReader, text: TextType, charset: str | None) -> TypeFound:
    found = TypeFound(text=text, charset=charset)
    while word := words.accept_any(_CHARSET_WORDS):
        if word == "ASCII":
            found.charset = "latin1"
        elif word == "UNICODE":
            found.charset = "ucs2"
        elif word == "BYTE":
            found.charset = BINARY
        elif word == "COMPRESSED":
            found.is_compressed = True
            if words.accept("="):
                words.next()
        elif word != "BINARY":  # the collation _bin: no other set
            if word != "CHARSET":
                words.expect("SET")
            found.charset = charset_named(words.charset_name())
    return found


def _oracle_text(kind: str, charset: str | None) -> _Reader:
    def read(words: SqlReader, _word: str, _context: Context) -> TypeFound:
        length, _ = _numbers(words)
        name = kind.removeprefix("long") if length == 0 else kind
        return _with_charset(words, TextType(name, length), charset)

    return read


def _oracle_number(words: SqlReader, word: str, context: Context) -> TypeFound:
    if words.peek() == "(":
        return _decimal(words, word, context)
    unsigned, zerofill = _sign(words)
    return TypeFound("double" + _suffix(unsigned=unsigned, zerofill=zerofill))


_GEOMETRIES: Final = (
    *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring"),
    *("multipolygon", "geomcollection", "geometrycollection"),
)
_VARCHARS: Final = frozenset(("VARCHAR", "VARCHARACTER", "VARCHAR2"))

_TYPES: Final[dict[str, _Reader]] = {
    **dict.fromkeys(("TINYINT", "INT1"), _integer("tinyint")),
    **dict.fromkeys(("SMALLINT", "INT2"), _integer("smallint")),
    **dict.fromkeys(("MEDIUMINT", "INT3", "MIDDLEINT"), _integer("mediumint")),
    **dict.fromkeys(("INT", "INT4", "INTEGER"), _integer("int")),
    **dict.fromkeys(("BIGINT", "INT8"), _integer("bigint")),
    **dict.fromkeys(("BOOL", "BOOLEAN"), _bool),
    "SERIAL": _serial,
    **dict.fromkeys(("DECIMAL", "DEC", "NUMERIC", "FIXED"), _decimal),
    **dict.fromkeys(("FLOAT", "DOUBLE", "REAL", "FLOAT4", "FLOAT8"), _float),
    "BIT": _bit,
    "YEAR": _year,
    **dict.fromkeys(("DATE", "TIME", "DATETIME", "TIMESTAMP"), _temporal),
    **dict.fromkeys(("CHAR", "CHARACTER", "NCHAR", "NATIONAL", "NVARCHAR"), _char),
    **dict.fromkeys(_VARCHARS, _char),
    **dict.fromkeys(("BINARY", "VARBINARY"), _binary),
    **dict.fromkeys(("TEXT", "TINYTEXT", "MEDIUMTEXT", "LONGTEXT"), _text),
    **dict.fromkeys(("BLOB", "TINYBLOB", "MEDIUMBLOB", "LONGBLOB"), _text),
    "LONG": _long,
    **dict.fromkeys(("ENUM", "SET"), _members_of),
    "JSON": _json,
    "VECTOR": _vector,
    **{
        name.upper(): _plain(name)
        for name in (*_GEOMETRIES, "uuid", "inet4", "inet6", "xmltype")
        if name not in ("geomcollection", "geometrycollection")
    },
    **dict.fromkeys(("GEOMETRYCOLLECTION", "GEOMCOLLECTION"), _geometry_collection),
}

_ORACLE: Final[dict[str, _Reader]] = {
    "NUMBER": _oracle_number,
    "RAW": _oracle_text("varchar", BINARY),
    "CLOB": _oracle_text("longtext", None),
    "BLOB": _oracle_text("longtext", BINARY),
}
