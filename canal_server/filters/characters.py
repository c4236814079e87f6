"""Classes of characters in regular expressions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

Predicate: TypeAlias = Callable[[str], bool]


@dataclass(slots=True)
class CharacterClass:
    r"""What stands between brackets, or a class like `\d`."""

    negated: bool = False
    ranges: list[tuple[str, str]] = field(default_factory=list)
    predicates: list[Predicate] = field(default_factory=list)
    _lows: list[str] = field(default_factory=list)  # of `ranges`, once they are settled

    def __post_init__(self) -> None:
        self.settle()

    def settle(self) -> None:
        """Merge what overlaps, and look up by halves; after ranges were added.

        So a test costs the same however many ranges were written.
        """
        merged: list[tuple[str, str]] = []
        for low, high in sorted(self.ranges):
            if merged and ord(low) <= ord(merged[-1][1]) + 1:
                merged[-1] = merged[-1][0], max(high, merged[-1][1])
            else:
                merged.append((low, high))
        self.ranges = merged
        self._lows = [low for low, _ in merged]

    @property
    def width(self) -> int:
        """Return how many ranges and predicates there are."""
        return len(self.ranges) + len(self.predicates)

    def __contains__(self, character: str) -> bool:
        """Tell whether the class has this character, in whichever case."""
        return (
            self._has(character)
            or self._has(character.upper())
            or self._has(character.lower())
        ) is not self.negated

    def _has(self, character: str) -> bool:
        # A character whose other case is several characters has no other case here.
        if len(character) != 1:
            return False
        at = bisect_right(self._lows, character) - 1
        return (at >= 0 and character <= self.ranges[at][1]) or any(
            predicate(character) for predicate in self.predicates
        )


def is_word(character: str) -> bool:
    """Tell whether a character may be part of a word."""
    return character.isalnum() or character == "_"


CLASSES: Final = {
    "d": CharacterClass(predicates=[str.isdecimal]),
    "D": CharacterClass(negated=True, predicates=[str.isdecimal]),
    "w": CharacterClass(predicates=[is_word]),
    "W": CharacterClass(negated=True, predicates=[is_word]),
    "s": CharacterClass(predicates=[str.isspace]),
    "S": CharacterClass(negated=True, predicates=[str.isspace]),
}
POSIX_CLASSES: Final[dict[str, Predicate]] = {
    "alnum": str.isalnum,
    "alpha": str.isalpha,
    "blank": lambda character: character in " \t",
    "cntrl": lambda character: not character.isprintable(),
    "digit": str.isdecimal,
    "graph": lambda character: character.isprintable() and not character.isspace(),
    "lower": str.islower,
    "print": str.isprintable,
    "punct": lambda character: character in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
    "space": str.isspace,
    "upper": str.isupper,
    "word": is_word,
    "xdigit": lambda character: character in "0123456789abcdefABCDEF",
}
# By whether they are negated, and by name; one object each, so that a class in which
# one stands many times has it once.
NAMED_CLASSES: Final[dict[tuple[bool, str], CharacterClass]] = {
    (negated, name): CharacterClass(negated=negated, predicates=[predicate])
    for name, predicate in POSIX_CLASSES.items()
    for negated in (False, True)
}
