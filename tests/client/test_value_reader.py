"""What each type's texts become, and that other texts stay as they are."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from client_entries import columns_of
from fix_random import longer

from canal_server.client.change_reader import ChangeReader
from canal_server.client.value_reader import ValueOptions

if TYPE_CHECKING:
    import random

VARCHAR, BLOB, DECIMAL, TINYINT = 12, 2004, 3, -6

LEAP = datetime.fromisoformat("2024-02-29T23:59:59")  # without a zone
LAST = datetime.fromisoformat("9999-12-31T23:59:59.999999")

VALUES = [
    ("tinyint", "-128", -128),
    ("tinyint(1)", "1", 1),
    ("bigint unsigned", "18446744073709551615", 2**64 - 1),
    ("bigint", "-9223372036854775808", -(2**63)),
    ("bit(64)", "18446744073709551615", 2**64 - 1),
    ("year", "0000", 0),
    ("decimal(5,2)", "5", Decimal("5.00")),
    ("decimal(5,2)", "5.1", Decimal("5.10")),
    ("decimal(5,2)", "-0.05", Decimal("-0.05")),
    ("decimal(65,30)", "1" * 35 + "." + "9" * 30, Decimal("1" * 35 + "." + "9" * 30)),
    ("decimal(10)", "77", Decimal(77)),
    ("decimal(10)", "77.0", Decimal("77.0")),
    ("DECIMAL(6, 1) unsigned zerofill", "00012", Decimal("12.0")),
    ("float", "1.5E-7", 1.5e-7),
    ("double", "-1.7976931348623157E308", -1.7976931348623157e308),
    ("varchar(9)", "", ""),
    ("char(1)", "x", "x"),
    ("varchar(9)", "0123456789", "0123456789"),
    ("text", "naïve 🐋", "naïve 🐋"),
    ("binary(4)", "ab", b"ab\0\0"),
    ("varbinary(4)", "ab", b"ab"),
    ("varbinary(4)", "\xff\x00\x80", b"\xff\x00\x80"),
    ("blob", "", b""),
    ("date", "2024-02-29", date(2024, 2, 29)),
    ("datetime", "2024-02-29 23:59:59", LEAP),
    (
        "datetime(3)",
        "2024-02-29 23:59:59.5",
        LEAP.replace(microsecond=500_000),
    ),
    ("datetime(6)", "9999-12-31 23:59:59.999999", LAST),
    ("timestamp", "2024-01-01 00:00:00", datetime(2024, 1, 1, tzinfo=UTC)),
    ("time", "-838:59:59", -timedelta(hours=838, minutes=59, seconds=59)),
    ("time(6)", "00:00:00.000001", timedelta(microseconds=1)),
    ("time(2)", "-00:00:00.25", -timedelta(milliseconds=250)),
    ("enum('a','b''c')", "2", "b'c"),
    ("enum('a','b')", "0", ""),
    ("set('a','b','c')", "5", "a,c"),
    ("set('a','b','c')", "0", ""),
    ("json", '{"a": 1}', '{"a": 1}'),
]

# A server of another version may write what the type does not let expect.
OTHERS = [
    ("int", ""),
    ("int", "1e3"),
    ("int", "18446744073709551616"),
    ("decimal(5,2)", ""),
    ("decimal(5,2)", "."),
    ("decimal(5,2)", "-"),
    ("decimal(5,2)", "1-2"),
    ("decimal(5,2)", "1.2.3"),
    ("decimal(5,2)", "NaN"),
    ("decimal(65)", "1" * 200),
    ("double", "0x1p3"),
    ("double", "1 "),
    ("blob", "€"),
    ("date", "0000-00-00"),
    ("date", "2024-02-30"),
    ("date", "2024-2-3"),
    ("datetime", "2024-00-10 00:00:00"),
    ("datetime", "2024-01-01 24:00:00"),
    ("datetime", "2024-01-01 00:00:00."),
    ("datetime(6)", "2024-01-01 00:00:00.1234567"),
    ("timestamp", "0000-00-00 00:00:00"),
    ("time", "00:60:00"),
    ("time", "12345:00:00"),
    ("time", "-"),
    ("enum('a','b')", "3"),
    ("enum('a','b')", "a"),
    ("set('a','b')", "4"),
    ("set(", "1"),
]


def value_of(
    mysql_type: str, text: str | None, sql_type: int = VARCHAR, **options: Any
) -> Any:
    """Return the value of a column."""
    body = columns_of((mysql_type, sql_type, text))
    (change,) = ChangeReader(ValueOptions(**options)).read(body)
    assert change.after is not None
    return change.after["c0"]


def same(found: object, expected: object) -> bool:
    """Check equality of value, type and, for decimals, the number of digits."""
    return (
        found == expected
        and type(found) is type(expected)
        and str(found) == str(expected)
    )


@pytest.mark.parametrize(("mysql_type", "text", "expected"), VALUES)
def test_values(mysql_type: str, text: str, expected: object) -> None:
    """A text becomes the value of its type; with `as_texts` it stays."""
    assert same(value_of(mysql_type, text), expected)
    assert same(value_of(mysql_type, text, as_texts=True), text)
    assert value_of(mysql_type, None) is None


@pytest.mark.parametrize(("mysql_type", "text"), OTHERS)
def test_other_texts(mysql_type: str, text: str) -> None:
    """What a type cannot hold in Python stays the text that it is."""
    assert same(value_of(mysql_type, text), text)


def test_types_by_number() -> None:
    """Without a type's text, its number in JDBC counts; and a BLOB is one by it."""
    assert same(value_of("", "7", TINYINT), 7)
    assert same(value_of("", "7.50", DECIMAL), Decimal("7.50"))
    assert same(value_of("", "7", VARCHAR), "7")
    assert same(value_of("char(3)", "abc", BLOB), b"abc")


