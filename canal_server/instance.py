"""One destination, wired: the only place where its stages meet.

::

    pump ─► transaction buffer ─► sink ─► store ─► (server, per client)
     ▲                              │
     └── log positions ◄── flushed ─┘            meta manager ◄── acks
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from canal_server.buffer.ring import TransactionBuffer
from canal_server.config.schema import SslMode, Wiring
from canal_server.core.blocks import BlockPool
from canal_server.core.subjects import Subjects
from canal_server.dump.pump import Pump
from canal_server.errors import ClientError, ConfigError, MetaStoreError
from canal_server.model.positions import EntryPosition, LogPosition
from canal_server.mysql.settings import (
    Access,
    Address,
    Credentials,
    TlsMode,
    TlsOptions,
)
from canal_server.position.file import MetaFiles
from canal_server.position.logposition import (
    FailbackLogPositionManager,
    MemoryLogPositionManager,
    MetaLogPositionManager,
    same_server,
)
from canal_server.position.memory import MemoryMetaManager
from canal_server.position.mixed import MixedMetaManager
from canal_server.position.nodes import MetaNodes
from canal_server.sink.columns import ColumnFilter
from canal_server.sink.filters import (
    TableFilter,
    doubtful_pieces,
    for_client,
    union,
)
from canal_server.sink.sink import EntrySink
from canal_server.store.memory import MemoryEventStore
from canal_server.tablemeta.storage_open import open_storage
from canal_server.tablemeta.tsdb import Retention, TableMetaTsdb
from canal_server.zookeeper import ZooKeepers

if TYPE_CHECKING:
    from canal_server.config.schema import InstanceConfig, SourceConfig
    from canal_server.lifecycle import Deadline
    from canal_server.model.identity import ClientIdentity
    from canal_server.ports import LogPositionManager, MetaManager, Span

_log = logging.getLogger(__name__)

# Free blocks kept for reuse: about what a full ring takes.
_SPARE_BYTES_MAX = 16 * 1024 * 1024


class Instance:
    """A Stage; also what the server sees of a destination (ports.RunningInstance)."""

    def __init__(
        self, config: InstanceConfig, zookeepers: ZooKeepers | None = None
    ) -> None:
        """Build without starting; instances of one process share `zookeepers`."""
        self.config = config
        self.destination = config.destination
        self.meta: MetaManager = _meta_manager(config, zookeepers or ZooKeepers())
        self._log_positions = _log_position_manager(config, self.meta)
        self._pool = BlockPool(spare_max=_SPARE_BYTES_MAX)
        self._subjects = Subjects()
        self.store = MemoryEventStore(
            config.store, self._subjects, self._pool, destination=self.destination
        )
        self._sink = EntrySink(self.store, thin_markers=config.filter.transaction_entry)
        self._default = _default_filter(config)
        # Of each client: its expression and what became of it.
        self._filters: dict[int, tuple[str, TableFilter]] = {}
        self._filters_lock = threading.Lock()
        # Held while a client's place is judged and handed to the store.
        self._cursors_lock = threading.Lock()
        self._buffer = TransactionBuffer(
            config.buffer.transaction_size,
            config.buffer.memory_bytes_max,
            self._deliver,
        )
        self._pump = Pump(
            config,
            access_of(config.source, config.destination),
            self._pool,
            self._subjects,
            self._log_positions,
            columns=ColumnFilter(config.filter.field, config.filter.black_field),
            wants=self._default.accepts,
            deliver=self._buffer.put,
            reset=self._reset,
            idle=self.store.wake_getters,
            begun=self._begun,
            session=self._session_begins,
            history=_history(config),
        )

    # --- Stage ----------------------------------------------------------------------

    def start(self) -> None:
        """Load what is stored, give each known client its cursor, start the pump.

        Waits for ZooKeeper where cursors are there, until a stop is asked for. Raises
        MetaStoreError when the stored cursors cannot be read.
        """
        self.meta.start()
        try:
            self._log_positions.start()
            self._serve_stored_clients()
            self._pump.start()
        except BaseException:
            self._log_positions.stop()
            self.meta.stop()
            raise
        _log.info("destination %s started", self.destination)

    def _serve_stored_clients(self) -> None:
        for identity in self.meta.subscriptions(self.destination):
            try:
                self.subscribed(identity)
            except ClientError as error:
                _log.error(
                    "destination %s: client %s has a filter that cannot be used, the "
                    "configured one serves: %s",
                    self.destination,
                    identity.client_id,
                    error,
                )

    def request_stop(self) -> None:
        """Ask the pump to stop and end all waits."""
        self.meta.request_stop()
        self._log_positions.request_stop()
        self._pump.request_stop()
        self.store.close()

    def join(self, deadline: Deadline) -> bool:
        """Wait for the pump, then write what is left of the cursors.

        They are written as well when the pump does not end, but only an instance that
        has ended raises MetaStoreError.
        """
        ended = self._pump.join(deadline)
        try:
            try:
                self._log_positions.stop()
            finally:
                self.meta.stop()
        except MetaStoreError as error:
            if ended:
                raise
            _log.error("destination %s: %s", self.destination, error)
        if ended:
            _log.info("destination %s stopped", self.destination)
        return ended

    # --- what the server uses -------------------------------------------------------

    def log_position(self, position: EntryPosition) -> LogPosition:
        """Return the position with this source's identity."""
        return LogPosition(self._pump.identity, position)

    def check_filter(self, expression: str) -> None:
        """Raise ClientError when the filter is not a regular expression."""
        self._client_filter(expression)

    def subscribed(self, identity: ClientIdentity) -> None:
        """Give the client its cursor and filter, and let the pump read its tables."""
        wanted = self._filter_for(identity)
        with self._filters_lock:
            if self._filters.get(identity.client_id) != (identity.filter, wanted):
                self._filters[identity.client_id] = (identity.filter, wanted)
                self._change_wants()
        with self._cursors_lock:
            after = self._begins_after(identity)
            self.store.subscribe(identity.client_id, wanted.accepts, after)

    def _begins_after(self, identity: ClientIdentity) -> EntryPosition | None:
        """Return the place behind which the client's entries begin, None: all."""
        cursor = self.meta.cursor(identity)
        if cursor is None or not same_server(cursor.identity, self._pump.identity):
            return None
        position = cursor.position
        if not self._pump.skips(position):
            return None
        if position.included and position.position:
            return replace(position, position=position.position - 1)
        return position

    def _session_begins(self) -> None:
        """Look again which clients' places are places of the source that is read.

        A client subscribes under the same lock, so that it decides by the session
        before or by this one, and in the first case is looked at here.
        """
        with self._cursors_lock:
            for identity in self.meta.subscriptions(self.destination):
                if self._begins_after(identity) is None:
                    self.store.forget_after(identity.client_id)

    def resume_position(self, client_id: int) -> EntryPosition | None:
        """Return what lies before all of a client's entries, None: not known yet."""
        return self.store.resume_position(client_id) or self._pump.began_at

    def _begun(self, position: EntryPosition) -> None:
        """Let clients that have acked nothing begin here, also after a restart.

        A client that subscribes meanwhile finds the position with the pump, which
        knows it already.
        """
        for identity in self.meta.subscriptions(self.destination):
            if self.meta.cursor(identity) is None:
                self.meta.update_cursor(identity, self.log_position(position))

    def unsubscribed(self, identity: ClientIdentity) -> None:
        """Take the client's cursor and wishes back."""
        self.store.unsubscribe(identity.client_id)
        with self._filters_lock:
            self._filters.pop(identity.client_id, None)
            self._change_wants()

    def _change_wants(self) -> None:
        """Let through what some client wants; the configured filter without any."""
        assert self._filters_lock.locked()
        filters = [wanted for _, wanted in self._filters.values()] or [self._default]
        self._pump.change_wants(union(filters))

    def _filter_for(self, identity: ClientIdentity) -> TableFilter:
        """Return the client's filter, the one it has when nothing changed.

        To know that nothing changed spares the store to judge its entries anew.
        """
        with self._filters_lock:
            known = self._filters.get(identity.client_id)
        if known is not None and known[0] == identity.filter:
            return known[1]
        for hint in doubtful_pieces(identity.filter):
            _log.warning(
                "destination %s: filter of client %s: %s",
                self.destination,
                identity.client_id,
                hint,
            )
        if identity.filter not in ("", self.config.filter.regex):
            _log.info(
                "destination %s: client %s uses its own filter instead of "
                "canal.instance.filter.regex",
                self.destination,
                identity.client_id,
            )
        return self._client_filter(identity.filter)

    def _client_filter(self, expression: str) -> TableFilter:
        try:
            return for_client(
                expression, self.config.filter.regex, self.config.filter.black_regex
            )
        except ValueError as error:
            raise ClientError(f"filter {expression!r}: {error}") from error

    # --- what the pump's thread calls -----------------------------------------------

    def _deliver(self, spans: list[Span]) -> bool:
        """Put what leaves the buffer into the store; then it counts as delivered."""
        if not self._sink.accept(spans, self._pump.stop):
            return False
        self._pump.flushed(spans)
        return True

    def _reset(self, goes_on: bool) -> None:
        """Forget what is pending: it will be read again.

        The sink forgets an open transaction only when it is delivered anew from its
        beginning; where it goes on, its END must not count as that of an empty one.
        """
        self._buffer.reset()
        if not goes_on:
            self._sink.reset()

    def status(self) -> dict[str, object]:
        """Return what an operator asks first, as plain values."""
        pump = self._pump.status
        return {
            "destination": self.destination,
            "state": pump.state.value,
            "source": pump.source,
            "position": pump.position,
            "error": pump.error,
            "clients": [
                identity.client_id
                for identity in self.meta.subscriptions(self.destination)
            ],
            "waits_for": list(self.store.holders()),
            "transactions": self._sink.counters.transactions,
            "rows": self._sink.counters.rows,
        }


