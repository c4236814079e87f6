"""Telling an operator for whom the pump waits when the ring stays full.

A full ring is ordinary: a slow client slows the reading down, and nothing is lost. But
a client that never comes back stops it for all others, which looks like a source where
nothing happens. So a long wait is told, with the clients that hold the entries. Leaves
out the waiting itself (`canal_server.store.event_store`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_log = logging.getLogger(__name__)

TELL_AFTER_S = 10.0  # a client may well think that long about a batch
TELL_AGAIN_S = 600.0  # of the same clients
_NAMED_MAX = 5


class StallNotice:
    """What was told of waits for room. Used by the pump's thread only.

    A wait begins with `begin`, is to be told of when `due_s` is 0, and ends with `end`
    unless the pump is stopped in it. Times are those of one clock, in seconds.
    """

    def __init__(self, destination: str, tell_after_s: float = TELL_AFTER_S) -> None:
        self._destination = destination
        self._tell_after_s = tell_after_s
        self._began_s = 0.0
        self._next_s = 0.0
        self._told = False  # in this wait
        self._last: tuple[Sequence[int], float] | None = None  # whom, when

    def begin(self, now_s: float) -> None:
        """Take note that a wait begins."""
        self._began_s = now_s
        self._next_s = now_s + self._tell_after_s
        self._told = False

    def due_s(self, now_s: float) -> float:
        """Return how long this wait may go on until it is to be told of."""
        return max(0.0, self._next_s - now_s)

    def tell(self, holders: Sequence[int], now_s: float) -> None:
        """Tell of the wait, unless the same was told a while ago.

        `holders` are the clients that must ack before there is room, in order.
        """
        self._next_s = now_s + self._tell_after_s
        if self._last is not None:
            whom, when_s = self._last
            if whom == holders and now_s - when_s < TELL_AGAIN_S:
                return
        self._last = holders, now_s
        self._told = True
        waited_s = now_s - self._began_s
        if holders:
            _log.warning(
                "destination %s: nothing has been read for %.0f s: the ring is full, "
                "and %s must ack first; if client %d is gone for good, run "
                "`canal-server unsubscribe --destination %s --client-id %d`",
                self._destination,
                waited_s,
                _names(holders),
                holders[0],
                self._destination,
                holders[0],
            )
        else:
            _log.info(
                "destination %s: nothing has been read for %.0f s: the ring is full, "
                "and no client is subscribed",
                self._destination,
                waited_s,
            )

    def end(self, now_s: float) -> None:
        """Take note that there is room; tell so if the wait was told of."""
        if self._told:
            _log.info(
                "destination %s: reads on after %.0f s",
                self._destination,
                now_s - self._began_s,
            )


def _names(clients: Sequence[int]) -> str:
    named = ", ".join(str(client) for client in clients[:_NAMED_MAX])
    if len(clients) > _NAMED_MAX:
        named += f" and {len(clients) - _NAMED_MAX} more"
    return f"client {named}" if len(clients) == 1 else f"clients {named}"
