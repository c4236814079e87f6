"""The lagging clients of one instance: which ones they are, and how they are served.

Joins the clients' presence (`position.presence`), their stores (`store_router`) and the
readers of lagging clients (`catchup_reader`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from canal_server.catchup.catchup_reader import CatchUpReader, LaggingClient
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
    from canal_server.ports import MetaManager, TablePredicate
    from canal_server.position.presence import LastSeenStorage
    from canal_server.runtime.lifecycle import Stop
    from canal_server.source.begin.position_loss import LostPosition
    from canal_server.source.pump.pump import Pump
    from canal_server.source.pump.pump_ports import PumpSource
    from canal_server.store.event_store import MemoryEventStore

_log = logging.getLogger(__name__)


class LaggingClients:
    """Implements `ports.Liveness`; `attach` gives it the stages of the instance.

    A connected client that reads what the ring lacks counts as evictable: after a
    restart, or when others are moved, nobody has to wait for it.

    `on_lost` is called with a client whose cursor the source no longer has, and
    `on_refused` with one that cannot be served.
    """

    def __init__(
        self,
        config: InstanceConfig,
        meta: MetaManager,
        zookeepers: ZooKeepers,
        *,
        on_lost: Callable[[ClientIdentity, LostPosition], None],
        on_refused: Callable[[int, str], None],
    ) -> None:
        self.presence = presence_of(config, zookeepers, self._is_diverted)
        # As judged when the stages began to read. Everybody asks the same set, as
        # clients connect and become evictable until the source can be read.
        self._lagging: frozenset[int] = frozenset()
        self._config = config
        self._meta = meta
        self._on_lost = on_lost
        self._on_refused = on_refused
        self._ring: MemoryEventStore
        self._pump: Pump
        self._handoff: Handoff
        self.stores: ClientStores | None = None

    def attach(
        self, ring: MemoryEventStore, pump: Pump, source: PumpSource
    ) -> ClientStores:
        """Serve clients from these stages from now on; they have not started."""
        handoff = Handoff(ring, pump, gtid_on=self._config.source.gtid_on)

        def rejoin(client_id: int, table_filter: TablePredicate | None) -> bool:
            return handoff.rejoin(client_id, table_filter, self._acked(client_id))

        def make_reader(
            client_id: int, table_filter: TablePredicate | None, filter_changed: bool
        ) -> CatchUpReader:
            client = LaggingClient(
                client_id,
                table_filter,
                acked=lambda: self._acked(client_id),
                on_lost=lambda lost: self._on_lost(self._identity(client_id), lost),
                on_refused=lambda why: self._on_refused(client_id, why),
                filter_changed=filter_changed,
            )
            return CatchUpReader(source, client, handoff, self)

        self._ring, self._pump, self._handoff = ring, pump, handoff
        self.stores = ClientStores(ring, rejoin, make_reader, self.presence.look_again)
        return self.stores

    # --- the instance's side ----------------------------------------------------------

    def start(self, stop: Stop) -> None:
        """Load for how long clients were away. Raises MetaStoreError."""
        self.presence.start(stop)
        for identity in self._meta.subscriptions(self._config.destination):
            self.presence.enter(identity.client_id)

    def judge(self) -> None:
        """Decide which clients lag; before it is known where reading begins."""
        clients = self._meta.subscriptions(self._config.destination)
        self._lagging = frozenset(
            client_id
            for client_id in (each.client_id for each in clients)
            if self._is_diverted(client_id) or self.is_evictable(client_id)
        )

    def retains(self, identity: ClientIdentity) -> bool:
        """Return whether reading begins at a client's cursor or before it."""
        return identity.client_id not in self._lagging

    def is_lagging(self, client_id: int) -> bool:
        """Return whether a client is not served from the ring when reading begins."""
        return client_id in self._lagging

    def on_move(self, client_id: int) -> None:
        """Note that a client is moved: its entries are retained for a while.

        Its cursor in the ring stays, so that a get that waits there ends as those of
        the other clients do: without entries, when the ring is replaced.
        """
        self.presence.saw(client_id)
        if self.stores is not None:
            self.stores.end_reader(client_id)

    def _is_diverted(self, client_id: int) -> bool:
        return self.stores is not None and self.stores.is_diverted(client_id)

    def on_disconnect(self, client_id: int) -> None:
        """Note that a connection that served a client ended."""
        self.presence.on_disconnect(client_id)
        self._ring.look_again()

    def begin_run(self) -> None:
        """Note that reading does not continue after the last record in the ring."""
        self._handoff.begin_run()

    def on_session(self) -> None:
        """Have the readers read the server that the instance reads now."""
        assert self.stores is not None
        for reader in self.stores.readers():
            if isinstance(reader, CatchUpReader):
                reader.turn_to(self._pump.sources.current)

    def status(self) -> dict[str, object]:
        """Return which clients are evictable or have a reader, as plain values."""
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

    # --- ports.Liveness ---------------------------------------------------------------

    def is_evictable(self, client_id: int) -> bool:
        """Return whether a client may be evicted now: it has a cursor to return to."""
        return (
            self.presence.is_evictable(client_id) and self._acked(client_id) is not None
        )

    def evictable_in_s(self, client_ids: Collection[int]) -> float | None:
        """Return when all of these may be evicted, None: not foreseeable."""
        if any(self._acked(each) is None for each in client_ids):
            return None
        return self.presence.evictable_in_s(client_ids)

    def evicted(self, client_id: int, table_filter: TablePredicate | None) -> None:
        """Give a client a reader for what it lacks, once it connects again."""
        identity = self._identity(client_id)
        _log.info(
            "destination %s continues without client %d, which has been away for %.0f s"
            " and has acked up to %s; when it returns, a catch-up reader serves it",
            self._config.destination,
            client_id,
            self.presence.away_s(client_id) or 0,
            self._acked(client_id),
        )
        # They refer to sequences of the deleted cursor.
        self._meta.clear_batches(identity)
        assert self.stores is not None
        self.stores.divert(client_id, table_filter)

    def _identity(self, client_id: int) -> ClientIdentity:
        return ClientIdentity(self._config.destination, client_id)

    def _acked(self, client_id: int) -> LogPosition | None:
        return self._meta.cursor(self._identity(client_id))


def presence_of(
    config: InstanceConfig, zookeepers: ZooKeepers, is_lagging: Callable[[int], bool]
) -> Presence:
    """Return what knows which clients of a destination are connected."""
    position = config.position
    storage: LastSeenStorage | None = None
    period_s = position.flush_period_ms / 1000
    if position.wiring is Wiring.ZOOKEEPER:
        session_s = position.zookeeper_session_timeout_ms / 1000
        period_s = position.zookeeper_flush_period_ms / 1000
        storage = SeenNode(
            zookeepers.of(position.zookeeper_servers, session_s), config.destination
        )
    elif position.wiring is Wiring.FILE:
        storage = SeenFile(position.data_dir / config.destination / FILE_NAME)
    return Presence(
        config.store.pin_seconds,
        storage,
        what=config.destination,
        period_s=period_s,
        is_late=is_lagging,
    )
