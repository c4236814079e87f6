"""Types of columns with random values, and canal's text of what SELECT shows of each.

Leaves out the tables that are made of them (`random_schema`).
"""

# ruff: noqa: ARG001  # all makers are called alike

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from canal_server.source.read.compare_values import decimal_text, java_float

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

CHARSETS = (
    "utf8mb4", "utf8mb4", "utf8mb4", "utf8mb3", "latin1", "latin2", "cp1251", "ascii",
    "ucs2", "utf16", "utf16le", "utf32", "gbk", "big5", "sjis", "ujis", "euckr",
    "greek", "hebrew", "koi8r", "cp1250", "cp1256", "cp1257", "cp850", "cp852",
    "cp866", "cp932", "eucjpms", "gb2312", "hp8", "keybcs2", "koi8u", "latin5",
    "latin7", "macce", "macroman", "swe7", "tis620", "armscii8", "dec8",
)  # fmt: skip
LETTERS = "aZ09 ~'\\\"%_\n\t\0éßøŁčΩЖאع中文日本語한국가ｱ€\u2013“\u00a0😀"


def as_text(value: Any) -> str:
    """Return what a driver gave as text."""
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


@dataclass(frozen=True)
class Kind:
    """A type of column with its values: literals in, canal's text out."""

    definition: str
    literal: Callable[[random.Random], str]
    select: str = "CAST({c} AS CHAR)"
    text: Callable[[Any], str] = as_text
    normal: Callable[[str], str] = str  # of either text, before they are compared
    is_key: bool = False  # may be part of a key
    generated: bool = False


