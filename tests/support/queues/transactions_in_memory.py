"""A broker with transactions in memory, and a destination whose changes it gets."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from fix_server import (
    DESTINATION,
    FakeInstance,
    FakeInstances,
    FakeStore,
    make_entry,
)

from canal_server.delivery.queue_worker import WorkerLimits
from canal_server.delivery.stored_position import continue_at_stored
from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.position.memory_meta import MemoryMetaManager
from canal_server.protocol.entry_messages import Entry, EntryType
from canal_server.protocol.packets import Messages
from canal_server.protocol.protobuf import decode
from canal_server.queues.producers.queue_producer import (
    BrokerUnavailableError,
    OutcomeUnknownError,
    Sending,
    size_of,
)
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from canal_server.queues.producers.queue_producer import Message

WHO = ClientIdentity(DESTINATION, 1001)
TOPIC = "shop"
LIMITS = WorkerLimits(4, 10_000, "")
MYSQL = LogIdentity("db", 3306)


class Broker:
    """A broker with transactions, and the producers for it, one for each thread.

    Only the producer that was opened last can do anything. `fails(value)` returns what
    becomes of a message; `outcome()` what becomes of a commit: "done", "later",
    "aborted", or "unknown" with or without "done".
    """

    def __init__(self) -> None:
        self.visible: list[tuple[str, bytes]] = []
        self.stored: bytes | None = None
        self.fails: Callable[[bytes], Exception | None] = lambda _: None
        self.outcome: Callable[[], str] = lambda: "done"
        self.per_poll = 3  # messages that a poll confirms
        self.commits = 0
        self.last_error, self.confirmed = "", 0
        self._waiting: list[tuple[Message, Sending]] = []
        self._kept: list[tuple[str, bytes]] = []
        self._position: bytes | None = None
        self._is_open = self._is_begun = self._has_failed = False
        self._lock = threading.RLock()
        self._owner = 0  # the thread whose producer was opened last

    def open(self) -> None:
        """Forget what was not committed."""
        with self._lock:
            self._owner = threading.get_ident()
            self._reset()
            self._is_open = True

    @contextlib.contextmanager
    def _owned(self) -> Iterator[None]:
        """Keep others from opening theirs meanwhile. Raises if one did before."""
        with self._lock:
            if self._owner != threading.get_ident():
                raise BrokerUnavailableError("another producer uses it")
            yield

    def _reset(self) -> None:
        for message, sending in self._waiting:
            sending.answered(message, BrokerUnavailableError("purged"))
        self._waiting.clear()
        self._kept.clear()
        self._position = None
        self._is_begun = self._has_failed = False

    def position(self, stop: Stop | None = None) -> bytes | None:
        """Return what was committed last."""
        del stop
        assert self._is_open
        return self.stored

    def prepare(self, messages: Iterable[Message]) -> None:
        """Have all topics."""

    def begin(self) -> None:
        """Begin."""
        with self._owned():
            assert self._is_open
            self._is_begun = True

    def try_send(self, message: Message, sending: Sending) -> bool:
        """Keep a message, if there is room."""
        with self._owned():
            assert self._is_begun
            if len(self._waiting) > 10:
                return False
            sending.note(message[:2], size_of(message))
            self._waiting.append((message, sending))
            return True

    def push(self) -> None:
        """Do nothing: the commit sends all."""

    def poll(self, timeout_s: float) -> None:
        """Answer the first messages."""
        del timeout_s
        with self._lock:
            for _ in range(min(self.per_poll, len(self._waiting))):
                message, sending = self._waiting.pop(0)
                topic, _, value = message[:3]
                assert value is not None
                error = self.fails(value)
                self._has_failed |= error is not None
                if error is None:
                    self._kept.append((topic, value))
                    self.confirmed += 1
                sending.answered(message, error)  # type: ignore[arg-type]

    def send_position(self, value: bytes) -> None:
        """Keep it for the commit."""
        with self._owned():
            assert self._is_begun
            self._position = value

    def try_commit(self, timeout_s: float) -> bool:
        """Commit as the test says."""
        del timeout_s
        with self._lock:
            if self._owner != threading.get_ident():
                raise OutcomeUnknownError("another producer uses it")
            return self._committed()

    def _committed(self) -> bool:
        assert self._is_begun
        assert not self._waiting, "the worker waits for all of it"
        assert not self._has_failed
        outcome = self.outcome()
        if outcome == "later":
            return False
        if outcome == "aborted":
            self._reset()
            raise BrokerUnavailableError("aborted")
        if "done" in outcome:
            self.visible += self._kept
            self.stored = self._position or self.stored
            self.commits += 1
        self._reset()
        if "unknown" in outcome:
            self._is_open = False
            raise OutcomeUnknownError("connection lost")
        return True

    def abort(self, wait_s: float = 1.0, stop: Stop | None = None) -> bool:
        """Forget the transaction."""
        del wait_s, stop
        with self._lock:
            if self._owner != threading.get_ident():
                return False
            self._reset()
            return self._is_open

    def renew(self) -> None:
        """Do nothing."""

    def abandon(self, wait_s: float) -> None:
        """Fail: `abort` is called."""
        raise AssertionError(wait_s)

    def close(self, wait_s: float) -> None:
        """Forget what was not committed."""
        self.abort(wait_s)

    def numbers(self, topic: str = TOPIC) -> list[int]:
        """Return the numbers of the entries that are visible."""
        return [int(value) for name, value in list(self.visible) if name == topic]


class Source:
    """A binlog of numbered entries, and the destination that reads it.

    Each end of a transaction is an entry, too.
    """

    def __init__(self, instances: FakeInstances, broker: Broker) -> None:
        self.entries: list[bytes] = []
        self.rows: list[int] = []
        self.meta = MemoryMetaManager()
        self.restarts = 0
        self.instance: FakeInstance | None = None
        self._instances = instances
        self._broker = broker
        self._lock = threading.Lock()
        instances.started.clear()
        instances.broken.add(DESTINATION)

    def write(self, rows: int) -> None:
        """Commit a transaction of so many rows."""
        with self._lock:
            first = len(self.entries)
            made = [make_entry(first + n) for n in range(rows)]
            made.append(make_entry(first + rows, EntryType.TRANSACTIONEND))
            self.entries += made
            self.rows += range(first, first + rows)
            instance = self._instances.running(DESTINATION)
            if instance is not None:
                instance.store.append(*made)

    def append(self, *entries: bytes) -> FakeInstance:
        """Add entries of a transaction, perhaps not all; return who reads them."""
        with self._lock:
            self.entries += entries
            assert self.instance is not None
            self.instance.store.append(*entries)
            return self.instance

    def replace_store(self) -> None:
        """Read again into another store, as after a move of another client."""
        with self._lock:
            running = self.instance
            assert running is not None
            with running.steady():
                running.meta.clear_batches(WHO)
                before, running.store = running.store, FakeStore()
                running.store.subscribe(WHO.client_id, None, None)
                cursor = self.meta.cursor(WHO)
                done = -1 if cursor is None else cursor.position.position or 0
                running.store.append(*self.entries[done + 1 :])
            before.close()

    def restart(self, instance: object = None) -> None:
        """End the destination, and have it read again from its stored cursor.

        Only if `instance` is still that.
        """
        with self._lock:
            if instance not in (None, self.instance):
                return
            self.restarts += 1
            self._end()
            continue_at_stored(WHO, lambda: self._broker, self.meta, Stop())
            instance = FakeInstance(DESTINATION)
            assert instance is not self.instance
            instance.meta = self.meta
            cursor = self.meta.cursor(WHO)
            done = -1 if cursor is None else cursor.position.position or 0
            instance.store.append(*self.entries[done + 1 :])
            self.instance = self._instances.started[DESTINATION] = instance

    def _end(self) -> None:
        found = self._instances.started.pop(DESTINATION, None)
        if found is not None:
            found.store.close()

    def crash(self, cursor: LogPosition | None) -> None:
        """End it as a crash does, which loses the last writes of the cursor."""
        with self._lock:
            self._end()
            self.meta = MemoryMetaManager()
            if cursor is not None:
                self.meta.subscribe(WHO)
                self.meta.update_cursor(WHO, cursor)
        self.restart()


def encode(batch_id: int, body: bytes, now_ms: int) -> list[Message]:
    """Return a message for each row, with its number."""
    del batch_id, now_ms
    entries = [decode(Entry, each) for each in decode(Messages, body).messages]
    return [
        (TOPIC, 0, b"%d" % each.header.logfile_offset)
        for each in entries
        if each.entry_type == EntryType.ROWDATA
    ]


def position_at(
    number: int, file: int = 1, time_ms: int = 0, *, moved: bool = False
) -> LogPosition:
    """Return a position."""
    entry = EntryPosition(f"binlog.{file:06}", number, time_ms, 1)
    return LogPosition(MYSQL, entry, moved=moved)
