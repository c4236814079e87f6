"""SQL text as tokens: quotes, comments, modes, and what may be cut off."""

from __future__ import annotations

import itertools

import pytest

from canal_server.doors.sqltext import Dialect, Kind, SqlTextError, Token, tokens
from canal_server.doors.sqltext.sql_tokens import SQL_CHARS_MAX, TOKENS_MAX

MYSQL = Dialect(server_version=80400)
MARIADB = Dialect(mariadb=True, server_version=101100)


def texts(sql, dialect=MYSQL, **options):
    """Return the texts of the tokens."""
    return [token.text for token in tokens(sql, dialect, **options)]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("RENAME TABLE a TO b", ["RENAME", "TABLE", "a", "TO", "b"]),
        ("a.b , `c``d`.`e f`", ["a", ".", "b", ",", "c`d", ".", "e f"]),
        ("ADD PRIMARY KEY(a)", ["ADD", "PRIMARY", "KEY", "(", "a", ")"]),
        ("1a.2b_ 3", ["1a", ".", "2b_", "3"]),
        ("$x 表.résumé", ["$x", "表", ".", "résumé"]),
        ("ALTER/**/TABLE`t`", ["ALTER", "TABLE", "t"]),
        ("a -- b\nc # d\n/* e */ f --", ["a", "c", "f"]),
        ("1--2", ["1", "-", "-", "2"]),
        ("'it''s' \"a\"\"b\" 'q\\'r' '\"'", ["it's", 'a"b', "q'r", '"']),
        ("`a\\` b", ["a\\", "b"]),
        ("`/* no */` '-- no' \"# no\"", ["/* no */", "-- no", "# no"]),
        ("x'41' N'n' _utf8'u'", ["x", "41", "n", "_utf8", "u"]),
        ("REPLACE INTO t", ["REPLACE", "INTO", "t"]),
        ("/*+ hint */ a", ["a"]),
        ("", []),
    ],
)
def test_tokens(sql, expected):
    """Words stay words; quotes, escapes and comments are removed."""
    assert texts(sql) == expected


def test_kinds():
    """Words, names, strings and signs are distinguished; strings keep their quote."""
    assert tokens("a `b` 'c' \"d\" , 1", MYSQL) == [
        Token(Kind.WORD, "a"),
        Token(Kind.NAME, "b"),
        Token(Kind.STRING, "c", "'"),
        Token(Kind.STRING, "d", '"'),
        Token(Kind.SIGN, ","),
        Token(Kind.WORD, "1"),
    ]


def test_ansi_quotes():
    """With ANSI_QUOTES double quotes make names, without escapes."""
    dialect = Dialect(ansi_quotes=True)
    assert tokens('"a""b" "c\\" \'d\'', dialect) == [
        Token(Kind.NAME, 'a"b'),
        Token(Kind.NAME, "c\\"),
        Token(Kind.STRING, "d", "'"),
    ]


def test_no_backslash_escapes():
    """With NO_BACKSLASH_ESCAPES a backslash is a character like any other."""
    assert texts("'a\\' b", Dialect(no_backslash_escapes=True)) == ["a\\", "b"]
    with pytest.raises(SqlTextError):
        texts("'a\\' b")


@pytest.mark.parametrize(
    ("sql", "dialect", "expected"),
    [
        ("a /*!50100 b */ c", MYSQL, "a b c"),
        ("/*!40000 a 'b*/' */ c", MYSQL, "a b*/ c"),
        ("/*!a*/b", MYSQL, "a b"),
        ("/*!080100 a */ b", MYSQL, "a b"),
        ("/*!90000 a */ b", MYSQL, "b"),
        ("/*!100100 a */ b", MYSQL, "b"),
        ("/*!90000 a /* inner */ x */ b", MYSQL, "b"),
        ("/*!50100 a /* inner */ b */ c", MYSQL, "a b c"),
        ("/*!50100 a /*!50100 b */ c */ d", MYSQL, "a b c d"),
        ("/*M! a */ b", MYSQL, "b"),
        ("/*M! a */ b", MARIADB, "a b"),
        ("/*M!100100 a */ b", MARIADB, "a b"),
        ("/*M!110100 a */ b", MARIADB, "b"),
        ("/*!50100 a */ b", MARIADB, "a b"),
        ("/*!50701 a */ b", MARIADB, "b"),
        ("/*!80023 a */ b", MARIADB, "b"),
        ("/*!100100 a */ b", MARIADB, "a b"),
        ("/*!90000 a */ b", Dialect(), "a b"),
        ("'/*!50100' a", MYSQL, "/*!50100 a"),
        ("`*/` /*! a `*/` */ b", MYSQL, "*/ a */ b"),
        ("-- /*!50100\na # /*!\nb /*!50000 c*/", MYSQL, "a b c"),
        ('"/*!" /*! "*/" */', Dialect(ansi_quotes=True), "/*! */"),
    ],
)
def test_executable_comments(sql, dialect, expected):
    """What the server executed is opened, what it skipped is not."""
    assert " ".join(texts(sql, dialect)) == expected


