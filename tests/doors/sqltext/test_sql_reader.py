"""Reading a statement token by token: the cursor, names and strings."""

from __future__ import annotations

import pytest

from canal_server.doors.sqltext import NAME, STRING, Dialect, SqlReader, SqlTextError

PLAIN = Dialect()


def reader(sql: str, dialect: Dialect = PLAIN) -> SqlReader:
    """Return a reader at the start of a text."""
    return SqlReader(sql, dialect)


def heads(sql: str, dialect: Dialect = PLAIN) -> list[str]:
    """Return what `peek` returns for each token."""
    words = reader(sql, dialect)
    found = []
    while not words.at_end():
        found.append(words.next())
    return found


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("Create table t", ["CREATE", "TABLE", "T"]),
        ("`create`, 'table'", [NAME, ",", STRING]),
        ("a-- b\n=1.5e3", ["A", "=", "1.5E3"]),
        ("1a 2b_", ["1A", "2B_"]),
        ("x'41' N'a' _utf8'b'", ["X", STRING, STRING, "_UTF8", STRING]),
        ("/*!50100 a */ b; c", ["A", "B"]),
    ],
)
def test_heads(sql: str, expected: list[str]) -> None:
    """Keywords are returned in upper case; quoted text is not a keyword."""
    assert heads(sql) == expected


def test_ansi_quotes() -> None:
    """Double quotes make a string or a name, by the mode."""
    assert heads('"a"') == [STRING]
    assert heads('"a"', Dialect(ansi_quotes=True)) == [NAME]


def test_accept() -> None:
    """Words are stepped over only when all of them are next."""
    words = reader("IF NOT EXISTS a IF EXISTS b")
    assert not words.accept("IF", "EXISTS")
    assert words.index == 0
    assert words.skip_if_exists()
    assert words.name() == "a"
    assert words.accept_any(("X", "IF")) == "IF"
    assert words.accept_any(("X",)) == ""
    words.expect("EXISTS")
    assert not words.skip_if_exists()
    with pytest.raises(SqlTextError, match="expected C, found 'B'"):
        words.expect("C")


def test_the_end() -> None:
    """After the last token there is nothing, however far ahead."""
    words = reader("a")
    assert words.peek(5) == ""
    words.next()
    assert words.at_end()
    assert words.next() == ""
    assert words.peek() == ""
    assert not words.accept("A")
    with pytest.raises(SqlTextError):
        words.name()


def test_parentheses() -> None:
    """Text in parentheses is stepped over as one."""
    words = reader("(a (b), ')') c")
    words.skip_parens()
    assert words.peek() == "C"
    words.skip_parens()
    assert words.peek() == "C"
    with pytest.raises(SqlTextError, match="not closed"):
        reader("(a").skip_parens()


def test_skip_to() -> None:
    """A word is searched outside of parentheses, up to the enclosing end."""
    words = reader("a (x) b x c) x")
    assert words.skip_to(("X",)) == "X"
    words.next()
    assert words.peek() == "C"
    assert words.skip_to(("X",)) == ""
    assert words.peek() == ")"
    assert reader("a; x").skip_to(("X",)) == ""
    assert reader("a").skip_to(("X",)) == ""


def test_names() -> None:
    """Names are returned without quotes, a string in double quotes may be one."""
    words = reader("a.`b``c`.d .e \"f\" 5g 'h'")
    assert words.names() == ["a", "b`c", "d", "e"]
    assert words.name() == "f"
    assert words.name() == "5g"
    with pytest.raises(SqlTextError, match="expected a name"):
        words.name()


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("'a'", "a"),
        ('\'it\'\'s\' "say ""x"""', 'it\'ssay "x"'),
        (r"'\0\'\"\b\n\r\t\Z\\\%\_\x'", "\0'\"\b\n\r\t\x1a\\\\%\\_x"),
        ("N'a' 'b'", "ab"),
        (r"'a\'", None),
        ("''", ""),
    ],
)
def test_strings(sql: str, expected: str | None) -> None:
    """Escapes mean what they mean to the servers; neighbours are one string."""
    if expected is None:
        with pytest.raises(SqlTextError):
            reader(sql)
    else:
        assert reader(sql).string() == expected


def test_strings_without_escapes() -> None:
    """In that mode a backslash is an ordinary character."""
    dialect = Dialect(no_backslash_escapes=True)
    assert reader(r"'a\' 'b''\n'", dialect).string() == r"a\b'\n"


def test_no_string() -> None:
    """A string is required where there is none."""
    with pytest.raises(SqlTextError, match="expected a string"):
        reader("a").string()
    assert reader("'latin1'").charset_name() == "latin1"
    assert reader("latin1").charset_name() == "latin1"


def test_errors_show_no_secrets() -> None:
    """An error shows no more of the text than its own words."""
    with pytest.raises(SqlTextError) as caught:
        reader("a 'secret' b").raise_error("no such thing")
    assert str(caught.value) == "no such thing"


def test_text_of() -> None:
    """A token's own text is that of the statement, quotes included."""
    words = reader("/* 1 */ a `b c` 'd''e'")
    assert [words.text_of(ahead) for ahead in range(3)] == ["a", "`b c`", "'d''e'"]
