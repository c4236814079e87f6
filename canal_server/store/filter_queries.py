"""Asks filters about tables that are new to them, outside of the store's lock.

A filter may take long. Therefore a cursor that reaches a table which its filter was not
asked about stops there, until the thread that needs it has asked without the lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping

    from canal_server.core.table_ids import TableIds
    from canal_server.store.cursor import Cursor


def ask_filter(
    cursor: Cursor,
    table_ids: TableIds,
    lock: threading.Lock,
    cursors: Mapping[int, Cursor],
    is_over: Callable[[], bool],
) -> bool:
    """Make a cursor continue that asks; acquires `lock`, but not while a filter runs.

    `cursors` are those of the store, guarded by the lock: a cursor that was removed
    from them may point to entries that were freed. `is_over` is called before each
    table and returns whether the answer is no longer needed. Then this returns False,
    and the filter is asked again when the answer is needed.
    """
    while cursor.asks:
        with lock:
            if cursors.get(cursor.client_id) is not cursor:
                return True
            table_filter, first = question = cursor.question
        assert table_filter is not None, "without a filter there is nothing to ask"
        lowest, names = table_ids.since(first)
        answer = bytearray()
        for each in names:
            # Without the lock: a concurrent removal is noticed at the next table.
            if cursors.get(cursor.client_id) is not cursor:
                return True
            if is_over():
                return False
            answer.append(1 if table_filter(each) else 0)
        with lock:
            if cursors.get(cursor.client_id) is cursor:
                cursor.learn(question, (lowest, bytes(answer)))
    return True
