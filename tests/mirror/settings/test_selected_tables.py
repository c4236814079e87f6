"""Which tables are mirrored: settings against what a server has."""

from __future__ import annotations

import pytest
from fix_source_access import access_of

from canal_server.client.range_client import RangeColumn
from canal_server.errors import ConfigError
from canal_server.mirror.lake.masks import lake_schema
from canal_server.mirror.settings.mirror_settings import TableRule, TypeSettings
from canal_server.mirror.settings.selected_tables import (
    Folders,
    estimate,
    mirror_table,
    present,
    signature,
    survey,
    table_by_rule,
)
from canal_server.mirror.settings.settings_file import read
from canal_server.mirror.settings.table_values import TableName
from canal_server.model.columns_known import ColumnMeta
from canal_server.mysql.control_connection import ControlConnection
from canal_server.spark.packed.packed_form import packed_schema

HEAD = """name: shop
canal: {destination: example}
source: {host: db, user: canal}
lake: {path: /lake}
tables:
"""
ID = ColumnMeta("id", "int", None, is_key=True, nullable=False)
NAME = TableName("s", "t")


def settings_of(*rules: str):
    """Return settings with these rules, each the keys of one."""
    return read(HEAD + "".join(f"  - {{{rule}}}\n" for rule in rules), "m.yml", {})


@pytest.fixture
def control(source_server):
    """Give a control connection to each of the servers."""
    with ControlConnection(access_of(source_server)) as connection:
        yield connection


def problems_of(columns, rule: str) -> list[str]:
    """Return what keeps a table s.t with these columns from being mirrored."""
    with pytest.raises(ConfigError) as caught:
        mirror_table(NAME, columns, settings_of(rule))
    assert all(
        each.startswith("m.yml: tables[0]: table s.t: ")
        for each in caught.value.problems
    )
    return [each.partition("table s.t: ")[2] for each in caught.value.problems]


def test_tables_of_a_server(source_server, control, database):
    """Tables that match come with columns, key and folder; views stay out."""
    source_server.execute(
        f"CREATE TABLE {database}.orders (n INT, a INT, b VARCHAR(9) NOT NULL,"
        " g INT AS (a + 1), mail VARCHAR(50), PRIMARY KEY (b, a))",
        f"CREATE TABLE {database}.logs (t TEXT)",
        f"CREATE TABLE {database}.`odd/näme` (id INT PRIMARY KEY)",
        f"CREATE VIEW {database}.view1 AS SELECT * FROM {database}.logs",
    )
    settings = settings_of(
        rf"match: {database}\.orders, masks: {{Mail: hash}}, without: [N]",
        rf"match: '{database}\..*', deletes: soft",
    )
    found = survey(control, settings)
    assert not found.problems
    logs, odd, orders = sorted(
        (each.table for each in found.tables), key=lambda each: each.source.table
    )

    assert logs.is_keyless
    assert logs.deletes == "soft"
    assert odd.target == f"{database}/odd!2Fn!C3!A4me"
    assert orders.target == f"{database}/orders"
    assert orders.key == ("a", "b")
    assert [each.name for each in orders.columns] == ["a", "b", "g", "mail"]
    assert [str(each.type) for each in lake_schema(orders)] == (
        ["int32", "string", "int32", "string"]
    )


def test_every_problem_of_a_server_at_once(source_server, control, database):
    """Patterns without tables, columns that are nowhere, and folders that meet."""
    source_server.execute(
        f"CREATE TABLE {database}.a (id INT PRIMARY KEY, x INT)",
        f"CREATE TABLE {database}.b (id INT PRIMARY KEY, x INT)",
    )
    found = survey(
        control,
        settings_of(
            rf"match: '{database}\.[ab]', to: both, masks: {{y: hash}}, without: [z]",
            rf"match: {database}\.c",
            r"match: information_schema\..*",
        ),
    )

    assert len(found.tables) == 2
    problems = [
        each.removeprefix("m.yml: ")
        .partition("; a pattern must")[0]
        .partition(": remove")[0]
        for each in found.problems
    ]
    nothing = "no table matches, or the account may not see it"
    both = f"{database}.a and {database}.b both use folder both"
    assert problems == [
        "tables[0]: without: no table has a column z",
        "tables[0]: masks: no table has a column y",
        f"tables[1]: match = '{database}\\.c': {nothing}",
        f"tables[2]: match = 'information_schema\\..*': {nothing}",
        f"tables {both}: include {{schema}} and {{table}} in to",
    ]


def test_tables_with_problems_are_there(source_server, control, database):
    """Existing tables are listed by name, with or without problems."""
    source_server.execute(
        f"CREATE TABLE {database}.a (id INT PRIMARY KEY)",
        f"CREATE TABLE {database}.b (_seq INT PRIMARY KEY)",
        f"INSERT INTO {database}.a VALUES (1), (2)",
        f"ANALYZE TABLE {database}.a",
    )
    settings = settings_of(rf"match: '{database}\.[abc]'")
    assert survey(control, settings).problems
    assert present(control, settings) == {
        TableName(database, "a"),
        TableName(database, "b"),
    }
    assert estimate(control, TableName(database, "a")) == 2
    assert estimate(control, TableName(database, "c")) == 0


