"""Which tables a client or an instance wants: white and black lists.

A list is an expression: regular expressions with commas between them, each for
`schema.table`. Leaves out the syntax of one regular expression (`patterns`) and the
columns of a table (`columns`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from canal_server.model.quoted import quoted
from canal_server.sink.matching import (
    STEPS_MAX,
    Steps,
    TooManyStepsError,
    match_end,
)
from canal_server.sink.patterns import compile_piece

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from canal_server.core.subjects import Names
    from canal_server.ports import Accepts

logger = logging.getLogger(__name__)

# A schema and a table of 64 characters each, which a costly expression likes.
_PROBE: Final = "a" * 64 + "." + "a" * 64
_STEPS_PER_PIECE: Final = 20  # so that long lists of plain names have enough

_OPENERS: Final = "{[("
_CLOSERS: Final = "}])"


class TableFilter:
    """A white list and a black list of tables; immutable.

    An empty white list takes every table, an empty black list drops none. Raises
    ValueError when an expression cannot be used.
    """

    def __init__(self, white: str, black: str) -> None:
        self.white = white
        self.black = black
        self._wants = compile_expression(white, default=True)
        self._drops = compile_expression(black, default=False)

    def accepts(self, names: Names) -> bool:
        """Tell whether an entry with these table names passes.

        It passes when one of them is on the white list and not all are on the black
        one; entries without names always do.
        """
        texts = [f"{schema or 'null'}.{table}" for schema, table in names]
        if not texts:
            return True
        return any(map(self._wants, texts)) and not all(map(self._drops, texts))

    def drops_schema(self, schema: str) -> bool:
        """Tell whether the black list takes a schema as a whole (`schema.%`)."""
        return self._drops(f"{schema}.%")

    def __repr__(self) -> str:
        return f"TableFilter({quoted(self.white)}, {quoted(self.black)})"


def for_client(expression: str, instance_default: str, black: str) -> TableFilter:
    """Make a client's filter: its own expression, or the default when that is empty.

    The black list of the instance holds for each client. Raises ValueError.
    """
    return TableFilter(expression or instance_default, black)


def union(filters: Iterable[TableFilter]) -> Accepts:
    """Return what tells whether at least one of the filters accepts an entry."""
    accepting = tuple(each.accepts for each in filters)
    return lambda names: not names or any(accepts(names) for accepts in accepting)


def compile_expression(
    expression: str, *, default: bool = True
) -> Callable[[str], bool]:
    """Return what tells whether a text like `schema.table` matches the expression.

    The function is pure, bounded in time and never raises. `default` is its answer
    when the expression or the text is empty, and when the expression is so costly
    that a match is given up: true for white lists, false for black ones, so that
    nothing is lost. Raises ValueError when the expression cannot be used.
    """
    pieces = sorted(split_expression(expression), key=len, reverse=True)
    if not pieces:
        return lambda _text: default
    return _Matcher(expression, pieces, default=default)


def split_expression(expression: str) -> list[str]:
    """Split at commas that stand outside of brackets and braces; drop empty pieces.

    Blanks are kept. An opener in a class of characters counts as well.
    """
    pieces = []
    depths = [0, 0, 0]
    piece = ""
    at = 0
    while at < len(expression):
        character = expression[at]
        width = 2 if character == "\\" else 1
        if character in _OPENERS:
            depths[_OPENERS.index(character)] += 1
        elif character in _CLOSERS:
            kind = _CLOSERS.index(character)
            depths[kind] = max(0, depths[kind] - 1)
        if character == "," and not any(depths):
            pieces.append(piece)
            piece = ""
        else:
            piece += expression[at : at + width]
        at += width
    return [each for each in (*pieces, piece) if each]


def doubtful_pieces(expression: str) -> list[str]:
    """Return a sentence for each piece that hardly means what its author wants."""
    doubts = []
    for piece in split_expression(expression):
        if piece != piece.strip():
            doubts.append(
                f"{quoted(piece)} begins or ends with a blank and matches no table"
            )
        if piece.startswith("!"):
            doubts.append(
                f"{quoted(piece)} is no negation, there is the black list for that"
            )
        if "\\\\." in piece:
            doubts.append(f"{quoted(piece)} wants a backslash in a name, \\. is enough")
    return doubts


class _Matcher:
    """The pieces of an expression, tried in order until one matches a beginning."""

    def __init__(self, expression: str, pieces: list[str], *, default: bool) -> None:
        self._expression = expression
        self._programs = [compile_piece(piece) for piece in pieces]
        self._default = default
        self._steps_max = STEPS_MAX + _STEPS_PER_PIECE * len(pieces)
        self._warned = False
        try:
            self._matches(_PROBE)
        except TooManyStepsError:
            raise ValueError(
                f"regular expression {quoted(expression)}: takes more than"
                f" {self._steps_max} steps on a long name, simplify it"
            ) from None  # the cause says nothing more

    def __call__(self, text: str) -> bool:
        if not text:
            return self._default
        try:
            return self._matches(text.lower())
        except TooManyStepsError:
            if not self._warned:
                self._warned = True
                logger.warning(
                    "filter %s took more than %d steps on %s and others like"
                    " it, each counts as %s",
                    quoted(self._expression),
                    self._steps_max,
                    quoted(text),
                    "matching" if self._default else "not matching",
                )
            return self._default

    def _matches(self, text: str) -> bool:
        steps = Steps(self._steps_max)
        for program in self._programs:
            end = match_end(program, text, 0, steps)
            if end is not None:
                # The first match decides, though another might reach the end.
                return end == len(text)
        return False
