"""The position of a destination's pump: log position managers.

After a restart the clients' cursors replace it (`stored_meta`). Leaves out the
search for a start position when none is stored (`canal_server.source`).
"""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

from canal_server.errors import CanalError
from canal_server.messages import position_messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.model.identity import ClientIdentity
    from canal_server.model.positions import LogIdentity, LogPosition
    from canal_server.ports import LogPositionManager, MetaManager

logger = logging.getLogger(__name__)


class MemoryLogPositionManager:
    """Positions that end with the process; a `ports.LogPositionManager`."""

    def __init__(self) -> None:
        # One pump writes one key; reading from other threads is safe.
        self._positions: dict[str, LogPosition] = {}

    def start(self) -> None:
        """Do nothing: nothing is stored."""

    def request_stop(self) -> None:
        """Do nothing: a start does not wait."""

    def stop(self) -> None:
        """Do nothing: there is nothing to write."""

    def latest(self, destination: str) -> LogPosition | None:
        """Return the stored position, None when there is none."""
        return self._positions.get(destination)

    def persist(self, destination: str, position: LogPosition) -> None:
        """Store a position."""
        self._positions[destination] = position


class MetaLogPositionManager:
    """The slowest client's cursor as the position; a `ports.LogPositionManager`.

    Only clients for which `retains` is true count; all, when it is true for none.
    """

    def __init__(
        self,
        meta: MetaManager,
        retains: Callable[[ClientIdentity], bool] = lambda _: True,
    ) -> None:
        self._meta = meta
        self._retains = retains

    def start(self) -> None:
        """Do nothing: the owner of the meta manager starts it."""

    def request_stop(self) -> None:
        """Do nothing: a start does not wait."""

    def stop(self) -> None:
        """Do nothing: there is nothing to write."""

    def latest(self, destination: str) -> LogPosition | None:
        """Return the smallest cursor, None when no client has one.

        Raises MetaStoreError.
        """
        smallest: LogPosition | None = None
        clients = self._meta.subscriptions(destination)
        for identity in [each for each in clients if self._retains(each)] or clients:
            cursor = self._meta.cursor(identity)
            if cursor is not None:
                smallest = cursor if smallest is None else earlier(smallest, cursor)
        return smallest

    def persist(self, destination: str, position: LogPosition) -> None:
        """Do nothing: clients move their cursors by acks."""


class FailbackLogPositionManager:
    """A manager with a fallback for when it has no position or fails.

    With memory first and cursors second, a pump that lost its connection resumes where
    it was, and after a restart it begins at what clients have acked.
    """

    def __init__(
        self, primary: LogPositionManager, secondary: LogPositionManager
    ) -> None:
        self._primary = primary
        self._secondary = secondary

    def start(self) -> None:
        """Start both."""
        self._primary.start()
        self._secondary.start()

    def request_stop(self) -> None:
        """Make a waiting start fail."""
        self._primary.request_stop()
        self._secondary.request_stop()

    def stop(self) -> None:
        """Stop both, even when one fails."""
        try:
            self._primary.stop()
        finally:
            self._secondary.stop()

    def latest(self, destination: str) -> LogPosition | None:
        """Return the primary's position, or else the secondary's."""
        found = self._primary.latest(destination)
        return self._secondary.latest(destination) if found is None else found

    def persist(self, destination: str, position: LogPosition) -> None:
        """Store with the primary, or with the secondary when that fails."""
        try:
            self._primary.persist(destination, position)
        except CanalError as error:
            position_messages.POSITION_STORED_IN_SECONDARY.log(
                logger, position, destination, error
            )
            self._secondary.persist(destination, position)


def earlier(one: LogPosition, other: LogPosition) -> LogPosition:
    """Return the earlier of two positions, the first when they are equal.

    Positions on one server compare by file and offset, others by time.
    """
    if same_server(one.identity, other.identity):
        return other if other.position.order() < one.position.order() else one
    one_time, other_time = one.position.timestamp or 0, other.position.timestamp or 0
    return other if other_time < one_time else one


def same_server(one: LogIdentity, other: LogIdentity) -> bool:
    """Return whether two identities are one server, also by host name and address.

    May query the name service when the texts differ.
    """
    if (one.port, one.slave_id) != (other.port, other.slave_id):
        return False
    if one.address.lower() == other.address.lower():
        return True
    ours, theirs = _addresses(one.address), _addresses(other.address)
    return bool(ours & theirs)


def _addresses(host: str) -> set[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # UnicodeError: the text cannot be a host name
        return set()  # a name that no longer resolves matches no server
    return {str(address[0]) for *_, address in found}
