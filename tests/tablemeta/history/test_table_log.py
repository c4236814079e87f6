"""The changes of one table, found in a history."""

from __future__ import annotations

import pytest
from fix_table_history import BOOK, UUID, WrittenHistory

from canal_server.tablemeta.history.table_log import Changelog, since
from canal_server.tablemeta.storage.history_storage import StoredSchema

BASE = (
    157,
    [
        "+ table shop.book",
        "+ id int not null auto_increment",
        "+ title varchar(100)",
        "+ price decimal(8,2)",
        "+ primary key (id)",
    ],
)


@pytest.fixture
def changes(written_history: WrittenHistory):
    """Return a function that lists the changes of a table."""

    def ask(name, schema="shop"):
        storage = written_history.storage
        storage.open()
        try:
            return Changelog(storage).of_table(schema, name)
        finally:
            storage.close()

    return ask


@pytest.fixture
def describe(changes):
    """Return a function that lists the offset and the differences of each change."""

    def ask(name, schema="shop"):
        return [
            (each.position.position, [str(one) for one in each.found])
            for each in changes(name, schema)
        ]

    return ask


def test_statements_that_changed_it(written_history, describe):
    """Its base comes first, then each statement with what it made of the columns."""
    written_history.write(
        (300, "ALTER TABLE book ADD n int FIRST, DROP price"),
        (350, "ALTER TABLE other ADD n int"),
        (400, "CREATE INDEX by_title ON shop.book (title)"),
        (500, "DROP TABLE book"),
    )
    assert describe("book") == [
        BASE,
        (300, ["- price decimal(8,2)", "+ n int first"]),
        (400, ["+ key by_title (title)"]),
        (500, ["- table shop.book (3 columns)"]),
    ]


def test_renamed_columns_are_reported_as_such(written_history, describe):
    """A CHANGE and a RENAME COLUMN do not add columns."""
    written_history.write(
        (300, "ALTER TABLE book CHANGE title name varchar(200), RENAME COLUMN id TO no")
    )
    assert describe("book")[1:] == [
        (
            300,
            [
                "~ id renamed to no",
                "~ title renamed to name: varchar(100) → varchar(200)",
            ],
        )
    ]


def test_columns_that_swap_names(written_history, describe):
    """Two renames that swap names are two renames."""
    written_history.write(
        (300, "ALTER TABLE book RENAME COLUMN id TO title, RENAME COLUMN title TO id")
    )
    assert describe("book")[1:] == [
        (300, ["~ id renamed to title", "~ title renamed to id"])
    ]


def test_statements_without_effect_on_columns(written_history, describe):
    """An ALTER of the table is listed even if columns and keys are unchanged."""
    written_history.write(
        (300, "ALTER TABLE book COMMENT = 'all of them'"),
        (400, "TRUNCATE TABLE book"),
    )
    assert describe("book") == [BASE, (300, [])]


def test_a_table_is_followed_to_its_former_name(written_history, describe):
    """What happened under the name that a RENAME replaced belongs to the table.

    The replaced name lists the new table, instead of the table that was removed.
    """
    written_history.write(
        (300, "ALTER TABLE book ADD n int"),
        (400, "RENAME TABLE book TO tome"),
        (500, "ALTER TABLE tome RENAME TO library.volume, ADD m int"),
        (600, "CREATE TABLE book (other int)"),
    )
    moved = (400, ["~ table shop.book renamed to shop.tome"])
    assert describe("volume", "library") == [
        BASE,
        (300, ["+ n int"]),
        moved,
        (500, ["~ table shop.tome renamed to library.volume", "+ m int"]),
    ]
    assert describe("tome")[-1] == (
        500,
        ["~ table shop.tome renamed to library.volume", "+ m int"],
    )
    assert describe("book") == [
        BASE,
        (300, ["+ n int"]),
        moved,
        (600, ["+ table shop.book", "+ other int"]),
    ]


def test_a_swap_by_an_online_ddl_tool(written_history, describe):
    """A table that replaces another one is listed as a change of that one."""
    written_history.write(
        (300, "CREATE TABLE `shop`.`_book_gho` LIKE `shop`.`book`"),
        (350, "ALTER TABLE `_book_gho` ADD n int AFTER id, MODIFY title text"),
        (400, "RENAME TABLE book TO _book_del, _book_gho TO book"),
        (500, "DROP TABLE _book_del"),
    )
    assert describe("book") == [
        BASE,
        (400, ["+ n int after id", "~ title: varchar(100) → text"]),
    ]
    assert [offset for offset, _ in describe("_book_del")] == [157, 400, 500]
    assert [offset for offset, _ in describe("_book_gho")] == [300, 350, 400]


