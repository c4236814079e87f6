"""The sink: leaves out empty transactions and puts the rest into the store.

Which tables and columns are captured is decided before an entry is made (`filters`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from canal_server.pipeline.empty_transactions import EmptyTransactionFilter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from canal_server.ports import EventStore, Span
    from canal_server.runtime.lifecycle import Stop


@dataclass(slots=True)
class SinkCounters:
    """Counts what passed the sink; written by the pump's thread, read by any."""

    transactions: int = 0  # whose END reached the store
    rows: int = 0
    entries: int = 0
    waiting_ns: int = 0  # in the store's put, nearly all of it back-pressure
    last_time_ms: int = 0  # when the source executed the last entry seen


class EntrySink:
    """Puts entries into the store; used by the pump's thread only."""

    def __init__(
        self,
        store: EventStore,
        *,
        thin_markers: bool = False,
        counters: SinkCounters | None = None,
    ) -> None:
        self._store = store
        self._empty_filter = EmptyTransactionFilter(thin_markers=thin_markers)
        self.counters = counters if counters is not None else SinkCounters()

    def accept(self, spans: Iterable[Span], stop: Stop) -> bool:
        """Store what passes, and wait for room; false if stopped or closed first."""
        passed = self._empty_filter.thin(spans)
        counters = self.counters
        counters.last_time_ms = self._empty_filter.last_time * 1000
        if passed:
            started_ns = time.monotonic_ns()
            stored = self._store.put(passed, stop)
            counters.waiting_ns += time.monotonic_ns() - started_ns
            if not stored:
                return False
        counters.transactions = self._empty_filter.transactions
        counters.rows = self._empty_filter.rows
        counters.entries = self._empty_filter.entries
        return True

    def reset(self) -> None:
        """Drop the open transaction; the source is read again from before it."""
        self._empty_filter.reset()
