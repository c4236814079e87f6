"""Table filters: splitting, first-match rule, white and black lists, traps."""

from __future__ import annotations

import logging
import re
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from fix_store import PATIENCE_S, in_thread

from canal_server.filters import table_filters
from canal_server.filters.matching import Steps
from canal_server.filters.table_filters import (
    DOUBTS_MAX,
    LENGTH_MAX,
    SIZE_MAX,
    TableFilter,
    compile_expression,
    doubtful_pieces,
    for_client,
    split_expression,
)

if TYPE_CHECKING:
    from canal_server.model.ddl_statement import FilteredNames

COSTLY = "(?=.*(?=.*(?=.*b)b)b).*"  # on every long name
MIB = 1 << 20
COSTLY_ON_Z = "(?=z*(?=z*(?=z*y)y)y).*"  # on names of many z


def test_split_at_top_level_commas_only():
    """Commas within braces, brackets, parentheses or escaped do not split."""
    assert split_expression(r"a,t_\d{1,2},[,x]y,(b,c),d\,e,,") == [
        "a",
        r"t_\d{1,2}",
        "[,x]y",
        "(b,c)",
        r"d\,e",
    ]


def test_split_keeps_blanks_and_lost_openers():
    """Blanks stay, an opener that is never closed ends splitting, closers do not."""
    assert split_expression("a, b") == ["a", " b"]
    assert split_expression("[(],b") == ["[(],b"]
    assert split_expression(r"\(,b)c,d") == [r"\(", "b)c", "d"]
    assert split_expression("") == []


@pytest.mark.parametrize(
    ("expression", "text", "expected"),
    [
        (r"test\.foo,test\.foot", "test.foot", True),
        (r"test\.foo|test\.foot", "test.foot", False),
        (r"test\.foot|test\.foo", "test.foot", True),
        (r"test\.a|b", "test.a", True),
        (r"test\.a|b", "b", True),
        (r"test\.(a|ab)", "test.ab", True),
        (r"test\..*", "TEST.Foo", True),
        (r".*\\..*", "db.t", False),
        ("test", "test.t1", False),
        ("test.*", "test1.t", True),
        ("test.*", "testx.y", True),
        (r"db1\..*,!db1\.tmp", "db1.tmp", True),
        (r".*\..*", "a.b", True),
        (r"a\..*, b\..*", "b.t", False),
        (r"t\.\d{1,2},x\.y", "t.12", True),
        (r"t\.\d{1,2},x\.y", "x.y", True),
        (r"[[:alpha:]]+\.x", "ab.x", True),
        (r"a(?i)\.x", "A.X", True),
    ],
)
def test_matching(expression, text, expected):
    """Names match as they do in canal, also where that is not a full match."""
    assert compile_expression(expression)(text) is expected


def test_longest_piece_decides_first():
    """The first match in the order of length decides, not the best of all pieces."""
    matches = compile_expression(r"ab\.c,ab|zzzzzzz")
    assert matches("ab.c") is False
    assert compile_expression(r"ab\.c,ab|z")("ab.c") is True


@pytest.mark.parametrize("default", [True, False])
def test_empty_means_the_default(default):
    """An empty expression and an empty text give the default."""
    assert compile_expression("", default=default)("a.b") is default
    assert compile_expression(",,", default=default)("a.b") is default
    assert compile_expression("x", default=default)("") is default


@pytest.mark.parametrize("expression", ["a(", r"a\..*,b[", COSTLY])
def test_unusable_expressions_are_refused(expression):
    """An expression that cannot be used is a ValueError that shows it."""
    with pytest.raises(ValueError, match="regular expression"):
        compile_expression(expression)


@pytest.mark.parametrize("default", [True, False])
def test_costly_matches_give_the_default_and_one_warning(default, caplog):
    """An aborted match loses nothing and is logged once."""
    matches = compile_expression(COSTLY_ON_Z, default=default)
    with caplog.at_level(logging.WARNING):
        assert matches("z" * 200) is default
        assert matches("z" * 300) is default
    assert len(caplog.records) == 1
    assert "more than" in caplog.text


def test_long_lists_are_no_costly_matches():
    """Tens of thousands of plain names are matched to the last."""
    matches = compile_expression(",".join(rf"db\.t{i}" for i in range(30_000)))
    assert matches("db.t0") is True
    assert matches("db.other") is False


def test_white_and_black():
    """A table passes when it is on the white list and not on the black one."""
    tables = TableFilter(r"db\..*", r"db\.tmp_.*")
    assert tables.accepts((("db", "t"),))
    assert not tables.accepts((("db", "tmp_1"),))
    assert not tables.accepts((("other", "t"),))
    assert tables.accepts(())


def test_tables_beside():
    """Only a filter that asks for it passes a statement for a table beside."""
    names: FilteredNames = (("a", "p"), ("a", "t", True))
    for wanted, beside in ((False, False), (True, True)):
        assert TableFilter("a.t", "", beside=beside).accepts(names) is wanted
        assert TableFilter("a.p", "", beside=beside).accepts(names)
        assert TableFilter("", "a.p", beside=beside).accepts(names) is wanted
        assert not TableFilter("a.u", "", beside=beside).accepts(names)


