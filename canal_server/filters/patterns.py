"""Regular expressions of table filters, compiled into small programs.

The syntax is that of Perl 5 as in Jakarta ORO, because filters are written for it: no
look-behind, no named groups, POSIX classes, `(?i)` anywhere. Everything is
case-insensitive and a dot matches any character. `canal_server.filters.matching` runs
the programs; `table_filters` splits expressions at commas.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from canal_server.filters.characters import (
    CLASSES,
    NAMED_CLASSES,
    CharacterClass,
    is_word,
)
from canal_server.model.quoted import quoted

# Per piece, including its look-aheads; {n,m} is expanded, and an instruction that tests
# a character class counts once plus once for each range of the class.
INSTRUCTIONS_MAX: Final = 5_000
NESTING_MAX: Final = 50  # nested parentheses

_ATOMS_MAX: Final = 20_000  # characters and groups per piece

# The instructions: (operation, argument, other branch; for ONE_OF the cost of a test).
LITERAL: Final = 0  # this text, in lower case
ANY: Final = 1  # any character
ONE_OF: Final = 2  # one character of a CharacterClass
SPLIT: Final = 3  # continue at the argument, and if that fails at the other branch
LOOP: Final = 4  # jump back to a SPLIT, the argument
JOIN: Final = 5  # several branches continue at the argument
ASSERT: Final = 6  # a condition of Assertion on text and offset
LOOK_AHEAD: Final = 7  # another program must match here, without consuming text
LOOK_PAST: Final = 8  # another program must not match here
END: Final = 9

Assertion: TypeAlias = Callable[[str, int], bool]
Instruction: TypeAlias = tuple[int, object, int]
Program: TypeAlias = tuple[Instruction, ...]
_Code: TypeAlias = list[Instruction]  # a program under construction


class _Part(NamedTuple):
    """A part of the expression: its size, and a function that emits its instructions.

    The size is known before anything is emitted, so that nothing too large is built.
    """

    size: int
    write: Callable[[_Code], None]  # appends them to a program


def compile_piece(piece: str) -> Program:
    """Compile one piece of a filter, as if between `^` and `$`.

    No group is added: `a|b` is `^a` or `b$`, and `*.*` is `^*.*$`, as users of canal
    expect. Raises ValueError with the problem of the piece.
    """
    return read_piece(piece).write()


def read_piece(piece: str) -> Piece:
    """Parse one piece like `compile_piece`, without emitting instructions."""
    reader = _Reader(f"^{piece}$")
    part = reader.whole()
    return Piece(part, reader.total, is_open=reader.is_open)


class Piece:
    """One parsed piece of a filter, and the size of its program.

    It `is_open` if it may match without reaching the end of a name: `a|b`.
    """

    def __init__(self, part: _Part, size: int, *, is_open: bool) -> None:
        self._part = part
        self.size = size
        self.is_open = is_open

    def write(self) -> Program:
        """Return the program of the piece."""
        return _program(self._part)


def plain_text(piece: str) -> str | None:
    """Return the only name that a piece matches, in lower case; None if not plain.

    Most pieces of long lists are plain and then need no program.
    """
    if _PLAIN.fullmatch(piece) is None:
        return None
    return piece.replace("\\", "").lower()


def _program(part: _Part) -> Program:
    code: _Code = []
    part.write(code)
    return (*code, _END)


class _Reader:
    """One pass over an expression; each method parses one construct."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.depth = 0
        self.total = 0  # size of the finished programs: the look-aheads, the whole
        self.atoms = 0
        self.is_open = False  # there are alternatives outside parentheses

    def whole(self) -> _Part:
        part = self.alternatives()
        if self.at < len(self.pattern):
            raise self.error("unmatched )")
        self.finish(part)
        return part

    def finish(self, part: _Part) -> None:
        """Add the size of a complete program, before it is emitted."""
        self.total += part.size + 1
        if self.total > INSTRUCTIONS_MAX:
            raise self.too_large()

    def too_large(self) -> ValueError:
        return ValueError(
            f"regular expression {quoted(self.pattern[1:-1])}: too large with its"
            f" repetitions expanded (limit {INSTRUCTIONS_MAX});"
            " use * or + for large counts"
        )

    def error(self, problem: str) -> ValueError:
        return ValueError(
            f"regular expression {quoted(self.pattern[1:-1])}: {problem}"
            f" at character {max(1, min(self.at, len(self.pattern) - 2))}"
        )

    def accept(self, text: str) -> bool:
        found = self.pattern.startswith(text, self.at)
        if found:
            self.at += len(text)
        return found

    def alternatives(self) -> _Part:
        branches = [self.sequence()]
        while self.accept("|"):
            self.is_open |= not self.depth
            branches.append(self.sequence())
        return branches[0] if len(branches) == 1 else _any_of(branches)

    def sequence(self) -> _Part:
        parts: list[_Part] = []
        literal = ""  # characters not yet in `parts`; they become one instruction
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            atom = self.atom()
            bounds = self.quantifier() if atom is not None else None
            if isinstance(atom, str) and bounds is None:
                literal += atom
                continue
            if literal:
                parts.append(_literal(literal))
                literal = ""
            if atom is not None:
                part = _literal(atom) if isinstance(atom, str) else atom
                parts.append(part if bounds is None else self.repeated(part, *bounds))
        if literal:
            parts.append(_literal(literal))
        return _in_turn(parts)

    def repeated(self, part: _Part, low: int, high: int | None) -> _Part:
        lazy = self.accept("?")
        if self.quantifier() is not None:
            raise self.error("quantifier after a quantifier, enclose the first in ( )")
        if high is not None and high < low:
            raise self.error(f"invalid repetition: {low} exceeds {high}")
        return _repeated(part, low, high, lazy=lazy)

    def quantifier(self) -> tuple[int, int | None] | None:
        for sign, bounds in _QUANTIFIERS.items():
            if self.accept(sign):
                return bounds
        # A brace that does not start a repetition is literal.
        braces = _BRACES.match(self.pattern, self.at)
        if braces is None:
            return None
        self.at = braces.end()
        low = self.repeats(braces[1])
        if braces[2] is None:
            return low, low
        return low, self.repeats(braces[3]) if braces[3] else None

    def repeats(self, digits: str) -> int:
        if len(digits) > _REPEATS_DIGITS:
            raise self.too_large()
        return int(digits)

    def atom(self) -> _Part | str | None:
        """Parse one character, class or group; None for a comment."""
        character = self.pattern[self.at]
        self.atoms += 1
        if self.atoms > _ATOMS_MAX:
            raise self.too_large()
        if character in "*+?" or _BRACES.match(self.pattern, self.at):
            raise self.error(f"nothing to repeat before {character}")
        self.at += 1
        if character == "(":
            return self.group()
        if character == "[":
            return _one_of(self.brackets())
        if character == "\\":
            return self.escape()
        if character == ".":
            return _instruction(ANY)
        if character in _ANCHORS:
            return _instruction(ASSERT, _ANCHORS[character])
        return character

    def group(self) -> _Part | None:
        start = self.at
        if self.accept("?#"):
            end = self.pattern.find(")", self.at)
            if end < 0:
                raise self.error("unterminated comment, missing )")
            self.at = end + 1
            return None
        flags = _FLAGS.match(self.pattern, self.at)
        if flags is not None:
            # Case and dot already behave as with these flags; names have one line.
            self.at = flags.end()
            if flags[1] == ")":
                return None
        look = LOOK_AHEAD if self.accept("?=") else LOOK_PAST
        if look == LOOK_AHEAD or self.accept("?!"):
            inner = self.parenthesized()
            self.finish(inner)
            # Compiled once, however often it is repeated.
            return _instruction(look, _program(inner))
        if flags is None and not self.accept("?:") and self.accept("?"):
            self.at = start
            raise self.error(
                "unsupported kind of group, use (…), (?:…), (?=…), (?!…) or (?i)"
            )
        return self.parenthesized()

    def parenthesized(self) -> _Part:
        self.depth += 1
        if self.depth > NESTING_MAX:
            raise self.error(f"more than {NESTING_MAX} nested parentheses")
        part = self.alternatives()
        if not self.accept(")"):
            raise self.error("unmatched (")
        self.depth -= 1
        return part

    def escape(self) -> _Part | str:
        character = self.escaped()
        if character in CLASSES:
            return _one_of(CLASSES[character])
        if character in _ASSERTIONS:
            return _instruction(ASSERT, _ASSERTIONS[character])
        if character in "123456789":
            raise self.error("unsupported back-reference")
        return self.character(character)

    def escaped(self) -> str:
        if self.at == len(self.pattern):
            raise self.error("backslash at the end")
        self.at += 1
        return self.pattern[self.at - 1]

    def character(self, letter: str) -> str:
        """Return the character of an escape with this letter."""
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter in "x0":
            digits = (_HEX if letter == "x" else _OCTAL).match(self.pattern, self.at)
            assert digits is not None, "both expressions also match no digits"
            self.at = digits.end()
            return chr(int(digits[0] or "0", 16 if letter == "x" else 8))
        if letter.isascii() and letter.isalnum():
            raise self.error(f"unsupported escape \\{letter}")
        return letter

    def brackets(self) -> CharacterClass:
        result = CharacterClass(negated=self.accept("^"))
        first = True
        while first or not self.accept("]"):
            first = False
            low = self.class_item(result)
            if low is None:
                continue
            high = low
            # A minus before the closing bracket is literal.
            if self.pattern.startswith("-", self.at) and not self.pattern.startswith(
                "-]", self.at
            ):
                self.at += 1
                upper = self.class_item(result)
                if upper is None:
                    result.ranges.append(("-", "-"))
                else:
                    high = upper
            if high < low:
                raise self.error(f"invalid range: {low!r} is after {high!r}")
            result.ranges.append((low, high))
            if len(result.ranges) > INSTRUCTIONS_MAX:
                raise self.too_large()
        result.settle()
        return result

    def class_item(self, result: CharacterClass) -> str | None:
        """Parse a class item; returns a character, or adds a nested class."""
        if self.at == len(self.pattern):
            raise self.error("unmatched [")
        posix = _POSIX.match(self.pattern, self.at)
        if posix is not None:
            named = NAMED_CLASSES.get((bool(posix[1]), posix[2]))
            if named is None:
                raise self.error(f"unknown class [:{posix[2]}:]")
            self.at = posix.end()
            _add(result, named)
            return None
        self.at += 1
        character = self.pattern[self.at - 1]
        if character != "\\":
            return character
        character = self.escaped()
        if character in CLASSES:
            _add(result, CLASSES[character])
            return None
        return "\b" if character == "b" else self.character(character)


