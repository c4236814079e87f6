"""Values of every SQL type at its extremes, as they come into JSON documents.

Each is an expression; those that need a column of a type name it. `are_same` holds the
text of a document in an entry against that of SELECT.
"""

from __future__ import annotations

import json
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Where the number of bytes that hold a length grows, in JSON (7 bits a byte) and in
# MySQL's own form; where a document takes the large format.
LENGTHS = (0, 1, 2, 3, 127, 128, 250, 251, 255, 256, 16383, 16384, 65535, 65536,
           2097151, 2097152)  # fmt: skip
DECIMAL_DIGITS_MAX = 65
DECIMAL_SCALE_MAX = 30

_DATES = ("0000-00-00", "2024-00-00", "1000-01-01", "1970-01-01", "9999-12-31")
_TIMES = ("-838:59:59", "-00:00:00.000001", "00:00:00", "00:00:00.499999",
          "99:59:59.999999", "100:00:00", "838:59:59")  # fmt: skip
_MOMENTS = ("0000-00-00 00:00:00", "2024-00-00 01:02:03", "1000-01-01 00:00:00",
            "1970-01-01 00:00:01", "9999-12-31 23:59:59.4")  # fmt: skip
_INTEGERS = tuple(
    sorted(
        {
            sign * (1 << bits) + step
            for bits, sign, step in product(
                (7, 8, 15, 16, 31, 32, 63), (1, -1), (-1, 0, 1)
            )
            if sign * (1 << bits) + step >= -1 << 63
        }
        | {0, (1 << 64) - 1}
    )
)
_DOUBLES = (
    "0e0", "-0e0", "1e0", "1e-3", "9999999e0", "1e7", "1e15", "1e16", "1e22", "1e-5",
    "0.1e0", "1.7976931348623157e308", "-1.7976931348623157e308", "4.9e-324",
    "2.2250738585072014e-308",
    "1e-14",
    "1.5e-15",
    "1e-16",
    "123456.789e-18",
    "1.2345678901234567e-5",
    "123456789012345.6e0",
    "1234567890123456.5e0",
    "12345678901234567e0", "9007199254740993e0", "1e65",
)  # fmt: skip


def decimals() -> Iterator[str]:
    """Give numbers of each precision and scale, and what calculations make of them."""
    for precision in range(1, DECIMAL_DIGITS_MAX + 1):
        for scale in range(min(precision, DECIMAL_SCALE_MAX) + 1):
            whole, fraction = precision - scale, scale
            nines = "9" * whole + ("." + "9" * fraction if fraction else "")
            least = "0." + "1".rjust(fraction, "0") if fraction else "1"
            for text in (nines, "-" + nines, least, "0", "-" + "1" + "0" * (whole - 1)):
                yield f"CAST('{text}' AS DECIMAL({precision},{scale}))"
    digits = "9" * DECIMAL_DIGITS_MAX
    yield from (
        digits, f"-{digits}", f"{digits}.0", f".{'1' * 30}", f"-.{'1' * 30}",
        f"0.{'1' * 40}", f"{'9' * 35}.{'9' * 30}", f"{'9' * 40} + {'9' * 40}",
        f"{'9' * 64} + 0.5", f"{'9' * 60} * 99999", "1.0 / 3", f".{'1' * 30} / 3",
        "0.0 / 7", "-0.0", "1000000000.000000000", "0.000000001", "0.0000000010",
    )  # fmt: skip


def plain() -> Iterator[str]:
    """Give numbers, texts and temporal values that need no column."""
    yield from ("NULL", "TRUE", "FALSE")
    yield from map(str, _INTEGERS)
    yield from _DOUBLES
    yield from (f"CAST('{text}' AS DATE)" for text in _DATES)
    for digits in range(7):
        yield from (f"CAST('{text}' AS TIME({digits}))" for text in _TIMES)
        yield from (f"CAST('{text}' AS DATETIME({digits}))" for text in _MOMENTS)
    yield from (f"REPEAT('x', {n})" for n in LENGTHS)
    yield from (f"REPEAT('\u20ac\"\\n', {n})" for n in (1, 26, 3277))
    yield from (
        "'\\0\\b\\t\\n\\r\\Z\\\\\\'\\\"/'",
        "_utf8mb4 x'7fc280c29fc2a0f09f9880'",
    )


