"""`schema show`: tables at a position or time, as SQL and as JSON."""

from __future__ import annotations

from fix_table_history import BOOK, SHOP, T0_MS, UUID

from canal_server.tablemeta.model.session_context import Context
from canal_server.tablemeta.storage.history_storage import StoredSchema
from canal_server.tablemeta.tables.schemas import read_table

ADD = (300, "ALTER TABLE book ADD pages int AFTER title")
DROP = (600, "ALTER TABLE book DROP price")


def columns(shown):
    """Return the names of the columns of the only table that was shown."""
    (table,) = shown
    return [each["name"] for each in table["columns"]]


def schemas_of(shown):
    """Return the schemas of the tables that were shown."""
    return [each["schema"] for each in shown]


def test_sql_is_read_by_people_and_by_us(written_history, schema):
    """The text has a header, a USE for each schema, and CREATE TABLEs that are read."""
    written_history.write(ADD)
    text = schema("show")
    assert text.startswith(
        f"-- destination example, server {UUID}\n-- as of binlog.000003:1000 ("
    )
    assert "\nUSE `shop`;\n-- a view: `cheap`\n" in text
    create = text[text.index("CREATE TABLE") :].removesuffix(";\n")
    table = read_table(("shop", "book"), create, Context("shop"))
    assert table is not None
    assert [each.name for each in table.columns] == ["id", "title", "pages", "price"]
    assert table.primary == ("id",)


def test_an_untouched_table_is_shown_as_the_server_reported_it(written_history, schema):
    """A table that no statement altered keeps the server's own text."""
    written_history.write()
    assert f"{BOOK};\n" in schema("show", "--table", "shop.book")


def test_tables_of_the_server_itself(written_history, schema):
    """They are shown where they are asked for, and what is left out is said."""
    tables = (("user", "CREATE TABLE user (a int)"),)
    written_history.write(base=(*SHOP, StoredSchema("mysql", "utf8mb4_bin", tables)))
    assert schemas_of(schema.objects("show")) == ["shop"]
    text = schema("show")
    assert "mysql`" not in text
    assert text.endswith("\n-- omitted without --all: mysql\n")
    assert schemas_of(schema.objects("show", "--all")) == ["mysql", "shop"]
    assert "omitted" not in schema("show", "--all")
    named = schema.objects("show", "--table", "mysql.user")
    assert schemas_of(named) == ["mysql"]


def test_at_a_position(written_history, schema):
    """A statement counts from the position after its start on."""
    written_history.write(ADD, DROP)
    before = schema.objects("show", "--at", "binlog.000003:300")
    assert columns(before) == ["id", "title", "price"]
    later = schema.objects("show", "--at", "binlog.000003:301")
    assert columns(later) == ["id", "title", "pages", "price"]
    assert columns(schema.objects("show")) == ["id", "title", "pages"]


def test_at_a_time(written_history, schema):
    """A time finds what was executed before it: with a zone, local, or as a number."""
    written_history.write(ADD, DROP)
    at = {
        name: columns(schema.objects("show", "--at", name))
        for name in (
            "2025-11-21T10:04:00Z",
            "2025-11-21 11:06:00+01:00",
            str(T0_MS + 700_000),
        )
    }
    assert list(at.values()) == [
        ["id", "title", "price"],
        ["id", "title", "pages", "price"],
        ["id", "title", "pages"],
    ]


def test_json_has_what_rows_depend_on(written_history, schema):
    """Each column has name, type, key, character set and peculiarities."""
    written_history.write(
        (300, "ALTER TABLE book ADD n int GENERATED ALWAYS AS (id + 1) INVISIBLE")
    )
    (shown,) = schema.objects("show")
    assert shown["columns"][0] == {
        "name": "id", "type": "int", "nullable": False, "key": 1, "charset": None,
        "generated": False, "invisible": False,
    }  # fmt: skip
    assert shown["columns"][1]["charset"] == "utf8mb4"
    assert shown["columns"][3]["generated"]
    assert shown["columns"][3]["invisible"]
    del shown["columns"]
    assert shown.pop("time").startswith("2025-11-21T")
    assert shown == {
        "schema": "shop", "table": "book", "primaryKey": ["id"], "charset": "utf8mb4",
        "uncertain": False, "server": UUID, "position": "binlog.000003:1000",
        "gtid": None,
    }  # fmt: skip


def test_some_tables(written_history, schema):
    """Tables are chosen by name or expression, and several choices add up."""
    written_history.write(
        (300, "CREATE TABLE a1 (a int)"),
        (400, "CREATE TABLE a2 (a int)"),
        (500, "CREATE TABLE `b$(x` (a int)"),
    )

    def shown(*tables):
        options = [word for each in tables for word in ("--table", each)]
        return [each["table"] for each in schema.objects("show", *options)]

    assert shown() == ["a1", "a2", "b$(x", "book"]
    assert shown("shop.book") == ["book"]
    assert shown(r"shop\.a.*", "shop.book") == ["a1", "a2", "book"]
    assert shown("shop.b$(x") == ["b$(x"]


def test_an_unknown_table(written_history, schema):
    """A missing table is an error with similar names."""
    written_history.write()
    schema("show", "--table", "shop.bok", status=1)
    assert schema.err == (
        "canal-server schema show: unknown table shop.bok; similar names: shop.book\n"
    )
    schema("show", "--table", "zzz", status=1)
    assert "expected schema.table" in schema.err
    schema("show", "--table", "shop.(", status=2)
    assert "--table shop.(" in schema.err


def test_uncertain_tables_are_marked(written_history, schema):
    """A table whose columns are a guess is said to be one, in both formats."""
    written_history.write((300, "CREATE TABLE guess SELECT * FROM book"))
    assert "-- `guess`: its columns are unknown" in schema("show")
    assert "-- uncertain: `guess` may have had different columns" in schema("show")
    guess = [each for each in schema.objects("show") if each["table"] == "guess"]
    assert [(each["uncertain"], each["columns"]) for each in guess] == [(True, None)]


def test_passwords_are_not_shown(written_history, schema):
    """The password of a table on another server stays in the history."""
    written_history.write()
    text = "CREATE TABLE `f` (`a` int) CONNECTION='mysql://u:se@cret@h/d/t'"
    written_history.write(base=(StoredSchema("shop", "", (("f", text),)),))
    shown = schema("show")
    assert "mysql://u:***@" in shown
    assert "cret" not in shown


def test_control_characters_do_not_reach_a_terminal(written_history, schema):
    """A name cannot move the cursor of a terminal."""
    written_history.write((300, "CREATE TABLE `x\x1b[2J` (a int)"))
    assert "\x1b" not in schema("show")
    assert r"CREATE TABLE `x\x1b[2J`" in schema.out


def test_the_newest_segment_counts(written_history, schema):
    """If two segments cover a position, the one that was written last is used."""
    written_history.write(ADD)
    written_history.write(DROP, first=400, source="other")
    assert schema.objects("show", "--at", "binlog.000003:350")[0]["server"] == UUID
    assert schema.objects("show", "--at", "binlog.000003:450")[0]["server"] == "other"
