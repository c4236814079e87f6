"""Asking filters about tables that are new to them, while nobody waits.

A filter may take long. So a cursor that meets a table which its filter was not asked
about waits there, until the thread that needs it has asked without the store's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.store.cursor import mask_of

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

    from canal_server.core.subjects import Subjects
    from canal_server.store.cursor import Cursor


def ask_filter(
    cursor: Cursor,
    subjects: Subjects,
    lock: threading.Lock,
    cursors: Mapping[int, Cursor],
) -> None:
    """Have a cursor go on that asks; `lock` is taken, but not while a filter thinks.

    `cursors` are those of the store, guarded by the lock: one that is none of them any
    more may stand at entries that were freed.
    """
    while cursor.asks:
        with lock:
            if cursors.get(cursor.client_id) is not cursor:
                return
            accepts, first = question = cursor.question
        assert accepts is not None, "without a filter there is nothing to ask"
        answer = mask_of(accepts, subjects, first)
        with lock:
            if cursors.get(cursor.client_id) is cursor:
                cursor.learn(question, answer)
