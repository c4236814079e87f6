"""Character classes in regular expressions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

Predicate: TypeAlias = Callable[[str], bool]


@dataclass(slots=True)
class CharacterClass:
    r"""The content of a bracket expression, or a class like `\d`."""

    negated: bool = False
    ranges: list[tuple[str, str]] = field(default_factory=list)
    predicates: list[Predicate] = field(default_factory=list)
    _lows: list[str] = field(
        default_factory=list
    )  # lower bounds of `ranges`, set by `settle`

    def __post_init__(self) -> None:
        self.settle()

    def settle(self) -> None:
        """Merge overlapping ranges for a binary search; call after adding ranges.

        The cost of a test then hardly depends on the number of ranges.
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
        """Return the number of ranges and predicates."""
        return len(self.ranges) + len(self.predicates)

    def __contains__(self, character: str) -> bool:
        """Return whether the class contains this character, ignoring case."""
        return (
            self._has(character)
            or self._has(character.upper())
            or self._has(character.lower())
        ) is not self.negated

    def _has(self, character: str) -> bool:
        # A character whose other case is several characters counts as having none.
        if len(character) != 1:
            return False
        at = bisect_right(self._lows, character) - 1
        return (at >= 0 and character <= self.ranges[at][1]) or any(
            predicate(character) for predicate in self.predicates
        )


def is_word(character: str) -> bool:
    """Return whether a character may be part of a word."""
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
# By negation and by name. Each is one object, so that a class that contains it many
# times stores it once.
NAMED_CLASSES: Final[dict[tuple[bool, str], CharacterClass]] = {
    (negated, name): CharacterClass(negated=negated, predicates=[predicate])
    for name, predicate in POSIX_CLASSES.items()
    for negated in (False, True)
}
