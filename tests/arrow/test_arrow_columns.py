"""Types of MySQL and MariaDB as those of Spark."""

from __future__ import annotations

import pytest

from canal_server.arrow.arrow_columns import requested_column
from canal_server.errors import DecodeError
from canal_server.model.columns_known import ColumnMeta


@pytest.mark.parametrize(
    ("mysql_type", "spark_type"),
    [
        ("tinyint(1)", "TINYINT"), ("tinyint unsigned", "SMALLINT"),
        ("smallint", "SMALLINT"), ("smallint(5) unsigned zerofill", "INT"),
        ("mediumint", "INT"), ("mediumint unsigned", "INT"), ("int(11)", "INT"),
        ("int unsigned", "BIGINT"), ("bigint", "BIGINT"),
        ("bigint unsigned", "DECIMAL(20,0)"), ("decimal(10,2)", "DECIMAL(10,2)"),
        ("decimal(38,30) unsigned", "DECIMAL(38,30)"), ("decimal(39,0)", "STRING"),
        ("decimal(5)", "DECIMAL(5,0)"), ("decimal", "DECIMAL(10,0)"),
        ("float(12,3)", "FLOAT"), ("double unsigned", "DOUBLE"), ("date", "DATE"),
        ("datetime(6)", "TIMESTAMP_NTZ"), ("timestamp", "TIMESTAMP"),
        ("time(3)", "STRING"), ("year", "INT"), ("bit(64)", "BIGINT"),
        ("char(36)", "STRING"), ("varchar(255)", "STRING"), ("longtext", "STRING"),
        ("enum('a','unsigned')", "STRING"), ("set('x')", "STRING"), ("json", "STRING"),
        ("binary(16)", "BINARY"), ("varbinary(9)", "BINARY"), ("tinyblob", "BINARY"),
        ("point", "BINARY"), ("geometry", "BINARY"), ("vector(4)", "BINARY"),
        ("uuid", "STRING"), ("inet6", "STRING"), ("VARCHAR(3)", "STRING"),
    ],
)  # fmt: skip
def test_types(mysql_type: str, spark_type: str) -> None:
    """Each type has one of Spark that holds all of its values."""
    column = ColumnMeta("c", mysql_type, charset="utf8mb4")
    expected = requested_column(column)
    assert expected.name == "c"
    assert expected.spark_type == spark_type


def test_binary_character_set() -> None:
    """CHAR of the binary character set holds bytes."""
    assert requested_column(ColumnMeta("c", "char(5)", "binary")).kind == "binary"


def test_unknown_type() -> None:
    """An unknown type is reported with its column."""
    with pytest.raises(DecodeError, match="column c: unknown type 'quaternion'"):
        requested_column(ColumnMeta("c", "quaternion"))
