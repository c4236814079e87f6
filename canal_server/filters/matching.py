"""Runs the programs of `canal_server.filters.patterns`, in bounded time.

The result is that of a backtracking engine that tries alternatives in order and keeps
the first that succeeds. Because there are no back-references, an instruction that
failed once at an offset of the text always fails there, so each such pair is tried only
once. `(a+)+$` then costs the product of the two lengths, while plain backtracking
doubles with each character. A step limit bounds even that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from canal_server.filters.patterns import (
    ANY,
    ASSERT,
    END,
    JOIN,
    LITERAL,
    LOOK_AHEAD,
    LOOK_PAST,
    LOOP,
    ONE_OF,
    SPLIT,
    Assertion,
    Program,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.filters.characters import CharacterClass

STEPS_MAX: Final = 200_000  # of one text against one complete filter; about 50 ms
_CHECKED: Final = (SPLIT, JOIN)


class TooManyStepsError(Exception):
    """A match was aborted; the answer is unknown."""


class Steps:
    """The remaining number of steps."""

    def __init__(self, left: int = STEPS_MAX) -> None:
        self.left = left

    def take(self, count: int) -> None:
        """Consume steps; raises TooManyStepsError if not enough are left."""
        self.left -= count
        if self.left < 0:
            raise TooManyStepsError


def match_end(program: Program, text: str, start: int, steps: Steps) -> int | None:
    """Return where the first match from `start` ends, None if there is none.

    `text` is in lower case. Raises TooManyStepsError.
    """
    width = len(text) + 1
    tried: set[int] = set()  # instruction * width + offset, of SPLIT and JOIN
    branches = [(0, start)]
    while branches:
        at, offset = branches.pop()
        consumed: int | None = 0
        count = 0
        # The work of each branch of a loop or of alternatives is checked against
        # `tried`; between such instructions there are only straight runs. A loop whose
        # body consumed nothing ends here as well.
        while consumed is not None:
            operation, argument, other = program[at]
            count += 1
            if operation in _CHECKED:
                if (state := at * width + offset) in tried:
                    break
                tried.add(state)
                if operation == SPLIT:
                    branches.append((other, offset))
                at = cast("int", argument)
            elif operation == LOOP:
                at = cast("int", argument)
            elif operation == END:
                return offset
            else:
                consumed = _CONSUMED[operation](argument, text, offset, steps)
                count += other
                offset += consumed or 0
                at += 1
        steps.take(count)
    return None


# The number of characters that an instruction consumes at an offset; None if it fails.


def _literal(argument: object, text: str, offset: int, _steps: Steps) -> int | None:
    literal = cast("str", argument)
    return len(literal) if text.startswith(literal, offset) else None


def _any(_argument: object, text: str, offset: int, _steps: Steps) -> int | None:
    return 1 if offset < len(text) else None


def _one_of(argument: object, text: str, offset: int, _steps: Steps) -> int | None:
    found = offset < len(text) and text[offset] in cast("CharacterClass", argument)
    return 1 if found else None


def _assert(argument: object, text: str, offset: int, _steps: Steps) -> int | None:
    return 0 if cast("Assertion", argument)(text, offset) else None


def _look_ahead(argument: object, text: str, offset: int, steps: Steps) -> int | None:
    found = match_end(cast("Program", argument), text, offset, steps)
    return None if found is None else 0


def _look_past(argument: object, text: str, offset: int, steps: Steps) -> int | None:
    found = match_end(cast("Program", argument), text, offset, steps)
    return 0 if found is None else None


_CONSUMED: Final[dict[int, Callable[[object, str, int, Steps], int | None]]] = {
    LITERAL: _literal,
    ANY: _any,
    ONE_OF: _one_of,
    ASSERT: _assert,
    LOOK_AHEAD: _look_ahead,
    LOOK_PAST: _look_past,
}
