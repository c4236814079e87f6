"""Values of other types than a stream has: the same value, or none."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from fix_random import longer

from canal_server.arrow.conversions import READINGS, converted
from canal_server.arrow.put_values import KINDS
from canal_server.arrow.type_pairs import reading_of
from canal_server.decoder.text.number_text import double_text, float_text

if TYPE_CHECKING:
    import random


@pytest.mark.parametrize(
    ("reading", "text", "found"),
    [
        ("digits", "1062072888.0", "1062072888"), ("digits", "-5.50", "-5.5"),
        ("digits", "0.0", "0"), ("digits", "-0", "0"), ("digits", "007", "7"),
        ("digits", "0.05", "0.05"), ("digits", "0.5", "0.5"), ("digits", "10", "10"),
        ("digits", "1.0E3", "1000"), ("digits", "1.5E-3", "0.0015"),
        ("digits", "9" * 65, "9" * 65), ("digits", "9" * 81, None),
        ("digits", "1E90", None), ("digits", "1E-99", None), ("digits", "", None),
        ("digits", ".", None), ("digits", "-", None), ("digits", "1.2.3", None),
        ("digits", "1E", None), ("digits", "1E-", None), ("digits", "1E+1", None),
        ("digits", " 1", None), ("digits", "12:00:00", None), ("digits", "x", None),
        ("digits", "0" * 401, None),
        ("of double", "1.0E10", "10000000000"), ("of double", "0.1", "0.1"),
        ("of double", "-0.0", "0"), ("of double", "-2.5", "-2.5"),
        ("of double", "1.15292150460684698E18", "1152921504606846976"),
        ("of double", "1.0E300", None), ("of double", "Infinity", None),
        ("of double", "NaN", None),
        ("of float", "0.1", "0.1"), ("of float", "1.6777216E7", "16777216"),
        ("of float", "1.0E20", "100000002004087734272"),
        ("as double", "0.1", "0.1"), ("as double", "5.00", "5.0"),
        ("as double", "123456789012345.6", "1.234567890123456E14"),
        ("as double", "9007199254740993", None), ("as double", "1" + "0" * 400, None),
        ("as double", "1152921504606846976", "1.152921504606847E18"),
        ("as double", "1152921504606846977", None), ("as double", "0", "0.0"),
        ("as double", "0.12345678901234567890", None), ("as double", "x", None),
        ("as float", "0.1", "0.1"), ("as float", "16777217", None),
        ("as float", "16777216", "1.6777216E7"), ("as float", "1.23456789", None),
        ("widened", "0.1", "0.10000000149011612"), ("widened", "x", None),
        ("narrowed", "0.5", "0.5"), ("narrowed", "0.1", None),
        ("narrowed", "1.0E300", None), ("narrowed", "NaN", None),
        ("narrowed", "3.4028234663852886E38", "3.4028235E38"),
        ("midnight", "2024-02-29", "2024-02-29 00:00:00"), ("midnight", "x", None),
        ("day", "2024-02-29 00:00:00", "2024-02-29"),
        ("day", "2024-02-29 00:00:00.000", "2024-02-29"),
        ("day", "2024-02-29 00:00:00.001", None), ("day", "2024-02-29 00:00:01", None),
        ("day", "2024-02-29", None),
        ("day text", "2024-02-29", "2024-02-29"), ("day text", "2023-02-29", None),
        ("moment text", "2024-02-29 01:02:03.5", "2024-02-29 01:02:03.5"),
        ("moment text", "0000-00-00 00:00:00", None), ("never", "1", None),
        ("json", "", "null"), ("json", "[1]", "[1]"),
    ],
)  # fmt: skip
def test_texts(reading: str, text: str, found: str | None) -> None:
    """Each way of reading gives the text of the same value, or nothing."""
    given = converted(reading, text.encode())
    assert (given and given.decode()) == found


def test_doubles_there_and_back(rng: random.Random) -> None:
    """A DOUBLE's decimal reads back as that DOUBLE; so does a widened FLOAT."""
    for _ in range(longer(3000)):
        double = rng.uniform(-1, 1) * 10.0 ** rng.randint(-20, 37)
        digits = converted("of double", double_text(double).encode())
        assert digits is not None
        assert float(digits) == double
        again = converted("as double", digits)
        assert again is not None
        assert float(again) == double
        (single,) = struct.unpack("<f", rng.randbytes(4))
        if math.isfinite(single):
            wide = converted("widened", float_text(single).encode())
            assert wide is not None
            assert float(wide) == single
            assert converted("narrowed", wide) == float_text(single).encode()


def test_decimals_in_doubles(rng: random.Random) -> None:
    """Up to 15 digits always have a DOUBLE; others are an error, never rounded."""
    for _ in range(longer(3000)):
        count = rng.randint(1, 30)
        value = Decimal(rng.randrange(10**count)).scaleb(-rng.randint(0, count))
        text = f"{value:f}"
        found = converted("as double", text.encode())
        if count <= 15:
            assert found is not None
        near = Decimal(double_text(float(text)).replace("E", "e"))
        holds = value in (near, Decimal(float(text)))
        holds = holds and (value == near or value == value.to_integral())
        assert (found is not None) == holds, text


@pytest.mark.parametrize(
    ("mysql_type", "kind", "reading"),
    [
        ("decimal(12,1)", "int64", "digits"), ("DECIMAL(9,2)", "decimal", "plain"),
        ("int", "int8", "plain"), ("int unsigned", "double", "as double"),
        ("float", "float", "plain"), ("float(7,2)", "double", "widened"),
        ("double", "float", "narrowed"), ("double", "int32", "of double"),
        ("date", "datetime", "midnight"), ("datetime(6)", "datetime", "plain"),
        ("datetime", "timestamp", "never"), ("timestamp(3)", "timestamp", "plain"),
        ("timestamp", "text", "never"), ("varchar(9)", "text", "plain"),
        ("varchar(9)", "int32", "digits"), ("blob", "int32", "never"),
        ("enum('a')", "int32", "plain"), ("", "int32", "plain"),
        ("year", "int32", "plain"), ("geometry", "binary", "plain"),
    ],
)  # fmt: skip
def test_pairs(mysql_type: str, kind: str, reading: str) -> None:
    """A type and a stream's kind decide how values are read; equal types, plainly."""
    assert reading_of(mysql_type, KINDS[kind]) == READINGS[reading]
