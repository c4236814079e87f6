"""Events that Python reads: statements, and what statement format logs beside them.

Bytes in, values out; leaves out what is delivered for them (`dump.reader`).
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final

from canal_server.decoder.charset_names import charset_of_collation
from canal_server.errors import DecodeError

_POST_HEADER: Final = struct.Struct("<IIBHH")
_SQL_MODE_ANSI_QUOTES: Final = 1 << 2
_SQL_MODE_NO_BACKSLASH: Final = 1 << 20

# Status variables in front of those that are read here, with their bytes; None:
# read by `_variables` itself. The order is that of the codes, not of the event.
_Q_SQL_MODE: Final = 1
_Q_CHARSET: Final = 4
_VARIABLE_BYTES: Final = {
    0: 4, 1: 8, 3: 4, 4: 6, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3, 14: 8, 15: 8, 16: 1,
    17: 8, 18: 2, 19: 1, 20: 1, 128: 3, 129: 8,
}  # fmt: skip
_SHORT_TEXTS: Final = {2: 1, 5: 0, 6: 0}  # code -> bytes behind the text
_Q_INVOKER: Final = 11

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


@dataclass(frozen=True, slots=True)
class Query:
    """A statement in the context that the binlog gives it."""

    thread_id: int
    schema: str
    sql: str
    sql_mode: int
    charset: str | None  # MySQL's name of the client's character set

    @property
    def ansi_quotes(self) -> bool:
        """Whether `"x"` is a name."""
        return bool(self.sql_mode & _SQL_MODE_ANSI_QUOTES)

    @property
    def no_backslash_escapes(self) -> bool:
        """Whether a backslash in a string stands for itself."""
        return bool(self.sql_mode & _SQL_MODE_NO_BACKSLASH)


def parse_query(body: bytes, *, load: bool = False) -> Query:
    """Read a QUERY event's body; `load`: an EXECUTE_LOAD_QUERY, 13 bytes longer.

    Raises DecodeError when it ends early.
    """
    if len(body) < _POST_HEADER.size:
        raise DecodeError(f"a statement's event of {len(body)} bytes")
    thread_id, _, schema_n, _, status_n = _POST_HEADER.unpack_from(body)
    at = _POST_HEADER.size + (13 if load else 0)
    status = body[at : at + status_n]
    schema = body[at + status_n : at + status_n + schema_n]
    text = body[at + status_n + schema_n + 1 :]
    sql_mode, collation = _variables(status)
    charset = charset_of_collation(collation) if collation else None
    return Query(
        thread_id, decode_name(schema), decode_sql(text, charset), sql_mode, charset
    )


def _variables(status: bytes) -> tuple[int, int]:
    """Return sql_mode and the client's collation id; 0 where they are not told."""
    at = sql_mode = collation = 0
    while at < len(status):
        code = status[at]
        at += 1
        if code == _Q_SQL_MODE:
            sql_mode = int.from_bytes(status[at : at + 8], "little")
        elif code == _Q_CHARSET:
            collation = int.from_bytes(status[at : at + 2], "little")
        if code in _VARIABLE_BYTES:
            at += _VARIABLE_BYTES[code]
        elif code in _SHORT_TEXTS and at < len(status):
            at += 1 + status[at] + _SHORT_TEXTS[code]
        elif code == _Q_INVOKER and at < len(status):
            at += 1 + status[at]
            at += 1 + status[at] if at < len(status) else 0
        else:
            break  # the length of an unknown one is unknown; those above come first
    return sql_mode, collation


def decode_sql(text: bytes, charset: str | None) -> str:
    """Return a statement's text; bytes that are none of its charset are replaced."""
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


def decode_name(name: bytes) -> str:
    """Return the text of a schema's or table's name: names are UTF-8 in the binlog."""
    return name.decode("utf-8", "replace")


def intvar_sql(body: bytes) -> str:
    """Return the statement that stands for an INTVAR event."""
    if len(body) < 9:  # noqa: PLR2004  # kind and value
        raise DecodeError(f"an INTVAR event of {len(body)} bytes")
    name = "LAST_INSERT_ID" if body[0] == 1 else "INSERT_ID"
    return f"SET {name} = {int.from_bytes(body[1:9], 'little')}"


def rand_sql(body: bytes) -> str:
    """Return the statement that stands for a RAND event."""
    if len(body) < 16:  # noqa: PLR2004  # two seeds
        raise DecodeError(f"a RAND event of {len(body)} bytes")
    first, second = struct.unpack_from("<QQ", body)
    return f"SET SESSION rand_seed1 = {first} , rand_seed2 = {second}"


