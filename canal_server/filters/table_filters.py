"""Which tables a client or an instance selects: allow lists and deny lists.

A list is an expression: comma-separated regular expressions for `schema.table`. The
syntax of one regular expression is in `patterns`, columns are in `column_filters`.
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
from canal_server.model.ddl_statement import is_beside
from canal_server.model.quoted import quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.model.ddl_statement import FilteredNames

logger = logging.getLogger(__name__)

# The longest name: a schema and a table of 64 characters each, for expensive
# expressions.
_PROBE: Final = "a" * 64 + "." + "a" * 64
_STEPS_PER_PIECE: Final = 20  # so that long lists suffice
# Expressions that were probed: each destination has the same ones several times.
_PROBED_MAX: Final = 256
_PROBED_LENGTH_MAX: Final = 1000  # characters
_probed: set[str] = set()
# Limits of one expression: its length, and its instructions; a plain name counts as one
# (see `patterns.INSTRUCTIONS_MAX` for those of one regular expression).
LENGTH_MAX: Final = 1_000_000  # characters
SIZE_MAX: Final = 100_000
DOUBTS_MAX: Final = 5  # reported per expression

# A match that needs more steps than these waits for a lock: only one expensive filter
# runs at a time, so that at most one thread of the process is busy with them. The lock
# is never held together with a lock that others wait for.
_STEPS_AT_ONCE: Final = 5_000
costly_turn = threading.Lock()

_OPENERS: Final = "{[("
_CLOSERS: Final = "}])"


class TableFilter:
    """An allow list and a deny list of tables; immutable.

    An empty allow list accepts every table, an empty deny list drops none. Raises
    ValueError for an invalid expression; with `probe` also for one that takes too long
    on a long name. A filter that was probed before need not be probed again. `beside`:
    it also evaluates tables whose rows a statement on another table moves.
    """

    def __init__(
        self, white: str, black: str, *, probe: bool = True, beside: bool = False
    ) -> None:
        self.white = white
        self.black = black
        self._beside = beside
        self._white = _matcher(white, default=True, probe=probe)
        self._black = _matcher(black, default=False, probe=probe)

    def accepts(self, names: FilteredNames) -> bool:
        """Return whether an entry with these table names passes.

        It passes if one of them is on the allow list and not all are on the deny list;
        entries without names always pass. May be slow and wait for other expensive
        filters: do not call it while others wait.
        """
        texts = self._texts(names)
        if not texts:
            return True
        return any(map(self._white, texts)) and not all(map(self._black, texts))

    def accepts_within(self, names: FilteredNames, steps: Steps) -> bool:
        """Like `accepts`, without waiting; raises TooManyStepsError after `steps`."""
        texts = self._texts(names)
        if not texts:
            return True
        return any(self._white.matches(each, steps) for each in texts) and not all(
            self._black.matches(each, steps) for each in texts
        )

    def _texts(self, names: FilteredNames) -> list[str]:
        return [
            f"{each[0] or 'null'}.{each[1]}"
            for each in names
            if self._beside or not is_beside(each)
        ]

    @property
    def size(self) -> int:
        """Return the number of instructions of the allow list."""
        return self._white.size

    @property
    def pieces(self) -> int:
        """Return the number of expressions in the allow list."""
        return self._white.pieces

    def __repr__(self) -> str:
        return f"TableFilter({quoted(self.white)}, {quoted(self.black)})"


def for_client(
    expression: str,
    instance_default: str,
    black: str,
    *,
    probe: bool = True,
    beside: bool = False,
) -> TableFilter:
    """Return the filter of a client: its own expression, or the default if empty.

    The deny list of the instance applies to every client. Raises ValueError.
    """
    chosen = expression or instance_default
    return TableFilter(chosen, black, probe=probe, beside=beside)


def compile_expression(
    expression: str, *, default: bool = True
) -> Callable[[str], bool]:
    """Return a function that matches a text like `schema.table` with the expression.

    The function is pure, bounded in time and never raises. `default` is its result for
    an empty expression or text, and for a match that is aborted because it is too
    expensive: true for allow lists, false for deny lists, so that nothing is lost.
    Raises ValueError for an invalid expression.
    """
    return _matcher(expression, default=default, probe=True)


def _matcher(expression: str, *, default: bool, probe: bool) -> _Matcher:
    if len(expression) > LENGTH_MAX:
        raise ValueError(
            f"{quoted(expression)}: {len(expression)} characters exceed the limit of"
            f" {LENGTH_MAX}"
        )
    matcher = _Matcher(expression, default=default)
    if probe:
        matcher.probe()
    return matcher


def split_expression(expression: str) -> list[str]:
    """Split at commas outside brackets and braces; drop empty pieces.

    Blanks are kept. Opening brackets inside a character class count as well.
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
    """Return a sentence for each piece that is probably a mistake.

    Only for the first ones: other pieces of a long list are probably similar.
    """
    doubts: list[str] = []
    for piece in split_expression(expression):
        if len(doubts) >= DOUBTS_MAX:
            break
        if piece != piece.strip():
            doubts.append(
                f"{quoted(piece)} starts or ends with a blank and matches no table"
            )
        if piece.startswith("!"):
            doubts.append(
                f"{quoted(piece)} is not a negation; use the black list for that"
            )
        if "\\\\." in piece:
            doubts.append(
                f"{quoted(piece)} requires a backslash in a name; \\. is enough"
            )
    return doubts


class _Matcher:
    """The pieces of an expression, tried in order until one matches a prefix.

    Plain names use a lookup instead, unless the order of pieces matters.
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
            # A longer piece may match a prefix first: then its result counts.
            self._plain, self.size = frozenset(), 0
            self._programs, _ = self._written(pieces)
        self._steps_max = STEPS_MAX + _STEPS_PER_PIECE * len(pieces)
        self._warned = False

    def _written(self, pieces: list[str]) -> tuple[list[Program], bool]:
        """Return the programs of pieces, and whether one of them is open.

        The size of each is checked before it is emitted. Raises ValueError.
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
                    f" {self.pieces} pieces are too large with their repetitions"
                    f" expanded (limit {SIZE_MAX}); use * or + for large"
                    " counts"
                )
            programs.append(piece.write())
        return programs, is_open

    def probe(self) -> None:
        """Raise ValueError if a long name takes too many steps."""
        if self._expression in _probed:
            return
        try:
            self._in_turn(_PROBE)
        except TooManyStepsError:
            raise ValueError(
                f"regular expression {quoted(self._expression)}: takes more than"
                f" {self._steps_max} steps on a long name; simplify it"
            ) from None  # the cause adds nothing
        if len(self._expression) <= _PROBED_LENGTH_MAX:
            if len(_probed) >= _PROBED_MAX:
                _probed.clear()
            _probed.add(self._expression)

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
        """Match under the lock for expensive filters. Raises TooManyStepsError."""
        try:
            return self.matches(text, Steps(_STEPS_AT_ONCE))
        except TooManyStepsError:
            with costly_turn:
                return self.matches(text, Steps(self._steps_max))

    def matches(self, text: str, steps: Steps) -> bool:
        """Return whether a text matches; raises TooManyStepsError."""
        if not text or not self.pieces:
            return self._default
        text = text.lower()
        if text in self._plain:
            return True
        for program in self._programs:
            end = match_end(program, text, 0, steps)
            if end is not None:
                # The first match counts, even if another would reach the end.
                return end == len(text)
        return False
