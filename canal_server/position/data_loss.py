"""Clients whose place the source no longer has, while others can still be served.

Reading begins at the oldest place that is left, so that the others lose nothing. The
clients that lack something are told so, each by itself, or moved if the operator wants
that. Leaves out what the source has (`canal_server.source.begin.position_loss`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from canal_server.position.log_positions import earlier, same_server

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from canal_server.model.identity import ClientIdentity
    from canal_server.model.positions import LogPosition

_log = logging.getLogger(__name__)


class Gone(Protocol):
    """A place that the source refused, and what it has instead."""

    @property
    def refused(self) -> LogPosition:
        """Return the place."""

    def has(self, place: LogPosition) -> bool:
        """Tell whether the source may have another place."""

    def why(self, place: LogPosition) -> str:
        """Return what of a place is missing, for a person."""


class LostClients:
    """Who is not served, and why; one writer at a time, read by any thread.

    `resets`: clients that lack something are moved, and served.
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
        """Return the oldest of the clients' places that is left, None for none of them.

        Clients that lack something are moved there, or dropped and refused. Once
        reading began they may have entries of before in the store: they stay, and it is
        only passed over what is gone if the operator wants that.
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
        """Refuse a client that lacks something; the others go on as they do."""
        self._refuse(identity, place, gone)

    def refuse_because(self, identity: ClientIdentity, why: str) -> None:
        """Refuse a client to which nothing can be given."""
        why = f"client {identity.client_id} of {self._destination} is late: {why}"
        self._why[identity.client_id] = why
        _log.error("%s; it is refused, the others go on", why)

    def tell_moved(
        self, identity: ClientIdentity, place: LogPosition, to: LogPosition, gone: Gone
    ) -> None:
        """Say what a client misses that is moved."""
        self._tell_moved(identity, place, to, gone)

    def _refuse(self, identity: ClientIdentity, place: LogPosition, gone: Gone) -> None:
        why = (
            f"client {identity.client_id} of {self._destination} needs"
            f" {place.position}, which is gone: {gone.why(place)}"
        )
        self._why[identity.client_id] = (
            f"{why}; load its tables anew, then move it with `canal-server position"
            " seek`, or unsubscribe it"
        )
        _log.error(
            "%s; it is refused, the others go on: load its tables anew, then move it"
            " with `canal-server position seek`, or remove it with `canal-server"
            " unsubscribe`",
            why,
        )

    def _tell_moved(
        self, identity: ClientIdentity, place: LogPosition, to: LogPosition, gone: Gone
    ) -> None:
        _log.error(
            "client %d of %s needs %s, which is gone: %s; it goes on at %s, as"
            " canal.auto.reset.latest.pos.mode is true: what lies between is lost for"
            " it",
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
        """Serve a client again that has left."""
        self._why.pop(client_id, None)

    def clear(self) -> None:
        """Serve all of them again: cursors were moved."""
        self._why.clear()

    def told(self) -> dict[str, str]:
        """Return who is not served and why, as plain values."""
        return {str(client): why for client, why in sorted(self._why.items())}


def _oldest_left(
    places: Mapping[ClientIdentity, LogPosition], gone: Gone
) -> tuple[LogPosition | None, list[ClientIdentity]]:
    """Return the oldest place that the source still has, and whose are not there.

    None when it has none of them.
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