def user_var_sql(body: bytes) -> str:
    """Return the statement that stands for a USER_VAR event.

    Body: length of name u32, name, is null u8; unless null: type u8, collation u32,
    length u32, value, flags u8.
    """
    try:
        (name_n,) = struct.unpack_from("<I", body)
        name = body[4 : 4 + name_n].decode("utf-8", "replace")
        at = 4 + name_n
        if body[at]:
            return f"SET @{name} := NULL"
        kind, collation, size = struct.unpack_from("<BII", body, at + 1)
        value = body[at + 10 : at + 10 + size]
        unsigned = body[at + 10 + size : at + 11 + size] == b"\x01"
    except (struct.error, IndexError) as error:
        raise DecodeError(f"a USER_VAR event of {len(body)} bytes") from error
    return f"SET @{name} := {_user_value(kind, collation, value, unsigned=unsigned)}"


def _user_value(kind: int, collation: int, value: bytes, *, unsigned: bool) -> str:
    if kind == 1:
        (number,) = struct.unpack("<d", value)
        return repr(number)
    if kind == 2:  # noqa: PLR2004  # INT_RESULT of the server's Item_result
        return str(int.from_bytes(value, "little", signed=not unsigned))
    if kind == 4:  # noqa: PLR2004  # DECIMAL_RESULT
        return _user_decimal(value)
    text = decode_sql(value, charset_of_collation(collation))
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _user_decimal(value: bytes) -> str:
    """Return the number of a packed decimal with precision and scale in front."""
    precision, scale = value[0], value[1]
    sizes = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    raw = bytearray(value[2:])
    negative = not raw[0] & 0x80
    raw[0] ^= 0x80
    if negative:
        raw = bytearray(byte ^ 0xFF for byte in raw)
    digits = ""
    at = 0
    head, tail = (precision - scale) % 9, scale % 9
    groups = [head] * bool(head) + [9] * ((precision - scale) // 9)
    fraction = [9] * (scale // 9) + [tail] * bool(tail)
    for width in groups + fraction:
        size = sizes[width]
        digits += f"{int.from_bytes(raw[at : at + size], 'big'):0{width}}"
        at += size
    whole = digits[: precision - scale].lstrip("0") or "0"
    text = whole + ("." + digits[precision - scale :] if scale else "")
    return "-" + text if negative else text


def inflate(data: bytes, *, bytes_max: int = 1 << 30) -> bytes:
    """Undo MariaDB's compression of an event's tail (log_bin_compress).

    First byte: bit 7 set, bits 4-6 the algorithm (0: zlib), bits 0-2 how many bytes
    hold the length, big-endian; then zlib data. Raises DecodeError.
    """
    if not data or data[0] & 0xF0 != 0x80:  # noqa: PLR2004  # bit 7, zlib
        raise DecodeError(f"compressed with an unknown algorithm ({data[:1].hex()})")
    length_n = data[0] & 7
    length = int.from_bytes(data[1 : 1 + length_n], "big")
    if length > bytes_max:
        raise DecodeError(f"{length} bytes when inflated, above {bytes_max}")
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(data[1 + length_n :], length + 1)
    except zlib.error as error:
        raise DecodeError("compressed data that cannot be inflated") from error
    if len(plain) != length:
        raise DecodeError(f"{len(plain)} bytes when inflated, expected {length}")
    return plain


def inflated_query(body: bytes) -> bytes:
    """Return the body of the QUERY event that a QUERY_COMPRESSED one stands for."""
    _, _, schema_n, _, status_n = _POST_HEADER.unpack_from(body)
    at = _POST_HEADER.size + status_n + schema_n + 1
    return body[:at] + inflate(body[at:])


def inflated_rows(body: bytes, *, second_version: bool, update: bool) -> bytes:
    """Return the body of the row event that a compressed one stands for."""
    at = 8
    if second_version:
        at += int.from_bytes(body[8:10], "little")
    width, size = _packed(body, at)
    at += size + (width + 7) // 8 * (2 if update else 1)
    return body[:at] + inflate(body[at:])


def _packed(data: bytes, at: int) -> tuple[int, int]:
    """Return a length-encoded integer and the bytes it takes."""
    first = data[at]
    if first < 251:  # noqa: PLR2004  # the integer itself
        return first, 1
    size = {252: 2, 253: 3, 254: 8}.get(first, 0)
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), 1 + size
