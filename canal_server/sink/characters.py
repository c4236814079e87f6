"""Classes of characters in regular expressions."""

from __future__ import annotations

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

    def __contains__(self, character: str) -> bool:
        """Tell whether the class has this character, in whichever case."""
        return (
            self._has(character)
            or self._has(character.upper())
            or self._has(character.lower())
        ) is not self.negated

    def _has(self, character: str) -> bool:
        # A character whose other case is several characters has no other case here.
        return len(character) == 1 and (
            any(low <= character <= high for low, high in self.ranges)
            or any(predicate(character) for predicate in self.predicates)
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
