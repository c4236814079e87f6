"""Columns as the server has them, compared with its row events."""

from __future__ import annotations

import pytest
from fix_source_access import RawEvent, access_of

from canal_server.model.columns_known import ColumnMeta
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.server_columns import TableColumns

TABLE_MAP = 19
LONG, TIMESTAMP_2, LONGLONG = 3, 17, 8


def types_in_binlog(dump, server, insert: str) -> list[int]:
    """Return the column types of the first table map after a statement."""
    raw = dump(server)
    server.execute(insert)
    event = raw.until(lambda event: event.type == TABLE_MAP)[-1]
    return column_types(event)


def column_types(event: RawEvent) -> list[int]:
    """Read the types of a table map with fewer than 251 columns."""
    rest = event.body[8:]  # id, flags; then two names with a length before, 0 after
    for _ in range(2):
        rest = rest[1 + rest[0] + 1 :]
    return list(rest[1 : 1 + rest[0]])


def names_of(meta) -> list[str]:
    """Return the columns' names."""
    return [column.name for column in meta.columns]


def test_all_that_is_known_of_a_column(source_server, source, database):
    """Type text, character set, key and NULL are those of the server."""
    source_server.execute(
        f"""CREATE TABLE {database}.t (
            a BIGINT UNSIGNED NOT NULL, b VARCHAR(20) CHARACTER SET latin1,
            c ENUM('x', 'it''s', 'ü') CHARACTER SET utf8mb4 NOT NULL,
            d DECIMAL(12, 2), e VARBINARY(5), f INT NOT NULL, PRIMARY KEY (f, a))"""
    )
    meta = TableColumns(source).fetch(database, "t")
    bigint = "bigint(20)" if source.is_mariadb else "bigint"
    int_ = "int(11)" if source.is_mariadb else "int"

    assert meta is not None
    assert str(meta) == f"{database}.t"
    assert meta.columns == (
        ColumnMeta("a", f"{bigint} unsigned", None, is_key=True, nullable=False),
        ColumnMeta("b", "varchar(20)", "latin1"),
        ColumnMeta("c", "enum('x','it''s','ü')", "utf8mb4", nullable=False),
        ColumnMeta("d", "decimal(12,2)"),
        ColumnMeta("e", "varbinary(5)"),
        ColumnMeta("f", int_, None, is_key=True, nullable=False),
    )


def test_a_unique_key_is_not_the_primary_one(source_server, source, database):
    """A unique key without NULLs does not make its columns keys."""
    source_server.execute(f"CREATE TABLE {database}.t (a INT NOT NULL UNIQUE, b INT)")
    meta = TableColumns(source).fetch(database, "t")

    assert meta is not None
    assert [column.is_key for column in meta.columns] == [False, False]


@pytest.mark.parametrize(
    ("schema", "table"),
    [
        ("{}", "no such"),
        ("no such", "t"),
        ("{}", "T"),
        ("{}", "ť"),
        ("{}", "t%"),
        ("{}", "' OR '1'='1"),
    ],
)
def test_missing_tables(source_server, source, database, schema, table):
    """A table is found by its exact name only, whatever the name."""
    source_server.execute(f"CREATE TABLE {database}.t (a INT)")
    columns = TableColumns(source)
    name = (schema.format(database), table)

    assert columns.fetch(*name) is None
    assert columns.fetch_many([name, (name[0], "also not there")]) == {}


@pytest.mark.parametrize(
    "name", ["back\\slash", "quo'te", 'double"quote', "per%cent", "日本語", "ünïcode x"]
)
def test_names_of_any_characters(source_server, source, name):
    """Schemas, tables and columns may be named with any characters."""
    with source_server.connect() as admin, admin.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE `{name}`")
        try:
            cursor.execute(f"CREATE TABLE `{name}`.`{name}` (`{name}` INT PRIMARY KEY)")
            meta = TableColumns(source).fetch(name, name)
        finally:
            cursor.execute(f"DROP DATABASE `{name}`")

    assert meta is not None
    assert (meta.schema, meta.table) == (name, name)
    assert [(column.name, column.is_key) for column in meta.columns] == [(name, True)]


