"""Events that Python parses: statements, and what statement format logs with them.

Bytes in, values out. Leaves out what is delivered for them
(`source.read.binlog_reader`).
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.decoder.rows.checked_bytes import CheckedBytes
from canal_server.decoder.text.charset_names import charset_of_collation
from canal_server.errors import DecodeError
from canal_server.mysql.flavour import version_number
from canal_server.tablemeta.model.session_context import Context

if TYPE_CHECKING:
    from collections.abc import Callable

POST_HEADER: Final = struct.Struct("<IIBHH")
_LOAD_BYTES: Final = 13  # of an EXECUTE_LOAD_QUERY, after the post-header
_SQL_MODE_ANSI_QUOTES: Final = 1 << 2
_SQL_MODE_NO_BACKSLASH: Final = 1 << 20

# Status variables that precede those parsed here, with their sizes in bytes; None:
# `_variables` parses it. They are ordered by code, not as in the event.
_Q_FLAGS2: Final = 0
_Q_SQL_MODE: Final = 1
_Q_CHARSET: Final = 4
_Q_CHARSET_DATABASE: Final = 8
_Q_EXPLICIT_TIMESTAMP: Final = 16  # MySQL
_Q_COLLATION_UTF8MB4: Final = 18  # MySQL
_FLAG_EXPLICIT_TIMESTAMP: Final = 1 << 24  # MariaDB
_VARIABLE_BYTES: Final = {
    0: 4, 1: 8, 3: 4, 4: 6, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3, 14: 8, 15: 8, 16: 1,
    17: 8, 18: 2, 19: 1, 20: 1, 128: 3, 129: 8,
}  # fmt: skip
_SHORT_TEXTS: Final = {2: 1, 5: 0, 6: 0}  # code -> bytes after the text
_Q_INVOKER: Final = 11
_Q_UPDATED_SCHEMAS: Final = 12  # a number, then zero-terminated names
_TOO_MANY_SCHEMAS: Final = 254  # the names are left out

# Kinds of values of user variables: the server's Item_result.
_REAL_RESULT: Final = 1
_INT_RESULT: Final = 2
_DECIMAL_RESULT: Final = 4
_DECIMAL_DIGITS_MAX: Final = 65
_GROUP_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)  # by decimal digits

# Python's codecs for the character sets in which clients send statements.
_CODECS: Final = {
    "utf8mb3": "utf-8", "utf8mb4": "utf-8", "binary": "utf-8", "ascii": "utf-8",
    "latin1": "cp1252", "gb2312": "gb2312", "gbk": "gbk", "gb18030": "gb18030",
    "big5": "big5", "sjis": "shift_jis", "cp932": "cp932", "ujis": "euc_jp",
    "eucjpms": "euc_jp", "euckr": "euc_kr", "cp1250": "cp1250", "cp1251": "cp1251",
    "cp1256": "cp1256", "cp1257": "cp1257", "koi8r": "koi8_r", "koi8u": "koi8_u",
    "latin2": "iso8859_2", "latin5": "iso8859_9", "latin7": "iso8859_13",
    "greek": "iso8859_7", "hebrew": "iso8859_8", "tis620": "tis_620",
    "cp850": "cp850", "cp852": "cp852", "cp866": "cp866", "macroman": "mac_roman",
}  # fmt: skip


@dataclass(slots=True)
class Variables:
    """Settings of a statement's session; collations by id, 0 when not logged."""

    flags2: int | None = None
    sql_mode: int = 0
    collations: tuple[int, int, int] = (0, 0, 0)  # client, connection, server
    collation_database: int = 0
    collation_utf8mb4: int = 0
    explicit_timestamp: bool | None = None  # explicit_defaults_for_timestamp


@dataclass(frozen=True, slots=True)
class Query:
    """A statement in the context that the binlog records for it."""

    thread_id: int
    schema: str
    sql: str
    sql_mode: int
    charset: str | None  # MySQL's name of the text's character set
    error: int  # the server's error code, 0 for success
    variables: Variables

    @property
    def ansi_quotes(self) -> bool:
        """Whether `"x"` is a name."""
        return bool(self.sql_mode & _SQL_MODE_ANSI_QUOTES)

    @property
    def no_backslash_escapes(self) -> bool:
        """Whether a backslash in a string is an ordinary character."""
        return bool(self.sql_mode & _SQL_MODE_NO_BACKSLASH)

    def explicit_timestamp(self, *, mariadb: bool) -> bool | None:
        """Return explicit_defaults_for_timestamp, None when the event has no value."""
        flags2 = self.variables.flags2
        if mariadb:
            return None if flags2 is None else bool(flags2 & _FLAG_EXPLICIT_TIMESTAMP)
        return self.variables.explicit_timestamp


