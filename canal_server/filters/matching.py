"""Runs the programs of `canal_server.filters.patterns`, in bounded time.

The result is that of a backtracking engine which tries alternatives in order and
keeps the first that succeeds. As nothing refers back to what a group took, a place
of the program that failed once at a place of the text fails there always; each such
pair is tried once. So `(a+)+$` costs the product of the two lengths, where plain
backtracking doubles with each character. A count of steps bounds even that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from canal_server.filters.patterns import (
    ANY,
    ASSERT,
    END,
    LITERAL,
    LOOK_AHEAD,
    LOOK_PAST,
    LOOP,
    MEET,
    ONE_OF,
    SPLIT,
    Assertion,
    Program,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.filters.characters import CharacterClass

STEPS_MAX: Final = 200_000  # of one text against one whole filter; some 50 ms
_CHECKED: Final = (SPLIT, MEET)


class TooManyStepsError(Exception):
    """A match that was given up; the answer is not known."""


class Steps:
    """What is left of a number of steps."""

    def __init__(self, left: int = STEPS_MAX) -> None:
        self.left = left

    def take(self, count: int) -> None:
        """Use some up; raises TooManyStepsError when there are no more."""
        self.left -= count
        if self.left < 0:
            raise TooManyStepsError


def match_end(program: Program, text: str, start: int, steps: Steps) -> int | None:
    """Return where the first match from `start` on ends, None when there is none.

    `text` is in lower case. Raises TooManyStepsError.
    """
    width = len(text) + 1
    tried: set[int] = set()  # instruction * width + place, of SPLIT and MEET
    branches = [(0, start)]
    while branches:
        at, place = branches.pop()
        taken: int | None = 0
        count = 0
        # What each branch of a loop or of alternatives does is checked against
        # `tried`; between such instructions there are straight runs only. A loop
        # whose body took nothing ends here as well.
        while taken is not None:
            operation, argument, other = program[at]
            count += 1
            if operation in _CHECKED:
                if (state := at * width + place) in tried:
                    break
                tried.add(state)
                if operation == SPLIT:
                    branches.append((other, place))
                at = cast("int", argument)
            elif operation == LOOP:
                at = cast("int", argument)
            elif operation == END:
                return place
            else:
                taken = _TAKEN[operation](argument, text, place, steps)
                count += other
                place += taken or 0
                at += 1
        steps.take(count)
    return None


# How many characters of the text an instruction takes at a place; None: it fails.


def _literal(argument: object, text: str, place: int, _steps: Steps) -> int | None:
    literal = cast("str", argument)
    return len(literal) if text.startswith(literal, place) else None


def _any(_argument: object, text: str, place: int, _steps: Steps) -> int | None:
    return 1 if place < len(text) else None


def _one_of(argument: object, text: str, place: int, _steps: Steps) -> int | None:
    found = place < len(text) and text[place] in cast("CharacterClass", argument)
    return 1 if found else None


def _assert(argument: object, text: str, place: int, _steps: Steps) -> int | None:
    return 0 if cast("Assertion", argument)(text, place) else None


def _look_ahead(argument: object, text: str, place: int, steps: Steps) -> int | None:
    found = match_end(cast("Program", argument), text, place, steps)
    return None if found is None else 0


def _look_past(argument: object, text: str, place: int, steps: Steps) -> int | None:
    found = match_end(cast("Program", argument), text, place, steps)
    return 0 if found is None else None


_TAKEN: Final[dict[int, Callable[[object, str, int, Steps], int | None]]] = {
    LITERAL: _literal,
    ANY: _any,
    ONE_OF: _one_of,
    ASSERT: _assert,
    LOOK_AHEAD: _look_ahead,
    LOOK_PAST: _look_past,
}
