"""The types of columns, parsed as they are written in statements.

A type that depends on a character set becomes a TextType, which is finished once that
is known (`canal_server.tablemeta.model.type_text`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.doors.sqltext import STRING
from canal_server.tablemeta.model.charset_widths import (
    BINARY,
    UTF8,
    charset_named,
    charset_of,
    storable,
)
from canal_server.tablemeta.model.operations import TextType
from canal_server.tablemeta.model.session_context import MAXDB, ORACLE, REAL_AS_FLOAT
from canal_server.tablemeta.model.type_text import GEOMETRIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.doors.sqltext import SqlReader
    from canal_server.tablemeta.model.session_context import Context

_WIDTHS_HIDDEN_SINCE = 80019  # MySQL
_GEOMCOLLECTION_SINCE = 80011

_FLOAT_BITS_MAX: Final = 24


@dataclass(slots=True)
class TypeFound:
    """A type; `charset` is set if specified, "" for an unspecified default."""

    type: str = ""
    text: TextType | None = None
    charset: str | None = None
    is_serial: bool = False
    is_timestamp: bool = False
    is_compressed: bool = False


if TYPE_CHECKING:
    _Reader = Callable[[SqlReader, str, Context], TypeFound]


def read_type(words: SqlReader, context: Context) -> TypeFound:
    """Parse a type and the character set after it. Raises SqlTextError."""
    schema = _SCHEMAS.get(words.peek()) if words.peek(1) == "." else None
    if schema is None:
        modes = MAXDB | (ORACLE if context.oracle else 0)
        schema = context.sql_mode & modes if context.mariadb else 0
    else:
        words.next()
        words.next()
    word = words.next()
    if (word, schema) in _DATETIMES:
        return _temporal(words, "DATETIME", context)
    if word in _ORACLE and (context.oracle or word not in _TYPES):
        return _ORACLE[word](words, word, context)
    if word not in _TYPES:
        words.raise_error(f"unknown type {word[:40]!r}")
    return _TYPES[word](words, word, context)


# MariaDB: the schema of the types, selected by a prefix or by the mode.
_SCHEMAS: Final = {"MARIADB_SCHEMA": 0, "ORACLE_SCHEMA": ORACLE, "MAXDB_SCHEMA": MAXDB}
_DATETIMES: Final = frozenset((("DATE", ORACLE), ("TIMESTAMP", MAXDB)))


def _numbers(words: SqlReader) -> tuple[int | None, int | None]:
    """Parse (m) or (m, d), if present."""
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
        words.raise_error(f"expected a number, found {word[:40]!r}")
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
    return context.mariadb or 0 < context.server_version < _WIDTHS_HIDDEN_SINCE


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


def _labels_of(words: SqlReader, word: str, context: Context) -> TypeFound:
    connection = charset_of(context.collation_connection or "") or ""
    words.expect("(")
    labels = [_label(words, connection)]
    while words.accept(","):
        labels.append(_label(words, connection))
    words.expect(")")
    text = TextType(word.lower(), None, tuple(labels), connection)
    return _with_charset(words, text, None)


def _label(words: SqlReader, connection: str) -> str | bytes:
    """Parse a string, or a number that denotes the bytes of one."""
    if words.peek().startswith("_"):
        words.next()  # an introducer
    elif words.peek() == STRING:
        # The server first converts it to the connection's set.
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
        words.raise_error("expected a string as a label")
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
        elif word != "BINARY":  # the collation _bin: the same set
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
    **dict.fromkeys(("ENUM", "SET"), _labels_of),
    "JSON": _json,
    "VECTOR": _vector,
    **{
        name.upper(): _plain(name)
        for name in (*GEOMETRIES, "uuid", "inet4", "inet6", "xmltype")
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