def _default_filter(config: InstanceConfig) -> TableFilter:
    """Return the configured filter. Raises ConfigError with what is wrong in it."""
    wanted, unwanted = config.filter.regex, config.filter.black_regex
    problems = []
    for key, lists in (("regex", (wanted, "")), ("black.regex", ("", unwanted))):
        try:
            TableFilter(*lists)
        except ValueError as error:
            problems.append(
                f"{config.destination}/instance.properties: "
                f"canal.instance.filter.{key}: {error}"
            )
    if problems:
        raise ConfigError(problems)
    return TableFilter(wanted, unwanted)


def _history(config: InstanceConfig) -> TableMetaTsdb | None:
    """Return the table history; None: columns are those the tables have today."""
    wanted = config.table_meta
    if not wanted.enable:
        return None
    return TableMetaTsdb(
        open_storage(config),
        Retention(
            snapshot_interval_s=wanted.snapshot_interval_h * 3600,
            expire_s=wanted.snapshot_expire_h * 3600,
        ),
    )


def _meta_manager(config: InstanceConfig, zookeepers: ZooKeepers) -> MetaManager:
    position = config.position
    destinations = (config.destination,)
    if position.wiring is Wiring.ZOOKEEPER:
        return MixedMetaManager(
            MetaNodes(
                zookeepers.of(
                    position.zookeeper_servers,
                    position.zookeeper_session_timeout_ms / 1000,
                ),
                leased=True,
            ),
            destinations=destinations,
            flush_period_s=position.zookeeper_flush_period_ms / 1000,
        )
    if position.wiring is Wiring.FILE:
        return MixedMetaManager(
            MetaFiles(position.data_dir),
            destinations=destinations,
            flush_period_s=position.flush_period_ms / 1000,
        )
    return MemoryMetaManager()


def _log_position_manager(
    config: InstanceConfig, meta: MetaManager
) -> LogPositionManager:
    memory = MemoryLogPositionManager()
    if config.position.wiring is Wiring.MEMORY:
        return memory
    return FailbackLogPositionManager(memory, MetaLogPositionManager(meta))


def access_of(source: SourceConfig, destination: str) -> Access:
    """Return how to reach the source. Raises ConfigError without an address."""
    master = source.master
    if master.address is None:
        raise ConfigError(
            [
                (
                    f"{destination}/instance.properties: canal.instance.master.address "
                    "is not set; give the MySQL server as host:port"
                )
            ]
        )
    tls = TlsOptions()
    if master.ssl_mode is not SslMode.DISABLED:
        tls = TlsOptions(
            mode=TlsMode[master.ssl_mode.name],
            ca=str(master.ssl_ca or ""),
            cert=str(master.ssl_cert or ""),
            key=str(master.ssl_key or ""),
        )
    return Access(
        address=Address(master.address.host, master.address.port),
        credentials=Credentials(source.user, source.password),
        tls=tls,
        connect_timeout_s=source.so_timeout_s,
        io_timeout_s=source.so_timeout_s,
        receive_buffer=source.receive_buffer_bytes,
    )
