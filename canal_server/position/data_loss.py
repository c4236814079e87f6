"""Clients whose position the source has lost, while others can still be served.

Reading begins at the oldest position that the source still has, so that the other
clients lose nothing. The clients that lost data are refused, each on its own, or moved
if the configuration says so. Leaves out what the source has
(`canal_server.source.begin.position_loss`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from canal_server.messages import position_messages
from canal_server.position.log_positions import earlier, same_server

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from canal_server.model.identity import ClientIdentity
    from canal_server.model.positions import LogPosition

_log = logging.getLogger(__name__)


class Gone(Protocol):
    """A position that the source refused, and what the source has instead."""

    @property
    def refused(self) -> LogPosition:
        """Return the refused position."""

    def has(self, place: LogPosition) -> bool:
        """Return whether the source may have another position."""

    def why(self, place: LogPosition) -> str:
        """Return what the source lacks of a position, for a person."""


class LostClients:
    """The clients that are not served, and why; one writer, any number of readers.

    With `resets`, clients that lost data are moved and served.
    """

    def __init__(self, destination: str, *, resets: bool) -> None:
        self.resets = resets
        self._destination = destination
        self._why: dict[int, str] = {}  # by client id

    def leave_behind(
        self,
        places: Mapping[ClientIdentity, LogPosition],
        gone: Gone,
        *,
        began: bool,
        move: Callable[[ClientIdentity, LogPosition], None],
        drop: Callable[[ClientIdentity], None],
    ) -> LogPosition | None:
        """Return the clients' oldest position that the source has, None: it has none.

        Clients that lost data are moved there, or dropped and refused. Once reading
        began, they may still have earlier entries in the store and keep them; then
        lost data is skipped only if the configuration says so.
        """
        served = {
            identity: place
            for identity, place in places.items()
            if not self.why(identity.client_id)
        }
        left, lost = _oldest_left(served, gone)
        if left is None or (began and not self.resets):
            return None
        for identity in lost:
            if self.resets:
                self._tell_moved(identity, places[identity], left, gone)
                if not began:
                    move(identity, left)
            else:
                self._refuse(identity, places[identity], gone)
                drop(identity)
        return left

    def refuse_one(
        self, identity: ClientIdentity, place: LogPosition, gone: Gone
    ) -> None:
        """Refuse a client that lost data; the others continue."""
        self._refuse(identity, place, gone)

    def refuse_because(self, identity: ClientIdentity, why: str) -> None:
        """Refuse a client that nothing can be delivered to."""
        why = f"client {identity.client_id} of {self._destination} is late: {why}"
        self._why[identity.client_id] = why
        position_messages.CLIENT_HISTORY_UNKNOWN.log(_log, why)

    def tell_moved(
        self, identity: ClientIdentity, place: LogPosition, to: LogPosition, gone: Gone
    ) -> None:
        """Log what a client misses that is moved."""
        self._tell_moved(identity, place, to, gone)

    def _refuse(self, identity: ClientIdentity, place: LogPosition, gone: Gone) -> None:
        why = (
            f"client {identity.client_id} of {self._destination} needs"
            f" {place.position}, which the source no longer has: {gone.why(place)}"
        )
        self._why[identity.client_id] = (
            f"{why}; load its tables again, then move it with `canal-server position"
            " seek`, or unsubscribe it"
        )
        position_messages.CLIENT_POSITION_LOST.log(_log, why)

    def _tell_moved(
        self, identity: ClientIdentity, place: LogPosition, to: LogPosition, gone: Gone
    ) -> None:
        position_messages.CLIENT_MOVED_PAST_LOSS.log(
            _log,
            identity.client_id,
            self._destination,
            place.position,
            gone.why(place),
            to.position,
        )

    def why(self, client_id: int) -> str:
        """Return why a client is not served, empty when it is."""
        return self._why.get(client_id, "")

    def forget(self, client_id: int) -> None:
        """Serve a client again, after it unsubscribed."""
        self._why.pop(client_id, None)

    def clear(self) -> None:
        """Serve all clients again, after cursors were moved."""
        self._why.clear()

    def told(self) -> dict[str, str]:
        """Return the clients that are not served and why, as JSON values."""
        return {str(client): why for client, why in sorted(self._why.items())}


def _oldest_left(
    places: Mapping[ClientIdentity, LogPosition], gone: Gone
) -> tuple[LogPosition | None, list[ClientIdentity]]:
    """Return the oldest position that the source has, and the clients without one.

    None when it has none of the positions.
    """
    lost = [each for each, place in places.items() if _is_lost(place, gone)]
    left: LogPosition | None = None
    for identity, place in places.items():
        if identity not in lost:
            left = place if left is None else earlier(left, place)
    return left, lost


def _is_lost(place: LogPosition, gone: Gone) -> bool:
    refused = gone.refused
    if place == refused or not gone.has(place):
        return True
    return (
        same_server(place.identity, refused.identity)
        and place.position.order() <= refused.position.order()
    )
