"""Tables read by SELECT are, value by value, what the stream gives for their rows."""

from __future__ import annotations

import struct
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from fix_mirror import mirror_table
from fix_source_access import access_of
from random_reading import Reading, all_rows, random_load

from canal_server.errors import ConfigError, ConnectionLost, DecodeError, SourceError
from canal_server.runtime.lifecycle import Stop
from canal_server.source.read.binlog_part import FilePosition

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from canal_server.arrow.arrow_batches import typed_batches, typed_schema  # noqa: E402
from canal_server.mirror.rows.chunk_read import chunk_schema, read_chunk  # noqa: E402
from canal_server.mirror.rows.chunks import Chunk  # noqa: E402
from canal_server.mirror.settings.table_values import (  # noqa: E402
    MirrorColumn,
    MirrorTable,
    TableName,
)

if TYPE_CHECKING:
    import random

    from servers import Server

ALL = Chunk(0)


def exact(row: dict[str, Any], names: list[str]) -> tuple[Any, ...]:
    """Return a row's values as a key, floating point by its bits."""
    return tuple(
        struct.pack("<d", row[name]) if isinstance(row[name], float) else row[name]
        for name in names
    )


def streamed(reading: Reading, table: str) -> Counter[tuple[Any, ...]]:
    """Return the rows that the changes of a table leave."""
    meta, columns = reading.tables[table], reading.columns[table]
    batches = typed_batches(meta.schema, table, columns, updates="both")
    found: Counter[tuple[Any, ...]] = Counter()
    for row in all_rows(batches, reading.body):
        deleted = row["_change_type"] in ("delete", "update_preimage")
        found[exact(row, [c.name for c in columns])] += -1 if deleted else 1
    assert min(found.values(), default=0) >= 0
    return +found


def copied(
    server: Server, table: MirrorTable, chunk: Chunk = ALL, **options: Any
) -> list[dict[str, Any]]:
    """Return the rows of a table, whose batches are valid and of the right schema."""
    found = []
    for batch in read_chunk(access_of(server), table, chunk, **options):
        batch.validate(full=True)
        assert batch.schema == chunk_schema(table)
        found += batch.to_pylist()
    return found


def check(server: Server, reading: Reading, table: str) -> int:
    """Fail unless a table read at once equals what the stream delivers."""
    mirrored = mirror_table(reading.tables[table])
    names = [column.name for column in mirrored.columns]
    rows = Counter(exact(row, names) for row in copied(server, mirrored))
    expected = streamed(reading, table)
    for number, column in enumerate(mirrored.columns):
        one = Counter(row[number] for row in rows.elements())
        other = Counter(row[number] for row in expected.elements())
        assert one == other, column
    assert rows == expected
    return rows.total()


def test_random_tables(
    source_server: Server, database: str, rng: random.Random
) -> None:
    """Random tables of all types: what is copied is what the stream leaves."""
    load, reading = random_load(source_server, database, rng, images=("FULL",))
    count = 0
    for table in load.tables:
        print(table.create()[:2000])
        count += check(source_server, reading, table.name)
    assert count > 10


