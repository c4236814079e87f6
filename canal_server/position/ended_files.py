"""Cursors leave a binlog file that has ended, where nothing in it is to come.

Acks move a cursor, so that it stays at the client's last entry while the source is idle
or writes what the client's filter rejects. Once that file is purged, the client would
seem to have lost data. Therefore a client that received and acked everything is moved
along with the pump when the pump reaches another file. Leaves out how it is known that
a client received everything (`store`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from canal_server.position.log_position_managers import same_server

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable

    from canal_server.model.identity import ClientIdentity
    from canal_server.model.positions import LogIdentity, LogPosition

    Cursors = Iterable[tuple[ClientIdentity, LogPosition | None]]

LOOK_S: Final = 10.0  # between two checks of clients whose cursors are in other files


class LeavingCursors:
    """Moves the cursors of clients in one source; for the pump's thread.

    `cursors` returns them, `has_all` whether a client received and acked everything
    that was put into the store, and `move` moves one. No client gets or acks while
    `steady` is held.
    """

    def __init__(
        self,
        cursors: Callable[[], Cursors],
        has_all: Callable[[int], bool],
        move: Callable[[ClientIdentity, LogPosition], None],
        steady: threading.Lock,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cursors = cursors
        self._has_all = has_all
        self._move = move
        self._steady = steady
        self._clock = clock
        # The file and the server of the last check, and its time.
        self._seen: tuple[str | None, LogIdentity | None] = (None, None)
        self._looked_s = 0.0

    def look(self, position: LogPosition | None) -> None:
        """Move the cursors that may move to the end of what was put into the store.

        Cheap while the position stays in a file. Raises MetaStoreError.
        """
        if position is None:
            return
        seen = position.position.journal_name, position.identity
        now_s = self._clock()
        if seen == self._seen and now_s - self._looked_s < LOOK_S:
            return
        # The holder may be waiting for this thread to end; it tries again when idle.
        if not self._steady.acquire(blocking=False):
            return
        try:
            self._seen, self._looked_s = seen, now_s
            for identity, cursor in self._cursors():
                if (
                    cursor is not None
                    and _is_of_earlier_file(cursor, position)
                    and self._has_all(identity.client_id)
                ):
                    self._move(identity, position)
        finally:
            self._steady.release()


def furthest_of(
    before: LogPosition | None, position: LogPosition | None
) -> LogPosition | None:
    """Return the position after which everything unacked comes, for an idle client.

    `before` is the store's answer, `position` the end of what was put into the store.
    """
    if (
        before is None
        or position is None
        or not same_server(before.identity, position.identity)
    ):
        return before
    later = position.position.order() > before.position.order()
    return position if later else before


def _is_of_earlier_file(cursor: LogPosition, position: LogPosition) -> bool:
    if cursor.position.journal_name == position.position.journal_name:
        return False
    return (
        bool(cursor.position.journal_name)
        and cursor.position.order() < position.position.order()
        and same_server(cursor.identity, position.identity)
    )