@pytest.mark.parametrize(
    "sql",
    ["'a", "`a", '"a', "a /*! 'b */", "/*!90000 a", "/*! 'a", "a 'b\\'", "N'a"],
)
def test_text_without_end(sql):
    """A quote or comment without its end is an error that does not show the text."""
    with pytest.raises(SqlTextError, match="has no end") as refused:
        tokens("SELECT 'secret', " + sql, MYSQL)
    assert "secret" not in str(refused.value)


def test_cut():
    """A text is cut between tokens, and what is cut off is not read."""
    assert texts("INSERT INTO t VALUES ('aaaaaaaaaa', 'b", chars_max=30) == [
        *("INSERT", "INTO", "t", "VALUES", "("),
    ]
    assert texts("INSERT INTO t VALUES (1, 2, 3)", chars_max=24) == [
        *("INSERT", "INTO", "t", "VALUES", "(", "1", ","),
    ]
    assert texts("a /*! b */ c", chars_max=10**9) == ["a", "b", "c"]
    assert texts("/*!50100 " + "a " * 50 + "*/", chars_max=40)[:3] == ["a"] * 3


def test_long_texts_without_end():
    """Many quotes after an unclosed one need no noticeable time."""
    with pytest.raises(SqlTextError):
        tokens("/*! */ `" + "'" * 200_000, MYSQL)


def written(rng, token, dialect):
    """Write a token as SQL, in one of the possible ways."""
    if token.kind is Kind.NAME:
        quote = rng.choice('`"') if dialect.ansi_quotes else "`"
        return quote + token.text.replace(quote, quote * 2) + quote
    if token.kind is Kind.STRING:
        text = token.text
        if not dialect.no_backslash_escapes:
            text = text.replace("\\", "\\\\")
        return token.quote + text.replace(token.quote, token.quote * 2) + token.quote
    return token.text


@pytest.mark.parametrize(
    ("ansi_quotes", "no_backslash_escapes", "mariadb"),
    list(itertools.product([False, True], repeat=3)),
)
def test_round_trip(rng, ansi_quotes, no_backslash_escapes, mariadb):
    """Random tokens written as SQL, with comments between, are read as written."""
    dialect = Dialect(ansi_quotes, no_backslash_escapes, mariadb)
    letters = "ab`'\"\\ */#-.,!\n表"
    quotes = "'" if ansi_quotes else "'\""
    for _ in range(300):
        expected = []
        for _ in range(rng.randint(1, 8)):
            text = "".join(rng.choices(letters, k=rng.randint(1, 6)))
            expected.append(
                rng.choice(
                    [
                        Token(Kind.WORD, rng.choice(["a", "TABLE", "1b", "x_1", "表"])),
                        Token(Kind.NAME, text),
                        Token(Kind.STRING, text, rng.choice(quotes)),
                        Token(Kind.SIGN, rng.choice("(),;=")),
                    ]
                )
            )
        gaps = [" ", "\n", "/* ' */", "-- `\n", '# "\n', "/*", "/*! */", " /*!50100 "]
        sql = ""
        opened = 0
        for token in expected:
            gap = rng.choice(gaps)
            if gap == "/*":
                gap = " "
            opened += gap == " /*!50100 "
            sql += gap + " " + written(rng, token, dialect) + " "
        sql += " */" * opened
        assert tokens(sql, dialect) == expected, sql


def test_long_texts_are_refused():
    """A text of very many tokens is not read, except for its start."""
    text = "ALTER TABLE t " + "ADD a INT," * (SQL_CHARS_MAX // 10)
    with pytest.raises(SqlTextError, match=f"limit {SQL_CHARS_MAX}"):
        tokens(text, Dialect())
    assert tokens(text, Dialect(), chars_max=100)[0].text == "ALTER"


@pytest.mark.parametrize("text", ["x,", "(", ") ", "/*!1*/ x", "'' ", "- "])
def test_too_many_tokens_are_refused(text):
    """A text of too many words and signs is refused before it is split."""
    with pytest.raises(SqlTextError, match=f"more than {TOKENS_MAX} words and signs"):
        tokens("CREATE " + text * TOKENS_MAX, Dialect())


def test_a_long_text_with_few_tokens():
    """A quoted text counts once, however many words and signs it has."""
    text = "COMMENT '" + "x, " * (TOKENS_MAX // 2) + "'"
    assert tokens(text, Dialect())[0].text == "COMMENT"
    labels = ",".join(f"'{each}'" for each in range(65535))
    assert len(tokens(f"a ENUM({labels})", Dialect())) == 2 * 65535 + 3
