"""Which tables a client or an instance wants: white and black lists.

A list is an expression: regular expressions with commas between them, each for
`schema.table`. Leaves out the syntax of one regular expression (`patterns`) and the
columns of a table (`columns`).
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from canal_server.filters.matching import (
    STEPS_MAX,
    Steps,
    TooManyStepsError,
    match_end,
)
from canal_server.filters.patterns import Program, plain_text, read_piece
from canal_server.messages import filter_messages
from canal_server.model.quoted import quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.core.table_ids import Names

logger = logging.getLogger(__name__)

# A schema and a table of 64 characters each, which a costly expression likes.
_PROBE: Final = "a" * 64 + "." + "a" * 64
_STEPS_PER_PIECE: Final = 20  # so that long lists have enough
# What one expression may be: its length, and its instructions, of which a plain name is
# one (see `patterns.INSTRUCTIONS_MAX` for those of one regular expression).
LENGTH_MAX: Final = 1_000_000  # characters
SIZE_MAX: Final = 100_000
DOUBTS_MAX: Final = 5  # that are reported of one expression

# A match that needs more steps than these waits for its turn: one costly filter at a
# time, so that however many there are, one thread of the process is busy with them. The
# lock is held by whoever evaluates, never together with a lock that others wait for.
_STEPS_AT_ONCE: Final = 5_000
costly_turn = threading.Lock()

_OPENERS: Final = "{[("
_CLOSERS: Final = "}])"


class TableFilter:
    """A white list and a black list of tables; immutable.

    An empty white list accepts every table, an empty black list drops none. Raises
    ValueError when an expression cannot be used. `probe`: also when it would take too
    long on a long name; one that was probed before need not be again.
    """

    def __init__(self, white: str, black: str, *, probe: bool = True) -> None:
        self.white = white
        self.black = black
        self._white = _matcher(white, default=True, probe=probe)
        self._black = _matcher(black, default=False, probe=probe)

    def accepts(self, names: Names) -> bool:
        """Tell whether an entry with these table names passes.

        It passes when one of them is on the white list and not all are on the black
        one; entries without names always do. May take long, and wait for other costly
        filters: not to be called while others wait.
        """
        texts = _texts(names)
        if not texts:
            return True
        return any(map(self._white, texts)) and not all(map(self._black, texts))

    def accepts_within(self, names: Names, steps: Steps) -> bool:
        """Tell the same, at once; raises TooManyStepsError when no steps are left."""
        texts = _texts(names)
        if not texts:
            return True
        return any(self._white.matches(each, steps) for each in texts) and not all(
            self._black.matches(each, steps) for each in texts
        )

    @property
    def size(self) -> int:
        """Return how many instructions the white list has."""
        return self._white.size

    @property
    def pieces(self) -> int:
        """Return how many expressions there are in the white list."""
        return self._white.pieces

    def __repr__(self) -> str:
        return f"TableFilter({quoted(self.white)}, {quoted(self.black)})"


def _texts(names: Names) -> list[str]:
    return [f"{schema or 'null'}.{table}" for schema, table in names]


def for_client(
    expression: str, instance_default: str, black: str, *, probe: bool = True
) -> TableFilter:
    """Make a client's filter: its own expression, or the default when that is empty.

    The black list of the instance holds for each client. Raises ValueError.
    """
    return TableFilter(expression or instance_default, black, probe=probe)


def compile_expression(
    expression: str, *, default: bool = True
) -> Callable[[str], bool]:
    """Return what tells whether a text like `schema.table` matches the expression.

    The function is pure, bounded in time and never raises. `default` is its answer
    when the expression or the text is empty, and when the expression is so costly
    that a match is given up: true for white lists, false for black ones, so that
    nothing is lost. Raises ValueError when the expression cannot be used.
    """
    return _matcher(expression, default=default, probe=True)


def _matcher(expression: str, *, default: bool, probe: bool) -> _Matcher:
    if len(expression) > LENGTH_MAX:
        raise ValueError(
            f"{quoted(expression)}: {len(expression)} characters, the limit is"
            f" {LENGTH_MAX}"
        )
    matcher = _Matcher(expression, default=default)
    if probe:
        matcher.probe()
    return matcher


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
    """Return a sentence for each piece that hardly means what its author wants.

    For the first ones only: the rest of a long list is likely of the same kind.
    """
    doubts: list[str] = []
    for piece in split_expression(expression):
        if len(doubts) >= DOUBTS_MAX:
            break
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
    """The pieces of an expression, tried in order until one matches a beginning.

    Plain names are looked up instead, unless the order of pieces means something.
    """

    def __init__(self, expression: str, *, default: bool) -> None:
        pieces = sorted(split_expression(expression), key=len, reverse=True)
        self._expression = expression
        self._default = default
        self._plain = frozenset(filter(None, map(plain_text, pieces)))
        self.pieces = len(pieces)
        self.size = len(self._plain)
        self._programs, is_open = self._written(
            [each for each in pieces if plain_text(each) is None]
        )
        if is_open:
            # A longer piece may match a beginning: then that decides.
            self._plain, self.size = frozenset(), 0
            self._programs, _ = self._written(pieces)
        self._steps_max = STEPS_MAX + _STEPS_PER_PIECE * len(pieces)
        self._warned = False

    def _written(self, pieces: list[str]) -> tuple[list[Program], bool]:
        """Return the programs of pieces, and whether one of them is open.

        Each is counted before it is written. Raises ValueError.
        """
        programs: list[Program] = []
        is_open = False
        for each in pieces:
            piece = read_piece(each)
            is_open |= piece.is_open
            self.size += piece.size
            if self.size > SIZE_MAX:
                raise ValueError(
                    f"regular expression {quoted(self._expression)}: all of its"
                    f" {self.pieces} pieces together are too large when their"
                    f" repetitions are written out (limit {SIZE_MAX}), use * or + for"
                    " large counts"
                )
            programs.append(piece.write())
        return programs, is_open

    def probe(self) -> None:
        """Raise ValueError when a long name takes too many steps."""
        try:
            self._in_turn(_PROBE)
        except TooManyStepsError:
            raise ValueError(
                f"regular expression {quoted(self._expression)}: takes more than"
                f" {self._steps_max} steps on a long name, simplify it"
            ) from None  # the cause says nothing more

    def __call__(self, text: str) -> bool:
        if not text:
            return self._default
        try:
            return self._in_turn(text)
        except TooManyStepsError:
            if not self._warned:
                self._warned = True
                filter_messages.FILTER_TOO_COSTLY.log(
                    logger,
                    quoted(self._expression),
                    self._steps_max,
                    quoted(text),
                    "matching" if self._default else "not matching",
                )
            return self._default

    def _in_turn(self, text: str) -> bool:
        """Match, one costly filter at a time. Raises TooManyStepsError."""
        try:
            return self.matches(text, Steps(_STEPS_AT_ONCE))
        except TooManyStepsError:
            with costly_turn:
                return self.matches(text, Steps(self._steps_max))

    def matches(self, text: str, steps: Steps) -> bool:
        """Tell whether a text matches; raises TooManyStepsError."""
        if not text or not self.pieces:
            return self._default
        text = text.lower()
        if text in self._plain:
            return True
        for program in self._programs:
            end = match_end(program, text, 0, steps)
            if end is not None:
                # The first match decides, though another might reach the end.
                return end == len(text)
        return False
