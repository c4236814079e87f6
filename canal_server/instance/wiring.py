"""What the wirings of destinations have in common: the parts that settings ask for.

Leaves out how they are put together (`instance`, `group`, `member`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from canal_server.config.schema import SslMode, Wiring
from canal_server.core.blocks import BlockPool
from canal_server.errors import (
    ClientError,
    ConfigError,
    MetaStoreError,
    ZooKeeperError,
)
from canal_server.filters.table_filters import TableFilter
from canal_server.model.znodes import lease_path
from canal_server.mysql.source_settings import (
    Access,
    Address,
    Credentials,
    TlsMode,
    TlsOptions,
    server_key,
)
from canal_server.position.file_meta import MetaFiles
from canal_server.position.gtid_cache import ExecutedSets, unchanged
from canal_server.position.log_positions import (
    FailbackLogPositionManager,
    MemoryLogPositionManager,
    MetaLogPositionManager,
)
from canal_server.position.memory_meta import MemoryMetaManager
from canal_server.position.slowest_client import slowest_client
from canal_server.position.write_behind import MixedMetaManager
from canal_server.position.zookeeper_meta import MetaNodes
from canal_server.ranges.range_cursors import FILE_NAME as SUBSCRIPTIONS
from canal_server.ranges.range_cursors import (
    SubscriptionFile,
    SubscriptionNodes,
    Subscriptions,
)
from canal_server.ranges.ranged_reads import RangedReads
from canal_server.source.begin.boundary_index import FILE_NAME, BoundaryIndex
from canal_server.tablemeta.history.tsdb import Retention, TableMetaTsdb
from canal_server.tablemeta.storage.mysql_lock import Owner
from canal_server.tablemeta.storage.open_storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from canal_server.config.schema import (
        HostConfig,
        HostPort,
        InstanceConfig,
        SourceConfig,
    )
    from canal_server.doors.zookeeper import ZooKeepers
    from canal_server.model.identity import ClientIdentity
    from canal_server.ports import LogPositionManager, MetaManager, TablePredicate
    from canal_server.position.gtid_cache import Completed
    from canal_server.position.presence import Presence
    from canal_server.ranges.range_cursors import SubscriptionStorage
    from canal_server.store.event_store import MemoryEventStore

_log = logging.getLogger(__name__)

OWNER_ANSWER_S: Final = 5.0  # for ZooKeeper to say who may write a history
# Free blocks kept for reuse: about what a full ring takes.
_SPARE_BYTES_MAX: Final = 16 * 1024 * 1024


def block_pool() -> BlockPool:
    """Return a pool for the entries of one destination."""
    return BlockPool(spare_max=_SPARE_BYTES_MAX)


def serve_stored_clients(
    meta: MetaManager, destination: str, serve: Callable[[ClientIdentity], None]
) -> None:
    """Serve each known client; one whose filter cannot be used is refused."""
    for identity in meta.subscriptions(destination):
        try:
            serve(identity)
        except ClientError as error:
            _log.error(
                "destination %s: client %s is refused, the others are served: its"
                " stored filter cannot be used until it subscribes with another one: "
                "%s",
                destination,
                identity.client_id,
                error,
            )


def check_room(
    config: InstanceConfig, meta: MetaManager, identity: ClientIdentity
) -> None:
    """Raise ClientError when a destination has all the clients that it may have.

    Those that are stored stay, however many they are.
    """
    count = len(meta.subscriptions(config.destination))
    if count >= config.store.clients_max:
        raise ClientError(
            f"client {identity.client_id} cannot subscribe: {config.destination} has"
            f" {count} clients, the limit is {config.store.clients_max}"
            " (canal.instance.clients.max); unsubscribe those that are gone"
        )


def stop_writing(destination: str, *stops: Callable[[], None], ended: bool) -> None:
    """Have what is left of cursors written, by each of these in turn.

    Raises MetaStoreError when all else of the destination has ended; else it is told
    in the log, as the end is not over.
    """
    first_error: MetaStoreError | None = None
    for stop in stops:
        try:
            stop()
        except MetaStoreError as error:
            first_error = first_error or error
    if first_error is not None:
        if ended:
            raise first_error
        _log.error("destination %s: %s", destination, first_error)
    if ended:
        _log.info("destination %s stopped", destination)


def default_filter(config: InstanceConfig) -> TableFilter:
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


def standing_of(
    store: MemoryEventStore,
    meta: MetaManager,
    destination: str,
    presence: Presence,
    diverted: Collection[int] = (),
) -> dict[str, object]:
    """Return for whom reading waits, and which client is behind most, for `status`.

    `presence` knows who is connected; `diverted` are the clients that are read for on
    their own.
    """
    blocked, slowest = store.blocked(), store.slowest()
    in_ring = None
    if slowest is not None:
        in_ring = slowest.client_id, slowest.entries, slowest.waited_s
    return {
        "blocked": blocked and blocked.as_json(),
        "slowest_client": slowest_client(
            meta, destination, in_ring, presence, diverted
        ),
    }


def uncertain() -> bool:
    """Tell that the right to run a destination is not certain: nobody proves it."""
    return False


def history_owner_of(
    config: InstanceConfig, zookeepers: ZooKeepers, held: Callable[[], bool]
) -> Owner | None:
    """Return who may write a destination's history; None: whoever has its lock.

    `held` tells whether the lease is certain; that counts where ZooKeeper is silent.
    """
    position = config.position
    if position.wiring is not Wiring.ZOOKEEPER:
        return None
    timeout_s = position.zookeeper_session_timeout_ms / 1000
    zookeeper = zookeepers.of(position.zookeeper_servers, timeout_s)

    def is_us() -> bool:
        try:
            # The leader answers, so that what is read then is not of before a pause.
            session = zookeeper.touch(OWNER_ANSWER_S)
            return zookeeper.read(lease_path(config.destination, session)) is not None
        except ZooKeeperError:
            return held()

    return Owner(is_us, lambda: zookeeper.session_timeout_s)


def history_of(
    config: InstanceConfig, owner: Owner | None = None
) -> TableMetaTsdb | None:
    """Return the table history; None: columns are those the tables have today."""
    wanted = config.table_meta
    if not wanted.enable:
        return None
    return TableMetaTsdb(
        open_storage(config, owner=owner),
        Retention(
            snapshot_interval_s=wanted.snapshot_interval_h * 3600,
            expire_s=wanted.snapshot_expire_h * 3600,
        ),
    )


def boundary_index_of(config: InstanceConfig) -> BoundaryIndex | None:
    """Return the index of transaction boundaries; None where nothing is kept."""
    position = config.position
    if position.wiring is Wiring.MEMORY:
        return None
    return BoundaryIndex(position.data_dir / config.destination / FILE_NAME)


def ranged_reads_of(
    config: InstanceConfig,
    zookeepers: ZooKeepers,
    change: Callable[[TablePredicate | None], None],
) -> RangedReads:
    """Return the ranged reads of a destination; `change` is told what they want."""
    position = config.position
    place: SubscriptionStorage
    if position.wiring is Wiring.ZOOKEEPER:
        session_s = position.zookeeper_session_timeout_ms / 1000
        place = SubscriptionNodes(
            zookeepers.of(position.zookeeper_servers, session_s), config.destination
        )
    else:
        folder = position.data_dir / config.destination
        place = SubscriptionFile(folder / SUBSCRIPTIONS)
    return RangedReads(config, Subscriptions(place), change)


def executed_sets_of(config: InstanceConfig) -> ExecutedSets | None:
    """Return what knows the GTID sets of places; None where nothing is to follow."""
    source = config.source
    return ExecutedSets() if source.gtid_sets and not source.gtid_on else None


def meta_manager_of(
    config: InstanceConfig,
    zookeepers: ZooKeepers,
    completed: Completed = unchanged,
) -> MetaManager:
    """Return where the clients of a destination are kept, not started yet.

    `completed` gives cursors the GTID sets executed there.
    """
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
                completed=completed,
            ),
            destinations=destinations,
            flush_period_s=position.zookeeper_flush_period_ms / 1000,
        )
    if position.wiring is Wiring.FILE:
        return MixedMetaManager(
            MetaFiles(position.data_dir, completed=completed),
            destinations=destinations,
            flush_period_s=position.flush_period_ms / 1000,
        )
    return MemoryMetaManager()


def log_position_manager_of(
    config: InstanceConfig,
    meta: MetaManager,
    retains: Callable[[ClientIdentity], bool] = lambda _: True,
) -> LogPositionManager:
    """Return where the pump's positions of a single source are kept.

    After a start those are cursors, the smallest one of a client that `retains`.
    """
    memory = MemoryLogPositionManager()
    if config.position.wiring is Wiring.MEMORY:
        return memory
    return FailbackLogPositionManager(memory, MetaLogPositionManager(meta, retains))


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
    key = f"canal.instance.master{source.member or ''}.address"
    return _access(source, master, master.address, key)


def standby_access_of(source: SourceConfig) -> Access | None:
    """Return how to reach the standby, None when there is none."""
    standby = source.standby
    if standby.address is None:
        return None
    key = f"canal.instance.standby{source.member or ''}.address"
    return _access(source, standby, standby.address, key)


def _access(
    source: SourceConfig, host: HostConfig, address: HostPort, key: str
) -> Access:
    tls = TlsOptions()
    if host.ssl_mode is not SslMode.DISABLED:
        tls = TlsOptions(
            mode=TlsMode[host.ssl_mode.name],
            ca=str(host.ssl_ca or ""),
            cert=str(host.ssl_cert or ""),
            key=str(host.ssl_key or ""),
        )
    return Access(
        address=Address(address.host, address.port),
        credentials=Credentials(source.user, source.password),
        tls=tls,
        server_key=server_key(host.server_public_key, host.allow_public_key_retrieval),
        connect_timeout_s=source.so_timeout_s,
        io_timeout_s=source.so_timeout_s,
        link_timeout_s=source.silence_s,
        receive_buffer=source.receive_buffer_bytes,
        named_by=key,
    )