def _add(result: CharacterClass, named: CharacterClass) -> None:
    """Add a class to a bracket expression, once however often it is repeated."""
    if named.__contains__ not in result.predicates:
        result.predicates.append(named.__contains__)


def _instruction(
    operation: int, argument: object = None, *, size: int = 1, weight: int = 0
) -> _Part:
    made = (operation, argument, weight)  # one object, however often it is repeated
    return _Part(size, lambda code: code.append(made))


def _literal(text: str) -> _Part:
    return _instruction(LITERAL, text.lower())


def _one_of(characters: CharacterClass) -> _Part:
    return _instruction(
        ONE_OF,
        characters,
        size=1 + characters.width,
        weight=len(characters.predicates),  # each is a call, ranges need one lookup
    )


def _in_turn(parts: list[_Part]) -> _Part:
    def write(code: _Code) -> None:
        for part in parts:
            part.write(code)

    return _Part(sum(part.size for part in parts), write)


def _any_of(branches: list[_Part]) -> _Part:
    def write(code: _Code) -> None:
        jumps = []
        for branch in branches[:-1]:
            split = len(code)
            code.append(_PENDING)
            branch.write(code)
            jumps.append(len(code))
            code.append(_PENDING)
            code[split] = (SPLIT, split + 1, len(code))
        branches[-1].write(code)
        # The last branch continues there as well, so that what follows is tried once
        # at each offset of the text.
        jumps.append(len(code))
        code.append(_PENDING)
        for jump in jumps:
            code[jump] = (JOIN, len(code), 0)

    size = sum(branch.size for branch in branches) + 2 * len(branches) - 1
    return _Part(size, write)


