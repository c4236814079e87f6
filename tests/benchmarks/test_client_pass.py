"""Every way to drain a destination ends at the row that ends the load."""

from __future__ import annotations

import pytest
from client_entries import row, transaction
from client_pass import WAYS, Pass
from fix_server import DESTINATION

END = "finish_line"


@pytest.mark.parametrize("way", WAYS)
def test_way(way, serve, instance) -> None:
    """A client of this way sees all transactions, and measures from the first one."""
    if way == "arrow":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    for number in range(50):
        instance.store.append(*transaction(10 * number + 1, 3))
    instance.store.append(row(1000, END), row(1001))
    run = Pass({"port": serve().port, "destination": DESTINATION, "end": END})
    WAYS[way](run)
    assert run.seconds > 0
    assert run.cpu_seconds > 0
    assert (run.message_bytes > 0) == (way == "count")
    (cursor,) = instance.store.cursors.values()
    assert cursor.got == len(instance.store.records)
