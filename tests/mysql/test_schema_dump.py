"""Definitions of tables as a server prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fix_source_access import access_of

from canal_server.mysql.collations import collation_names
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.schema_dump import SchemaReader

if TYPE_CHECKING:
    from servers import Server


def test_one_table(
    source_server: Server, source: ControlConnection, database: str
) -> None:
    """A table's text is the server's; missing tables have none."""
    source_server.execute(f"CREATE TABLE {database}.`a``b` (`x y` INT PRIMARY KEY)")
    reader = SchemaReader(source)
    text = reader.show_create(database, "a`b")
    assert text is not None
    assert text.startswith("CREATE TABLE `a``b` (\n  `x y` int")
    assert reader.show_create(database, "missing") is None
    assert reader.show_create("missing", "missing") is None


def test_generated_keys_are_shown(mysql_server: Server, database: str) -> None:
    """A key that MySQL generated is part of the text: row events carry it."""
    mysql_server.execute(
        "SET sql_generate_invisible_primary_key = ON",
        f"CREATE TABLE {database}.t (a INT)",
    )
    with ControlConnection(access_of(mysql_server)) as connection:
        text = SchemaReader(connection).show_create(database, "t")
    assert text is not None
    assert "my_row_id" in text


def test_all_tables(
    source_server: Server, source: ControlConnection, database: str
) -> None:
    """All schemas except the virtual ones, with collations, views and progress."""
    source_server.execute(
        f"ALTER DATABASE {database} CHARACTER SET latin2 COLLATE latin2_bin",
        *(f"CREATE TABLE {database}.t{number} (a INT)" for number in range(5)),
        f"CREATE VIEW {database}.v AS SELECT 1",
    )
    shown: list[tuple[int, int]] = []
    found = SchemaReader(source).read_all(lambda *counts: shown.append(counts))
    schema = found.schemas[database]
    assert schema.collation == "latin2_bin"
    assert sorted(schema.tables) == [f"t{number}" for number in range(5)]
    assert schema.views == {"v"}
    assert "mysql" in found.schemas
    assert "information_schema" not in found.schemas
    assert shown[-1] == (found.count, found.count)


def test_read_again(
    source_server: Server, source: ControlConnection, database: str
) -> None:
    """Changed tables are read again, dropped ones are removed, new ones added."""
    source_server.execute(
        f"CREATE TABLE {database}.kept (a INT)", f"CREATE TABLE {database}.gone (a INT)"
    )
    reader = SchemaReader(source)
    found = reader.read_all(lambda _done, _total: None)
    source_server.execute(
        f"ALTER TABLE {database}.kept ADD b INT",
        f"DROP TABLE {database}.gone",
        f"CREATE TABLE {database}.fresh (a INT)",
    )
    reader.read_into(
        found, [(database, "kept"), (database, "gone"), (database, "fresh")]
    )
    tables = found.schemas[database].tables
    assert sorted(tables) == ["fresh", "kept"]
    assert "`b`" in tables["kept"]
    source_server.execute(f"DROP TABLE {database}.fresh")
    reader.refresh_schemas(found, [database, "no_such_schema"])
    assert list(found.schemas[database].tables) == ["kept"]
    assert "no_such_schema" not in found.schemas


def test_a_table_that_cannot_be_read(
    source_server: Server, source: ControlConnection, database: str
) -> None:
    """A table that the server cannot open is reported as a problem; others are read."""
    source_server.execute(
        f"CREATE TABLE {database}.base (a INT) ENGINE=MyISAM",
        f"CREATE TABLE {database}.fine (a INT)",
        f"CREATE TABLE {database}.broken (a INT) ENGINE=MERGE UNION=({database}.base)",
        f"DROP TABLE {database}.base",
    )
    found = SchemaReader(source).read_all(lambda _done, _total: None)
    names = {name for name in found.problems if name[0] == database}
    tables = found.schemas[database].tables
    assert "fine" in tables
    assert ("broken" in tables) != ((database, "broken") in names)


def test_collations(source: ControlConnection) -> None:
    """Names are found by the ids in the binlog."""
    names = collation_names(source)
    assert names[8] == "latin1_swedish_ci"
    assert names[45] == "utf8mb4_general_ci"
    if source.is_mariadb:
        assert any("uca1400" in name for name in names.values())
    else:
        assert names[255] == "utf8mb4_0900_ai_ci"
