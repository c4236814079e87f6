"""Asking filters about tables that are new to them, while nobody waits.

A filter may take long. So a cursor that meets a table which its filter was not asked
about waits there, until the thread that needs it has asked without the store's lock.
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
    """Have a cursor continue that asks; `lock` is taken, but not while a filter thinks.

    `cursors` are those of the store, guarded by the lock: one that is none of them any
    more may stand at entries that were freed. Before each table `is_over` says whether
    nobody needs the answer any more; returns False then, and the filter is asked again
    when somebody does.
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
            # Without the lock: when it is dropped just now, the next table finds out.
            if cursors.get(cursor.client_id) is not cursor:
                return True
            if is_over():
                return False
            answer.append(1 if table_filter(each) else 0)
        with lock:
            if cursors.get(cursor.client_id) is cursor:
                cursor.learn(question, (lowest, bytes(answer)))
    return True