def test_folders_that_meet():
    """A folder belongs to one table, with what is inside of it."""
    a, b = TableName("s", "a"), TableName("s", "b")
    folders = Folders()
    folders.assign(a, "x/y")
    for target in ("x/y", "x", "x/y/z"):
        assert "tables s.a and s.b both use folder x" in folders.problem(b, target)
        assert not folders.problem(a, target)
    for target in ("x/yy", "x/z", "y"):
        assert not folders.problem(b, target)


def test_a_versioned_table_is_refused(mariadb_server, database):
    """Rows of MariaDB's system-versioned tables cannot be distinguished."""
    mariadb_server.execute(
        f"CREATE TABLE {database}.v (id INT PRIMARY KEY) WITH SYSTEM VERSIONING"
    )
    with ControlConnection(access_of(mariadb_server)) as control:
        found = survey(control, settings_of(rf"match: {database}\.v"))
    assert "is system-versioned" in found.problems[0]
    assert not found.tables


@pytest.mark.parametrize(
    ("column", "rule", "problem"),
    [
        (("x", "int"), "columns: [x]", "column id belongs to the primary key, which"),
        (("x", "int"), "masks: {id: drop}", "it cannot be left out"),
        (("x", "int"), "masks: {ID: null}", "its mask must be hash"),
        (("x", "int"), "masks: {x: {truncate: 2}}", "truncate is for texts"),
        (("x", "strange"), "to: x", "unknown type 'strange'"),
        (("_Deleted", "int"), "to: x", "has a name that the mirror adds"),
        (("x", "int"), "rename: {x: _seq}", "has a name that the mirror"),
        (("x", "int"), "rename: {x: ID}", "columns id and x get the same name"),
    ],
)
def test_columns_that_cannot_be(column: tuple[str, str], rule: str, problem: str):
    """Each invalid use of a column in a rule is reported."""
    found = problems_of([ID, ColumnMeta(*column)], f"match: s.t, {rule}")
    assert any(problem in each for each in found), found


@pytest.mark.parametrize("rule", ["to: x", "rename: {_seq: x}", "without: [_seq]"])
def test_columns_of_the_stream(rule: str):
    """Changes of a table with such a column cannot be read, whatever the rule says."""
    (problem,) = problems_of([ID, ColumnMeta("_Seq", "int")], f"match: s.t, {rule}")
    assert "column _Seq has a name that the stream of changes" in problem
    for name in packed_schema(NAME, [RangeColumn("id", "int", True, True)]).names[1:]:
        columns = [ID, ColumnMeta(name, "int")]
        assert f"column {name} has" in problems_of(columns, f"match: s.t, {rule}")[0]
    # Those of the lake alone can be renamed, or left out.
    for name in ("_committed_at", "_deleted", "_row_hash"):
        columns = [ID, ColumnMeta(name, "int")]
        assert problems_of(columns, "match: s.t")
        for said in (f"rename: {{{name}: x}}", f"without: [{name}]"):
            table = mirror_table(NAME, columns, settings_of(f"match: s.t, {said}"))
            assert name not in [each.target for each in table.columns]


def test_the_mark_of_deleted_rows_in_an_iceberg_table():
    """Its name there is taken only where the table has it; it can be renamed."""
    columns = [ID, ColumnMeta("_Is_Deleted", "int")]
    rule = "match: s.t, format: iceberg, deletes: soft"
    (problem,) = problems_of(columns, rule)
    assert "column _Is_Deleted has a name that the mirror adds: rename" in problem
    for fine in (
        f"{rule}, rename: {{_Is_Deleted: gone}}",
        "match: s.t, format: iceberg",
        "match: s.t, deletes: soft",
    ):
        assert mirror_table(NAME, columns, settings_of(fine)).columns


def test_keyless_rows_are_not_masked():
    """Without a key rows are found by their values, so none is masked, or none is."""
    columns = [ColumnMeta("a", "int"), ColumnMeta("b", "int")]
    (problem,) = problems_of(columns, "match: s.t, masks: {a: hash}")
    assert "column a can be left out, but not masked" in problem
    rules = settings_of("match: s.t, masks: {a: hash}, format: json")
    assert mirror_table(NAME, columns, rules).form == "json"