def parse_query(body: bytes, *, load: bool = False) -> Query:
    """Parse a QUERY event's body; `load`: an EXECUTE_LOAD_QUERY, 13 bytes longer.

    Raises DecodeError when it is truncated.
    """
    source = CheckedBytes(body, "a statement's event")
    thread_id, _, schema_n, error, status_n = POST_HEADER.unpack(
        source.take(POST_HEADER.size)
    )
    if load:
        source.take(_LOAD_BYTES)
    variables = _variables(source.take(status_n))
    schema = source.text(schema_n)  # names are UTF-8 in the binlog
    source.take(1)
    client = variables.collations[0]
    charset = charset_of_collation(client) if client else None
    text = source.rest()
    if _is_utf8_of_server(text):
        charset = "utf8mb4"
    sql = decode_sql(text, charset)
    return Query(thread_id, schema, sql, variables.sql_mode, charset, error, variables)


def context_of(
    query: Query, server_version: str, *, restarted: bool = False
) -> Context:
    """Return the context that decides how a statement changed tables.

    Collations are given by id, as text. `restarted`: the server restarted after the
    previous statement.
    """
    mariadb = "maria" in server_version.lower()
    _, connection, server = query.variables.collations
    return Context(
        mariadb=mariadb,
        server_version=version_number(server_version),
        sql_mode=query.sql_mode,
        charset_client=query.charset,
        collation_connection=_number(connection),
        collation_server=_number(server),
        collation_database=_number(query.variables.collation_database),
        collation_utf8mb4=_number(query.variables.collation_utf8mb4),
        explicit_timestamp=query.explicit_timestamp(mariadb=mariadb),
        error=query.error,
        thread_id=query.thread_id,
        restarted=restarted,
    )


def _number(collation: int) -> str | None:
    return str(collation) if collation else None


def _variables(status: bytes) -> Variables:
    """Parse the status variables; those that the event omits keep their defaults."""
    found = Variables()
    at = 0
    while at < len(status):
        code = status[at]
        at += 1
        size = _VARIABLE_BYTES.get(code)
        if size is not None:
            _note_variable(found, code, status[at : at + size])
            at += size
        elif code in _SHORT_TEXTS and at < len(status):
            at += 1 + status[at] + _SHORT_TEXTS[code]
        elif code == _Q_INVOKER and at < len(status):
            at += 1 + status[at]
            at += 1 + status[at] if at < len(status) else 0
        elif code == _Q_UPDATED_SCHEMAS and at < len(status):
            at = _end_of_names(status, at + 1, status[at])
        else:
            break  # an unknown variable has no known length; the known ones come first
    return found


def _end_of_names(status: bytes, at: int, number: int) -> int:
    """Return the offset after that many names."""
    if number == _TOO_MANY_SCHEMAS:
        return at
    for _ in range(number):
        end = status.find(b"\0", at)
        if end < 0:
            return len(status)
        at = end + 1
    return at


def _note_variable(found: Variables, code: int, value: bytes) -> None:
    number = int.from_bytes(value, "little")
    if code == _Q_FLAGS2:
        found.flags2 = number
    elif code == _Q_SQL_MODE:
        found.sql_mode = number
    elif code == _Q_CHARSET:
        found.collations = (number & 0xFFFF, number >> 16 & 0xFFFF, number >> 32)
    elif code == _Q_CHARSET_DATABASE:
        found.collation_database = number
    elif code == _Q_EXPLICIT_TIMESTAMP:
        found.explicit_timestamp = bool(number)
    elif code == _Q_COLLATION_UTF8MB4:
        found.collation_utf8mb4 = number


def _is_utf8_of_server(text: bytes) -> bool:
    """Detect a CREATE TABLE written by the server: UTF-8 in any client charset.

    The server writes it for CREATE TABLE … SELECT and when it adds a primary key. A
    client may send the same form, so bytes that are not valid UTF-8 are the client's.
    """
    if text.isascii() or not _WRITTEN_BY_SERVER.match(text):
        return False
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


