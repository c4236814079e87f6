"""A client inside of the process: what a connection does, without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from canal_server.model.identity import ClientIdentity
    from canal_server.ports import Instances, RunningInstance
    from canal_server.server.service import Service

_ALL_BATCHES = 0


class Fetched(NamedTuple):
    """A batch that waits for its ack, with the entries as a body of `Messages`."""

    batch_id: int
    body: bytes


class LocalClient:
    """Subscribes, fetches and acks; for one thread. Any call may raise CanalError.

    It is served by one instance at a time, from `connect` on. When that has ended, all
    calls fail until `connect` finds another one.
    """

    def __init__(
        self, service: Service, instances: Instances, identity: ClientIdentity
    ) -> None:
        self.identity = identity
        self._service = service
        self._instances = instances
        self._instance: RunningInstance | None = None

    def connect(self) -> bool:
        """Subscribe, if the destination runs here now; return whether it does.

        Batches that were open are delivered again, unless it is still connected.
        """
        instance = self._instances.running(self.identity.destination)
        if instance is None:
            self.disconnect()
            return False
        if instance is self._instance:
            return True
        self.disconnect()
        instance.on_connect(self.identity.client_id)
        self._instance = instance
        try:
            self._service.subscribe(self.identity)
            self.rollback()
        except BaseException:
            self.disconnect()
            raise
        return True

    def disconnect(self) -> None:
        """Report to the instance that the client disconnected; its cursor stays."""
        if self._instance is not None:
            self._instance.on_disconnect(self.identity.client_id)
            self._instance = None

    def is_served(self) -> bool:
        """Return whether the instance of the last `connect` still runs here."""
        here = self._instances.running(self.identity.destination)
        return self._instance is not None and here is self._instance

    def runs_here(self) -> bool:
        """Return whether an instance runs here, of this or a later `connect`."""
        return self._instances.running(self.identity.destination) is not None

    def fetch(self, size: int, timeout_s: float) -> Fetched | None:
        """Return the next batch, None: there is none in time."""
        fetched = self._service.fetch(
            self.identity, size, timeout_s, visited=self._instance
        )
        if fetched is None:
            return None
        _, batch_id, batch = fetched
        return Fetched(batch_id, b"".join(batch.slices))

    def ack(self, batch_id: int) -> None:
        """Note that the oldest open batch is done."""
        self._service.ack(self.identity, batch_id, self._instance)

    def rollback(self) -> None:
        """Have all open batches delivered again."""
        self._service.rollback(self.identity, _ALL_BATCHES)