def test_several_names():
    """With several names one on the white list is enough, and one that is not black."""
    tables = TableFilter(r"db\..*", r"db\.tmp_.*")
    assert tables.accepts((("other", "t"), ("db", "t")))
    assert tables.accepts((("db", "t"), ("db", "tmp_1")))
    assert not tables.accepts((("db", "tmp_2"), ("db", "tmp_1")))
    assert not tables.accepts((("a", "t"), ("b", "t")))


def test_no_schema():
    """A table without a schema is matched as `null`."""
    assert TableFilter(r"null\.t", "").accepts(((None, "t"),))


def test_client_filters():
    """A client's filter stands for the default, the black list stays."""
    names = ("db", "t"), ("other", "t"), ("db", "black")
    default = for_client("", r"db\..*", r".*\.black")
    own = for_client(r"other\..*", r"db\..*", r".*\.black")
    everything = for_client(r".*\..*", r"db\..*", r".*\.black")
    assert [default.accepts((name,)) for name in names] == [True, False, False]
    assert [own.accepts((name,)) for name in names] == [False, True, False]
    assert [everything.accepts((name,)) for name in names] == [True, True, False]


def test_doubts():
    """Blanks, exclamation marks and doubled backslashes are pointed out."""
    assert doubtful_pieces(r"a\..*,b\.c") == []
    doubts = doubtful_pieces(r"a, b,!c,.*\\..*")
    assert len(doubts) == 3
    assert "blank" in doubts[0]
    assert "negation" in doubts[1]
    assert "backslash" in doubts[2]


def test_repr_is_bounded():
    """The text for debuggers does not grow with the expression."""
    assert len(repr(TableFilter("a" * 5000, ""))) < 300


@pytest.mark.parametrize(
    "expression",
    [
        "b{4990}," * 2_500,
        "b{4990}," * 20_000,
        "(?=b{4990})" * 1_800,
        "(?:(?=b{99}){99}){99}," * 900,
        "[" + "b-cx-y" * 3_300 + "]{9}",
        "[" + "".join(chr(0x4E00 + 2 * i) for i in range(2_000)) + "]{1000}",
        "(?:b?){4990}," * 1_500,
        "." * 60_000,
        "(" * 40 + "b" + "{99999})" * 40,
    ],
)
def test_size_is_counted_before_anything_is_built(expression):
    """What would become large is refused in little memory, over all of its pieces."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="too large with"):
            compile_expression(expression)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # An instruction that is shared costs 8 bytes, another one some 100.
    assert most < 16 * MIB + 20 * len(expression)


def test_length_is_limited():
    """An expression has a limit of length, which the message names with the value."""
    with pytest.raises(ValueError, match=f"{LENGTH_MAX + 1} characters.*{LENGTH_MAX}"):
        compile_expression("a" * (LENGTH_MAX + 1))


def test_pieces_count_together():
    """Pieces that are small by themselves are refused when there are too many."""
    one = compile_expression("b{99}c")
    assert one("b" * 99 + "c")
    with pytest.raises(ValueError, match=f"all of its 1500 pieces .*limit {SIZE_MAX}"):
        compile_expression(",".join(f"b{{99}}c{i}" for i in range(1_500)))


def test_width_of_classes_does_not_cost():
    """A class with thousands of ranges needs the same steps as a simple one."""
    wide = "(?:[" + "".join(chr(0x100 + 3 * i) for i in range(1_500)) + "b]?){2}b*"
    narrow = "(?:[b]?){2}b*"
    left = []
    for piece in (wide, narrow):
        steps = Steps(1_000)
        assert TableFilter(piece, "").accepts_within((("b", "b"),), steps) is False
        left.append(steps.left)
    assert left[0] == left[1]


def test_costly_filters_take_turns():
    """An expensive match waits for the lock, while simple filters are not blocked."""
    asked = compile_expression(COSTLY_ON_Z)
    simple = compile_expression(r"db\..*")
    with table_filters.costly_turn:
        costly = in_thread(asked, "z" * 129)
        assert simple("db.t")
        assert asked("a.b") is False
        assert not costly.done()
    assert costly.result(PATIENCE_S) is True


@pytest.mark.parametrize("sign", ["", "|x"])
def test_plain_names_match_like_expressions(sign, rng):
    """Names that are looked up match as they do one by one, and in the same order."""
    names = ["".join(rng.choices("aB._-é表", k=rng.randint(1, 5))) for _ in range(60)]
    pieces = [re.sub(r"[.\-]", r"\\\g<0>", name) + sign for name in names]
    together = compile_expression(",".join(pieces))
    longest_first = sorted(pieces, key=len, reverse=True)
    oracle = re.compile(
        "|".join(f"^{piece}$" for piece in longest_first), re.IGNORECASE | re.DOTALL
    )
    for _ in range(500):
        text = "".join(rng.choices("ab._-é表x", k=rng.randint(1, 5)))
        found = oracle.match(text)
        expected = found is not None and found.end() == len(text)
        assert together(text) is expected, (text, pieces)


def test_doubts_are_few():
    """Of a list in which each piece is doubtful the first ones are reported."""
    assert len(doubtful_pieces(", a" * 5_000)) == DOUBTS_MAX
