"""Values out of the texts of entries, against Python's own readers of them."""

from __future__ import annotations

import math
import struct
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from typing import TYPE_CHECKING

import pytest
from fix_random import longer

from canal_server.arrow.text_values import read_as
from canal_server.decoder.text.number_text import double_text, float_text

if TYPE_CHECKING:
    import random

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # DATETIME has no zone


@pytest.mark.parametrize(
    "value",
    [0, 1, 9, 10, -1, 127, 2**31, -(2**31), 2**63 - 1, -(2**63), 10**18, -(10**18)],
)
def test_integers(value: int) -> None:
    """Every number of 64 bits with a sign is read."""
    assert read_as("int", str(value).encode()) == value


@pytest.mark.parametrize("value", [0, 2**63, 2**64 - 1, 18446744073709551609])
def test_unsigned(value: int) -> None:
    """Every number of 64 bits without a sign is read."""
    assert read_as("unsigned", str(value).encode()) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int", b""), ("int", b"-"), ("int", b"--1"), ("int", b"1-"), ("int", b" 1"),
        ("int", b"1.0"), ("int", b"x"), ("int", b"9223372036854775808"),
        ("int", b"-9223372036854775809"), ("unsigned", b"-1"), ("unsigned", b"+1"),
        ("unsigned", b"18446744073709551616"), ("unsigned", b"99999999999999999999"),
        ("unsigned", b"100000000000000000000"), ("unsigned", b"\xb9"),
        ("double", b""), ("double", b"--1"), ("double", b"1 "), ("double", b"0x10"),
        ("double", b"inf"), ("double", b"nan"), ("double", b"1e5"), ("double", b"."),
        ("double", b"1.2.3"), ("double", b"-"), ("double", b"1E"), ("double", b"1E-"),
        ("double", b"9" * 500), ("double", b"Infinite"), ("float", b"1,5"),
        ("date", b"2024-1-01"), ("date", b"2024-01-01 "), ("date", b"20240101"),
        ("date", b"2024/01/01"), ("date", b"aaaa-bb-cc"), ("date", b""),
        ("datetime", b"2024-01-01"), ("datetime", b"2024-01-01T00:00:00"),
        ("datetime", b"2024-01-01 24:00:00"), ("datetime", b"2024-01-01 00:60:00"),
        ("datetime", b"2024-01-01 00:00:00."), ("datetime", b"2024-01-01 00:00:00,5"),
        ("datetime", b"2024-01-01 00:00:00.1234567"),
        ("datetime", b"2024-01-01 00:00:0x"), ("datetime", b"2024-01-01 00:00:00.x"),
    ],
)  # fmt: skip
def test_refused(kind: str, text: bytes) -> None:
    """A text of another form is not a value; nothing is guessed."""
    assert read_as(kind, text) is None


WIDE = Context(prec=80)


def random_decimal(rng: random.Random) -> tuple[int, int, int]:
    """Return a decimal in units of its last digit, with its precision and scale."""
    precision = rng.choice([1, 9, 10, 18, 19, 38, rng.randint(1, 38)])
    scale = rng.choice([0, precision, rng.randint(0, precision)])
    digits = rng.randrange(10 ** rng.randint(0, precision))
    digits = rng.choice([digits, 0, 10**precision - 1])
    return rng.choice([1, -1]) * digits, precision, scale


def test_decimals(rng: random.Random) -> None:
    """Decimals are read in units of their last digit, whatever zeros are left out."""
    for _ in range(longer(2000)):
        units, precision, scale = random_decimal(rng)
        text = f"{Decimal(units).scaleb(-scale, context=WIDE):f}"
        if "." in text and rng.random() < 0.5:
            whole, _, fraction = text.partition(".")
            text = f"{whole}.{fraction.rstrip('0') or '0'}"
        assert read_as("decimal", text.encode(), precision, scale) == units, (
            text, precision, scale,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "precision", "scale"),
    [
        ("123", 2, 0), ("1.23", 3, 1), ("10.0", 2, 1), ("", 5, 2), (".", 5, 2),
        ("-", 5, 2), ("-.", 5, 2), ("1.2.3", 9, 4), ("1e5", 9, 4), ("--1", 9, 4),
        ("9" * 39, 38, 0), ("1" + "0" * 38, 38, 0),
    ],
)  # fmt: skip
def test_decimals_refused(text: str, precision: int, scale: int) -> None:
    """Digits that do not fit are refused, not cut."""
    assert read_as("decimal", text.encode(), precision, scale) is None


