"""Pieces of filters that no table can match."""

from __future__ import annotations

import pytest

from canal_server.filters.doubts import names_no_table
from canal_server.filters.table_filters import compile_expression


@pytest.mark.parametrize(
    "piece",
    ["*", "shop", "shop*", "shop.", "a|b", "..", r"\w+", r"\.orders", "+", r"[.]",
     "orders$", "(?=x)y", "(?!x)y", "a{3}", ".?.?"],
)  # fmt: skip
def test_in_vain(piece):
    """It has no way from a schema over a dot to a table; a filter of it has none."""
    assert names_no_table(piece)
    table_filter = compile_expression(piece)
    names = ("shop.orders", "a.b", "aaa.aaa", "x.y", "crm.person")
    assert not any(map(table_filter, names))


@pytest.mark.parametrize(
    ("piece", "name"),
    [
        (".*", "a.b"), ("*.*", "a.b"), (r".*\..*", "a.b"), (r"shop\..*", "shop.b"),
        ("shop.*", "shop2.b"), ("shop.orders", "shop.orders"), ("...", "a.b"),
        (r"(a|b)\.c", "b.c"), (r"a\.b|c", "a.b"), ("[a.]{3}", "a.a"),
        (r"(?!x)\w+\.\w+", "a.b"), (r"\S+", "a.b"), (r"a\..", "a.b"),
        (r"^shop\.o$", "shop.o"), (r"(a\.)*b", "a.b"), (r"a\.b\.c", "a.b.c"),
    ],
)  # fmt: skip
def test_what_may_match(piece, name):
    """What matches some table is not doubted."""
    assert compile_expression(piece)(name)
    assert not names_no_table(piece)


def test_random_pieces(rng):
    """What is said to match nothing never does."""
    parts = ["a", "b", r"\.", ".", "*", "?", "|", "(", ")", r"\w", "[a.]", "[^.]", "$"]
    names = ["a.b", "aa.b", "ab.ba", "b.a", "a.a.b"]
    found = set()
    for _ in range(3000):
        piece = "".join(rng.choices(parts, k=rng.randint(1, 6)))
        try:
            in_vain = names_no_table(piece)
            table_filter = compile_expression(piece)
        except ValueError:
            continue  # no regular expression
        matches = any(map(table_filter, names))
        assert not (in_vain and matches), piece
        found.add((in_vain, matches))
    assert {(True, False), (False, True)} <= found