def binary() -> Iterator[str]:
    """Give values of types that JSON does not have and expressions make of bytes."""
    yield from (f"REPEAT(0xfe, {n})" for n in (56, 57, 58, 114, *LENGTHS))
    yield from ("0xff", "b'101'", "UUID_TO_BIN('6ccd780c-baba-1026-9564-5b8c656024db')")


def of_columns() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Give types of columns, and literals for each."""
    for name, size in (("BINARY", 255), ("VARBINARY", 40000)):
        yield (
            f"{name}({size})",
            tuple(f"REPEAT(0xff, {n})" for n in LENGTHS if n <= size),
        )
    for name, size in (
        ("TINY", 255),
        ("", 65535),
        ("MEDIUM", 65536),
        ("LONG", 1 << 24),
    ):
        yield f"{name}BLOB", tuple(f"REPEAT(0xfe, {n})" for n in LENGTHS if n <= size)
        yield f"{name}TEXT", ("''", "REPEAT('y', 128)")
    for bits in (1, 7, 8, 9, 63, 64):
        yield f"BIT({bits})", ("0", "1", str((1 << bits) - 1))
    yield "YEAR", ("0", "1901", "2155")
    yield "ENUM('', 'a', '\u20ac')", ("1", "2", "3")
    yield "SET('a', '\u20ac', 'c')", ("0", "1", "7")
    for digits in range(7):
        yield f"TIMESTAMP({digits}) NULL", (
            "'0000-00-00 00:00:00'", "'1970-01-01 00:00:01'",
            "'2038-01-19 03:14:07'", "'2024-02-29 12:34:56.123456'",
        )  # fmt: skip
    yield "FLOAT", ("0", "-0e0", "3.4028234e38", "-1.17549e-38", "16777216", "0.1")
    yield "TINYINT UNSIGNED", ("0", "255")
    yield "MEDIUMINT", ("-8388608", "8388607")
    yield (
        "GEOMETRY",
        (
            "ST_GeomFromText('POINT(1 -2.5)')",
            "ST_GeomFromText('LINESTRING(0 0, 1e300 1e-300)')",
            "ST_GeomFromText('POLYGON((0 0, 0 3, 3 3, 0 0))')",
        ),
    )
    # Of UTF-16 and the like MySQL makes documents whose texts are no UTF-8.
    for charset in ("latin1", "gbk", "cp1251"):
        yield (
            f"VARCHAR(200) CHARACTER SET {charset}",
            ("''", "'\u00a0z'", "REPEAT('z', 128)"),
        )


def shapes(expression: str) -> tuple[str, str, str]:
    """Return documents with a value: in an object, in an array, and alone."""
    return (
        f"JSON_OBJECT('v', {expression})",
        f"JSON_ARRAY(1, {expression}, 2)",
        f"JSON_EXTRACT(JSON_ARRAY({expression}), '$[0]')",
    )


def are_same(delivered: str, selected: str, *, doubles: bool) -> bool:
    """Return whether an entry has the document that SELECT shows.

    Texts may differ in how characters are escaped and floating point is laid out, and
    in zeros at the end of a fraction.
    """
    number = float if doubles else Decimal
    return _parsed(delivered, number) == _parsed(selected, number)


def _parsed(text: str, number: Callable[[str], object]) -> object:
    def tagged(digits: str) -> tuple[str, object]:  # 1 is not True
        return "number", number(digits)

    return json.loads(text, parse_int=tagged, parse_float=tagged, strict=False)
