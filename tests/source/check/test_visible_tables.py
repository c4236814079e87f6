"""What is odd about the tables that an account sees."""

from __future__ import annotations

import pytest

from canal_server.config.schema import FilterConfig
from canal_server.mysql.silent_foreign_keys import ForeignKey
from canal_server.source.check.visible_tables import (
    KEYS_SHOWN_MAX,
    MATCHES_MAX,
    key_warning,
    table_warning,
)

ME = (("me", "%"), "db:3306")
TABLES = [("shop", "orders"), ("shop", "items"), ("hr", "people")]


def test_many_foreign_keys():
    """Some are named, the rest counted."""
    keys = [
        ForeignKey(f"k{n}", ("s", "c"), ("s", "p"), ("a",), ("b",), "CASCADE")
        for n in range(KEYS_SHOWN_MAX + 2)
    ]
    warning = key_warning(FilterConfig(), keys)
    assert warning.endswith(" ON DELETE CASCADE; and 2 more")
    assert warning.count("foreign key k") == KEYS_SHOWN_MAX
    assert key_warning(FilterConfig(regex=r"x\..*"), keys) == ""


@pytest.mark.parametrize(
    ("regex", "black", "warning"),
    [
        ("", "", None),
        (r".*\..*", "", None),
        (r"shop\..*,hr\.people", "", None),
        (r"SHOP\.Orders", "", None),
        (r"shop\.(orders|gone)", "", None),
        (r"shop\.order", "", r"matches 'shop\.order':"),
        (r"shop\..*,x\..*,y\..*", "", r"matches 'x\..*', 'y\..*':"),
        (r"hr\..*", r"hr\..*", "black.regex excludes all"),
        (r".*\..*", r"hr\..*", None),
    ],
)
def test_filters(regex, black, warning):
    """A filter is odd when a piece matches no table, or when nothing is left."""
    found = table_warning(FilterConfig(regex=regex, black_regex=black), TABLES, *ME)
    assert bool(found) == bool(warning)
    assert (warning or "") in found


def test_many_tables_are_not_all_looked_at():
    """A look that takes too long ends without an answer."""
    tables = [("s", f"t{number}") for number in range(MATCHES_MAX + 1)]
    assert table_warning(FilterConfig(regex=r"x\.y"), tables, *ME) == ""