def integer(rng: random.Random, flavour: str) -> Kind:
    """Return an integer type; of any flavour."""
    name, bits = rng.choice(
        [("tinyint", 8), ("smallint", 16), ("mediumint", 24), ("int", 32),
         ("bigint", 64)]
    )  # fmt: skip
    unsigned = rng.random() < 0.5
    low, high = (
        (0, (1 << bits) - 1) if unsigned else (-1 << bits - 1, (1 << bits - 1) - 1)
    )
    edges = [low, high, 0, 1, high // 2, high // 2 + 1, low + 1]

    def literal(rng: random.Random) -> str:
        return str(rng.choice(edges) if rng.random() < 0.4 else rng.randint(low, high))

    width = rng.choice(["", "", "(1)", "(5)"])
    attributes = " unsigned" * unsigned + " zerofill" * (
        unsigned and rng.random() < 0.2
    )
    return Kind(name + width + attributes, literal, "{c} + 0", is_key=True)


def _decimal(rng: random.Random, flavour: str) -> Kind:
    precision = rng.choice([1, 5, 9, 10, 18, 19, 38, 65, rng.randint(1, 65)])
    scale = min(rng.choice([0, 2, 9, 10, precision, rng.randint(0, 30)]), precision, 30)

    def literal(rng: random.Random) -> str:
        digits = rng.choice([precision, rng.randint(1, precision)])
        number = rng.randrange(10**digits) if rng.random() < 0.8 else 10**digits - 1
        sign = rng.choice(["", "-"])
        return (
            f"{sign}{number / Decimal(1):f}e-{rng.choice([scale, scale, 0])}"
            if (digits < 60)
            else sign + str(number)
        )

    return Kind(
        f"decimal({precision},{scale}){rng.choice(['', '', ' unsigned'])}",
        _plain_decimal(literal),
        text=lambda text: decimal_text(Decimal(as_text(text)), scale),
        is_key=precision < 30,
    )


def _plain_decimal(literal: Callable[[random.Random], str]) -> Any:
    """Write without an exponent: with one, SQL means a double."""

    def plain(rng: random.Random) -> str:
        number, _, exponent = literal(rng).partition("e-")
        digits = int(exponent or 0)
        sign = "-" if number.startswith("-") else ""
        figures = number.lstrip("-").rjust(digits + 1, "0")
        if not digits:
            return sign + figures
        return f"{sign}{figures[:-digits]}.{figures[-digits:]}"

    return plain


def _float(rng: random.Random, flavour: str) -> Kind:
    single = rng.random() < 0.5
    code, size = ("<f", 4) if single else ("<d", 8)

    def literal(rng: random.Random) -> str:
        if rng.random() < 0.3:
            return rng.choice(
                ["0", "-0e0", "1e7", "9999999", "1e-3", "0.00099", "123456.789", "0.1",
                 "3.4028234663852886e38", "1.1754943508222875e-38", "1.4e-45"]
            )  # fmt: skip
        while True:
            (value,) = struct.unpack(code, rng.randbytes(size))
            if abs(value) < 1e308:  # and no NaN
                return repr(value)

    name = "float" if single else "double"
    attributes = rng.choice(["", "", " unsigned", "(12,3)"])
    return Kind(
        name + attributes,
        literal,
        "{c} * 1e0",
        lambda value: java_float(float(value), single=single),
    )


def _bit(rng: random.Random, flavour: str) -> Kind:
    bits = rng.choice([1, 7, 8, 9, 31, 63, 64])
    return Kind(
        f"bit({bits})",
        lambda rng: str(rng.choice([0, 1, (1 << bits) - 1, rng.getrandbits(bits)])),
        "CAST({c} AS UNSIGNED)",
    )


def _fraction(rng: random.Random) -> tuple[str, int]:
    digits = rng.choice([0, 0, 1, 2, 3, 4, 5, 6])
    return (f"({digits})" if digits else ""), digits


def _random_clock(rng: random.Random) -> str:
    return (
        f"{rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}"
        f".{rng.choice([0, 1, 499999, 500000, 999999, rng.randrange(10**6)]):06}"
    )


def _datetime(rng: random.Random, flavour: str) -> Kind:
    suffix, _ = _fraction(rng)

    def literal(rng: random.Random) -> str:
        if rng.random() < 0.2:
            return rng.choice(
                ["'0000-00-00 00:00:00'", "'2024-00-00 10:00:00'",
                 "'2024-02-00 00:00:00'", "'1000-01-01 00:00:00'",
                 "'9999-12-31 23:59:59'", "'0001-01-01 00:00:00.5'"]
            )  # fmt: skip
        year = rng.choice([rng.randint(1, 9999), rng.randint(1970, 2040)])
        date = f"{year:04}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
        return f"'{date} {_random_clock(rng)}'"

    return Kind(f"datetime{suffix}", literal, is_key=True)


def _timestamp(rng: random.Random, flavour: str) -> Kind:
    suffix, digits = _fraction(rng)

    def literal(rng: random.Random) -> str:
        if rng.random() < 0.2:
            return rng.choice(
                ["'0000-00-00 00:00:00'", "'1970-01-01 00:00:01'",
                 "'2038-01-19 03:14:07'", "'2024-03-10 06:59:59.999999'",
                 "'2024-11-03 05:30:00'", "'2024-11-03 06:30:00'"]
            )  # fmt: skip
        date = f"{rng.randint(1971, 2037)}-{rng.randint(1, 12):02}"
        return f"'{date}-{rng.randint(1, 28):02} {_random_clock(rng)}'"

    return Kind(
        f"timestamp{suffix} NULL",
        literal,
        "UNIX_TIMESTAMP({c})",
        partial(timestamp_text, digits=digits),
    )


def timestamp_text(value: Any, digits: int) -> str:
    """Return canal's text of seconds since 1970, in the zone of this machine."""
    seconds, _, fraction = str(Decimal(value)).partition(".")
    local = datetime.fromtimestamp(int(seconds), UTC).astimezone()
    moment = local.strftime("%Y-%m-%d %H:%M:%S")
    if int(seconds) == 0:
        moment = "0000-00-00 00:00:00"
    return moment + (f".{fraction:0<6}"[: digits + 1] if digits else "")


def _time(rng: random.Random, flavour: str) -> Kind:
    suffix, _ = _fraction(rng)

    def literal(rng: random.Random) -> str:
        if rng.random() < 0.3:
            return rng.choice(
                ["'00:00:00'", "'838:59:59'", "'-838:59:59'", "'-00:00:00.5'",
                 "'-00:00:00.000001'", "'100:00:00'", "'-100:00:00.999999'"]
            )  # fmt: skip
        sign, hour = rng.choice(["", "-"]), rng.randint(0, 838)
        return f"'{sign}{hour:02}{_random_clock(rng)[2:]}'"

    return Kind(f"time{suffix}", literal, is_key=True)


def _date(rng: random.Random, flavour: str) -> Kind:
    def literal(rng: random.Random) -> str:
        if rng.random() < 0.2:
            return rng.choice(["'0000-00-00'", "'2024-00-00'", "'9999-12-31'"])
        return f"'{rng.randint(1, 9999):04}-{rng.randint(1, 12)}-{rng.randint(1, 28)}'"

    return Kind("date", literal, is_key=True)


def _year(rng: random.Random, flavour: str) -> Kind:
    return Kind(
        "year",
        lambda rng: str(rng.choice([0, 1901, 2155, rng.randint(1901, 2155)])),
        text=lambda value: as_text(value).zfill(4),
    )


def _characters(rng: random.Random, count: int) -> str:
    length = rng.choice([0, 1, count, rng.randint(0, count)])
    letters = LETTERS[:8] if rng.random() < 0.4 else LETTERS
    return "".join(rng.choice(letters) for _ in range(length))


def _text_literal(count: int) -> Callable[[random.Random], str]:
    def literal(rng: random.Random) -> str:
        data = _characters(rng, count).encode()
        return f"_utf8mb4 0x{data.hex()}" if data else "''"

    return literal


def _string(rng: random.Random, flavour: str) -> Kind:
    charset = rng.choice(CHARSETS)
    name, count = rng.choice(
        [("char", 1), ("char", 10), ("char", 63), ("char", 64), ("char", 255),
         ("varchar", 1), ("varchar", 20), ("varchar", 63), ("varchar", 64),
         ("varchar", 255), ("varchar", 256), ("varchar", 1000)]
    )  # fmt: skip
    return Kind(
        f"{name}({count}) CHARACTER SET {charset}",
        _text_literal(min(count, 120)),
        "CONVERT({c} USING utf8mb4)",
        is_key=count <= 64,
    )


def _long_text(rng: random.Random, flavour: str) -> Kind:
    charset = rng.choice(CHARSETS)
    size = rng.choice(["tiny", "", "medium", "long"])
    ordinary = _text_literal(40)

    def literal(rng: random.Random) -> str:
        if size != "tiny" and rng.random() < 0.05:
            return f"REPEAT('long ', {rng.choice([60, 13000])})"
        return ordinary(rng)

    return Kind(
        f"{size}text CHARACTER SET {charset}", literal, "CONVERT({c} USING utf8mb4)"
    )


def octets(value: Any) -> str:
    """Return canal's text of what HEX shows."""
    return bytes.fromhex(as_text(value)).decode("latin-1")


def _bytes_literal(count: int) -> Callable[[random.Random], str]:
    def literal(rng: random.Random) -> str:
        data = rng.randbytes(rng.choice([0, 1, count, rng.randint(0, count)]))
        data += bytes(rng.choice([0, 0, 1, 3]))  # ends with zeros
        return f"0x{data[:count].hex()}" if data[:count] else "''"

    return literal


def _binary(rng: random.Random, flavour: str) -> Kind:
    count = rng.choice([1, 16, 255])
    return Kind(
        f"binary({count})",
        _bytes_literal(count),
        "HEX({c})",
        lambda value: octets(value).rstrip("\0"),
    )


def _varbinary(rng: random.Random, flavour: str) -> Kind:
    name, count = rng.choice(
        [("varbinary(16)", 16), ("varbinary(255)", 200), ("varbinary(300)", 300),
         ("tinyblob", 200), ("blob", 300), ("mediumblob", 300), ("longblob", 300)]
    )  # fmt: skip
    return Kind(name, _bytes_literal(count), "HEX({c})", octets)


def _enum(rng: random.Random, flavour: str) -> Kind:
    count = rng.choice([1, 3, 255, 256, 700])
    labels = ",".join(f"'m{n}{rng.choice(['', 'é', ' x'])}'" for n in range(count))
    charset = rng.choice(["utf8mb4", "latin1"])
    return Kind(
        f"enum({labels}) CHARACTER SET {charset}",
        lambda rng: str(rng.choice([0, 1, count, rng.randint(1, count)])),
        "CAST({c} AS UNSIGNED)",
    )


def _set(rng: random.Random, flavour: str) -> Kind:
    count = rng.choice([1, 8, 9, 17, 33, 64])
    labels = ",".join(f"'s{n}'" for n in range(count))
    return Kind(
        f"set({labels})",
        lambda rng: str(rng.choice([0, 1, (1 << count) - 1, rng.getrandbits(count)])),
        "CAST({c} AS UNSIGNED)",
    )


def _random_document(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(9 if depth < 3 else 7)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind in (1, 2):
        bits = rng.choice([7, 15, 16, 31, 32, 63])
        return rng.choice([-1, 1]) * rng.getrandbits(bits)
    if kind == 3:
        return rng.choice([0.1, -1e300, 1e-5, 123456789.5, rng.uniform(-1e9, 1e9)])
    if kind in (4, 5, 6):
        return _characters(rng, rng.choice([5, 20, 150]))
    if kind == 7:
        return [_random_document(rng, depth + 1) for _ in range(rng.randrange(6))]
    return {
        _characters(rng, 12): _random_document(rng, depth + 1)
        for _ in range(rng.randrange(6))
    }


def _json(rng: random.Random, flavour: str) -> Kind:
    def literal(rng: random.Random) -> str:
        if rng.random() < 0.15:
            return rng.choice(
                ["CAST(CAST(1.50 AS DECIMAL(10,2)) AS JSON)", "JSON_ARRAY()",
                 "JSON_OBJECT('t', CAST('2024-01-02 03:04:05.6' AS DATETIME(6)))",
                 "JSON_ARRAY(CAST('-10:00:00.25' AS TIME(2)), 18446744073709551615)",
                 "JSON_ARRAY(REPEAT('x', 70000), 1)", "CAST('null' AS JSON)"]
            )  # fmt: skip
        text = json.dumps(_random_document(rng), ensure_ascii=False)
        return f"CONVERT(0x{text.encode().hex()} USING utf8mb4)"

    return Kind("json", literal, normal=same_document)


def same_document(text: str) -> str:
    """Return one text for all that mean one document."""
    return json.dumps(json.loads(text), sort_keys=True)


def _geometry(rng: random.Random, flavour: str) -> Kind:
    def literal(rng: random.Random) -> str:
        x, y = rng.randint(-80, 80), rng.uniform(-80, 80)
        shape = rng.choice([f"POINT({x} {y})", f"LINESTRING({x} {y},0 0,1 1)",
                            f"MULTIPOINT({x} {y},1 1)"])  # fmt: skip
        return f"ST_GeomFromText('{shape}', {rng.choice([0, 4326])})"

    return Kind("geometry", literal, "HEX({c})", octets)


def _vector(rng: random.Random, flavour: str) -> Kind:
    def literal(rng: random.Random) -> str:
        numbers = ",".join(str(rng.uniform(-9, 9)) for _ in range(rng.randint(1, 4)))
        return f"STRING_TO_VECTOR('[{numbers}]')"

    return Kind("vector(4)", literal, "HEX({c})", octets)


def _address(rng: random.Random, flavour: str) -> Kind:
    name = rng.choice(["uuid", "inet6", "inet4"])

    def literal(rng: random.Random) -> str:
        if name == "inet4":
            return f"'{'.'.join(str(rng.choice([0, 1, 255])) for _ in range(4))}'"
        if name == "inet6":
            groups = (rng.choice(["0", "0", "ffff", "1", "a0b"]) for _ in range(8))
            return f"'{':'.join(groups)}'"
        text = rng.randbytes(16).hex()
        parts = text[:8], text[8:12], text[12:16], text[16:20], text[20:]
        return f"'{'-'.join(parts)}'"

    return Kind(name, literal)


def _compressed(rng: random.Random, flavour: str) -> Kind:
    kind = rng.choice(["varchar(200)", "text", "blob"])
    if kind == "blob":
        return Kind("blob COMPRESSED", _bytes_literal(300), "HEX({c})", octets)
    charset = rng.choice(["utf8mb4", "latin1"])
    ordinary = _text_literal(40)

    def literal(rng: random.Random) -> str:
        return "REPEAT('ab', 90)" if rng.random() < 0.4 else ordinary(rng)

    return Kind(
        f"{kind} COMPRESSED CHARACTER SET {charset}",
        literal,
        "CONVERT({c} USING utf8mb4)",
    )


ORDINARY = (
    integer, integer, integer, _decimal, _decimal, _float, _bit, _datetime,
    _timestamp, _time, _date, _year, _string, _string, _string, _long_text, _binary,
    _varbinary, _enum, _set, _geometry,
)  # fmt: skip
# What mysql-replication cannot read stands apart.
EXTRAS = {"mysql": (_json, _vector), "mariadb": (_address, _compressed)}
# What the server must be able to for it (`server_features`).
FEATURES = {
    _json: "columns of type JSON",
    _vector: "columns of type VECTOR",
    _address: "columns of type INET4",
    _compressed: "compressed columns",
}