@pytest.mark.parametrize(
    ("text", "precision", "scale", "units"),
    [("5.0", 10, 2, 500), ("5.0", 10, 0, 5), ("1.000000000", 20, 10, 10**10)],
)
def test_decimals_of_canal(text: str, precision: int, scale: int, units: int) -> None:
    """Canal's texts leave zeros out, and have one where no fraction is."""
    assert read_as("decimal", text.encode(), precision, scale) == units


def test_doubles(rng: random.Random) -> None:
    """The text of a double reads back as the very same double."""
    values = [0.0, -0.0, 0.1, 1e22, 1e23, 5e-324, 2.2250738585072014e-308]
    values += [1.7976931348623157e308, 123456.789, 9007199254740993.0]
    while len(values) < longer(5000):
        (value,) = struct.unpack("<d", rng.randbytes(8))
        values.append(value if math.isfinite(value) else rng.uniform(-1e6, 1e6))
    for value in values:
        found = read_as("double", double_text(value).encode())
        assert struct.pack("<d", found) == struct.pack("<d", value)


def test_floats(rng: random.Random) -> None:
    """The text of a float reads back as the very same float, rounded once."""
    for _ in range(longer(5000)):
        (value,) = struct.unpack("<f", rng.randbytes(4))
        if math.isfinite(value):
            found = read_as("float", float_text(value).encode())
            assert struct.pack("<f", found) == struct.pack("<f", value), value


def test_floats_of_any_digits(rng: random.Random) -> None:
    """Texts that a float cannot hold exactly are rounded as Python does it."""
    for _ in range(longer(2000)):
        text = f"{rng.randrange(10**12)}.{rng.randrange(10**6):06}"
        text += rng.choice(["", "E5", "E-20", "E250"])
        assert read_as("double", text.encode()) == float(text)


def test_special_numbers() -> None:
    """Infinities and NaN, in Java's words."""
    assert read_as("double", b"Infinity") == math.inf
    assert read_as("double", b"-Infinity") == -math.inf
    found = read_as("double", b"NaN")
    assert isinstance(found, float)
    assert math.isnan(found)
    assert read_as("float", b"-Infinity") == -math.inf


def test_dates() -> None:
    """Every day of 9999 years is its number."""
    day = date(1, 1, 1)
    number = (day - EPOCH.date()).days
    while day.year < 9999:
        assert read_as("date", day.isoformat().encode()) == number
        day += timedelta(days=13)
        number += 13
    assert read_as("date", b"9999-12-31") == (date.max - EPOCH.date()).days


@pytest.mark.parametrize(
    "text", ["0000-00-00", "2024-00-10", "2024-01-00", "2023-02-29", "2024-13-01",
             "1900-02-29", "2024-04-31", "0000-01-01"],
)  # fmt: skip
def test_days_that_are_none(text: str) -> None:
    """Invalid dates are distinguished from malformed texts."""
    assert read_as("date", text.encode()) == "none"
    assert read_as("datetime", f"{text} 10:00:00".encode()) == "none"


def test_moments(rng: random.Random) -> None:
    """Dates with times, with any number of fraction digits."""
    for _ in range(longer(1000)):
        moment = datetime(1, 1, 1) + timedelta(  # noqa: DTZ001
            days=rng.randrange(3_650_000), microseconds=rng.randrange(86_400_000_000)
        )
        digits = rng.randint(0, 6)
        unit = 10 ** (6 - digits)
        moment = moment.replace(microsecond=moment.microsecond // unit * unit)
        text = moment.strftime("%H:%M:%S.%f")[: 9 + digits] if digits else (
            moment.strftime("%H:%M:%S"))  # fmt: skip
        us = (moment - EPOCH) // timedelta(microseconds=1)
        found = read_as("datetime", f"{moment.date().isoformat()} {text}".encode())
        assert found == us, text
