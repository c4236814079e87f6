"""What the load writes is known to the checker as clients get it."""

from __future__ import annotations

import pytest
from soak.load import ASIDE, UNSEEN

from canal_server.tablemeta.sql.statement_classes import classify


def statements(text: str) -> int:
    """Return how many entries a statement becomes."""
    sql = text.format(t="`d`.`t1`", v="`d`.`v`", n=7)
    return len(classify(f"/* soak:7 */ {sql}", "d"))


@pytest.mark.parametrize("text", ASIDE)
def test_what_comes(text):
    """Each statement that is demanded of a client is one that clients are given."""
    assert statements(text) >= 1


@pytest.mark.parametrize("text", UNSEEN)
def test_what_does_not_come(text):
    """Statements that clients are not given are not demanded."""
    assert statements(text) == 0
