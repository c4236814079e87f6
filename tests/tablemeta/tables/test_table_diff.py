"""Differences of tables, as people and programs read them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from canal_server.tablemeta.model.table_schema import (
    Column,
    Key,
    Part,
    Table,
    Versioning,
)
from canal_server.tablemeta.tables.table_diff import differences

ID = Column("id", "int", nullable=False, flags="A")
NAME = Column("name", "varchar(20)", charset="utf8mb4")
PRICE = Column("price", "decimal(8,2)")
BOOK = Table("shop", "book", (ID, NAME, PRICE), ("id",), "utf8mb4", engine="innodb")


def lines(before, after, **renamed):
    """Return the differences as text."""
    return [str(each) for each in differences(before, after, renamed)]


def test_equal_tables():
    """Nothing differs between a table and itself, nor between none and none."""
    assert lines(BOOK, replace(BOOK)) == []
    assert lines(None, None) == []


def test_a_new_table():
    """A new table is shown with its columns and keys."""
    table = replace(BOOK, keys=(Key("by_name", "UNIQUE", (Part("name", 10),)),))
    assert lines(None, table) == [
        "+ table shop.book",
        "+ id int not null auto_increment",
        "+ name varchar(20)",
        "+ price decimal(8,2)",
        "+ primary key (id)",
        "+ unique key by_name (name(10))",
    ]


def test_a_table_that_was_dropped():
    """A table that went is one line."""
    assert lines(BOOK, None) == ["- table shop.book (3 columns)"]
    assert lines(replace(BOOK, columns=(ID,)), None) == ["- table shop.book (1 column)"]


def test_a_renamed_table():
    """A table under another name is not another table."""
    assert lines(BOOK, BOOK.renamed("old", "tome")) == [
        "~ table shop.book renamed to old.tome"
    ]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ((ID, NAME, PRICE, Column("n", "int")), "+ n int"),
        ((Column("n", "int"), ID, NAME, PRICE), "+ n int first"),
        ((ID, Column("n", "int", nullable=False), NAME, PRICE),
         "+ n int not null after id"),
        ((ID, PRICE), "- name varchar(20)"),
        ((ID, NAME, replace(PRICE, type="decimal(9,2)")),
         "~ price: decimal(8,2) → decimal(9,2)"),
        ((ID, NAME, replace(PRICE, nullable=False)),
         "~ price: decimal(8,2) → decimal(8,2) not null"),
        ((ID, NAME, replace(PRICE, flags="I")),
         "~ price: decimal(8,2) → decimal(8,2) invisible"),
        ((ID, replace(NAME, charset="latin1"), PRICE),
         "~ name: varchar(20) charset utf8mb4 → varchar(20) charset latin1"),
        ((NAME, ID, PRICE), "~ name moved first"),
        ((ID, PRICE, NAME), "~ price moved after id"),
        ((ID, NAME, replace(PRICE, name="PRICE")), "~ price renamed to PRICE"),
    ],
)  # fmt: skip
def test_one_column(columns, expected):
    """Each kind of change of a column is one line that names it."""
    assert lines(BOOK, replace(BOOK, columns=columns)) == [expected]


def test_columns_that_were_renamed():
    """A column with a known new name is the same one, moved and altered at once."""
    after = replace(BOOK, columns=(ID, replace(NAME, name="title"), PRICE))
    assert lines(BOOK, after, name="title") == ["~ name renamed to title"]
    assert lines(BOOK, after) == ["- name varchar(20)", "+ title varchar(20) after id"]
    longer = replace(NAME, name="title", type="varchar(40)")
    after = replace(BOOK, columns=(longer, ID, PRICE))
    (shown,) = [each for each in lines(BOOK, after, name="title") if "title" in each]
    assert shown.startswith("~ name renamed to title")
    assert shown.endswith(": varchar(20) → varchar(40)")


def test_names_that_were_swapped():
    """Two columns that swap names are two renames, nothing else."""
    after = replace(
        BOOK, columns=(ID, replace(NAME, name="price"), replace(PRICE, name="name"))
    )
    assert lines(BOOK, after, name="price", price="name") == [
        "~ name renamed to price",
        "~ price renamed to name",
    ]


def test_a_name_that_another_column_took():
    """The column that was dropped for it is shown as removed."""
    after = replace(BOOK, columns=(ID, replace(NAME, name="price")))
    assert lines(BOOK, after, name="price") == [
        "- price decimal(8,2)",
        "~ name renamed to price",
    ]


def test_keys():
    """Primary and other keys are shown with their columns."""
    keyed = replace(
        BOOK,
        keys=(
            Key("a", "", (Part("name"),)),
            Key("b", "UNIQUE", (Part("name"), Part("price"))),
            Key("c", "", (Part("id"),)),
        ),
    )
    after = replace(
        BOOK,
        primary=("id", "name"),
        keys=(
            Key("a", "UNIQUE", (Part("name"),)),
            Key("b", "UNIQUE", (Part("name", 5), Part("price"))),
            Key("d", "FULLTEXT", (Part(""),)),
        ),
    )
    assert lines(keyed, after) == [
        "~ primary key: (id) → (id, name)",
        "- key c (id)",
        "- key a (name)",
        "+ unique key a (name)",
        "~ unique key b: (name, price) → (name(5), price)",
        "+ fulltext key d (…)",
    ]
    assert lines(BOOK, replace(BOOK, primary=())) == ["- primary key (id)"]
    assert lines(replace(BOOK, primary=()), BOOK) == ["+ primary key (id)"]


def test_a_renamed_column_stays_in_its_keys():
    """Keys that follow the new name of a column are the same."""
    before = replace(BOOK, keys=(Key("k", "", (Part("id"), Part("name"))),))
    after = replace(
        BOOK,
        columns=(replace(ID, name="no"), NAME, PRICE),
        primary=("no",),
        keys=(Key("k", "", (Part("no"), Part("name"))),),
    )
    assert lines(before, after, id="no") == ["~ id renamed to no"]


def test_options():
    """Character set, engine and versioning of the table are shown."""
    after = replace(
        BOOK, charset="latin1", engine="myisam", versioning=Versioning.HIDDEN
    )
    assert [each for each in lines(BOOK, after) if "charset" in each] == [
        "~ default charset: utf8mb4 → latin1"
    ]
    assert "~ engine: innodb → myisam" in lines(BOOK, after)
    assert "~ system versioning: off → hidden" in lines(BOOK, after)
    assert lines(BOOK, replace(BOOK, engine="")) == []


def test_as_json():
    """Programs get the parts of a difference without those that are not set."""
    after = replace(BOOK, columns=(ID, Column("n", "int"), NAME, PRICE))
    (found,) = differences(BOOK, after)
    assert found.as_json() == {
        "sign": "+",
        "what": "column",
        "name": "n",
        "after": "int",
        "place": "after id",
    }


def test_any_order_is_described_by_the_fewest_moves(rng):
    """Columns not shown as moved have the same order before and after."""
    names = [f"c{number}" for number in range(12)]
    for _ in range(200):
        columns = [Column(name, "int") for name in names]
        before = replace(BOOK, columns=tuple(columns), primary=())
        moves = rng.randrange(4)
        for _ in range(moves):
            one = columns.pop(rng.randrange(len(columns)))
            columns.insert(rng.randrange(len(columns) + 1), one)
        after = replace(before, columns=tuple(columns))
        found = differences(before, after)
        assert len(found) <= moves
        assert all(each.sign == "~" and each.position for each in found)
        moved = {each.name for each in found}
        assert [each.name for each in columns if each.name not in moved] == [
            name for name in names if name not in moved
        ]
