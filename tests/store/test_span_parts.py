"""Cutting long lists of spans."""

from __future__ import annotations

import pytest
from fix_blocks import ROWS, Entries, numbers_in

from canal_server.store.span_parts import count_of, parts_of


@pytest.mark.parametrize("count_max", [1, 3, 7, 20, 21])
def test_parts_are_full_but_for_the_last(count_max):
    """Parts hold all entries in order, each as many as allowed."""
    entries = Entries(records_per_block=6)
    for _ in range(20):
        entries.add(ROWS)
    spans = entries.take()
    parts = list(parts_of(spans, count_max))
    assert [number for part in parts for number in numbers_in(part)] == list(range(20))
    assert {count_of(part) for part in parts[:-1]} <= {count_max}
    assert 0 < count_of(parts[-1]) <= count_max
    assert count_of(spans) == 20


def test_nothing_has_no_parts():
    """No spans, and spans without records, result in no part."""
    entries = Entries()
    entries.add(ROWS)
    [(block, _, _)] = entries.take()
    assert list(parts_of([], 5)) == []
    assert list(parts_of([(block, 1, 1)], 5)) == []
