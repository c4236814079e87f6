"""The late clients of one instance: who floats, and what becomes of them.

Joins what is known of absences (`position.presence`), the stores (`store.diverted`) and
the readers of late clients (`dump.catch_up`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from canal_server.catchup.catchup_reader import CatchUpReader
from canal_server.catchup.handoff import Handoff
from canal_server.catchup.store_router import ClientStores
from canal_server.config.schema import Wiring
from canal_server.model.identity import ClientIdentity
from canal_server.position.last_seen import FILE_NAME, SeenFile, SeenNode
from canal_server.position.presence import Presence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from canal_server.config.schema import InstanceConfig
    from canal_server.doors.zookeeper import ZooKeepers
    from canal_server.model.positions import LogPosition
    from canal_server.mysql.source_settings import Access
    from canal_server.ports import MetaManager, TablePredicate
    from canal_server.position.presence import LastSeenStorage
    from canal_server.runtime.lifecycle import Stop
    from canal_server.source.begin.position_loss import LostPosition
    from canal_server.source.pump.pump import Pump
    from canal_server.store.event_store import MemoryEventStore

_log = logging.getLogger(__name__)


class LaggingClients:
    """Implements `ports.Liveness`; `attach` gives it the stages of the instance.

    A client that is here but reads what the ring lacks counts as one that floats: after
    a restart, or a move of others, nobody is to wait for it.

    `lost` is told of a client's cursor that the source no longer has, `refused` why
    nothing can be given to a client.
    """

    def __init__(
        self,
        config: InstanceConfig,
        meta: MetaManager,
        zookeepers: ZooKeepers,
        *,
        lost: Callable[[ClientIdentity, LostPosition], None],
        refused: Callable[[int, str], None],
    ) -> None:
        self.presence = presence_of(config, zookeepers, self._is_diverted)
        # When reading began anew the last time: for all who ask the same ones, as
        # some come, and others begin to float, until the source can be read.
        self._late: frozenset[int] = frozenset()
        self._config = config
        self._meta = meta
        self._lost = lost
        self._refused = refused
        self._ring: MemoryEventStore
        self._pump: Pump
        self._handoff: Handoff
        self.stores: ClientStores | None = None

    def attach(
        self,
        ring: MemoryEventStore,
        pump: Pump,
        access: Access,
        standby: Access | None,
    ) -> ClientStores:
        """Serve clients from these stages from now on; they have not begun."""
        handoff = Handoff(ring, pump, gtid_on=self._config.source.gtid_on)

        def rejoin(client_id: int, table_filter: TablePredicate | None) -> bool:
            return handoff.rejoin(client_id, table_filter, self._acked(client_id))

        def read(
            client_id: int, table_filter: TablePredicate | None, is_judged_anew: bool
        ) -> CatchUpReader:
            return CatchUpReader(
                self._config,
                client_id,
                table_filter,
                handoff,
                self,
                access,
                standby,
                source=lambda: pump.sources.current,
                acked=lambda: self._acked(client_id),
                lost=lambda gone: self._lost(self._identity(client_id), gone),
                refused=lambda why: self._refused(client_id, why),
                is_judged_anew=is_judged_anew,
            )

        self._ring, self._pump, self._handoff = ring, pump, handoff
        self.stores = ClientStores(ring, rejoin, read, self.presence.look_again)
        return self.stores

    # --- the instance's side ----------------------------------------------------------

    def start(self, stop: Stop) -> None:
        """Load for how long clients were away. Raises MetaStoreError."""
        self.presence.start(stop)
        for identity in self._meta.subscriptions(self._config.destination):
            self.presence.enter(identity.client_id)

    def judge(self) -> None:
        """Decide who is late; before it is known where reading begins."""
        clients = self._meta.subscriptions(self._config.destination)
        self._late = frozenset(
            client_id
            for client_id in (each.client_id for each in clients)
            if self._is_diverted(client_id) or self.is_evictable(client_id)
        )

    def retains(self, identity: ClientIdentity) -> bool:
        """Tell whether reading begins at a client's cursor or before it."""
        return identity.client_id not in self._late

    def is_late(self, client_id: int) -> bool:
        """Tell whether a client is none of the ring's when reading begins."""
        return client_id in self._late

    def moved(self, client_id: int) -> None:
        """Take note that a client's cursor is moved: it is waited for, for a while."""
        self.presence.saw(client_id)
        if self.stores is not None:
            self.stores.unsubscribe(client_id)

    def _is_diverted(self, client_id: int) -> bool:
        return self.stores is not None and self.stores.is_diverted(client_id)

    def left(self, client_id: int) -> None:
        """Take note that a connection that served a client ended."""
        self.presence.left(client_id)
        self._ring.look_again()

    def begin_run(self) -> None:
        """Take note that what is read does not go on behind what was."""
        self._handoff.begin_run()

    def session_begins(self) -> None:
        """Let readers turn to the server that is read now."""
        assert self.stores is not None
        for reader in self.stores.readers():
            if isinstance(reader, CatchUpReader):
                reader.turn_to(self._pump.sources.current)

    def status(self) -> dict[str, object]:
        """Return what is to be told of clients that float, as plain values."""
        found: dict[str, object] = {}
        assert self.stores is not None
        diverted = self.stores.diverted()
        for identity in self._meta.subscriptions(self._config.destination):
            client_id = identity.client_id
            if client_id in diverted or self.is_evictable(client_id):
                away_s = self.presence.away_s(client_id)
                found[str(client_id)] = {
                    "away_s": None if away_s is None else round(away_s),
                    "in_ring": client_id not in diverted,
                    **diverted.get(client_id, {"reading": False}),
                }
        return found

    # --- ports.Absences ---------------------------------------------------------------

    def is_evictable(self, client_id: int) -> bool:
        """Tell whether a client may be passed over now: it has a place to return to."""
        return (
            self.presence.is_evictable(client_id) and self._acked(client_id) is not None
        )

    def evictable_in_s(self, client_ids: Collection[int]) -> float | None:
        """Return when all of these may be passed over, None: not foreseeable."""
        if any(self._acked(each) is None for each in client_ids):
            return None
        return self.presence.evictable_in_s(client_ids)

    def evicted(self, client_id: int, table_filter: TablePredicate | None) -> None:
        """Have a client read by itself what it lacks, once it returns."""
        identity = self._identity(client_id)
        _log.info(
            "destination %s goes on without client %d, which has been away for %.0f s"
            " and has acked to %s; when it returns it is served by a reader of its own",
            self._config.destination,
            client_id,
            self.presence.away_s(client_id) or 0,
            self._acked(client_id),
        )
        # They mean sequences of the cursor that is gone.
        self._meta.clear_batches(identity)
        assert self.stores is not None
        self.stores.divert(client_id, table_filter)

    def _identity(self, client_id: int) -> ClientIdentity:
        return ClientIdentity(self._config.destination, client_id)

    def _acked(self, client_id: int) -> LogPosition | None:
        return self._meta.cursor(self._identity(client_id))


def presence_of(
    config: InstanceConfig, zookeepers: ZooKeepers, is_late: Callable[[int], bool]
) -> Presence:
    """Return what knows which clients of a destination are here."""
    position = config.position
    place: LastSeenStorage | None = None
    period_s = position.flush_period_ms / 1000
    if position.wiring is Wiring.ZOOKEEPER:
        session_s = position.zookeeper_session_timeout_ms / 1000
        period_s = position.zookeeper_flush_period_ms / 1000
        place = SeenNode(
            zookeepers.of(position.zookeeper_servers, session_s), config.destination
        )
    elif position.wiring is Wiring.FILE:
        place = SeenFile(position.data_dir / config.destination / FILE_NAME)
    return Presence(
        config.store.pin_seconds,
        place,
        what=config.destination,
        period_s=period_s,
        is_late=is_late,
    )
