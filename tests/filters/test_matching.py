"""The matcher finds what Python's own backtracking finds, in bounded time."""

from __future__ import annotations

import re

import pytest

from canal_server.filters.matching import Steps, TooManyStepsError, match_end
from canal_server.filters.patterns import compile_piece


def random_pattern(choose, depth=3):
    """Return a pattern whose loops have bodies that consume something.

    With an empty first alternative in a loop, engines differ in which match is the
    first; whether the end can be reached is the same.
    """
    kind = choose.randrange(9) if depth else choose.randrange(4)
    if kind < 4:
        return choose.choice(["a", "b", ".", r"\.", "[ab]", "[^a]", r"\w", "ab"])
    inner = [random_pattern(choose, depth - 1) for _ in range(3)]
    if kind < 6:
        return inner[0] + inner[1]
    if kind == 6:
        return f"(?:{inner[0]}|{inner[1]}|{inner[2]})"
    if kind == 7:
        return f"(?{choose.choice('=!')}{inner[0]}){inner[1]}"
    quantifier = choose.choice(["*", "+", "?", "{2}", "{1,3}", "{2,}"])
    body = choose.choice(["a", "b", ".", "[ab]", "(?:ab|a)", "(?:a+b?)"])
    return body + quantifier + choose.choice(["", "?"]) + inner[0]


def test_agrees_with_backtracking(rng):
    """Random patterns end their first match where Python's `re` ends it."""
    for _ in range(1500):
        piece = "|".join(random_pattern(rng) for _ in range(rng.randint(1, 3)))
        program = compile_piece(piece)
        oracle = re.compile(f"^{piece}$", re.IGNORECASE | re.DOTALL)
        for _ in range(5):
            text = "".join(rng.choices("ab.c", k=rng.randrange(9)))
            found = oracle.match(text)
            expected = found.end() if found else None
            assert match_end(program, text, 0, Steps()) == expected, (piece, text)


@pytest.mark.parametrize(
    "piece",
    [
        "(a+)+b",
        "(a|a)*b",
        "(a*)*b",
        "(.*a){30}b",
        ".*.*.*.*.*.*.*.*.*.*b",
        "(a?){60}a{60}b",
        "((a*)*)*b",
    ],
)
def test_catastrophic_patterns_take_few_steps(piece):
    """Patterns that double plain backtracking with each character end early."""
    with pytest.raises(TooManyStepsError):
        match_end(compile_piece(piece), "a" * 129, 0, Steps(50))
    assert match_end(compile_piece(piece), "a" * 129, 0, Steps(60_000)) is None


def test_gives_up():
    """A match that is too expensive is aborted and says so."""
    program = compile_piece("(?=.*(?=.*(?=.*b)b)b).*")
    with pytest.raises(TooManyStepsError):
        match_end(program, "a" * 129, 0, Steps())


@pytest.mark.parametrize("piece", ["(a*)*", "(a?b?)*", "(|a)+", "(^)*", "((a|b*)+)*"])
def test_loops_of_nothing_end(piece):
    """A loop whose body can be empty ends, and consumes what is possible."""
    assert match_end(compile_piece(piece), "", 0, Steps()) == 0
    if piece != "(^)*":
        assert match_end(compile_piece(piece), "aaa", 0, Steps()) == 3
