"""A meta manager whose content ends with the process."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from canal_server.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canal_server.model.identity import ClientIdentity
    from canal_server.model.positions import LogPosition, PositionRange


class MemoryMetaManager:
    """Subscriptions, cursors and open batches in memory; a `ports.MetaManager`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscribed: dict[ClientIdentity, ClientIdentity] = {}
        # The rest outlives a subscription: a client that subscribes again resumes.
        self._cursors: dict[ClientIdentity, LogPosition] = {}
        self._source_positions: dict[ClientIdentity, dict[int, LogPosition]] = {}
        self._batches: dict[ClientIdentity, dict[int, PositionRange]] = {}
        self._last_batch_ids: dict[ClientIdentity, int] = {}

    def start(self) -> None:
        """Do nothing: there is nothing to load."""

    def request_stop(self) -> None:
        """Do nothing: a start does not wait."""

    def stop(self) -> None:
        """Do nothing: there is nothing to write."""

    def flush(self) -> None:
        """Do nothing: there is nothing to write."""

    def restore(
        self,
        identity: ClientIdentity,
        cursor: LogPosition | None,
        last_batch_id: int,
        positions: Mapping[int, LogPosition] | None = None,
    ) -> None:
        """Restore what an earlier process stored; batch ids continue after its last.

        Its open batches are not restored: their sequences mean nothing here.
        """
        with self._lock:
            self._subscribed[identity] = identity
            if cursor is not None:
                self._cursors[identity] = cursor
            if positions:
                self._source_positions[identity] = dict(positions)
            self._last_batch_ids[identity] = last_batch_id

    def subscribe(self, identity: ClientIdentity) -> None:
        """Add the client or replace its filter."""
        with self._lock:
            # The key is replaced, too: identities that differ in the filter are equal.
            self._subscribed.pop(identity, None)
            self._subscribed[identity] = identity

    def unsubscribe(self, identity: ClientIdentity) -> None:
        """Remove the client; its cursor and batches stay."""
        with self._lock:
            self._subscribed.pop(identity, None)

    def has_subscribed(self, identity: ClientIdentity) -> bool:
        """Return whether the client is subscribed."""
        with self._lock:
            return identity in self._subscribed

    def subscriptions(self, destination: str) -> list[ClientIdentity]:
        """Return all clients of a destination, by client id."""
        with self._lock:
            found = [
                each
                for each in self._subscribed.values()
                if each.destination == destination
            ]
        return sorted(found, key=lambda each: each.client_id)

    def cursor(self, identity: ClientIdentity) -> LogPosition | None:
        """Return the position up to which the client has acked."""
        with self._lock:
            return self._cursors.get(identity)

    def update_cursor(self, identity: ClientIdentity, position: LogPosition) -> None:
        """Move the client's cursor."""
        with self._lock:
            self._cursors[identity] = position

    def source_positions(self, identity: ClientIdentity) -> dict[int, LogPosition]:
        """Return the client's acked position in each source of a group."""
        with self._lock:
            return dict(self._source_positions.get(identity, {}))

    def update_source_positions(
        self, identity: ClientIdentity, positions: Mapping[int, LogPosition]
    ) -> None:
        """Move these positions of the client."""
        with self._lock:
            self._source_positions.setdefault(identity, {}).update(positions)

    def add_batch(self, identity: ClientIdentity, positions: PositionRange) -> int:
        """Register a batch; returns its id: 1, 2, 3 … per client."""
        with self._lock:
            batch_id = self._last_batch_ids.get(identity, 0) + 1
            self._last_batch_ids[identity] = batch_id
            self._batches.setdefault(identity, {})[batch_id] = positions
            return batch_id

    def remove_batch(
        self, identity: ClientIdentity, batch_id: int
    ) -> PositionRange | None:
        """Remove an open batch; None when the id is unknown.

        Raises ClientError when it is not the smallest open id.
        """
        with self._lock:
            batches = self._batches.get(identity, {})
            if batch_id not in batches:
                return None
            # Ids only grow, so that the oldest one is the smallest.
            first = next(iter(batches))
            if batch_id != first:
                raise ClientError(
                    f"client {identity.client_id} of {identity.destination}: batch"
                    f" {batch_id} is not the oldest open one, ack batch {first} first"
                )
            return batches.pop(batch_id)

    def batches(self, identity: ClientIdentity) -> dict[int, PositionRange]:
        """Return the open batches, smallest id first."""
        with self._lock:
            return dict(self._batches.get(identity, {}))

    def clear_batches(self, identity: ClientIdentity) -> None:
        """Forget all open batches; their ids are not used again."""
        with self._lock:
            self._batches.pop(identity, None)