def test_columns_whose_names_differ_by_an_accent(source_server, source, database):
    """The key is the column of exactly that name."""
    source_server.execute(f"CREATE TABLE {database}.t (e INT, é INT PRIMARY KEY)")
    meta = TableColumns(source).fetch(database, "t")

    assert meta is not None
    assert [(one.name, one.is_key) for one in meta.columns] == [
        ("e", False),
        ("é", True),
    ]


def test_generated_and_invisible_columns(source_server, source, database, dump):
    """Columns that a SELECT * may leave out are included, as in row events."""
    source_server.execute(
        f"""CREATE TABLE {database}.t (a INT PRIMARY KEY, v INT AS (a + 1) VIRTUAL,
            s INT AS (a + 2) STORED, h INT DEFAULT 3 INVISIBLE, z INT)""",
        f"CREATE TABLE {database}.u (at TIMESTAMP DEFAULT CURRENT_TIMESTAMP)",
    )
    meta = TableColumns(source).fetch(database, "t")
    types = types_in_binlog(
        dump, source_server, f"INSERT INTO {database}.t (a) VALUES (1)"
    )

    assert meta is not None
    assert names_of(meta) == ["a", "v", "s", "h", "z"]
    assert types == [LONG] * 5
    assert [each.generated for each in meta.columns] == [
        False,
        True,
        True,
        False,
        False,
    ]
    other = TableColumns(source).fetch(database, "u")
    assert other is not None
    assert not other.columns[0].generated  # its default is


def test_functional_indexes_add_nothing(mysql_server, database, dump):
    """The hidden columns of MySQL's functional indexes are in neither."""
    mysql_server.execute(
        f"""CREATE TABLE {database}.t (a INT PRIMARY KEY, j JSON, INDEX ((a + 1)),
            INDEX ((CAST(j->'$.x' AS UNSIGNED ARRAY))))"""
    )
    with ControlConnection(access_of(mysql_server)) as connection:
        meta = TableColumns(connection).fetch(database, "t")
    types = types_in_binlog(
        dump, mysql_server, f"INSERT INTO {database}.t VALUES (1, '{{}}')"
    )

    assert meta is not None
    assert len(meta.columns) == len(types) == 2


def test_generated_primary_keys(own_server, dump):
    """MySQL's generated key is known even where the server would not show it."""
    server = own_server(
        "mysql",
        [
            "--sql-generate-invisible-primary-key=ON",
            "--show-gipk-in-create-table-and-information-schema=OFF",
        ],
    )
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (a INT)")
    with ControlConnection(access_of(server)) as connection:
        meta = TableColumns(connection).fetch("d", "t")
    types = types_in_binlog(dump, server, "INSERT INTO d.t VALUES (1)")

    assert meta is not None
    assert names_of(meta) == ["my_row_id", "a"]
    assert types == [LONGLONG, LONG]
    assert [column.is_key for column in meta.columns] == [True, False]


VERSIONED = "WITH SYSTEM VERSIONING"
EXPLICIT = """s TIMESTAMP(6) GENERATED ALWAYS AS ROW START,
    e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME(s, e)"""


