"""Reading a statement word by word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.doors.sqltext import Kind, Token

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from canal_server.model.ddl_statement import TableName

_END = Token(Kind.SIGN, "")


class NoNameError(Exception):
    """There is no table name where there must be one."""


class Words:
    """A place in the tokens of a statement, which moves forward.

    `schema` is that of tables which are named without one.
    """

    def __init__(self, tokens: Sequence[Token], schema: str | None) -> None:
        self._tokens = tokens
        self._at = 0
        self.schema = schema

    def at_end(self) -> bool:
        """Tell whether the statement ends here; nothing is read past a semicolon."""
        return self.peek() in ("", ";")

    def peek(self, ahead: int = 0) -> str:
        """Return a word in upper case or a sign; "" for others and at the end."""
        token = self._token(ahead)
        if token.kind is Kind.WORD:
            return token.text.upper()
        return token.text if token.kind is Kind.SIGN else ""

    def next(self) -> str:
        """Step over a token and return what `peek` did."""
        word = self.peek()
        self._at += 1
        return word

    def accept(self, *words: str) -> bool:
        """Step over these words if all of them stand here."""
        found = all(self.peek(ahead) == word for ahead, word in enumerate(words))
        if found:
            self._at += len(words)
        return found

    def accept_any(self, words: Collection[str]) -> str:
        """Step over a word if it is one of these and return it, else ""."""
        return self.next() if self.peek() in words else ""

    def skip_all(self, words: Collection[str]) -> None:
        """Step over words as long as they are some of these."""
        while self.accept_any(words):
            pass

    def skip_if_exists(self) -> None:
        """Step over IF EXISTS or IF NOT EXISTS."""
        if self.accept("IF"):
            self.accept("NOT")
            self.accept("EXISTS")

    def skip_to(self, words: Collection[str]) -> str:
        """Step to the first of these that is in no parentheses, and return it.

        "" when the statement ends before.
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
        """Read one name, with or without quotes. Raises NoNameError."""
        token = self._token(0)
        # Double quotes make a name with ANSI_QUOTES only; a string cannot stand
        # where a name must, so the mode need not be known for certain.
        if token.kind is Kind.SIGN or (
            token.kind is Kind.STRING and token.quote != '"'
        ):
            raise NoNameError(f"no name but {token.text[:40]!r}")
        self._at += 1
        return token.text

    def table(self) -> TableName:
        """Read the name of a table, with or without a schema. Raises NoNameError."""
        schema = self.schema
        self.accept(".")  # `.t` is `t`
        table = self.name()
        if self.accept("."):
            schema, table = table, self.name()
        if self.peek() == ".":
            raise NoNameError("a name of three parts")
        return schema, table

    def _token(self, ahead: int) -> Token:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else _END