def _repeated(part: _Part, low: int, high: int | None, *, lazy: bool) -> _Part:
    if not part.size:
        return part  # repetitions of nothing
    optional = 1 if high is None else high - low

    def split_to(split: int, out: int) -> Instruction:
        return (SPLIT, out, split + 1) if lazy else (SPLIT, split + 1, out)

    def write(code: _Code) -> None:
        for _ in range(low):
            part.write(code)
        splits = []
        for _ in range(optional):
            splits.append(len(code))
            code.append(_PENDING)
            part.write(code)
        out = len(code)
        if high is None:
            code.append((LOOP, splits[0], 0))
            out += 1
        elif optional > 1:
            # All splits lead here: what follows is tried once at each offset.
            code.append((JOIN, out + 1, 0))
        for split in splits:
            code[split] = split_to(split, out)

    tail = 1 if high is None or optional > 1 else 0
    return _Part(low * part.size + optional * (part.size + 1) + tail, write)


def _at_boundary(text: str, at: int) -> bool:
    return (at > 0 and is_word(text[at - 1])) != (at < len(text) and is_word(text[at]))


def _at_end(text: str, at: int) -> bool:
    return at == len(text) or (at == len(text) - 1 and text[at] == "\n")


def _at_start(_text: str, at: int) -> bool:
    return at == 0


_PENDING: Final[Instruction] = (JOIN, 0, 0)  # replaced once the target is known
_END: Final[Instruction] = (END, None, 0)
# Letters, digits and signs that are literal, and escaped signs.
_PLAIN: Final = re.compile(r"(?:[\w\-#@%&~`';:=/!<> ]|\\[^\w\\])+")
_QUANTIFIERS: Final = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_BRACES: Final = re.compile(r"\{0*(\d+)(,(?:0*(\d+))?)?\}", re.ASCII)
_REPEATS_DIGITS: Final = 9  # more of them are too many repetitions in any case
_FLAGS: Final = re.compile(r"\?[ism]+([:)])")
_POSIX: Final = re.compile(r"\[:(\^?)(\w+):\]")
_HEX: Final = re.compile("[0-9a-fA-F]{0,2}")
_OCTAL: Final = re.compile("[0-7]{0,2}")
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "e": "\x1b", "a": "\a"}
_ANCHORS: Final = {"^": _at_start, "$": _at_end}
_ASSERTIONS: Final[dict[str, Assertion]] = {
    "A": _at_start,
    "G": _at_start,
    "Z": _at_end,
    "b": _at_boundary,
    "B": lambda text, at: not _at_boundary(text, at),
}
