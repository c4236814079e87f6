"""What is checked of the tables that an account sees, by values."""

from __future__ import annotations

import pytest
from facts_of_source import checked_of, facts_of

from canal_server.config.schema import FilterConfig
from canal_server.errors import SourceRefused
from canal_server.model.check_results import Outcome
from canal_server.mysql.silent_foreign_keys import ForeignKey
from canal_server.source.check.table_checks import (
    NAMED_MAX,
    check_filter,
    check_foreign_keys,
    check_select,
    check_unlogged,
    grant_select,
)

DENIED = SourceRefused("denied")
OK, WARN, FAIL, SKIP = Outcome.OK, Outcome.WARN, Outcome.FAIL, Outcome.SKIP


@pytest.mark.parametrize(
    ("tables", "regex", "black", "outcome", "words"),
    [
        (None, r".*\..*", "", OK, "matches 3 tables"),
        (None, r"shop\.orders", "", OK, "matches 1 table"),
        (None, r"shop\..*,x\..*", "", WARN, r"matches 'x\..*'"),
        (None, r"x\..*", "", FAIL, r"no table that account u at db:3306 sees"),
        (None, r"hr\..*", r"hr\..*", FAIL, "black.regex excludes all"),
        ([], r".*\..*", "", FAIL, "sees no table"),
        (DENIED, r".*\..*", "", SKIP, ": denied"),
    ],
)
def test_filters(tables, regex, black, outcome, words):
    """A filter must match something; a part of it should."""
    facts = facts_of() if tables is None else facts_of(tables=tables)
    filters = FilterConfig(regex=regex, black_regex=black)
    found = check_filter(facts, checked_of(filters=filters))
    assert found.outcome is outcome
    assert words in found.text


@pytest.mark.parametrize(
    ("grants", "regex", "outcome", "words"),
    [
        ("GRANT SELECT ON *.* TO `u`@`%`", r".*\..*", OK, "has SELECT"),
        ("GRANT SELECT ON *.* TO `u`@`%`", r"x\..*", OK, "has SELECT"),
        ("GRANT SELECT ON `shop`.* TO `u`@`%`", r"shop\..*", OK, "has SELECT"),
        (
            "GRANT SELECT ON `shop`.* TO `u`@`%`",
            r".*\..*",
            FAIL,
            "lacks SELECT on 'hr.people'",
        ),
        ("GRANT SELECT ON `shop`.* TO `u`@`%`", r"x\..*", SKIP, "matches no table"),
        ("", r".*\..*", SKIP, "does not show the grants"),
        ("something else", r".*\..*", OK, "has SELECT"),
    ],
)
def test_select(grants, regex, outcome, words):
    """The tables of the filter matter, and only what is certainly missing."""
    filters = FilterConfig(regex=regex)
    found = check_select(facts_of(grants=grants), checked_of(filters=filters))
    assert found.outcome is outcome
    assert words in found.text


def test_many_tables_without_select():
    """Some are named, the rest is counted."""
    tables = [("shop", f"t{number}") for number in range(NAMED_MAX + 3)]
    facts = facts_of(grants="GRANT USAGE ON *.* TO `u`@`%`", tables=tables)
    found = check_select(facts, checked_of())
    assert found.text.endswith("'shop.t4' and 3 more")
    assert found.remedy.endswith("run: GRANT SELECT ON `shop`.* TO 'u'@'%'")
    assert check_select(facts_of(tables=DENIED), checked_of()).outcome is SKIP


def test_the_name_of_a_schema_in_a_grant():
    """There, some characters stand for others unless they are escaped."""
    statement = grant_select(("a_b%c`d", "t"), ("u", "%"))
    assert statement == r"GRANT SELECT ON `a\_b\%c``d`.* TO 'u'@'%'"


def test_foreign_keys():
    """Keys whose changes are in no event are a hint."""
    key = ForeignKey("fk", ("shop", "items"), ("s", "p"), ("a",), ("b",), "CASCADE")
    assert check_foreign_keys(facts_of(), checked_of()).outcome is OK
    found = check_foreign_keys(facts_of(keys=[key]), checked_of())
    assert found.outcome is WARN
    assert "shop.items: foreign key fk" in found.text
    assert check_foreign_keys(facts_of(keys=DENIED), checked_of()).outcome is SKIP


def test_unlogged():
    """What the server does not log is a warning."""
    assert check_unlogged(facts_of(), checked_of()).outcome is OK
    found = check_unlogged(facts_of(unlogged=["one", "two"]), checked_of())
    assert (found.outcome, found.text) == (WARN, "one; two")
    assert check_unlogged(facts_of(unlogged=DENIED), checked_of()).outcome is SKIP
