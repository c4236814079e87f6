"""Copies chunks by short jobs of Spark, so that other jobs get their turn.

::

        chunks left ──► lot ──► slot ──► job of one task ──► finished chunks
             ▲                                  │
             └──── those it had no time for ────┘

A job uses one of Spark's cores for a few seconds, or for one chunk. Then a job that
waits for a core, such as a batch of the stream, gets it. Finished chunks are recorded
in their manifests, even if the job fails.
"""

from __future__ import annotations

import json
import math
import threading
import time
import uuid
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from canal_server.errors import (
    CanalError,
    ConnectionLost,
    DecodeError,
    LakeError,
    SourceError,
    SourceRefused,
    TableMetaError,
)
from canal_server.mirror.copy.copy_files import copy_chunk
from canal_server.mirror.lake.row_keys import ManyPartitionsError, NullKeyError
from canal_server.mirror.session.spark_errors import reason
from canal_server.runtime.backoff import Backoff
from canal_server.runtime.lifecycle import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from canal_server.mirror.copy.copy_files import CopyTask
    from canal_server.mirror.rows.chunks import Chunk
    from canal_server.mirror.session.slots import Slots
    from canal_server.mirror.settings.table_values import MirrorTable

LOT_MAX: Final = 32  # chunks per task
LOOK_S: Final = 0.5
TRIES_MAX: Final = 8  # of a chunk in a task, after lost connections
# Too many connections: to the server, of an account, per hour.
_FULL: Final = (1040, 1203, 1226)
_RESULT: Final = "chunk int, failure string"  # of chunks that were started

# Errors that a task may report, by name; the driver raises them again.
_RAISABLE: Final[dict[str, type[CanalError]]] = {
    kind.__name__: kind
    for kind in (
        ConnectionLost,
        SourceRefused,
        SourceError,
        TableMetaError,
        LakeError,
        NullKeyError,
        ManyPartitionsError,
    )
}


class CopyRound:
    """Copies chunks once, over a number of connections; can be joined and ended."""

    def __init__(
        self,
        spark: Any,
        task: CopyTask,
        chunks: Sequence[Chunk],
        connections: int,
        slots: Slots,
    ) -> None:
        self._spark = spark
        self._task = task
        self._slots = slots
        self._tag = f"canal-mirror-{uuid.uuid4().hex}"
        self._changed = threading.Condition()
        self._left = deque(chunks)
        self._at_work = 0  # lots in progress
        self._is_over = False
        self._failures: list[str] = []
        self.broken = ""  # why Spark failed, if it did
        self._threads = [
            threading.Thread(
                target=self._run,
                name=f"copy-{task.table.source}-{number}",
                daemon=True,
            )
            for number in range(min(connections, len(chunks)))
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def join(self, seconds: float) -> bool:
        """Wait at most so long; true when the round has ended."""
        deadline = Deadline(seconds)
        for thread in self._threads:
            thread.join(deadline.remaining_s())
        return not any(thread.is_alive() for thread in self._threads)

    def end(self) -> None:
        """End the round if it still runs, and wait for that."""
        self._finish()
        while not self.join(0):
            # Repeated, as a job that has not started yet does not have the tag.
            self._spark.sparkContext.cancelJobsWithTag(self._tag)
            self.join(LOOK_S)

    def raise_failure(self, table: MirrorTable) -> None:
        """Raise the error that a task has reported, if any."""
        for text in self._failures:
            failure = json.loads(text)
            kind = _RAISABLE.get(failure["kind"])
            message = f"{failure['message']} (chunk {failure['chunk']})"
            if str(table.source) not in message:
                message = f"table {table.source}: {message}"
            raise DecodeError(message) if kind is None else kind(message)

    # --- lots -------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            context = self._spark.sparkContext  # settings hold for this thread
            context.addJobTag(self._tag)
            context.setInterruptOnCancel(True)  # otherwise tasks would keep running
            while lot := self._next():
                left = lot
                try:
                    with self._slots.slot(lambda: self._is_over) as has_slot:
                        if has_slot:
                            left = self._copy(lot)
                finally:
                    self._return(left)
        except Exception as error:  # noqa: BLE001  # the thread's outermost frame
            # Tasks or Spark were lost: finished chunks are in manifests.
            self.broken = reason(error)
            self._finish()

    def _next(self) -> list[Chunk]:
        """Return chunks for a task; empty when the round is over."""
        with self._changed:
            # Other tasks may return some of their chunks.
            while not self._left and self._at_work and not self._is_over:
                self._changed.wait(LOOK_S)
            if self._is_over or not self._left:
                return []
            share = math.ceil(len(self._left) / (len(self._threads) - self._at_work))
            self._at_work += 1
            return [self._left.popleft() for _ in range(min(share, LOT_MAX))]

    def _return(self, chunks: Sequence[Chunk]) -> None:
        with self._changed:
            self._left.extendleft(reversed(chunks))
            self._at_work -= 1
            self._changed.notify_all()

    def _finish(self) -> None:
        """Start no further chunk."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _copy(self, lot: list[Chunk]) -> list[Chunk]:
        """Copy chunks in a job of Spark; returns those it had no time for."""
        frame = self._spark.range(0, 1, 1, 1)
        worker = _worker(self._task, lot, self._slots.hold_s)
        started = frame.mapInArrow(worker, _RESULT).collect()
        self._failures.extend(row["failure"] for row in started if row["failure"])
        if self._failures:
            self._finish()
        numbers = {row["chunk"] for row in started}
        return [chunk for chunk in lot if chunk.number not in numbers]


# --- in the executors -----------------------------------------------------------------


def _worker(
    task: CopyTask, chunks: Sequence[Chunk], hold_s: float
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return an executor's function: it yields chunks, with the failure of one."""

    def copy(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:  # a single one, of a single row
            numbers, failures = zip(*_copy_chunks(task, chunks, hold_s), strict=True)
            yield pa.RecordBatch.from_arrays(
                [pa.array(numbers, pa.int32()), pa.array(failures, pa.string())],
                names=["chunk", "failure"],
            )

    return copy


def _copy_chunks(
    task: CopyTask, chunks: Sequence[Chunk], hold_s: float
) -> Iterator[tuple[int, str]]:
    """Copy one chunk, and more while there is time; ends at a failure."""
    until = time.monotonic() + hold_s
    for chunk in chunks:
        failure = _copy_chunk(task, chunk)
        yield chunk.number, failure
        if failure or time.monotonic() >= until:
            return


def _copy_chunk(task: CopyTask, chunk: Chunk) -> str:
    """Copy a chunk; returns the failure if another try would not help."""
    backoff = Backoff()
    while True:
        try:
            copy_chunk(task, chunk)
        except CanalError as error:
            delay_s = backoff.delay_s(time.monotonic())
            if backoff.failures >= TRIES_MAX or not _may_pass(error):
                return _failure(error, chunk)
            threading.Event().wait(delay_s)
        else:
            return ""


def _may_pass(error: CanalError) -> bool:
    """Check whether another try may help."""
    full = isinstance(error, SourceError) and error.errno in _FULL
    return full or isinstance(error, ConnectionLost)


def _failure(error: CanalError, chunk: Chunk) -> str:
    message = str(error)
    if isinstance(error, SourceError) and error.errno in _FULL:
        message += "; lower copy.connections, or raise the server's limit"
    failure = {
        "kind": type(error).__name__,
        "message": message,
        "chunk": chunk.number,
    }
    return json.dumps(failure)