# Types with values that a SELECT may easily show in another form.
VALUES = {
    "INT(9) ZEROFILL": ["0", "42", "999999999"],
    "BIGINT(40) UNSIGNED ZEROFILL": ["0", "18446744073709551615"],
    "TINYINT": ["-128", "127", "0"],
    "BOOLEAN": ["true", "false"],
    "DECIMAL(12,3) UNSIGNED ZEROFILL": ["0", "0.5", "123456789.125"],
    "DECIMAL(60,20)": ["-0.00000000000000000001", "1e39", "0", "-123.25"],
    "DECIMAL(60,5) ZEROFILL": ["0.5", "77"],
    "FLOAT": ["0.1", "-1.17549e-38", "3.40282e38", "16777217", "1e-45", "-0e0"],
    "FLOAT(7,2)": ["12345.67", "0.01"],
    "DOUBLE": ["0.1", "1e23", "5e-324", "1.7976931348623157e308", "-0e0", "1e15",
               "123456789012345680", "0.30000000000000004"],
    "DOUBLE(20,3) ZEROFILL": ["12345678901234.567", "0.001"],
    "BIT(1)": ["0", "1"],
    "BIT(64)": ["0", "18446744073709551615", "256"],
    "DATE": ["'0000-00-00'", "'2024-00-10'", "'9999-12-31'", "'2024-02-29'"],
    "DATETIME": ["'0000-00-00 00:00:00'", "'1000-01-01 00:00:00'"],
    "DATETIME(3)": ["'2024-02-29 23:59:59.999'", "'0000-00-00 00:00:00'"],
    "TIMESTAMP(6) NULL": ["'1970-01-01 00:00:01.000001'", "'2038-01-19 03:14:07'",
                          "'0000-00-00 00:00:00'"],
    "TIME(6)": ["'-838:59:59'", "'00:00:00.000001'", "'-00:00:01'", "'838:59:59'"],
    "TIME": ["'0:0:0'", "'-1:02:03'", "'100:00:00'"],
    "YEAR": ["0", "1901", "2155"],
    "CHAR(10)": ["''", "'a  '", "' b'", "'ü€'"],
    "CHAR(5) CHARACTER SET ucs2": ["'a '", "'Ж'"],
    "VARCHAR(30) CHARACTER SET latin1": ["'€uro ü'", "_latin1 X'81908D'"],
    "VARCHAR(30) CHARACTER SET sjis": ["'日本'", "_sjis X'5C7E'"],
    "VARCHAR(30) CHARACTER SET gbk": ["'中文'"],
    "TEXT CHARACTER SET utf16": ["'a\\0b'", "'😀'"],
    "TEXT CHARACTER SET utf8mb3": ["'日本'"],
    "CHAR(4) CHARACTER SET binary": ["'a'", "X'00FF'", "''"],
    "BINARY(4)": ["X'00'", "X'0100'", "''", "X'FFFFFFFF'"],
    "VARBINARY(9)": ["X'0100'", "''", "X'FB'"],
    "BLOB": ["X'00FFFE'", "''", "REPEAT('x', 70000)"],
    "ENUM('a','b,c','','d''e','ü')": ["'a'", "2", "0", "''", "'ü'", "4"],
    "SET('a','b','ü''')": ["''", "'a,b'", "7"],
    "GEOMETRY": ["ST_GeomFromText('POINT(1 2)', 4326)",
                 "ST_GeomFromText('POINT(1 2)')"],
}  # fmt: skip
ONLY = {
    "mysql": {
        "VECTOR(3)": ["STRING_TO_VECTOR('[1,2,0]')", "STRING_TO_VECTOR('[0]')"],
        "JSON": [
            "'[1.0, -0.0, 1e20, 0.001, 1234567.5, 1E-7, 123456789.5, 1e308]'",
            "JSON_ARRAY(1.50, 1.00, 0.1000000000, -2.250000000)",
            "JSON_ARRAY(12345678901234567890.5)",
            "'{\"a\": \"\\\\b\\\\f\\\\n\\\\u0001\\\\/\"}'",
            "'{\"\u007f\u0085\": \"ü\u00a0\"}'",
            "'\"\\\\\"quoted\\\\\\\\ 1.5e3 \\\\u00fc\"'", "'null'", "'[]'", "'{}'",
            "JSON_OBJECT('t', CAST('2024-01-02 03:04:05.6' AS DATETIME(6)))",
            "JSON_ARRAY(CAST('-10:00:00.25' AS TIME(2)), 18446744073709551615)",
            "JSON_ARRAY(X'00FF', CAST('2024-01-02' AS DATE), true, false, null)",
        ],
    },
    "mariadb": {
        "UUID": ["'123e4567-E89B-12d3-a456-426614174000'"],
        "INET6": ["'::1'", "'::ffff:1.2.3.4'", "'2001:db8::0:1'"],
        "INET4": ["'1.2.3.4'", "'0.0.0.0'"],
        "JSON": ["'{\"a\":  1.50}'"],
        "VARCHAR(300) COMPRESSED": ["REPEAT('ab', 120)", "''", "'ü'"],
        "BLOB COMPRESSED": ["REPEAT('ab', 120)", "''"],
    },
}  # fmt: skip


def test_every_type(source_server: Server, database: str) -> None:
    """Of each type, values at its edges and NULL are the same in stream and copy."""
    kinds = VALUES | ONLY[source_server.flavour]
    names = [f"t{number}" for number in range(len(kinds))]
    create = [
        f"CREATE TABLE {database}.{name} (id INT PRIMARY KEY, v {kind})"
        for name, kind in zip(names, kinds, strict=True)
    ]
    insert = [
        f"INSERT INTO {database}.{name} VALUES (-1, NULL)"
        + "".join(f", ({number}, {value})" for number, value in enumerate(values))
        for name, values in zip(names, kinds.values(), strict=True)
    ]
    start = FilePosition(*source_server.binlog_position())
    source_server.execute("SET SESSION sql_mode = ''", *create, *insert)
    reading = Reading(source_server, database, start, names)
    wrong = []
    for name, (kind, values) in zip(names, kinds.items(), strict=True):
        try:
            assert check(source_server, reading, name) == len(values) + 1
        except (AssertionError, DecodeError) as error:
            wrong.append(f"{kind}: {error}")
    assert not wrong, "\n".join(wrong)


