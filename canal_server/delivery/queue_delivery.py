"""Delivers all destinations to the message queue that `canal.serverMode` names."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from canal_server.config.queue_section import CLIENT_ID
from canal_server.config.schema import BatchMode, ServerMode, Wiring
from canal_server.delivery.first_delivery import FirstDelivery
from canal_server.delivery.queue_kinds import (
    KafkaKind,
    check_producer,
    kind_of,
    notes_topic,
)
from canal_server.delivery.queue_worker import QueueWorker, WorkerLimits
from canal_server.delivery.stored_position import continue_at_stored
from canal_server.delivery.too_large_note import note_message
from canal_server.delivery.transaction_worker import RoomInRing, TransactionWorker
from canal_server.errors import CanalError, ConfigError
from canal_server.model.identity import ClientIdentity
from canal_server.queues.message_form import MessageForm
from canal_server.queues.routing import Router

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from canal_server.config.schema import (
        InstanceConfig,
        QueueConfig,
        RoutingConfig,
        StoreConfig,
    )
    from canal_server.delivery.position_waits import PositionWaits
    from canal_server.ports import MetaManager, RunningInstance
    from canal_server.queues.producers.queue_producer import (
        Message,
        MessageRefusedError,
    )
    from canal_server.runtime.lifecycle import Deadline, Stop
    from canal_server.server.local_client import LocalClient

log = logging.getLogger(__name__)

BATCH_BYTES: Final = 512 * 1024  # at least, if messages do not depend on it
FEW_BYTES: Final = 64 * 1024  # a batch of more was not all that there is
ENTRY_BYTES: Final = 128  # and more
EXACTLY_ONCE: Final = "canal.mq.exactlyOnce = true"


class Destinations(Protocol):
    """What is delivered."""

    def configs(self) -> Sequence[InstanceConfig]:
        """Return the settings of all destinations."""

    def request_run(self, destination: str) -> None:
        """Let a lazy destination run."""

    def restart(self, destination: str, instance: RunningInstance) -> None:
        """End an instance of a destination, and let it begin again."""

    def on_change(self, call: Callable[[], None]) -> None:
        """Call a function after each change of the destinations."""

    def on_resume(self, call: Callable[[str], None]) -> None:
        """Call a function with each destination that an operator starts."""


class QueueDelivery:
    """A stage: a worker for each destination, also for those that come later."""

    def __init__(
        self,
        config: QueueConfig,
        destinations: Destinations,
        client_of: Callable[[ClientIdentity], LocalClient],
        waits: PositionWaits,
    ) -> None:
        """Check the settings of the producer. Raises CanalError.

        `waits` are those of the destinations that do not run yet.
        """
        self._config = config
        self._waits = waits
        self._kind = kind_of(config)
        self._destinations = destinations
        self._client_of = client_of
        self._queue = f"{config.mode.value} at {self._kind.servers}"
        self._kind.producer(None).close(0.0)
        self._lock = threading.Lock()
        self._workers: dict[str, QueueWorker] = {}
        self._settled: dict[str, tuple[RoutingConfig, MessageForm]] = {}
        self._ending: list[QueueWorker] = []
        self._stopping = False

    def start(self) -> None:
        """Start a worker for each destination, which waits until that runs here."""
        self._destinations.on_change(self._follow)
        self._destinations.on_resume(self._retry)
        self._follow()

    def request_stop(self) -> None:
        """Ask all workers to stop."""
        with self._lock:
            self._stopping = True
            workers = list(self._workers.values())
        for each in workers:
            each.request_stop()

    def join(self, deadline: Deadline) -> bool:
        """Wait for all workers; false when the deadline passed first."""
        with self._lock:
            workers = [*self._ending, *self._workers.values()]
        return all(each.join(deadline) for each in workers)

    def shown_in(self, status: Mapping[str, object]) -> dict[str, object]:
        """Return the status of a destination with what its delivery does.

        None: it has no delivery.
        """
        worker = self._workers.get(str(status["destination"]))
        found = None if worker is None else worker.status().as_json()
        return self._waits.shown_in({**status, "delivery": found})

    def _retry(self, destination: str) -> None:
        """Have a delivery that has stopped begin again, though nothing else has."""
        worker = self._workers.get(destination)
        if worker is not None:
            worker.retry()

    def _follow(self) -> None:
        """Start and stop workers, as the destinations are now."""
        with self._lock:
            if self._stopping:
                return
            configs = {each.destination: each for each in self._destinations.configs()}
            workers = dict(self._workers)
            for name in [each for each in workers if each not in configs]:
                self._end(workers.pop(name))
                del self._settled[name]
            for name, config in configs.items():
                routing = routing_of(config, self._config)
                form = MessageForm.of(config, self._config)
                before = workers.get(name)
                if before is not None and self._settled[name] == (routing, form):
                    continue
                if before is not None:
                    self._end(before)
                after = before or self._ending_one(name)
                workers[name] = self._started(config, routing, form, after)
                self._settled[name] = routing, form
            self._workers = workers

    def _started(
        self,
        config: InstanceConfig,
        routing: RoutingConfig,
        form: MessageForm,
        after: QueueWorker | None,
    ) -> QueueWorker:
        router = Router(routing)
        what = f"{form}, {_described(routing)}"
        client = self._client_of(ClientIdentity(config.destination, CLIENT_ID))
        registry = form.registry_client()
        encode = form.encoder(router, registry)
        note: Callable[[str, Message, MessageRefusedError], Message] = note_message
        if registry is not None:
            note = partial(note_message, schema_of=registry.schema_of)
        batch_size = batch_size_of(config.store, form, self._config.batch_size)
        limits = WorkerLimits(
            batch_size,
            self._kind.in_flight_bytes,
            notes_topic(self._config),
            few_bytes=min(FEW_BYTES, _bytes_of(config.store, batch_size) // 4),
            whole=form.needs_transactions,
            by_partition=self._kind.is_by_partition,
        )
        worker: QueueWorker
        if self._config.exactly_once:
            kind = KafkaKind(self._config)
            worker = TransactionWorker(
                client,
                self._queue,
                partial(kind.transactional_producer, config.destination, router),
                encode,
                limits,
                what=f"{what}, in transactions",
                room=_room_of(config),
                restart=partial(self._destinations.restart, config.destination),
                after=after,
                note=note,
            )
        else:
            worker = QueueWorker(
                client,
                self._queue,
                partial(self._kind.producer, router),
                encode,
                limits,
                what=what,
                after=after,
                note=note,
            )
        worker.start()
        if config.lazy:
            self._destinations.request_run(config.destination)
        return worker

    def _ending_one(self, name: str) -> QueueWorker | None:
        """Return the last worker of a destination that was removed, and returns."""
        of_name = [each for each in self._ending if each.destination == name]
        return of_name[-1] if of_name else None

    def _end(self, worker: QueueWorker) -> None:
        worker.request_stop()
        self._ending = [each for each in self._ending if not each.has_ended]
        self._ending.append(worker)


def batch_size_of(store: StoreConfig, form: MessageForm, wanted: int) -> int:
    """Return how much is taken from the ring at a time, in units of batch sizes.

    Each batch has a price. So if messages do not depend on it, it is more than what is
    wanted where that is little; but at most a quarter of the ring.
    """
    if store.batch_mode is BatchMode.ITEMSIZE or not form.is_by_event:
        return wanted
    enough = BATCH_BYTES // store.memunit
    return max(wanted, min(enough, store.buffer_size // 4))


def _bytes_of(store: StoreConfig, batch_size: int) -> int:
    """Return how many bytes a full batch has at least."""
    is_by_count = store.batch_mode is BatchMode.ITEMSIZE
    return batch_size * (ENTRY_BYTES if is_by_count else store.memunit)


def _room_of(config: InstanceConfig) -> RoomInRing:
    """Return how much of its ring a transaction may hold: a quarter."""
    store = config.store
    return RoomInRing(
        max(1, store.buffer_size * store.memunit // 4), max(1, store.buffer_size // 4)
    )


def stored_positions(
    instance: InstanceConfig,
    queue: QueueConfig,
    on_wait: Callable[[str, str], None] = lambda *_: None,
) -> Callable[[MetaManager, Stop], None] | None:
    """Return what moves the cursor of the delivery to the position in the queue.

    `on_wait` is as in `continue_at_stored`. None if the queue has no positions. Raises
    ConfigError for a destination that cannot be delivered in this way.
    """
    if queue.mode is ServerMode.TCP or not queue.exactly_once:
        return None
    name = instance.file or instance.destination
    problems = []
    if instance.group:
        problems.append(
            "a destination with several sources cannot be delivered with"
            f" {EXACTLY_ONCE}: make it a destination for each source"
        )
    if instance.position.wiring is Wiring.MEMORY:
        problems.append(
            "canal.instance.global.spring.xml = classpath:spring/memory-instance.xml"
            " begins at the end of the binlog at each start, so changes are missing"
            f" that {EXACTLY_ONCE} has: set it to classpath:spring/file-instance.xml,"
            " or to classpath:spring/default-instance.xml with a ZooKeeper"
        )
    if instance.filter.transaction_entry:
        problems.append(
            "canal.instance.filter.transaction.entry = true leaves out where"
            f" transactions end, which {EXACTLY_ONCE} needs: set it to false"
        )
    if any(each.source.auto_reset_latest for each in instance.by_source):
        problems.append(
            "canal.auto.reset.latest.pos.mode = true skips changes, so they do not"
            f" arrive once, as {EXACTLY_ONCE} has it: set it to false"
        )
    if problems:
        raise ConfigError([f"{name}: {each}" for each in problems])
    kind = KafkaKind(queue)
    return partial(
        continue_at_stored,
        ClientIdentity(instance.destination, CLIENT_ID),
        partial(kind.transactional_producer, instance.destination),
        on_wait=on_wait,
        first=FirstDelivery(instance),
    )


def _described(routing: RoutingConfig) -> str:
    """Return which topics and partitions messages have, for the log."""
    topics = f"topic {routing.topic}"
    if routing.dynamic_topic:
        topics = (
            f"topics by canal.mq.dynamicTopic = {routing.dynamic_topic}, else"
            f" {routing.topic}"
        )
    if routing.partition_hash:
        return (
            f"{topics}, {routing.partitions} partitions by canal.mq.partitionHash ="
            f" {routing.partition_hash}"
        )
    return f"{topics}, partition {routing.partition}"


def routing_of(instance: InstanceConfig, queue: QueueConfig) -> RoutingConfig:
    """Return how the messages of a destination find their topics and partitions."""
    routing = replace(
        instance.routing,
        topic=instance.routing.topic or instance.destination,
        database_hash=queue.database_hash,
    )
    if queue.mode is ServerMode.RABBITMQ:
        # It has no partitions: rows of one event stay together, as in the original.
        return replace(routing, partition=0, partition_hash="")
    return routing


def check_routing(instance: InstanceConfig, queue: QueueConfig) -> None:
    """Raise ConfigError when the topics of a destination cannot be used."""
    if queue.mode is ServerMode.TCP:
        return
    try:
        Router(routing_of(instance, queue))
    except ConfigError as error:
        name = instance.file or instance.destination
        problems = [f"{name}: {each}" for each in error.problems]
        raise ConfigError(problems) from None


def check_deliverable(instances: Sequence[InstanceConfig], queue: QueueConfig) -> None:
    """Raise ConfigError, with all problems, for what cannot be delivered as set."""
    problems: list[str] = []
    checks: list[Callable[[], object]] = [partial(check_producer, queue)]
    for each in instances:
        checks.append(partial(check_routing, each, queue))
        checks.append(partial(stored_positions, each, queue))
    for check in checks:
        try:
            check()
        except ConfigError as error:
            problems += error.problems
        except CanalError:
            pass  # no library; whoever needs it says so
    if problems:
        # What is wrong with the producer is so for each destination.
        raise ConfigError(list(dict.fromkeys(problems)))


def reserved_ids(queue: QueueConfig) -> dict[int, str]:
    """Return the client ids that delivery uses, and what for."""
    if queue.mode is ServerMode.TCP:
        return {}
    return {CLIENT_ID: f"the delivery to {queue.mode.value}"}