@pytest.mark.parametrize(
    ("table", "names"),
    [
        (f"(a INT PRIMARY KEY) {VERSIONED}", ["a", "row_start", "row_end"]),
        ("(a INT, b INT WITHOUT SYSTEM VERSIONING) " + VERSIONED,
         ["a", "b", "row_start", "row_end"]),
        (f"(a INT PRIMARY KEY, {EXPLICIT}) {VERSIONED}", ["a", "s", "e"]),
        ("(a INT, b TEXT, UNIQUE (b))", ["a", "b", "DB_ROW_HASH_1"]),
        (f"(a INT, b TEXT, UNIQUE (b), UNIQUE (a) USING HASH) {VERSIONED}",
         ["a", "b", "row_start", "row_end", "DB_ROW_HASH_1", "DB_ROW_HASH_2"]),
        ("(a INT PRIMARY KEY) ENGINE=MEMORY", ["a"]),
        ("(a INT, b INT, UNIQUE (b) USING HASH) ENGINE=MEMORY", ["a", "b"]),
    ],
)  # fmt: skip
def test_what_mariadb_hides(mariadb_server, database, dump, table, names):
    """Hidden columns follow the others, as many as row events carry."""
    mariadb_server.execute(f"CREATE TABLE {database}.t {table}")
    with ControlConnection(access_of(mariadb_server)) as connection:
        meta = TableColumns(connection).fetch(database, "t")
    types = types_in_binlog(
        dump, mariadb_server, f"INSERT INTO {database}.t (a) VALUES (1)"
    )

    assert meta is not None
    assert names_of(meta) == names
    assert len(types) == len(names)
    for column, binlog_type in zip(meta.columns, types, strict=True):
        if column.mysql_type == "timestamp(6)":
            assert (binlog_type, column.is_key) == (TIMESTAMP_2, False)
        if column.name.startswith("DB_ROW_HASH"):
            assert binlog_type == LONGLONG
            assert column.unsigned


def test_a_column_added_to_a_versioned_table(mariadb_server, database):
    """The hidden columns stay the last."""
    mariadb_server.execute(
        f"CREATE TABLE {database}.t (a INT) {VERSIONED}",
        "SET system_versioning_alter_history = KEEP",
        f"ALTER TABLE {database}.t ADD b INT",
    )
    with ControlConnection(access_of(mariadb_server)) as connection:
        meta = TableColumns(connection).fetch(database, "t")

    assert names_of(meta) == ["a", "b", "row_start", "row_end"]


def test_many_tables_at_once(source_server, source, database):
    """Tables of several schemas are returned by name, in as few queries as possible."""
    count = 7
    source_server.execute(
        *(f"CREATE TABLE {database}.t{i} (c{i} INT)" for i in range(count))
    )
    asked = [(database, f"t{i}") for i in range(count)] + [("mysql", "user")]
    asked += [(database, "none"), asked[0]]
    found = TableColumns(source, tables_per_query=3).fetch_many(asked)

    assert set(found) == {*asked} - {(database, "none")}
    assert all(names_of(found[database, f"t{i}"]) == [f"c{i}"] for i in range(count))
    assert TableColumns(source).fetch_many([]) == {}


def test_names_without_case(own_server):
    """Where the server folds names, a table is found in any spelling."""
    server = own_server("mariadb", ["--lower-case-table-names=1"])
    server.execute("CREATE DATABASE Dd", "CREATE TABLE Dd.Tt (a INT)")
    with ControlConnection(access_of(server)) as connection:
        columns = TableColumns(connection)
        metas = [columns.fetch("dd", "tt"), columns.fetch("DD", "tT")]

    assert [str(meta) for meta in metas] == ["dd.tt", "DD.tT"]


def test_rights_are_needed_to_see_a_table(source_server, database):
    """Without any privilege on a table it counts as missing."""
    name = f"u{database[-8:]}"
    source_server.execute(
        f"CREATE TABLE {database}.t (a INT)",
        f"CREATE USER '{name}'@'%' IDENTIFIED BY 'x'",
    )
    access = access_of(source_server, user=name, password="x")
    try:
        with ControlConnection(access) as connection:
            before = TableColumns(connection).fetch(database, "t")
            source_server.execute(f"GRANT SELECT ON {database}.* TO '{name}'@'%'")
        with ControlConnection(access) as connection:
            after = TableColumns(connection).fetch(database, "t")
    finally:
        source_server.execute(f"DROP USER '{name}'@'%'")

    assert before is None
    assert names_of(after) == ["a"]
