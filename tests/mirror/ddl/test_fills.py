"""What rows that are there have in a new column."""

from __future__ import annotations

import pytest

from canal_server.mirror.ddl.fills import NotConstantError, fill_of
from canal_server.model.columns_known import ColumnMeta


def column(mysql_type: str, *, nullable: bool = True) -> ColumnMeta:
    """Return a column."""
    return ColumnMeta("c", mysql_type, "utf8mb4", nullable=nullable)


@pytest.mark.parametrize(
    ("mysql_type", "default", "fill"),
    [
        ("int", None, None),
        ("int", "NULL", None),
        ("int", "5", "5"),
        ("int", "-007", "-7"),
        ("tinyint(1)", "TRUE", "1"),
        ("bigint unsigned", "18446744073709551615", "18446744073709551615"),
        ("int", "'12'", "12"),
        ("bit(8)", "b'101'", "5"),
        ("decimal(10,2)", "1.5", "1.50"),
        ("decimal(10,2)", "'-3'", "-3.00"),
        ("decimal(10,2)", "0", "0.00"),
        ("decimal(65,0)", "9" * 65, "9" * 65),
        ("decimal(65,30)", "-" + "9" * 35 + ".5", "-" + "9" * 35 + ".5" + "0" * 29),
        ("decimal(6,6)", ".000001", "0.000001"),
        ("double", "1.5e3", "1.5e3"),
        ("float", "0.25", "0.25"),
        ("date", "'2020-01-31'", "2020-01-31"),
        ("date", "DATE '2020-01-31'", "2020-01-31"),
        ("date", "'0000-00-00'", None),
        ("datetime", "'2020-01-31 01:02:03'", "2020-01-31 01:02:03"),
        ("datetime(3)", "'2020-01-31'", "2020-01-31 00:00:00.000"),
        ("datetime(3)", "'2020-01-31 01:02:03.5'", "2020-01-31 01:02:03.500"),
        ("timestamp", "'0000-00-00 00:00:00'", None),
        ("time(2)", "'01:02:03'", "01:02:03.00"),
        ("year", "2020", "2020"),
        ("varchar(20)", "'it''s'", "it's"),
        ("varchar(20)", '"a""b "', 'a"b '),
        ("char(20)", "'a '", "a"),
        ("enum('a','b''c')", "'B''C'", "b'c"),
        ("set('a','b','c')", "'c,A'", "a,c"),
        ("set('a')", "''", ""),
    ],
)
def test_defaults(mysql_type: str, default: str | None, fill: str | None):
    """A constant gives what the server stores for it."""
    assert fill_of(column(mysql_type), default) == fill


@pytest.mark.parametrize(
    ("mysql_type", "fill"),
    [
        ("int", "0"),
        ("bit(3)", "0"),
        ("double", "0"),
        ("decimal(5,2)", "0.00"),
        ("varchar(9)", ""),
        ("longtext", ""),
        ("blob", ""),
        ("enum('x','y')", "x"),
        ("set('x','y')", ""),
        ("time(1)", "00:00:00.0"),
        ("year", "0"),
        ("date", None),
        ("datetime(6)", None),
    ],
)
def test_not_null_without_a_default(mysql_type: str, fill: str | None):
    """Without a default, rows have the server's zero value."""
    assert fill_of(column(mysql_type, nullable=False), None) == fill


@pytest.mark.parametrize(
    ("mysql_type", "default"),
    [
        ("datetime", "CURRENT_TIMESTAMP"),
        ("int", "(1 + 1)"),
        ("varchar(9)", r"'a\n'"),
        ("varchar(9)", "'a' 'b'"),
        ("varchar(9)", "_latin1'a'"),
        ("varchar(9)", "'\ufffd'"),
        ("varchar(36)", "UUID()"),
        ("int", "1.6"),
        ("int", "'x'"),
        ("decimal(5,2)", "1.234"),
        ("float", "0.1234567"),
        ("double(9,2)", "1.5"),
        ("date", "20200131"),
        ("date", "'2020-1-31'"),
        ("datetime", "'2020-01-31 01:02:03.6'"),
        ("timestamp", "'2020-01-31 01:02:03'"),
        ("year", "'20'"),
        ("enum('a','b')", "1"),
        ("varbinary(9)", "'a'"),
        ("binary(9)", "x'00'"),
        ("json", "'{}'"),
        ("int", "NEXT VALUE FOR s"),
    ],
)
def test_what_is_not_certain(mysql_type: str, default: str):
    """What only the server can work out is refused."""
    with pytest.raises(NotConstantError):
        fill_of(column(mysql_type), default)


@pytest.mark.parametrize("mysql_type", ["binary(3)", "json", "point", "uuid"])
def test_types_without_a_nothing(mysql_type: str):
    """What some types have for nothing is not known."""
    with pytest.raises(NotConstantError):
        fill_of(column(mysql_type, nullable=False), None)
