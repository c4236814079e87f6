"""The one class where the stages between a source and a store are joined.

::

    pump ─► transaction buffer ─► sink ─► store
     ▲                              │
     └──── what was delivered ◄─────┘

The pump calls downward and learns from what `put` yields which spans are in the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal_server.model.positions import LogPosition
from canal_server.pipeline.sink import EntrySink
from canal_server.pipeline.transaction_buffer import TransactionBuffer
from canal_server.source.pump.detecting import Detector
from canal_server.source.pump.pump import Pump

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canal_server.model.positions import EntryPosition, LogIdentity
    from canal_server.ports import EventStore, Span, TablePredicate
    from canal_server.runtime.lifecycle import Deadline, Stop
    from canal_server.source.pump.pump_ports import PumpEvents, PumpSource

# Of the ring, which may be delivered at a time: the more, the less often the stages are
# passed, and the longer a full ring waits for room.
SHARE: Final = 8


class SourcePipeline:
    """A Stage, and the `Outlet` of its pump; `store` is a `ports.EventStore`.

    Subclasses override `deliver` and the steps of a session where more than the store
    has to know of them.
    """

    def __init__(
        self,
        source: PumpSource,
        store: EventStore,
        events: PumpEvents,
        table_filter: TablePredicate,
    ) -> None:
        config = source.config
        self.config = config
        self.sink = EntrySink(store, thin_markers=config.filter.transaction_entry)
        self._store = store
        self._positions = source.positions
        self._buffer = TransactionBuffer(
            config.buffer.transaction_size,
            config.buffer.memory_bytes_max,
            max(config.buffer.transaction_size, config.store.buffer_size // SHARE),
        )
        self.pump = Pump(source, self, events, table_filter)
        self.detector = Detector(config, self.pump, self.pump.stored)

    # --- Stage ----------------------------------------------------------------------

    def begin_with(self, server: LogIdentity | None) -> None:
        """Read this server first, if it is one of the source's; call before `start`."""
        self.pump.begin_with(server)

    def start(self) -> None:
        """Start the pump and the watch over its server."""
        self.pump.start()
        self.detector.start()

    def request_stop(self) -> None:
        """Ask the pump to stop and end all its waits; no standby takes over."""
        self.detector.request_stop()
        self.pump.request_stop()

    def join(self, deadline: Deadline) -> bool:
        """Wait for the end of the threads."""
        ended = self.detector.join(deadline)
        return self.pump.join(deadline) and ended

    # --- positions ------------------------------------------------------------------

    def log_position(self, position: EntryPosition) -> LogPosition:
        """Return a position with the identity of the server that it is from."""
        return LogPosition(position.source or self.pump.identity, position)

    def parsed(self) -> LogPosition | None:
        """Return how far the source was read; None before the first session."""
        if self.pump.began_at is None:
            return None  # what is stored is a client's position
        return self._positions.latest(self.config.destination)

    def begin_at(self, position: LogPosition) -> None:
        """Begin the next session at a position."""
        self._positions.persist(self.config.destination, position)

    # --- Outlet ---------------------------------------------------------------------

    def begin(self) -> bool:
        """Start a session; an open transaction is always continued."""
        return False

    def put(self, spans: list[Span], stop: Stop) -> Iterator[list[Span]]:
        """Buffer spans and yield what is delivered, part by part; empty: stopped."""
        while spans:
            ready, spans = self._buffer.put(spans)
            if ready:
                # The pump has recorded each part when this line is passed.
                yield from self.deliver(ready, stop)
            self._buffer.commit()

    def deliver(self, spans: list[Span], stop: Stop) -> Iterator[list[Span]]:
        """Store what left the buffer and yield it, in one part or several."""
        yield spans if self.sink.accept(spans, stop) else []

    def reset(self) -> None:
        """Drop the open transaction: it comes again from its beginning."""
        self.sink.reset()

    def idle(self) -> None:
        """Note that the source has nothing more at hand: waiting gets may answer."""
        self._store.wake_getters()

    def end(self) -> None:
        """End the session: what is still in the buffer will be read again."""
        self._buffer.reset()