_WRITTEN_BY_SERVER: Final = re.compile(
    rb"CREATE (?:OR REPLACE )?(?:TEMPORARY )?TABLE (?:IF NOT EXISTS )?"
    rb"(?P<quote>[`\"])[^\n]*(?P=quote) \(\n  (?P=quote)"
)


def decode_sql(text: bytes, charset: str | None) -> str:
    """Return a statement's text; bytes that are invalid in its charset are replaced."""
    codec = _CODECS.get(charset or "")
    if codec is None:
        try:
            return text.decode("utf-8")
        except UnicodeDecodeError:
            return text.decode("latin-1")
    if codec == "cp1252":
        # MySQL's latin1 maps the five holes of cp1252 to control characters.
        return (
            "".join(
                chr(byte) if byte in _CP1252_HOLES else bytes((byte,)).decode("cp1252")
                for byte in text
            )
            if any(byte in _CP1252_HOLES for byte in text)
            else text.decode("cp1252")
        )
    return text.decode(codec, "replace")


_CP1252_HOLES: Final = frozenset(b"\x81\x8d\x8f\x90\x9d")


def intvar_sql(body: bytes) -> str:
    """Return the statement equivalent to an INTVAR event."""
    source = CheckedBytes(body, "an INTVAR event")
    name = "LAST_INSERT_ID" if source.number(1) == 1 else "INSERT_ID"
    return f"SET {name} = {source.number(8)}"


def rand_sql(body: bytes) -> str:
    """Return the statement equivalent to a RAND event."""
    source = CheckedBytes(body, "a RAND event")
    first, second = source.number(8), source.number(8)
    return f"SET SESSION rand_seed1 = {first} , rand_seed2 = {second}"


def user_var_sql(body: bytes) -> str:
    """Return the statement equivalent to a USER_VAR event.

    Body: length of name u32, name, is null u8; unless null: type u8, collation u32,
    length u32, value, flags u8.
    """
    source = CheckedBytes(body, "a USER_VAR event")
    name = source.text(source.number(4))
    if source.number(1):
        return f"SET @{name} := NULL"
    kind, collation = source.number(1), source.number(4)
    value = source.take(source.number(4))
    unsigned = source.rest()[:1] == b"\x01"
    return f"SET @{name} := {_user_value(kind, collation, value, unsigned=unsigned)}"


def _user_value(kind: int, collation: int, value: bytes, *, unsigned: bool) -> str:
    if kind == _REAL_RESULT:
        (number,) = struct.unpack("<d", CheckedBytes(value, "a user variable").take(8))
        return repr(number)
    if kind == _INT_RESULT:
        return str(int.from_bytes(value, "little", signed=not unsigned))
    if kind == _DECIMAL_RESULT:
        return _user_decimal(value)
    text = decode_sql(value, charset_of_collation(collation))
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _user_decimal(value: bytes) -> str:
    """Return the number of a packed decimal that starts with precision and scale."""
    source = CheckedBytes(value, "a user variable")
    precision, scale = source.number(1), source.number(1)
    if not 0 < precision <= _DECIMAL_DIGITS_MAX or scale > precision:
        raise DecodeError(f"invalid user variable type decimal({precision},{scale})")
    raw = bytearray(source.rest())
    if not raw:
        raise DecodeError("user variable without a value")
    negative = not raw[0] & 0x80
    raw[0] ^= 0x80
    if negative:
        raw = bytearray(byte ^ 0xFF for byte in raw)
    groups = CheckedBytes(bytes(raw), "a user variable")
    whole_n = precision - scale
    widths = [whole_n % 9, *[9] * (whole_n // 9), *[9] * (scale // 9), scale % 9]
    digits = ""
    for width in filter(None, widths):
        number = int.from_bytes(groups.take(_GROUP_BYTES[width]), "big")
        digits += f"{number:0{width}}"
    whole = digits[:whole_n].lstrip("0") or "0"
    text = whole + ("." + digits[whole_n:] if scale else "")
    return "-" + text if negative else text


# By event code: how to get a statement's text from an event.
LOGGED: Final[dict[int, Callable[[bytes], str]]] = {
    5: intvar_sql,
    13: rand_sql,
    14: user_var_sql,
    160: lambda body: decode_sql(body, None),  # ANNOTATE_ROWS
}
