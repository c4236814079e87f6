"""Pauses of tables that leave the stream repeatedly."""

from __future__ import annotations

from canal_server.mirror.run.pauses import is_due, paused
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.state import TableState


def test_a_clock_that_was_set_back() -> None:
    """Nothing waits longer than the longest pause."""
    table = TableName("a", "t")
    state = TableState(table, "both", leaves=9, left_at_ms=int(1e12))
    state = paused(state, "so", 1e9)
    assert not is_due(state, 1e9)
    assert not is_due(state, 1e9 + 3599)
    assert is_due(state, 1e9 + 3600)
    assert is_due(state, 1e9 - 10_000)