# --- the answer as such -------------------------------------------------------------


def table_of(database: str, *columns: str, key: tuple[str, ...] = ()) -> MirrorTable:
    """Return a table `t` with columns given as `name type`."""
    pairs = [column.split(" ", 1) for column in columns]
    return MirrorTable(
        source=TableName(database, "t"),
        target="t",
        columns=tuple(MirrorColumn(n, t, "", n in key, n) for n, t in pairs),
        key=key,
    )


def test_batches_are_bounded(source_server: Server, database: str) -> None:
    """A chunk has batches of a limited size; without rows there is none."""
    table = table_of(database, "id int")
    source_server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    assert list(read_chunk(access_of(source_server), table, ALL)) == []
    values = ", ".join(f"({number})" for number in range(25))
    source_server.execute(f"INSERT INTO {database}.t VALUES {values}")
    batches = list(read_chunk(access_of(source_server), table, ALL, batch_rows=10))
    assert [batch.num_rows for batch in batches] == [10, 10, 5]
    assert [n for batch in batches for n in batch["id"].to_pylist()] == [*range(25)]


@pytest.mark.parametrize("size", [(1 << 24) - 10, (1 << 24) - 5, (1 << 24) + 70_000])
def test_row_of_several_packets(own_large, size: int) -> None:
    """Rows at and beyond the length of a packet come whole, as do those around them."""
    server = own_large
    table = table_of("test_large", "id int", "v longblob")
    server.execute(
        "TRUNCATE test_large.t", "INSERT INTO test_large.t VALUES (1, 'a')",
        f"INSERT INTO test_large.t VALUES (2, REPEAT('x', {size})), (3, 'b')",
    )  # fmt: skip
    rows = copied(server, table)
    assert [(row["id"], len(row["v"])) for row in rows] == [(1, 1), (2, size), (3, 1)]


@pytest.fixture(scope="module")
def own_large(mysql_server: Server):
    """Give the MySQL, set to accept rows beyond the length of a packet for a while."""
    (old,) = mysql_server.execute("SELECT @@GLOBAL.max_allowed_packet")[0]
    mysql_server.execute(
        f"SET GLOBAL max_allowed_packet = {64 << 20}",
        "CREATE DATABASE test_large",
        "CREATE TABLE test_large.t (id INT PRIMARY KEY, v LONGBLOB)",
    )
    yield mysql_server
    mysql_server.execute(
        "DROP DATABASE test_large", f"SET GLOBAL max_allowed_packet = {old}"
    )


def test_what_the_server_refuses(source_server: Server, database: str) -> None:
    """The server's error for a SELECT is passed on, also one amid the rows."""
    source_server.execute(f"CREATE TABLE {database}.t (id INT, v DOUBLE)")
    table = table_of(database, "id int", "gone int")
    with pytest.raises(SourceError, match="Unknown column 'gone'"):
        copied(source_server, table)


def test_stopped(source_server: Server, database: str) -> None:
    """A stop ends the reading, also while it waits for the next rows to be allowed."""
    source_server.execute(
        f"CREATE TABLE {database}.t (id INT)",
        f"INSERT INTO {database}.t VALUES (1), (2)",
    )
    stop = Stop()
    batches = read_chunk(
        access_of(source_server), table_of(database, "id int"), ALL,
        rows_per_s=1, stop=stop,
    )  # fmt: skip
    assert next(batches).num_rows == 1
    stop.request()
    with pytest.raises(ConnectionLost, match="a stop"):
        next(batches)


def test_wrong_type_is_reported(source_server: Server, database: str) -> None:
    """A column of another type than expected is named with its value."""
    source_server.execute(
        f"CREATE TABLE {database}.t (v VARCHAR(9))",
        f"INSERT INTO {database}.t VALUES ('ten')",
    )
    with pytest.raises(DecodeError, match=r"table .*\.t: column v \(int\).*'ten'"):
        copied(source_server, table_of(database, "v int"))


def test_columns_of_the_stream_are_used(source_server: Server, database: str) -> None:
    """A column with the name of one that the stream adds is refused."""
    with pytest.raises(ConfigError, match="_SEQ"):
        copied(source_server, table_of(database, "_SEQ int"))


def test_schema_is_the_streams() -> None:
    """The schema of a chunk is that of a typed stream, without what that adds."""
    table = table_of("d", "a int", "b decimal(20,3)", "c timestamp(6)", "d time")
    expected = typed_schema([column.requested for column in table.columns])
    assert chunk_schema(table).names == ["a", "b", "c", "d"]
    assert all(expected.field(f.name) == f for f in chunk_schema(table))