def test_iceberg_without_its_library(monkeypatch):
    """The problem says what to install."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    (problem,) = problems_of([ID], "match: s.t, format: iceberg")
    assert "pip install 'canal-server[iceberg]'" in problem


def test_renamed_and_hashed_keys():
    """A key may be hashed and renamed; hidden columns are left out."""
    columns = [ID, ColumnMeta("DB_ROW_HASH_1", "bigint(20) unsigned")]
    settings = settings_of("match: s.t, rename: {Id: '_key'}, masks: {iD: hash}")
    table = mirror_table(NAME, columns, settings)

    assert table.key == ("id",)
    assert [each.target for each in table.columns] == ["_key"]
    assert str(lake_schema(table)) == "_key: string"


def test_a_table_that_nobody_selects():
    """A name without a rule is refused, also later."""
    with pytest.raises(ConfigError, match="no pattern in the settings matches it"):
        mirror_table(TableName("x", "y"), [ID], settings_of("match: s.t"))


def test_a_folder_of_an_earlier_version_is_kept():
    """A table with letters beyond ASCII stays where readers know it."""
    name, columns = TableName("s", "café"), [ID]
    settings = settings_of("match: s\\..*")
    assert mirror_table(name, columns, settings).target == "s/caf!C3!A9"
    for folder, expected in (
        ("s/café", "s/café"),
        ("s/caf!C3!A9", "s/caf!C3!A9"),
        ("elsewhere/café", "s/caf!C3!A9"),  # `to` was another one
    ):
        found = mirror_table(name, columns, settings, folder)
        assert found.target == expected


def test_forms_of_values():
    """They go by a column's type; a masked column keeps the form of the stream."""
    columns = [
        ID,
        *(
            ColumnMeta(name, mysql_type, None, is_key=False)
            for name, mysql_type in (
                ("a", "geometry"), ("b", "MULTIPOINT"), ("c", "vector(9)"),
                ("d", "bit(64)"), ("e", "bit(63)"), ("f", "blob"), ("g", "point"),
            )
        ),
    ]  # fmt: skip
    rule = "match: s.t, types: {geometry: wkb, vector: array, bit64: unsigned}"
    settings = settings_of(f"{rule}, masks: {{g: hash}}")
    found = {
        c.name: (c.form, c.targets)
        for c in mirror_table(NAME, columns, settings).columns
    }
    assert found == {
        "id": ("", ("id",)),
        "a": ("wkb", ("a", "a_srid")),
        "b": ("wkb", ("b", "b_srid")),
        "c": ("array", ("c",)),
        "d": ("unsigned", ("d",)),
        "e": ("", ("e",)),
        "f": ("", ("f",)),
        "g": ("", ("g",)),
    }
    usual = mirror_table(NAME, columns, settings_of("match: s.t, masks: {g: hash}"))
    assert {each.form for each in usual.columns} == {""}
    assert signature(NAME, settings) != signature(
        NAME, settings_of("match: s.t, masks: {g: hash}")
    )


def test_a_name_beside_a_geometry():
    """A column with the name of the SRID needs another one in the lake."""
    columns = [
        ID,
        *(
            ColumnMeta(n, t, None, is_key=False)
            for n, t in (("g", "point"), ("G_SRID", "int"))
        ),
    ]
    rule = "match: s.t, types: {geometry: wkb}"
    with pytest.raises(ConfigError) as caught:
        mirror_table(NAME, columns, settings_of(rule))
    (problem,) = caught.value.problems
    assert "columns g and G_SRID get the same name in the lake, g_srid" in problem
    table = mirror_table(NAME, columns, settings_of(f"{rule}, rename: {{g: shape}}"))
    assert table.columns[1].targets == ("shape", "shape_srid")


def test_no_arrays_in_iceberg() -> None:
    """What the format cannot have is a problem of the rule, not of a batch."""
    columns = [ColumnMeta("id", "int", is_key=True), ColumnMeta("v", "vector(3)")]
    rule = TableRule(
        match=".*", form="iceberg", types=TypeSettings(vector="array"), location="m"
    )
    with pytest.raises(ConfigError) as raised:
        table_by_rule(TableName("s", "t"), columns, rule)
    assert "column v cannot be an array in an Iceberg table" in str(raised.value)
    plain = TableRule(match=".*", form="iceberg")
    assert table_by_rule(TableName("s", "t"), columns, plain).form == "iceberg"


def test_tables_of_schema_changes_are_named(source_server, control, database):
    """Whoever misses a table finds why; one with new rows is kept, invisibly."""
    source_server.execute(
        *(
            f"CREATE TABLE {database}.{name} (id INT PRIMARY KEY)"
            for name in (
                *("orders", "_orders_ghc", "_orders_old", "_orders_gho", "_x"),
                *("_products_new", "_products_old"),  # of no table
            )
        )
    )
    found = survey(control, settings_of(rf"match: '{database}\..*'"))
    assert found.left_out == (
        TableName(database, "_orders_ghc"),
        TableName(database, "_orders_old"),
    )
    assert found.shadows == (TableName(database, "_orders_gho"),)
    tables = {each.table.source.table: each.table.target for each in found.tables}
    assert tables.pop("_orders_gho").startswith("_mirror/")
    assert tables.keys() == {"orders", "_x", "_products_new", "_products_old"}
    assert not [target for target in tables.values() if target.startswith("_mirror/")]
    asked = rf"match: '{database}\..*', migration_tables: mirror"
    assert survey(control, settings_of(asked)).left_out == ()
