"""The library's values in canal's text form, and the known differences."""

# ruff: noqa: DTZ001  # as the library returns them

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from canal_server.model.columns_known import ColumnMeta, TableMeta
from canal_server.source.read.compare_values import (
    KNOWN,
    Known,
    decimal_text,
    is_readable,
    java_float,
    text_of,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.0"), (-0.0, "-0.0"), (100.0, "100.0"), (1e7, "1.0E7"), (0.001, "0.001"),
     (9.99e-4, "9.99E-4"), (9999999.0, "9999999.0"), (-1e-5, "-1.0E-5"),
     (1e23, "1.0E23"), (5e-324, "4.9E-324"), (2e-3, "0.002")],
)  # fmt: skip
def test_java_double(value: float, text: str) -> None:
    """Doubles are printed as by Java's Double.toString."""
    assert java_float(value, single=False) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.401298464324817e-45, "1.4E-45"), (3.4028234663852886e38, "3.4028235E38"),
     (1.1754943508222875e-38, "1.1754944E-38"), (3747265.75, "3747265.8"),
     (0.10000000149011612, "0.1")],
)  # fmt: skip
def test_java_float(value: float, text: str) -> None:
    """Floats have the fewest digits, and of two nearest numbers the even one."""
    assert java_float(value, single=True) == text


@pytest.mark.parametrize(
    ("value", "scale", "text"),
    [("5.00", 2, "5.0"), ("5.10", 2, "5.10"), ("-1.50", 2, "-1.50"), ("0", 2, "0.0"),
     ("100", 0, "100"), ("1", 10, "1.000000000"), ("2", 9, "2.000000000"),
     ("1.123456789", 11, "1.123456789"), ("-0.00", 2, "0.0")],
)  # fmt: skip
def test_decimal(value: str, scale: int, text: str) -> None:
    """A last group of digits that is zero is left out, never the first digit."""
    assert decimal_text(Decimal(value), scale) == text


ALIKE = [
    (5, "tinyint unsigned", "5"),
    ({0, 2}, "set('a','b','c')", "5"),
    (None, "set('a')", "0"),
    ("101", "bit(3)", "5"),
    (dt.timedelta(hours=-100, seconds=-1), "time", "-100:00:01"),
    (dt.timedelta(seconds=1, microseconds=500000), "time(2)", "00:00:01.50"),
    (dt.datetime(1, 2, 3, 4, 5, 6, 70000), "datetime(3)", "0001-02-03 04:05:06.070"),
    (dt.date(9999, 12, 31), "date", "9999-12-31"),
    (b"\xff\0", "varbinary(9)", "\xff\0"),
    ({b"a": [1, None, Decimal("1.5")]}, "json", '{"a": [1, null, 1.50]}'),
    (None, "int", None),
]


@pytest.mark.parametrize(("value", "kind", "text"), ALIKE)
def test_text(value, kind: str, text: str | None) -> None:
    """A value of each type becomes our text."""
    assert text_of(value, ColumnMeta("c", kind), text) == text


def test_json_that_differs() -> None:
    """Documents are compared as such: another value or type is a difference."""
    column = ColumnMeta("c", "json")
    assert text_of({b"a": 1}, column, '{"a": 2}') == "{b'a': 1}"
    assert text_of([True], column, "[1]") == "[True]"
    assert text_of([1], column, "[true]") == "[1]"


@pytest.mark.parametrize(
    ("value", "kind", "charset", "ours", "reason"),
    [
        (None, "date", None, "2024-00-01", "zero date"),
        (None, "datetime(3)", None, "0000-00-00 00:00:00.000", "zero date"),
        (1900, "year", None, "0000", "zero year"),
        (dt.datetime(1970, 1, 1), "timestamp", None, "0000-00-00 00:00:00",
         "zero timestamp"),
        (dt.datetime(1902, 1, 1), "timestamp", None, "2038-01-20 00:00:00",
         "late timestamp"),
        (dt.timedelta(seconds=-1), "time(1)", None, "-00:00:00.5", "negative fraction"),
        (None, "json", None, "null", "json"),
        ([dt.date(2024, 1, 1)], "json", None, '["2024-01-01"]', "json"),
        (b"x", "json", None, "JSON_SET(c, '$.a', 1)", "json difference"),
        (b"x" * 16, "uuid", None, "…", "address"),
        (b"x", "text", "geostd8", "x", "charset"),
        (b"\x81", "char(1)", "cp1257", "\ufffd", "charset"),
    ],
)  # fmt: skip
def test_known(value, kind: str, charset: str | None, ours: str, reason: str) -> None:
    """Known differences are not compared, and each has an explained reason."""
    with pytest.raises(Known) as caught:
        text_of(value, ColumnMeta("c", kind, charset), ours)
    assert str(caught.value) == reason
    assert reason in KNOWN


def test_readable() -> None:
    """Tables with vectors or compressed columns are unreadable for the library."""
    kinds = {"vector(3)": False, "text /*M!100301 COMPRESSED*/": False, "text": True}
    for kind, expected in kinds.items():
        assert is_readable(TableMeta("s", "t", (ColumnMeta("c", kind),))) is expected
