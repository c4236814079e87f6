"""The pipeline of one source of a group: it takes turns at the group's store.

::

    pump ─► transaction buffer ─► lane ─► sink ─► (the group's store)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.capture.source_pipeline import SourcePipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from canal_server.pipeline.source_merge import Merge
    from canal_server.ports import EventStore, Span, TablePredicate
    from canal_server.runtime.lifecycle import Stop
    from canal_server.source.pump.pump_ports import PumpEvents, PumpSource


class MergedPipeline(SourcePipeline):
    """A Stage; `on_epoch` is called when its `epoch` has changed.

    The epoch is that of the table ids in all that follows the last boundary.
    """

    def __init__(
        self,
        source: PumpSource,
        store: EventStore,
        events: PumpEvents,
        table_filter: TablePredicate,
        *,
        merge: Merge,
        on_epoch: Callable[[], None],
    ) -> None:
        super().__init__(source, store, events, table_filter)
        self.lane = merge.lane()
        self._table_ids = source.table_ids
        self._on_epoch = on_epoch
        # The epoch of the last chunk, and the one from which on no chunk has older ids.
        self._epoch_seen = self._epoch_since = self.epoch = self._table_ids.epoch

    def request_stop(self) -> None:
        """Ask the pump to stop and end all its waits, also for its turn."""
        super().request_stop()
        self.lane.close()

    def begin(self) -> bool:
        """Start a session; return whether the open transaction lost its turn."""
        return self.lane.begin()

    def put(self, spans: list[Span], stop: Stop) -> Iterator[list[Span]]:
        """Buffer spans and yield what is delivered."""
        # The reader looks at the epoch before each chunk: this chunk is of no older
        # epoch than the one that was current at the chunk before.
        self._epoch_since, self._epoch_seen = self._epoch_seen, self._table_ids.epoch
        return super().put(spans, stop)

    def deliver(self, spans: list[Span], stop: Stop) -> Iterator[list[Span]]:
        """Store spans, in one turn or several."""

        def accept(part: list[Span]) -> bool:
            return self.sink.accept(part, stop)

        while spans:
            part, spans = self.lane.put(spans, accept)
            yield part
            if self.epoch != self._epoch_since and any(
                block.last_boundary(first, end) >= 0 for block, first, end in part
            ):
                # A statement that was being read when the epoch began has ended.
                self._enter(self._epoch_since)

    def reset(self) -> None:
        """Drop the open transaction: others may have their turns."""
        super().reset()
        self.lane.forget_open()

    def idle(self) -> None:
        """Let others have their turns."""
        self.lane.idle()
        if self._buffer.pending == 0:
            self._enter(self._table_ids.epoch)

    def end(self) -> None:
        """End the session; nothing is pending."""
        super().end()
        self.lane.end()
        self._enter(self._table_ids.epoch)

    def _enter(self, epoch: int) -> None:
        if self.epoch != epoch:
            self.epoch = epoch
            self._on_epoch()
