"""Event stores for tests, and waiting for what another thread does."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fix_blocks import Entries

from canal_server.config.schema import BatchMode, StoreConfig
from canal_server.core.table_ids import NAMES_MAX, TableIds
from canal_server.runtime.lifecycle import Stop
from canal_server.store.event_store import MemoryEventStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.model.batch import Batch

PATIENCE_S = 60  # for what should happen at once, on a very slow machine


class Absent:
    """The port `Liveness` with a list."""

    def __init__(self, *client_ids: int) -> None:
        self.client_ids = set(client_ids)
        self.waits_s: float | None = None
        self.passed: list[int] = []
        self.report: Callable[[int, Any], None] = lambda *_: None

    def is_evictable(self, client_id):
        """Return whether a client is in the list."""
        return client_id in self.client_ids

    def evictable_in_s(self, client_ids):
        """Return what is to be reported."""
        return 0.0 if self.client_ids.issuperset(client_ids) else self.waits_s

    def evicted(self, client_id, table_filter):
        """Remember a client."""
        self.passed.append(client_id)
        self.report(client_id, table_filter)


class StoreUnderTest:
    """A store, entries to put into it, and a stop for the pump."""

    def __init__(
        self, *, names_max: int = NAMES_MAX, liveness: Any = None, **changes
    ) -> None:
        self.config = replace(
            StoreConfig(buffer_size=64, batch_mode=BatchMode.ITEMSIZE), **changes
        )
        self.table_ids = TableIds(names_max)
        self.entries = Entries()
        self.stop = Stop()
        self.store = MemoryEventStore(
            self.config, self.table_ids, self.entries.pool, liveness=liveness
        )

    def put(self) -> bool:
        """Put what was added to `entries`."""
        return self.store.put(self.entries.take(), self.stop)

    def try_put(self) -> bool:
        """Put what was added, but do not wait for room; false when there is none."""
        stop = Stop()
        stop.request()
        return self.store.put(self.entries.take(), stop)

    def held(self) -> int:
        """Return how many entries the ring holds."""
        counts = self.store.counts()
        return counts.put_sequence - counts.ack_sequence

    def held_bytes(self) -> int:
        """Return how many bytes the entries in the ring weigh."""
        counts = self.store.counts()
        return counts.put_bytes - counts.ack_bytes

    def get(self, client: int, size: int) -> Batch:
        """Get a batch without waiting; there has to be one."""
        batch = self.store.get(client, size, 0)
        assert batch is not None
        return batch

    def ack_next(self, client: int, size: int) -> None:
        """Get a batch, which has to be there, and ack it."""
        self.store.ack(client, self.get(client, size).last_sequence)

    def resume_offset(self, client: int) -> int:
        """Return where a client may resume in its file; it has to be known."""
        position = self.store.resume_position(client)
        assert position is not None
        assert position.position is not None
        return position.position

    def wanting(self, *tables: str):
        """Return a filter for these tables, and the subjects' numbers."""
        expected = {self.table_ordinal(table) for table in tables}
        ordinals = {self.table_ids.names_of(number) for number in expected}
        return lambda names: not names or names in ordinals

    def table_ordinal(self, table: str) -> int:
        """Return the number of a table of schema `s`."""
        return self.table_ids.ordinal_of((("s", table),))


def eventually(condition: Callable[[], object]) -> None:
    """Wait until a condition holds, however long that takes within reason."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition was never met"
        time.sleep(0.001)


def in_thread(function: Callable[..., object], *args, **kwargs) -> Future[Any]:
    """Run a function in a thread of its own; its result or error is in the future."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001  # raised by whoever waits
            future.set_exception(error)

    threading.Thread(target=run, daemon=True, name=f"test {function}").start()
    return future
