"""Table filters: splitting, first-match rule, white and black lists, traps."""

from __future__ import annotations

import logging

import pytest

from canal_server.sink.filters import (
    TableFilter,
    compile_expression,
    doubtful_pieces,
    for_client,
    split_expression,
    union,
)

COSTLY = "(?=.*(?=.*(?=.*b)b)b).*"  # on every long name
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
    """A match that is given up loses nothing and is told once."""
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
    assert tables.drops_schema("db") is False
    assert TableFilter("", r"sys\..*").drops_schema("sys") is True


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


def test_union():
    """A union accepts what one of its filters accepts."""
    accepts = union([TableFilter(r"a\..*", ""), TableFilter(r"b\..*", "")])
    assert accepts((("a", "t"),))
    assert accepts((("b", "t"),))
    assert not accepts((("c", "t"),))
    assert accepts(())
    assert union([])(())
    assert not union([])((("a", "t"),))


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
