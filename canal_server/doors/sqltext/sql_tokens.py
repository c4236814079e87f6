"""Splits SQL text into tokens: quotes, comments and executable comments, by mode."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, Final, NamedTuple

from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import TokenError
from sqlglot.tokens import TokenType

MYSQL: Final = MySQL()  # settings, created once


class SqlTextError(ValueError):
    """A text without complete tokens: a quote or comment has no end."""


class Kind(Enum):
    """The kind of a token."""

    WORD = "word"  # a keyword or an unquoted name; numbers too
    NAME = "name"  # a quoted name
    STRING = "string"
    SIGN = "sign"


class Token(NamedTuple):
    """A word, name, string or sign; names and strings without quotes and escapes."""

    kind: Kind
    text: str
    quote: str = ""  # the opening character of a STRING


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a server parsed a text: the mode of its session, and which server it is.

    `server_version` is 80401 for 8.4.1; with 0 executable comments of any version count
    as executed.
    """

    ansi_quotes: bool = False
    no_backslash_escapes: bool = False
    mariadb: bool = False
    server_version: int = 0
    brackets: bool = False  # MariaDB: `[x]` is a name

    def executes(self, version: int) -> bool:
        """Return whether the server executed the content of `/*!version … */`."""
        if self.mariadb and version in _NOT_MARIADB:
            return False
        if not self.mariadb and version > _MYSQL_MAX:
            return False  # MariaDB's version, such as 100100
        return not self.server_version or version <= self.server_version


# "MariaDB ignores MySQL-style executable comments that have a version number in the
# interval 50700..99999" (MariaDB documentation, Comment Syntax)
_NOT_MARIADB: Final = range(50700, 100000)
_MYSQL_MAX: Final = 99999


# For a text that is read completely. Tables have at most 4,096 columns, 8,192
# partitions and 65,535 labels in an ENUM; a token needs some hundred bytes and some
# microseconds, which nothing interrupts.
SQL_CHARS_MAX: Final = 4 * 1024 * 1024
TOKENS_MAX: Final = 1 << 18


def tokens(sql: str, dialect: Dialect, *, chars_max: int | None = None) -> list[Token]:
    """Return the tokens of a text, without comments; executable ones are opened.

    With `chars_max` only about that many characters are read, and the text is cut
    between tokens. Raises SqlTextError.
    """
    text, found = scan(sql, dialect, chars_max)
    result: list[Token] = []
    end = -1  # where the last word ended in the text
    for token in found:
        kind = _KINDS.get(token.token_type, Kind.SIGN)
        if kind is Kind.WORD and token.start == end:
            # A name that begins with digits arrives as a number and a name.
            result[-1] = Token(kind, result[-1].text + token.text)
        else:
            quote = text[token.start] if kind is Kind.STRING else ""
            result.append(Token(kind, token.text, quote))
        end = token.end + 1 if kind is Kind.WORD else -1
    return result


def scan(
    sql: str, dialect: Dialect, chars_max: int | None = None
) -> tuple[str, list[Any]]:
    """Return a text with its executable comments opened, and sqlglot's tokens of it.

    Raises SqlTextError.
    """
    if chars_max is None and len(sql) > SQL_CHARS_MAX:
        raise SqlTextError(f"the text has {len(sql)} characters, limit {SQL_CHARS_MAX}")
    text = _opened(sql, dialect, chars_max)
    if len(text) > TOKENS_MAX:
        _refuse_many(text, dialect)
    try:
        # A new one each time: it holds the text, and threads share the class.
        tokenizer = _tokenizer(
            dialect.ansi_quotes, dialect.no_backslash_escapes, dialect.brackets
        )
        return text, tokenizer(MYSQL).tokenize(text)
    except (TokenError, ValueError, LookupError) as error:
        # The error of sqlglot quotes the text, which may hold a password.
        raise SqlTextError("a quote or a comment has no end") from error


def _refuse_many(text: str, dialect: Dialect) -> None:
    """Raise SqlTextError when a text has more words and signs than `TOKENS_MAX`.

    A quoted text counts once. This takes a fraction of the tokenizer's time.
    """
    chunk = _chunk(dialect.ansi_quotes, dialect.no_backslash_escapes, dialect.mariadb)
    count = 0
    for match in chunk.finditer(text):
        if match.lastgroup == "plain":
            count += len(_WORD_OR_SIGN.findall(match[0]))
        else:
            count += 1
        if count > TOKENS_MAX:
            raise SqlTextError(f"the text has more than {TOKENS_MAX} words and signs")


