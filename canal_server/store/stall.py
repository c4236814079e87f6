"""Reports to an operator for whom the pump waits when the ring stays full.

A full ring is ordinary: a slow client slows reading down, and nothing is lost. But a
client that never returns stops reading for all others, which looks like an idle source.
Therefore a long wait is logged, with the clients that hold the entries. Leaves out the
waiting itself (`canal_server.store.event_store`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from canal_server.messages import destination_messages

if TYPE_CHECKING:
    from collections.abc import Sequence

_log = logging.getLogger(__name__)

REPORT_AFTER_S = 10.0  # a client may process a batch for that long
REPORT_AGAIN_S = 600.0  # for the same clients
_NAMED_MAX = 5


class StallNotice:
    """What was logged about waits for room. Used by the pump's thread only.

    A wait begins with `begin`, is to be reported when `due_s` is 0, and ends with `end`
    unless the pump is stopped. Times are those of one clock, in seconds.
    """

    def __init__(
        self, destination: str, report_after_s: float = REPORT_AFTER_S
    ) -> None:
        self._destination = destination
        # What uses a client id within this process: no client that may not return.
        self.users: dict[int, str] = {}
        self._report_after_s = report_after_s
        self._began_s = 0.0
        self._next_s = 0.0
        self._reported = False  # in this wait
        self._last: tuple[Sequence[int], float] | None = None  # for whom, and when

    def begin(self, now_s: float) -> None:
        """Note that a wait begins."""
        self._began_s = now_s
        self._next_s = now_s + self._report_after_s
        self._reported = False

    def due_s(self, now_s: float) -> float:
        """Return how long this wait may last until it is to be reported."""
        return max(0.0, self._next_s - now_s)

    def report(self, holders: Sequence[int], now_s: float) -> None:
        """Log the wait, unless the same was logged recently.

        `holders` are the clients that must ack before there is room, in order.
        """
        self._next_s = now_s + self._report_after_s
        if self._last is not None:
            before, when_s = self._last
            if before == holders and now_s - when_s < REPORT_AGAIN_S:
                return
        self._last = holders, now_s
        self._reported = True
        waited_s = now_s - self._began_s
        users = [self.users[each] for each in holders if each in self.users]
        clients = [each for each in holders if each not in self.users]
        if users:
            destination_messages.RING_WAITS_FOR_QUEUE.log(
                _log, self._destination, waited_s, " and ".join(users)
            )
        if clients:
            destination_messages.RING_IS_FULL.log(
                _log,
                self._destination,
                waited_s,
                _names(clients),
                clients[0],
                self._destination,
                clients[0],
            )
        elif not users:
            _log.info(
                "destination %s: nothing has been read for %.0f s: the ring is full, "
                "and no client is subscribed",
                self._destination,
                waited_s,
            )

    def end(self, now_s: float) -> None:
        """Note that there is room; log it if the wait was logged."""
        if self._reported:
            _log.info(
                "destination %s: resumed reading after %.0f s",
                self._destination,
                now_s - self._began_s,
            )


def _names(clients: Sequence[int]) -> str:
    named = ", ".join(str(client) for client in clients[:_NAMED_MAX])
    if len(clients) > _NAMED_MAX:
        named += f" and {len(clients) - _NAMED_MAX} more"
    return f"client {named}" if len(clients) == 1 else f"clients {named}"
