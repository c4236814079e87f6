"""Parsing a statement word by word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.doors.sqltext import Kind, Token

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from canal_server.model.ddl_statement import TableName

_END = Token(Kind.SIGN, "")


class NoNameError(Exception):
    """A table name is missing."""


class Words:
    """An offset in the tokens of a statement, which moves forward.

    `schema` is the schema of tables that are named without one.
    """

    def __init__(self, tokens: Sequence[Token], schema: str | None) -> None:
        self._tokens = tokens
        self._at = 0
        self.schema = schema

    def at_end(self) -> bool:
        """Return whether the statement ends here; parsing stops at a semicolon."""
        return self.peek() in ("", ";")

    def peek(self, ahead: int = 0) -> str:
        """Return a word in upper case or a sign; "" for others and at the end."""
        token = self._token(ahead)
        if token.kind is Kind.WORD:
            return token.text.upper()
        return token.text if token.kind is Kind.SIGN else ""

    def next(self) -> str:
        """Skip a token and return what `peek` returned."""
        word = self.peek()
        self._at += 1
        return word

    def accept(self, *words: str) -> bool:
        """Skip these words if all of them follow."""
        found = all(self.peek(ahead) == word for ahead, word in enumerate(words))
        if found:
            self._at += len(words)
        return found

    def accept_any(self, words: Collection[str]) -> str:
        """Skip a word if it is one of these and return it, else ""."""
        return self.next() if self.peek() in words else ""

    def skip_all(self, words: Collection[str]) -> None:
        """Skip words as long as they are among these."""
        while self.accept_any(words):
            pass

    def skip_if_exists(self) -> None:
        """Skip IF EXISTS or IF NOT EXISTS."""
        if self.accept("IF"):
            self.accept("NOT")
            self.accept("EXISTS")

    def skip_to(self, words: Collection[str]) -> str:
        """Skip to the first of these words outside parentheses, and return it.

        Returns "" if the statement ends before.
        """
        depth = 0
        while self._at < len(self._tokens):
            word = self.peek()
            if depth == 0 and word in words:
                return word
            if depth == 0 and word == ";":
                break
            depth += (word == "(") - (word == ")")
            self._at += 1
        return ""

    def name(self) -> str:
        """Parse one name, with or without quotes. Raises NoNameError."""
        token = self._token(0)
        # Double quotes enclose a name only with ANSI_QUOTES; but a string cannot be
        # where a name is required, so the mode does not matter.
        if token.kind is Kind.SIGN or (
            token.kind is Kind.STRING and token.quote != '"'
        ):
            raise NoNameError(f"expected a name, found {token.text[:40]!r}")
        self._at += 1
        return token.text

    def table(self) -> TableName:
        """Parse a table name, with or without a schema. Raises NoNameError."""
        schema = self.schema
        self.accept(".")  # `.t` is `t`
        table = self.name()
        if self.accept("."):
            schema, table = table, self.name()
        if self.peek() == ".":
            raise NoNameError("name with three parts")
        return schema, table

    def _token(self, ahead: int) -> Token:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else _END
