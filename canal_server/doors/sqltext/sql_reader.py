"""Reads a statement token by token, on sqlglot's parser.

The parser's own rules build expression trees and lose other parts of a server's DDL; so
only its cursor is used here, and the grammar is in the readers that derive from this
one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from sqlglot.dialects.mysql import MySQL
from sqlglot.tokens import TokenType

from canal_server.doors.sqltext.sql_tokens import MYSQL, Dialect, SqlTextError, scan

if TYPE_CHECKING:
    from collections.abc import Collection

NAME: Final = "`"  # what `peek` returns for a quoted name
STRING: Final = "'"  # and for a string

_WORDS: Final = frozenset((TokenType.VAR, TokenType.NUMBER))
_STRINGS: Final = frozenset((TokenType.STRING, TokenType.NATIONAL_STRING))


class SqlReader(MySQL.Parser):  # type: ignore[misc]  # has no types
    """A position in the tokens of one statement, which moves forward.

    `peek` distinguishes keywords from quoted names and strings: a word is returned in
    upper case, a sign as it is, a quoted name as NAME, a string as STRING, "" at the
    end.
    """

    def __init__(
        self, sql: str, dialect: Dialect, *, chars_max: int | None = None
    ) -> None:
        """Split a text into tokens. Raises SqlTextError."""
        super().__init__(dialect=MYSQL)
        self.sql, found = scan(sql, dialect, chars_max)
        self._escapes = not dialect.no_backslash_escapes
        heads: list[str] = []
        tokens: list[Any] = []
        end = -1  # where the last word ended
        for token in found:
            kind = token.token_type
            if kind in _WORDS:
                if token.start == end:
                    # A name that begins with digits arrives as a number and a name.
                    token.text = tokens[-1].text + token.text
                    token.start = tokens[-1].start
                    tokens.pop()
                    heads.pop()
                heads.append(token.text.upper())
                end = token.end + 1
            elif kind is TokenType.IDENTIFIER:
                heads.append(NAME)
            elif kind in _STRINGS:
                heads.append(STRING)
            else:
                heads.append(token.text)
            tokens.append(token)
        self._heads = heads
        self._tokens = tokens
        self._tokens_size = len(tokens)

    _index: int  # the base class's, which has no types

    def raise_error(self, message: str, token: Any = None) -> None:  # noqa: ARG002
        """Raise SqlTextError; without more of the text, which may hold a password."""
        raise SqlTextError(message)

    def _advance(self, times: int = 1) -> None:
        # Minimal: `_curr` and its neighbours are for the base class's own rules.
        self._index += times

    # The current token

    def peek(self, ahead: int = 0) -> str:
        """Return a word in upper case, a sign, NAME, STRING, or "" at the end."""
        index = self._index + ahead
        return self._heads[index] if index < self._tokens_size else ""

    def at_end(self) -> bool:
        """Whether the statement ends here; nothing is read past a semicolon."""
        return self.peek() in ("", ";")

    @property
    def index(self) -> int:
        """The index of the current token."""
        return self._index

    # Moving forward

    def next(self) -> str:
        """Step over a token and return what `peek` did."""
        word = self.peek()
        self._index += 1
        return word

    def accept(self, *words: str) -> bool:
        """Step over these words if all of them are next."""
        index = self._index
        for word in words:
            if index >= self._tokens_size or self._heads[index] != word:
                return False
            index += 1
        self._index = index
        return True

    def accept_any(self, words: Collection[str]) -> str:
        """Step over a word if it is one of these and return it, else ""."""
        word = self.peek()
        if word in words and word:
            self._index += 1
            return word
        return ""

    def expect(self, word: str) -> None:
        """Step over a word that must be next. Raises SqlTextError."""
        if not self.accept(word):
            self.raise_error(f"expected {word}, found {self.peek()[:40]!r}")

    def skip_if_exists(self) -> bool:
        """Step over IF EXISTS or IF NOT EXISTS; return whether one was next."""
        return self.accept("IF", "EXISTS") or self.accept("IF", "NOT", "EXISTS")

    def skip_parens(self) -> None:
        """Step over a pair of parentheses with its content, if one opens here."""
        if self.peek() != "(":
            return
        depth = 0
        for index in range(self._index, self._tokens_size):
            head = self._heads[index]
            if head == "(":
                depth += 1
            elif head == ")":
                depth -= 1
                if not depth:
                    self._index = index + 1
                    return
        self.raise_error("a parenthesis is not closed")

    def skip_to(self, words: Collection[str]) -> str:
        """Step to the first of these words outside parentheses, and return it.

        "" when the statement, or the enclosing parentheses, end before.
        """
        depth = 0
        for index in range(self._index, self._tokens_size):
            head = self._heads[index]
            if depth == 0:
                if head in words:
                    self._index = index
                    return head
                if head in (";", ")"):
                    self._index = index
                    return ""
            if head == "(":
                depth += 1
            elif head == ")":
                depth -= 1
        self._index = self._tokens_size
        return ""

    # Names and values

    def name(self) -> str:
        """Read one name, quoted or not. Raises SqlTextError."""
        index = self._index
        if index < self._tokens_size:
            token = self._tokens[index]
            kind = token.token_type
            # Double quotes make a name only with ANSI_QUOTES; a string cannot be where
            # a name must be, so the mode need not be known for certain.
            quote = self.sql[token.start]
            if kind in _WORDS:
                self._index = index + 1
                return _as_name(token.text)
            if kind is TokenType.IDENTIFIER or (kind in _STRINGS and quote == '"'):
                self._index = index + 1
                text: str = self.sql[token.start + 1 : token.end]
                quote = "]" if quote == "[" else quote
                return _as_name(text.replace(quote * 2, quote))
        self.raise_error(f"expected a name, found {self.peek()[:40]!r}")
        raise AssertionError("raise_error raises")

    def names(self) -> list[str]:
        """Read the parts of a name with dots. Raises SqlTextError."""
        self.accept(".")  # `.t` is `t`
        parts = [self.name()]
        while self.accept("."):
            parts.append(self.name())
        return parts

    def charset_name(self) -> str:
        """Read the name of a character set or collation, which may be a string."""
        return self.string() if self.peek() == STRING else self.name()

    def text_of(self, ahead: int = 0) -> str:
        """Return a token as it is in the text, quotes included."""
        token = self._tokens[self._index + ahead]
        return str(self.sql[token.start : token.end + 1])

    def text_between(self, start: int, end: int) -> str:
        """Return the text from one token to before another, comments included."""
        if start >= end:
            return ""
        first, last = self._tokens[start], self._tokens[end - 1]
        return str(self.sql[first.start : last.end + 1])

    def string(self) -> str:
        """Read a string and those that directly follow it. Raises SqlTextError."""
        if self.peek() != STRING:
            self.raise_error(f"expected a string, found {self.peek()[:40]!r}")
        parts = []
        while self.peek() == STRING:
            parts.append(unquoted(self.text_of(), escapes=self._escapes))
            self._index += 1
        return "".join(parts)


def _as_name(text: str) -> str:
    """Return a name as the server stores it.

    Characters beyond U+FFFF become a question mark. Bytes that are invalid in the
    client's character set arrive as U+FFFD: at the end they are dropped, elsewhere the
    server drops the next byte as well.
    """
    if text.isascii():
        return text
    return _NOT_IN_NAMES.sub("?", text.rstrip("\ufffd"))


_NOT_IN_NAMES: Final = re.compile("\ufffd.|[\U00010000-\U0010ffff]", re.DOTALL)


def unquoted(text: str, *, escapes: bool) -> str:
    """Return the value of a string as a server reads it."""
    if text[0] in "nN":
        text = text[1:]
    quote = text[0]
    body = text[1:-1]
    if not escapes or "\\" not in body:
        return body.replace(quote * 2, quote)
    pattern = _SINGLE if quote == "'" else _DOUBLE
    return pattern.sub(_meaning, body)


def _meaning(match: re.Match[str]) -> str:
    escaped = match[0]
    if escaped[0] != "\\":
        return escaped[0]  # a doubled quote
    # Both of these keep their backslash: they are for LIKE.
    return _ESCAPES.get(escaped[1], escaped if escaped[1] in "%_" else escaped[1])


_SINGLE: Final = re.compile(r"\\.|''", re.DOTALL)
_DOUBLE: Final = re.compile(r'\\.|""', re.DOTALL)
_ESCAPES: Final = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
