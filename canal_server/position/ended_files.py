"""Cursors leave a binlog file that has ended, where nothing in it is to come.

A cursor is moved by acks, so that of a client stays at its last entry, while the source
is quiet or writes what the client's filter rejects; and once that file is purged, the
client would be told that it has missed something. So whoever was given all and acked it
is moved with the pump when that has come to another file. Leaves out whether a client
lacks anything (`store`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from canal_server.position.log_positions import same_server

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable

    from canal_server.model.identity import ClientIdentity
    from canal_server.model.positions import LogIdentity, LogPosition

    Cursors = Iterable[tuple[ClientIdentity, LogPosition | None]]

LOOK_S: Final = 10.0  # between two looks at clients that were in other files


class LeavingCursors:
    """Moves the cursors of clients in one source; for the pump's thread.

    `cursors` gives them, `has_all` tells whether a client was given all that was handed
    on, and acked it, and `move` moves one. Nobody gets or acks while `steady` is held.
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
        # The file and the server that clients were looked at for last, and when.
        self._seen: tuple[str | None, LogIdentity | None] = (None, None)
        self._looked_s = 0.0

    def look(self, place: LogPosition | None) -> None:
        """Move those that may be, to a place up to which all was handed on.

        Cheap while that stays in a file. Raises MetaStoreError.
        """
        if place is None:
            return
        seen = place.position.journal_name, place.identity
        now_s = self._clock()
        if seen == self._seen and now_s - self._looked_s < LOOK_S:
            return
        self._seen, self._looked_s = seen, now_s
        with self._steady:
            for identity, cursor in self._cursors():
                if (
                    cursor is not None
                    and _is_of_earlier_file(cursor, place)
                    and self._has_all(identity.client_id)
                ):
                    self._move(identity, place)


def furthest_of(
    before: LogPosition | None, place: LogPosition | None
) -> LogPosition | None:
    """Return behind what all lies that is not acked by a client that has all.

    `before` is what the store tells, `place` up to where all was handed on.
    """
    if (
        before is None
        or place is None
        or not same_server(before.identity, place.identity)
    ):
        return before
    later = place.position.order() > before.position.order()
    return place if later else before


def _is_of_earlier_file(cursor: LogPosition, place: LogPosition) -> bool:
    if cursor.position.journal_name == place.position.journal_name:
        return False
    return (
        bool(cursor.position.journal_name)
        and cursor.position.order() < place.position.order()
        and same_server(cursor.identity, place.identity)
    )
