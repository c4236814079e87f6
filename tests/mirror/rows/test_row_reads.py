"""Rows read again by their keys: of each type, and as the table was known."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from fix_mirror import table_on
from fix_source_access import access_of

from canal_server.mirror.rows.chunk_read import read_chunk
from canal_server.mirror.rows.chunks import Chunk
from canal_server.mirror.rows.row_reads import (
    ROWS_AT_ONCE,
    OtherColumnsError,
    literal,
    read_by,
)
from canal_server.runtime.lifecycle import Stop

KEYS = (
    ("BIGINT UNSIGNED", "1, 18446744073709551615"),
    ("TINYINT", "-128, 0"),
    ("DECIMAL(60,5)", "-1.5, 99999999999999999999999999999999999999999999999999.12345"),
    ("VARCHAR(20) CHARACTER SET latin1", "'', 'Müller', 'it''s'"),
    ("VARCHAR(20) CHARACTER SET utf8mb4", "'a\\\\b', '\U0001f600'"),
    ("CHAR(5) CHARACTER SET utf16", "'x', 'ß'"),
    ("VARBINARY(9)", "'', X'00FF27'"),
    ("BINARY(4)", "X'00010203', X'FF'"),
    ("DATE", "'1000-01-01', '9999-12-31'"),
    ("DATETIME(6)", "'2026-01-02 03:04:05.000006', '2026-01-02'"),
    ("TIMESTAMP(3)", "'2026-01-02 03:04:05.678', '1971-01-01'"),
    ("TIME(2)", "'-838:59:59', '01:02:03.04'"),
    ("YEAR", "1901, 2155"),
    ("ENUM('a','b''c')", "'a', 'b''c'"),
)


@pytest.mark.parametrize(("kind", "values"), KEYS, ids=[key[0] for key in KEYS])
def test_keys_of_each_type(source_server, database, kind, values) -> None:
    """Each row is found by the value that the stream has, and no other one."""
    rows = "), (".join(values.split(", "))
    source_server.execute(
        f"USE {database}",
        "SET time_zone = '+00:00'",
        f"CREATE TABLE t (k {kind} PRIMARY KEY, v INT DEFAULT 1)",
        f"INSERT INTO t (k) VALUES ({rows})",
    )
    table, access = table_on(source_server, database, "t"), access_of(source_server)
    known = pa.Table.from_batches(read_chunk(access, table, Chunk(0)))
    assert len(known) == len(values.split(", "))
    for number in range(len(known)):
        one = known.slice(number, 1)
        assert read_by(access, table, ["k"], one.select(["k"]), Stop()).equals(one)


def test_many_rows(source_server, database) -> None:
    """More than one statement asks for, by two columns; those that went do not come."""
    count = ROWS_AT_ONCE + 1
    source_server.execute(
        f"USE {database}", "CREATE TABLE t (a INT, b INT, PRIMARY KEY (a, b))"
    )
    with source_server.connect(database=database, autocommit=True) as connection:
        shown = [(n, n + 1) for n in range(count)]
        connection.cursor().executemany("INSERT INTO t VALUES (%s, %s)", shown)
    table, access = table_on(source_server, database, "t"), access_of(source_server)
    keys = pa.table({"a": range(2 * count), "b": range(1, 2 * count + 1)})
    found = read_by(access, table, ["a", "b"], keys, Stop())
    assert found["a"].to_pylist() == list(range(count))


def test_a_table_that_changed(source_server, database) -> None:
    """Columns that are not read as before are an error; so is a dropped table."""
    name = f"{database}.t"
    source_server.execute(
        f"CREATE TABLE {name} (id INT PRIMARY KEY, e ENUM('a','b'), v INT)"
    )
    table, access = table_on(source_server, database, "t"), access_of(source_server)
    keys = pa.table({"id": [1]})
    assert len(read_by(access, table, ["id"], keys, Stop())) == 0
    source_server.execute(f"ALTER TABLE {name} ADD COLUMN w INT")
    read_by(access, table, ["id"], keys, Stop())
    for change in ("MODIFY e ENUM('b','a')", "MODIFY v BIGINT", "DROP COLUMN v"):
        source_server.execute(f"ALTER TABLE {name} {change}")
        with pytest.raises(OtherColumnsError, match="differs from the one"):
            read_by(access, table, ["id"], keys, Stop())
    source_server.execute(f"DROP TABLE {name}")
    with pytest.raises(OtherColumnsError, match="was dropped"):
        read_by(access, table, ["id"], keys, Stop())


def test_literals() -> None:
    """No value ends the text of another."""
    assert literal("it's") == "_utf8mb4 X'69742773'"
    assert literal(b"'\0") == "X'2700'"
    assert literal(Decimal("-1.50")) == "-1.50"
    assert literal(-7) == "-7"
    assert literal(1.5) == "1.5e0"
    assert literal(date(2026, 1, 2)) == "'2026-01-02'"
    assert literal(datetime(2026, 1, 2, tzinfo=UTC)) == "'2026-01-02 00:00:00'"