def test_decimals_are_exact() -> None:
    """The program's context for decimals neither rounds nor refuses them."""
    with localcontext() as context:
        context.prec = 2
        assert str(value_of("decimal(9,4)", "12345.678")) == "12345.6780"


def test_random_decimals(rng: random.Random) -> None:
    """A decimal has the digits of its text, and zeros up to its scale."""
    for _ in range(longer(200)):
        scale = rng.randint(0, 30)
        whole = str(rng.randrange(10 ** rng.randint(1, 35)))
        fraction = "".join(rng.choices("0123456789", k=rng.randint(0, scale)))
        text = rng.choice(["", "-"]) + whole + ("." + fraction if fraction else "")
        expected = Decimal(
            text
            + ("" if fraction or not scale else ".")
            + "0" * (scale - len(fraction))
        )
        assert same(value_of(f"decimal(65,{scale})", text), expected), text


def test_zone_of_timestamps() -> None:
    """TIMESTAMP texts are in the zone of the server, the values in UTC."""
    zone = ZoneInfo("Europe/Berlin")
    expected = datetime(2024, 6, 30, 22, tzinfo=UTC)
    found = value_of("timestamp", "2024-07-01 00:00:00", zone=zone)
    assert same(found, expected)
    assert found.tzinfo is UTC
    early = "0001-01-01 00:00:00"  # is before the year 1 in UTC
    assert value_of("timestamp", early, zone=ZoneInfo("Asia/Tokyo")) == early
    local = value_of("datetime", "2024-07-01 00:00:00", zone=zone)
    assert local == datetime.fromisoformat("2024-07-01")


def test_json() -> None:
    """JSON is parsed by the given function; what that refuses stays text."""
    assert value_of("json", '{"a": [1]}', load_json=json.loads) == {"a": [1]}
    for text in ("{", "[" * 100_000):
        assert value_of("json", text, load_json=json.loads) == text
