"""What the parser of regular expressions accepts, and what it refuses."""

from __future__ import annotations

import pytest

from canal_server.filters.matching import Steps, match_end
from canal_server.filters.patterns import INSTRUCTIONS_MAX, compile_piece


def matches(piece, text):
    """Return whether a piece matches a complete text."""
    return match_end(compile_piece(piece), text.lower(), 0, Steps()) == len(text)


@pytest.mark.parametrize(
    ("piece", "text", "expected"),
    [
        (r"a.c", "a\nc", True),  # a dot also matches line breaks
        (r"A\.[B-D]+", "a.bcd", True),  # always case-insensitive
        (r"[^B]", "b", False),
        (r"x{2,3}", "xx", True),
        (r"x{2,3}", "xxxx", False),
        (r"x{2}", "xxx", False),
        (r"x{2,}", "xxxxx", True),
        (r"x{,2}", "x{,2}", True),  # not a repetition: stands for itself
        (r"a{b}", "a{b}", True),
        (r"x+?y??", "xx", True),
        (r"(?:ab)+", "abab", True),
        (r"(?!mysql)\w+\.\w+", "db.t", True),
        (r"(?!mysql)\w+\.\w+", "mysql.t", False),
        (r"(?=db)\w+", "db1", True),
        (r"(?=db)\w+", "adb", False),
        (r"db(?i)\.T", "db.t", True),
        (r"(?is:db)\.t", "db.t", True),
        (r"d(?#a remark)b", "db", True),
        (r"[[:digit:][:punct:]]+", "1.2", True),
        (r"[[:^digit:]]+", "ab", True),
        (r"[[:^digit:]]+", "a1", False),
        (r"[[:upper:]]", "q", True),
        (r"[]a]+", "a]", True),
        (r"[a-]+", "a-", True),
        (r"[a-\d]+", "a-7", True),
        (r"[\w-]+", "a-7", True),
        (r"[\]\\]+", "]\\", True),
        (r"[\b]", "\b", True),
        (r"\x41\x2e\101?", "a.", None),
        (r"\x2e\056", "..", True),
        (r"\ttab\e", "\ttab\x1b", True),
        (r"\bdb\b\.\Bt", "db.t", False),
        (r"\bdb\b\.\bt", "db.t", True),
        (r"\Adb\Z", "db", True),
        (r"\D\W\S", "a-b", True),
        (r"\$\_\.", "$_.", True),
        (r"表\.é", "表.É", True),
        (r"*.*", "anything", True),  # the star repeats the anchor in front
        (r"", "", True),
        (r"(|a)b", "b", True),
    ],
)
def test_constructs(piece, text, expected):
    """Each construct matches what it matches in Perl 5 and Jakarta ORO."""
    if expected is None:
        with pytest.raises(ValueError, match="unsupported"):
            compile_piece(piece)
    else:
        assert matches(piece, text) is expected


@pytest.mark.parametrize(
    ("piece", "problem"),
    [
        ("a(b", "unmatched ( at character 3"),
        ("ab)", "unmatched ) at character 3"),
        ("(*a)", "nothing to repeat before"),
        ("(a|{2}b)", "nothing to repeat before"),
        ("a**", "quantifier after a quantifier"),
        ("a++", "quantifier after a quantifier"),
        ("a{3,2}", "invalid repetition: 3 exceeds 2"),
        ("[ab", "unmatched ["),
        ("[b-a]", "invalid range: 'b' is after 'a'"),
        ("[[:name:]]", "unknown class [:name:]"),
        (r"(a)\1", "unsupported back-reference"),
        (r"\Qa\E", r"unsupported escape \Q"),
        (r"[\p]", r"unsupported escape \p"),
        ("(?<=a)b", "unsupported kind of group"),
        ("(?P<n>a)", "unsupported kind of group"),
        ("(?x)a", "unsupported kind of group"),
        ("(?#a", "unterminated comment"),
        ("(" * 60 + ")" * 60, "more than 50 nested parentheses"),
        ("(a{1000}){1000}", f"limit {INSTRUCTIONS_MAX}"),
        ("(((a?){9999}){9999}){9999}", f"limit {INSTRUCTIONS_MAX}"),
        ("a{99999}", f"limit {INSTRUCTIONS_MAX}"),
        ("a{4294967297}", f"limit {INSTRUCTIONS_MAX}"),
        ("a{1,99999999999999999999}", f"limit {INSTRUCTIONS_MAX}"),
    ],
)
def test_refusals(piece, problem):
    """What cannot be used is refused with the expression and the reason."""
    with pytest.raises(ValueError) as refused:  # noqa: PT011  # checked below
        compile_piece(piece)
    assert problem in str(refused.value)
    assert f"'{piece}"[:20] in str(refused.value)


def test_leading_zeros_of_repetitions():
    """They count for nothing, however many there are."""
    assert compile_piece("ta{0000000002}") == compile_piece("ta{2}")
    assert compile_piece("ta{00,0000000003}") == compile_piece("ta{0,3}")


def test_empty_bodies_are_not_written_out():
    """A repetition of nothing costs nothing, however often it is repeated."""
    assert len(compile_piece("(((){9999}){9999}){9999}")) < 10
