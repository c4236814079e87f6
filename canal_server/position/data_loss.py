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
from canal_server.position.log_position_managers import earlier, same_server

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from canal_server.model.identity import ClientIdentity
    from canal_server.model.positions import LogPosition

_log = logging.getLogger(__name__)


class PositionLoss(Protocol):
    """A position that the source refused, and what the source has instead."""

    @property
    def refused(self) -> LogPosition:
        """Return the refused position."""

    def has(self, cursor: LogPosition) -> bool:
        """Return whether the source may have another position."""

    def why(self, cursor: LogPosition) -> str:
        """Return what the source lacks of a position, for a person."""


class LostClients:
    """The clients that are not served, and why; one writer, any number of readers.

    With `resets`, clients that lost data are moved and served.
    """

    def __init__(
        self, destination: str, *, resets: bool, conf_option: str = ""
    ) -> None:
        """`conf_option` is for the commands in texts; a blank follows it."""
        self.resets = resets
        self._conf_option = conf_option
        self._destination = destination
        self._why: dict[int, str] = {}  # by client id

    def leave_behind(
        self,
        cursors: Mapping[ClientIdentity, LogPosition],
        loss: PositionLoss,
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
            identity: cursor
            for identity, cursor in cursors.items()
            if not self.why(identity.client_id)
        }
        left, lost = _oldest_left(served, loss)
        if left is None or (began and not self.resets):
            return None
        for identity in lost:
            if self.resets:
                self._log_moved(identity, cursors[identity], left, loss)
                if not began:
                    move(identity, left)
            else:
                self._refuse(identity, cursors[identity], loss)
                drop(identity)
        return left

    def refuse_one(
        self, identity: ClientIdentity, cursor: LogPosition, loss: PositionLoss
    ) -> None:
        """Refuse a client that lost data; the others continue."""
        self._refuse(identity, cursor, loss)

    def refuse_because(self, identity: ClientIdentity, why: str) -> None:
        """Refuse a client that nothing can be delivered to."""
        why = f"client {identity.client_id} of {self._destination} is lagging: {why}"
        self._why[identity.client_id] = why
        position_messages.CLIENT_HISTORY_UNKNOWN.log(_log, why)

    def log_moved(
        self,
        identity: ClientIdentity,
        cursor: LogPosition,
        to: LogPosition,
        loss: PositionLoss,
    ) -> None:
        """Log what a client misses that is moved."""
        self._log_moved(identity, cursor, to, loss)

    def _refuse(
        self, identity: ClientIdentity, cursor: LogPosition, loss: PositionLoss
    ) -> None:
        why = (
            f"client {identity.client_id} of {self._destination} needs"
            f" {cursor.position}, which the source no longer has: {loss.why(cursor)}"
        )
        self._why[identity.client_id] = (
            f"{why}; reload its tables, then move it with `canal-server position seek"
            f" {self._conf_option}--destination {self._destination}"
            f" --client-id {identity.client_id} --to oldest`, or unsubscribe it"
        )
        position_messages.CLIENT_POSITION_LOST.log(_log, why)

    def _log_moved(
        self,
        identity: ClientIdentity,
        cursor: LogPosition,
        to: LogPosition,
        loss: PositionLoss,
    ) -> None:
        position_messages.CLIENT_MOVED_PAST_LOSS.log(
            _log,
            identity.client_id,
            self._destination,
            cursor.position,
            loss.why(cursor),
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

    def as_json(self) -> dict[str, str]:
        """Return the clients that are not served and why, as JSON values."""
        return {str(client): why for client, why in sorted(self._why.items())}


def _oldest_left(
    cursors: Mapping[ClientIdentity, LogPosition], loss: PositionLoss
) -> tuple[LogPosition | None, list[ClientIdentity]]:
    """Return the oldest position that the source has, and the clients without one.

    None when it has none of the positions.
    """
    lost = [each for each, cursor in cursors.items() if _is_lost(cursor, loss)]
    left: LogPosition | None = None
    for identity, cursor in cursors.items():
        if identity not in lost:
            left = cursor if left is None else earlier(left, cursor)
    return left, lost


def _is_lost(cursor: LogPosition, loss: PositionLoss) -> bool:
    refused = loss.refused
    if cursor == refused or not loss.has(cursor):
        return True
    return (
        same_server(cursor.identity, refused.identity)
        and cursor.position.order() <= refused.position.order()
    )