_WORD_OR_SIGN: Final = re.compile(r"\w+|[^\w\s]")

_KINDS: Final = {
    TokenType.VAR: Kind.WORD,
    TokenType.NUMBER: Kind.WORD,
    TokenType.IDENTIFIER: Kind.NAME,
    TokenType.STRING: Kind.STRING,
    TokenType.NATIONAL_STRING: Kind.STRING,
}


@cache
def _tokenizer(ansi_quotes: bool, no_backslash_escapes: bool, brackets: bool) -> Any:
    quotes = ["'"] if ansi_quotes else ["'", '"']

    class Words(MySQL.Tokenizer):  # type: ignore[misc]  # has no types
        QUOTES = quotes
        IDENTIFIERS = [  # noqa: RUF012
            "`",
            *(['"'] if ansi_quotes else []),
            *([("[", "]")] if brackets else []),
        ]
        STRING_ESCAPES = quotes if no_backslash_escapes else [*quotes, "\\"]
        # No keywords: `PRIMARY KEY` stays two words, and RENAME does not swallow the
        # rest of its statement as it does for sqlglot's parser.
        KEYWORDS: dict[str, TokenType] = {}  # noqa: RUF012  # as in its base
        COMMANDS: set[TokenType] = set()  # noqa: RUF012
        BIT_STRINGS: list[str] = []  # noqa: RUF012
        HEX_STRINGS: list[str] = []  # noqa: RUF012

    return Words


def _opened(sql: str, dialect: Dialect, chars_max: int | None) -> str:
    """Return the text with its executable comments opened, from its beginning."""
    limit = len(sql) if chars_max is None else chars_max
    if len(sql) <= limit and "/*!" not in sql and "/*M!" not in sql:
        return sql
    chunk = _chunk(dialect.ansi_quotes, dialect.no_backslash_escapes, dialect.mariadb)
    pieces = []
    at = 0
    depth = 0  # of executable comments that are open here
    while at < len(sql) and at < limit:
        match = chunk.match(sql, at)
        if match is None:
            # A quote or comment without an end: the tokenizer reports it.
            pieces.append(sql[at:])
            break
        at = match.end()
        piece = match[0]
        if match.lastgroup == "version":
            piece = " "
            if dialect.executes(int(match["version"] or 0)):
                depth += 1
            else:
                at = _end_of_comment(sql, at)
        elif piece == "*/" and depth:
            piece = " "
            depth -= 1
        elif at > limit:
            # Only text without quotes can be cut anywhere.
            piece = piece[: limit - at] if match.lastgroup == "plain" else ""
        pieces.append(piece)
    return "".join(pieces)


def _end_of_comment(sql: str, at: int) -> int:
    """Return where an executable comment ends that is not executed.

    Comments inside it end before it does.
    """
    depth = 1
    for bracket in _BRACKETS.finditer(sql, at):
        depth += 1 if bracket[0] == "/*" else -1
        if not depth:
            return bracket.end()
    raise SqlTextError("a comment has no end")


_BRACKETS: Final = re.compile(r"/\*|\*/")


@cache
def _chunk(
    ansi_quotes: bool, no_backslash_escapes: bool, mariadb: bool
) -> re.Pattern[str]:
    """Return a pattern for quoted text, a comment or the text between them."""
    with_escapes = r"{0}(?:[^{0}\\]|\\.|{0}{0})*+{0}"
    without = r"{0}(?:[^{0}]|{0}{0})*+{0}"
    single = without if no_backslash_escapes else with_escapes
    double = without if no_backslash_escapes or ansi_quotes else with_escapes
    opener = r"/\*M?!" if mariadb else r"/\*!"
    return re.compile(
        "|".join(
            (
                r"(?P<plain>[^'\"`/#*-]++)",
                single.format("'"),
                double.format('"'),
                without.format("`"),
                rf"{opener}(?P<version>(?:\d{{5,6}})?)",
                rf"(?!{opener})/\*.*?\*/",
                r"\*/",
                r"--(?=[\s\x00-\x1f]|\Z)[^\n]*+",
                r"\#[^\n]*+",
                r"/(?!\*)|[*-]",
            )
        ),
        re.DOTALL,
    )
