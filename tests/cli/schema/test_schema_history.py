"""`schema history`: who changed a table, as text and as JSON."""

from __future__ import annotations

from fix_table_history import T0_MS, UUID

ADD = (300, "ALTER TABLE book\n  ADD pages int\tAFTER title")
RENAME = (400, "RENAME TABLE book TO tome")


def test_text(written_history, schema):
    """Each change has its time, position, session, statement and result."""
    written_history.write(ADD, RENAME)
    first, add, rename, rest = schema("history", "--table", "shop.tome").split("\n\n")
    assert rest == ""
    assert first.splitlines()[0].endswith(
        f"  binlog.000003:157  read tables of server {UUID}"
    )
    assert first.splitlines()[1:] == [
        "  + table shop.book",
        "  + id int not null auto_increment",
        "  + title varchar(100)",
        "  + price decimal(8,2)",
        "  + primary key (id)",
    ]
    assert add.splitlines()[0].startswith("2025-11-21T")
    assert add.splitlines()[0].endswith(
        f"  binlog.000003:300  in shop  thread 17  GTID {UUID}:300"
    )
    assert add.splitlines()[1:] == [
        "    ALTER TABLE book ADD pages int AFTER title",
        "  + pages int after title",
    ]
    assert rename.splitlines()[1:] == [
        "    RENAME TABLE book TO tome",
        "  ~ table shop.book renamed to shop.tome",
    ]


def test_json(written_history, schema):
    """Programs get the same as values, the differences in parts and as lines."""
    written_history.write(ADD)
    base, add = schema.objects("history", "--table", "shop.book")
    assert "sql" not in base
    assert base["lines"][0] == "+ table shop.book"
    assert add.pop("time").startswith("2025-11-21T")
    assert add == {
        "position": "binlog.000003:300",
        "gtid": f"{UUID}:300",
        "server": UUID,
        "schema": "shop",
        "table": "book",
        "differences": [
            {
                "sign": "+",
                "what": "column",
                "name": "pages",
                "after": "int",
                "place": "after title",
            }
        ],
        "lines": ["+ pages int after title"],
        "uncertain": False,
        "sql": ADD[1],
        "sqlCharacters": len(ADD[1]),
        "defaultSchema": "shop",
        "threadId": 17,
        "contained": False,
        "answer": False,
    }


def test_since(written_history, schema):
    """What happened before a time is left out, but not the later differences."""
    written_history.write(ADD, RENAME)
    (only,) = schema.objects(
        "history", "--table", "shop.tome", "--since", str(T0_MS + 400_000)
    )
    assert only["lines"] == ["~ table shop.book renamed to shop.tome"]
    assert not schema("history", "--table", "shop.tome", "--since", "2037-01-01")
    assert "nothing changed shop.tome since 2037-01-01T" in schema.err


def test_a_long_statement_is_cut(written_history, schema):
    """A statement of thousands of characters is shortened, with its length."""
    columns = ", ".join(f"c{number} int" for number in range(1000))
    written_history.write((300, f"CREATE TABLE wide ({columns})"))
    shown = schema("history", "--table", "shop.wide").splitlines()[1]
    assert shown.startswith("    CREATE TABLE wide (c0 int, c1 int")
    assert shown.endswith(f"… ({len(columns) + 20} characters)")
    assert len(shown) < 350


def test_passwords_are_not_shown(written_history, schema):
    """Passwords that stand in a definition are left out, in both formats."""
    written_history.write(
        (300, "CREATE TABLE f (a int) CONNECTION = 'mysql://u:se@cret@h:3306/d/t'"),
        (400, 'ALTER TABLE f COMMENT \'host "h", user "u", password "seecret"\''),
    )
    for out in (
        schema("history", "--table", "shop.f"),
        schema("history", "--table", "shop.f", "--format", "json"),
    ):
        assert "cret" not in out
        assert out.count("***") == 2


def test_notes(written_history, schema):
    """Doubt, statements without effect and contained ones are reported."""
    written_history.write(
        (700, "ALTER TABLE book COMMENT 'x'"),
        (800, "CREATE TABLE guess SELECT 1"),
        contained=((300, "ALTER TABLE book ADD price decimal(8,2)"),),
        first=500,
    )
    output = schema("history", "--table", "shop.book").split("\n\n")
    assert "(columns may differ from here on)" in output[0]
    assert "(already contained in definitions read from the server later)" in output[1]
    assert output[2].splitlines()[2:] == ["  (columns and keys unchanged)"]
    assert "may differ" in schema("history", "--table", "shop.guess")


def test_what_the_server_was_asked(written_history, schema):
    """A table that was created without the binlog is reported as an answer."""
    answer = "CREATE TABLE `quiet` (`a` int)"
    written_history.write(ADD, answers=((900, answer),))
    output = schema("history", "--table", "shop.quiet").splitlines()
    assert output[0].endswith("  read from the server")
    assert output[1:4] == [f"    {answer}", "  + table shop.quiet", "  + a int"]
    (found,) = schema.objects("history", "--table", "shop.quiet")
    assert found["answer"]
    assert not found["contained"]


def test_unknown_tables(written_history, schema):
    """A table that never was is an error with similar names; so is half a name."""
    written_history.write(RENAME)
    schema("history", "--table", "shop.tom", status=1)
    assert "unknown table shop.tom; similar names: shop.tome" in schema.err
    schema("history", "--table", "tome", status=2)
    assert "--table tome: expected schema.table" in schema.err
