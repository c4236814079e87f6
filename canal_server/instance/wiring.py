"""The parts of a destination that the settings ask for, beside its pipelines."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from canal_server.capture.source_parts import executed_sets_of
from canal_server.config.schema import Wiring
from canal_server.errors import (
    ClientError,
    ConfigError,
    MetaStoreError,
    ZooKeeperError,
)
from canal_server.filters.table_filters import TableFilter
from canal_server.messages import destination_messages
from canal_server.model.znodes import lease_path
from canal_server.position.file_meta import MetaFiles
from canal_server.position.gtid_cache import unchanged
from canal_server.position.memory_meta import MemoryMetaManager
from canal_server.position.stored_meta import StoredMetaManager
from canal_server.position.zookeeper_meta import MetaNodes
from canal_server.ranges.range_cursors import FILE_NAME as SUBSCRIPTIONS
from canal_server.ranges.range_cursors import (
    SubscriptionFile,
    SubscriptionNodes,
    Subscriptions,
)
from canal_server.ranges.ranged_reads import RangedReads
from canal_server.tablemeta.storage.mysql_lock import Owner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from canal_server.config.schema import InstanceConfig
    from canal_server.doors.zookeeper import ZooKeepers
    from canal_server.model.identity import ClientIdentity
    from canal_server.model.positions import LogPosition
    from canal_server.ports import MetaManager, TablePredicate
    from canal_server.position.gtid_cache import Completed, ExecutedSets
    from canal_server.ranges.range_cursors import SubscriptionStorage
    from canal_server.runtime.lifecycle import Stop

_log = logging.getLogger(__name__)

PROGRESS_S: Final = 5.0  # between log lines about a start that takes long
OWNER_ANSWER_S: Final = 5.0  # for ZooKeeper's answer who may write a history


def serve_stored_clients(
    meta: MetaManager,
    destination: str,
    serve: Callable[[ClientIdentity], None],
    stop: Stop | None = None,
) -> None:
    """Serve each known client; one whose filter cannot be used is refused.

    Filters near the limit of all take many seconds. A stop ends it before the next one.
    """
    clients = meta.subscriptions(destination)
    logged_s = time.monotonic()
    for count, identity in enumerate(clients):
        if stop is not None and stop.requested():
            return
        if time.monotonic() - logged_s >= PROGRESS_S:
            logged_s = time.monotonic()
            _log.info(
                "destination %s: prepared the filters of %d of %d clients",
                destination,
                count,
                len(clients),
            )
        try:
            serve(identity)
        except ClientError as error:
            destination_messages.STORED_FILTER_REFUSED.log(
                _log, destination, identity.client_id, error
            )


def check_subscription_limit(
    config: InstanceConfig, meta: MetaManager, identity: ClientIdentity
) -> None:
    """Raise ClientError when a destination has as many clients as it may have.

    Stored clients are served, however many they are.
    """
    count = len(meta.subscriptions(config.destination))
    if count >= config.store.clients_max:
        raise ClientError(
            f"client {identity.client_id} cannot subscribe: {config.destination} has"
            f" {count} clients, the limit is {config.store.clients_max}"
            " (canal.instance.clients.max); unsubscribe clients that no longer exist"
        )


def stop_writing(destination: str, *stops: Callable[[], None], ended: bool) -> None:
    """Call these to write what is left of the cursors.

    Raises MetaStoreError if everything else of the destination has ended; otherwise the
    error is logged, as something still runs.
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
        destination_messages.CURSORS_NOT_WRITTEN_AT_STOP.log(
            _log, destination, first_error
        )
    if ended:
        _log.info("destination %s stopped", destination)


def default_filter(config: InstanceConfig) -> TableFilter:
    """Return the configured filter. Raises ConfigError if it is not valid."""
    allowed, rejected = config.filter.regex, config.filter.black_regex
    problems = []
    for key, lists in (("regex", (allowed, "")), ("black.regex", ("", rejected))):
        try:
            TableFilter(*lists)
        except ValueError as error:
            problems.append(
                f"{config.destination}/instance.properties: "
                f"canal.instance.filter.{key}: {error}"
            )
    if problems:
        raise ConfigError(problems)
    return TableFilter(allowed, rejected)


def uncertain() -> bool:
    """Return that the right to run a destination is not certain."""
    return False


def history_owner_of(
    config: InstanceConfig, zookeepers: ZooKeepers, held: Callable[[], bool]
) -> Owner | None:
    """Return who may write a destination's history; None: whoever has its lock.

    `held` returns whether the lease is certain; that counts where ZooKeeper is silent.
    """
    position = config.position
    if position.wiring is not Wiring.ZOOKEEPER:
        return None
    timeout_s = position.zookeeper_session_timeout_ms / 1000
    zookeeper = zookeepers.of(position.zookeeper_servers, timeout_s)

    def is_us() -> bool:
        try:
            # The leader answers, so that nothing older is read afterwards.
            session = zookeeper.touch(OWNER_ANSWER_S)
            return zookeeper.read(lease_path(config.destination, session)) is not None
        except ZooKeeperError:
            return held()

    return Owner(is_us, lambda: zookeeper.session_timeout_s)


def ranged_reads_of(
    config: InstanceConfig,
    zookeepers: ZooKeepers,
    change: Callable[[TablePredicate | None], None],
) -> RangedReads:
    """Return the ranged reads of a destination; `change` gets their table filter."""
    position = config.position
    storage: SubscriptionStorage
    if position.wiring is Wiring.ZOOKEEPER:
        session_s = position.zookeeper_session_timeout_ms / 1000
        storage = SubscriptionNodes(
            zookeepers.of(position.zookeeper_servers, session_s), config.destination
        )
    else:
        folder = position.data_dir / config.destination
        storage = SubscriptionFile(folder / SUBSCRIPTIONS)
    return RangedReads(config, Subscriptions(storage), change)


def meta_manager_of(
    config: InstanceConfig,
    zookeepers: ZooKeepers,
    completed: Completed = unchanged,
) -> MetaManager:
    """Return where the clients of a destination are stored, not started yet.

    `completed` gives cursors the GTID sets executed there.
    """
    position = config.position
    destinations = (config.destination,)
    if position.wiring is Wiring.ZOOKEEPER:
        return StoredMetaManager(
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
        return StoredMetaManager(
            MetaFiles(position.data_dir, completed=completed),
            destinations=destinations,
            flush_period_s=position.flush_period_ms / 1000,
        )
    return MemoryMetaManager()


def executed_sets(config: InstanceConfig) -> dict[int, ExecutedSets]:
    """Return the cache of GTID sets of each source that needs one, by its number."""
    return {
        each.source.number: found
        for each in config.by_source
        if (found := executed_sets_of(each)) is not None
    }


def completed_by(executed: Mapping[int, ExecutedSets]) -> Completed:
    """Return what gives a position the GTID set that was executed there."""

    def completed(position: LogPosition) -> LogPosition:
        for sets in executed.values():
            position = sets.completed(position)
        return position

    return completed
