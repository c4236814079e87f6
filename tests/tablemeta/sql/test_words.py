"""Reading a statement word by word."""

from __future__ import annotations

import pytest

from canal_server.doors.sqltext import Dialect, tokens
from canal_server.tablemeta.sql.words import NoNameError, Words


def words(sql, schema="db"):
    """Return a text as words."""
    return Words(tokens(sql, Dialect()), schema)


def test_words_are_compared_in_upper_case():
    """Words match whatever their case; quoted names and strings never do."""
    here = words("create `table` 'x' ,")
    assert here.accept("CREATE")
    assert here.peek() == ""
    assert not here.accept("TABLE")
    assert [here.next() for _ in range(3)] == ["", "", ","]
    assert here.at_end()
    assert here.next() == ""


def test_several_words_are_accepted_or_none():
    """A sequence that does not follow leaves the offset unchanged."""
    here = words("IF NOT EXISTS t")
    assert not here.accept("IF", "EXISTS")
    assert here.peek() == "IF"
    here.skip_if_exists()
    assert here.name() == "t"


def test_skip_to_passes_over_parentheses_strings_and_quoted_names():
    """What is searched for counts outside of parentheses and quotes only."""
    here = words("a (b, c) ',' `on` d ON e")
    assert here.skip_to(("ON", ",")) == "ON"
    assert here.next() == "ON"
    assert here.skip_to(("ON",)) == ""
    assert here.at_end()


def test_nothing_is_read_past_a_semicolon():
    """A semicolon ends the statement."""
    here = words("a ; ON")
    assert here.skip_to(("ON",)) == ""
    assert here.at_end()


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("t", ("db", "t")),
        ("s . t", ("s", "t")),
        ("`a.b`.`c`", ("a.b", "c")),
        (".t", ("db", "t")),
        ('"t"', ("db", "t")),
        ("select.from", ("select", "from")),
    ],
)
def test_tables(sql, expected):
    """A table may be named with and without schema and quotes."""
    assert words(sql).table() == expected


@pytest.mark.parametrize("sql", ["", "(a)", "'t'", "a.b.c", "a.", "a.'b'"])
def test_no_tables(sql):
    """Anything but a table name is an error."""
    with pytest.raises(NoNameError):
        words(sql).table()