def test_several_renames_in_one_statement(written_history, describe):
    """Renames run from left to right, and a table is followed through all of them."""
    written_history.write(
        (300, "CREATE TABLE b (x int)"),
        (400, "RENAME TABLE book TO tmp, b TO book, tmp TO b"),
    )
    assert [offset for offset, _ in describe("b")] == [300, 400]
    assert describe("b")[1][1][0] == "- x int"
    assert [offset for offset, _ in describe("book")] == [157, 400]


def test_schemas_that_come_and_go(written_history, describe):
    """DROP DATABASE is listed for its tables, and its character set is inherited."""
    written_history.write(
        (300, "DROP DATABASE shop"),
        (400, "CREATE DATABASE shop CHARACTER SET latin1"),
        (500, "CREATE TABLE book (t varchar(3))"),
    )
    assert describe("book") == [
        BASE,
        (300, ["- table shop.book (3 columns)"]),
        (500, ["+ table shop.book", "+ t varchar(3)"]),
    ]


def test_names_that_need_quotes(written_history, describe):
    """A name with quotes or blanks in it is found in the statements."""
    written_history.write(
        (300, "CREATE TABLE `a``b c` (x int)"),
        (400, "ALTER TABLE `shop` . `a``b c` ADD y int"),
    )
    assert [offset for offset, _ in describe("a`b c")] == [300, 400]


def test_a_later_segment_is_compared_with_the_one_before(written_history, describe):
    """At the start of a new segment, only unseen changes are listed."""
    written_history.write((300, "ALTER TABLE book ADD n int"), last=400)
    base = (StoredSchema("shop", "utf8mb4_bin", (("book", BOOK),)),)
    written_history.write((700, "ALTER TABLE book ADD m int"), base=base, first=600)
    assert describe("book") == [
        BASE,
        (300, ["+ n int"]),
        (600, ["- n int"]),
        (700, ["+ m int"]),
    ]


def test_statements_that_the_base_contains(written_history, changes):
    """A statement before the position of the base is marked as contained."""
    written_history.write(
        (700, "ALTER TABLE book DROP price"),
        contained=((300, "ALTER TABLE book ADD price decimal(8,2)"),),
        first=500,
    )
    found = changes("book")
    assert [(each.position.position, each.is_contained) for each in found] == [
        (300, False),  # the base, now at the position of the first statement
        (300, True),
        (700, False),
    ]
    assert [each.is_uncertain for each in found] == [True, False, False]
    assert [str(each) for each in found[2].found] == ["- price decimal(8,2)"]


def test_doubt_is_reported(written_history, changes):
    """A statement that does not determine the columns marks them as uncertain."""
    written_history.write((300, "CREATE TABLE book2 SELECT * FROM book"))
    (change,) = changes("book2")
    assert change.is_uncertain
    assert change.found == ()
    assert change.record.ddl.startswith("CREATE TABLE book2")
    assert change.segment.source == UUID


def test_unknown_tables(written_history, describe):
    """Nothing happened to a table that never was."""
    written_history.write((300, "ALTER TABLE book ADD n int"))
    assert describe("boo") == []
    assert describe("book", "other") == []


def test_since(written_history, changes):
    """Changes before a time are left out."""
    written_history.write(
        (300, "ALTER TABLE book ADD n int"), (400, "ALTER TABLE book ADD m int")
    )
    found = changes("book")
    assert since(found, 0) == found
    assert since(found, found[2].position.timestamp) == found[2:]
    assert since(found, found[2].position.timestamp + 1) == []


def test_statements_on_other_tables(written_history, describe):
    """What is of other tables does not change the answer, whatever their names."""
    noise = [
        (300 + 2 * number, f"CREATE TABLE book_{number} LIKE book")
        for number in range(100)
    ]
    written_history.write(
        *noise, (901, "ALTER TABLE book ADD n int"), (903, "DROP TABLE book_7")
    )
    assert describe("book") == [BASE, (901, ["+ n int"])]
    assert [offset for offset, _ in describe("book_7")] == [314, 903]
