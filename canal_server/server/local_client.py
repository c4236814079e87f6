"""A client inside of the process: what a connection does, without one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from canal_server.model.identity import ClientIdentity
    from canal_server.model.positions import LogPosition
    from canal_server.ports import EventStore, Instances, RunningInstance
    from canal_server.server.service import Service

_ALL_BATCHES = 0


class Fetched(NamedTuple):
    """A batch that waits for its ack, with the entries as a body of `Messages`.

    `position` is where the cursor will be after the ack, None: it stays. `is_open`: a
    transaction goes on after the batch; `begins_anew`: none goes on into it;
    `is_broken`: one in it was not ended. `entries` counts them. `slices` are the body
    as it is in the ring, where it stays until the ack.
    """

    batch_id: int
    body: bytes
    position: LogPosition | None = None
    is_open: bool = False
    entries: int = 0
    begins_anew: bool = False
    is_broken: bool = False
    slices: tuple[memoryview, ...] = ()


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
        # File, source and store of the batch before, if a transaction goes on after it.
        self._open_in: tuple[str | None, object, EventStore] | None = None

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
        client_id = self.identity.client_id
        instance.on_connect(client_id, self._service.user_of(client_id))
        self._instance = instance
        try:
            self._service.subscribe(self.identity)
            self.rollback()
        except BaseException:
            self.disconnect()
            raise
        return True

    @property
    def instance(self) -> RunningInstance | None:
        """Return the instance of the last `connect`, None: it is not connected."""
        return self._instance

    def disconnect(self) -> None:
        """Report to the instance that the client disconnected; its cursor stays."""
        if self._instance is not None:
            self._instance.on_disconnect(self.identity.client_id)
            self._instance = None
            self._open_in = None

    def is_served(self) -> bool:
        """Return whether the instance of the last `connect` still runs here."""
        here = self._instances.running(self.identity.destination)
        return self._instance is not None and here is self._instance

    def runs_here(self) -> bool:
        """Return whether an instance runs here, of this or a later `connect`."""
        return self._instances.running(self.identity.destination) is not None

    def fetch(
        self, size: int, timeout_s: float, *, whole: bool = False
    ) -> Fetched | None:
        """Return the next batch, None: there is none in time.

        `whole`: it ends with a transaction, or has only a part of one.
        """
        fetched = self._service.fetch(
            self.identity, size, timeout_s, visited=self._instance, whole=whole
        )
        if fetched is None:
            return None
        batch, store = fetched.batch, fetched.store
        position = None
        if batch.ack is not None:
            position = fetched.instance.log_position(batch.ack)
        start, end = batch.start, batch.end
        # MariaDB's transactions have no begin, so that the position has to show it, or
        # a store that was replaced, as after a move of another client.
        begins_in = start.journal_name, start.source, store
        is_elsewhere = self._open_in not in (None, begins_in)
        self._open_in = None
        if batch.is_open:
            self._open_in = end.journal_name, end.source, store
        return Fetched(
            fetched.batch_id,
            b"".join(batch.slices),
            position,
            batch.is_open,
            batch.count,
            batch.begins_anew or is_elsewhere,
            batch.is_broken,
            batch.slices,
        )

    def holds(self, batch_id: int) -> bool:
        """Return whether a batch still waits for its ack.

        It does not after a move of the cursor, for example.
        """
        if self._instance is None:
            return False
        return batch_id in self._instance.meta.batches(self.identity)

    def ack(self, batch_id: int, *, is_part: bool = False) -> None:
        """Note that the oldest open batch is done.

        `is_part`: of a transaction whose rest follows, so the cursor stays.
        """
        self._service.ack(self.identity, batch_id, self._instance, is_part=is_part)

    def cursor(self) -> LogPosition | None:
        """Return the position up to which all is acked, None: none is known yet."""
        instance = self._instance  # which another thread may take away
        return None if instance is None else instance.meta.cursor(self.identity)

    def acked(self) -> tuple[LogPosition | None, ...]:
        """Return the cursor, and the position in each source of a group."""
        instance = self._instance
        if instance is None:
            return ()
        sources = instance.meta.source_positions(self.identity)
        return self.cursor(), *(sources[number] for number in sorted(sources))

    def was_moved_since(self, acked: tuple[LogPosition | None, ...]) -> bool:
        """Return whether an operator has moved the client.

        `acked` is what that returned; the client has acked nothing since.
        """
        now = self.acked()
        return len(now) != len(acked) or any(
            new is not old and (new is None or new.moved or new != old)
            for new, old in zip(now, acked, strict=True)
        )

    def confirm_cursor(self, moved: LogPosition) -> None:
        """Note that the position to which an operator moved the cursor was stored.

        `moved` is what `cursor` returned; nothing happens if it moved again.
        """
        instance = self._instance
        if instance is None:
            return
        with instance.steady():
            if self.cursor() is not moved:
                return
            instance.meta.update_cursor(self.identity, replace(moved, moved=False))
        instance.meta.flush()

    def rollback(self) -> None:
        """Have all open batches delivered again."""
        self._open_in = None
        self._service.rollback(self.identity, _ALL_BATCHES)
