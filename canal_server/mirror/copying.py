"""Copying one table as a job of Spark: executors read chunks, this process waits.

    plan ──► shares of chunks ──► tasks: chunk ──► files, manifest ──► all files
             (one connection each)                    └─ progress, restart

Nothing is visible in the lake before the files that `run` returns are published.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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
from canal_server.mirror.chunks import cut
from canal_server.mirror.copy_files import (
    CopyTask,
    copy_chunk,
    copy_schema,
    is_whole,
    sizes_of,
)
from canal_server.mirror.keyless_copy import copy_keyless
from canal_server.mirror.keys import NullKeyError
from canal_server.mirror.manifests import ChunkManifest, CopyPlan, finished
from canal_server.mirror.storage import open_folder
from canal_server.mysql.backoff import Backoff
from canal_server.mysql.connection import ControlConnection
from canal_server.spark.offsets import version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from canal_server.client.ranged import RangePosition
    from canal_server.lifecycle import Stop
    from canal_server.mirror.chunks import Chunk
    from canal_server.mirror.model import CopiedFile, MirrorTable
    from canal_server.mirror.settings import MirrorSettings

POLL_S: Final = 0.5  # how often progress is looked at
POLL_SHARE: Final = 10  # looking takes this part of the time at most
ROUNDS_MAX: Final = 5  # of Spark's job, when tasks are lost
TRIES_MAX: Final = 8  # of a chunk in a task, when connections are lost
# Too many connections to the server, of an account, and in an hour.
_FULL: Final = (1040, 1203, 1226)
_RESULT: Final = "failure string"  # of a share; nothing where all went well

# What a task may tell, by name; the driver raises it again.
_TOLD: Final[dict[str, type[CanalError]]] = {
    kind.__name__: kind
    for kind in (
        ConnectionLost,
        SourceRefused,
        SourceError,
        TableMetaError,
        LakeError,
        NullKeyError,
    )
}


class CopyProgress(NamedTuple):
    """How far a copy has come."""

    chunks: int
    chunks_done: int
    rows: int
    size: int  # bytes of the files


class Copied(NamedTuple):
    """What a copy has made."""

    files: list[CopiedFile]
    place: RangePosition  # from which changes are to be applied
    schema: pa.Schema
    rows: int


class CopyJob:
    """A copy of one table, begun or gone on with; `run` once.

    `copy_id` is of letters, digits, `-` and `_`; the same one goes on with what a copy
    of that name has done. Changes from `place` on will be applied to the copy, and its
    rows are read after everything before `place` was visible (`places`). A table
    without a key is read at a later place, which `run` returns.
    """

    def __init__(
        self,
        spark: Any,
        settings: MirrorSettings,
        table: MirrorTable,
        copy_id: str,
        place: RangePosition,
    ) -> None:
        """Take what is copied and how; nothing is done yet."""
        if not copy_id.replace("-", "").replace("_", "").isalnum():
            raise ValueError(f"{copy_id!r} cannot be part of a file's name")
        self._spark = spark
        self._settings = settings
        self._table = table
        self._place = place
        self._seq = version_of(place)
        lake = open_folder(settings.lake)
        self._manifests = lake.below(f"{settings.folder}/copies/{copy_id}")
        self._connections = max(
            1, settings.copy.connections // settings.copy.tables_at_once
        )
        self._task = CopyTask(
            access=settings.source.read_from,
            table=table,
            copy_id=copy_id,
            seq=self._seq,
            folder=lake.below(table.target),
            manifests=self._manifests,
            rows_per_s=self._rows_per_s(),
        )

    def run(self, on_progress: Callable[[CopyProgress], None], stop: Stop) -> Copied:
        """Copy all chunks that are not copied yet; returns all files.

        `on_progress` is called on this thread now and then. Raises ConnectionLost when
        a stop is asked for; SourceError, DecodeError, TableMetaError, NullKeyError or
        LakeError for what a task met, LakeError for a copy that was begun with other
        columns.
        """
        plan = self._plan(stop)
        if self._table.is_keyless:
            return self._exactly(on_progress, stop)
        known: dict[int, ChunkManifest] = {}
        sizes = sizes_of(self._task)
        for manifest in finished(self._manifests, plan.chunks, {}):
            if is_whole(manifest, sizes):
                known[manifest.chunk] = manifest
        tell = _Telling(plan, on_progress)
        tell(known)
        for _ in range(ROUNDS_MAX):
            left = [chunk for chunk in plan.chunks if chunk.number not in known]
            if not left:
                break
            failure = self._round(left, plan, known, tell, stop)
        missing = len(plan.chunks) - len(known)
        if missing:
            raise SourceError(
                f"table {self._table.source}: {missing} of {len(plan.chunks)} chunks "
                f"were not copied in {ROUNDS_MAX} runs of Spark's job: {failure}"
            )
        files = [file for number in sorted(known) for file in known[number].files]
        return self._copied(files, self._place)

    def _exactly(
        self, on_progress: Callable[[CopyProgress], None], stop: Stop
    ) -> Copied:
        """Copy a table without a key, in this process."""

        def tell(rows: int) -> None:
            on_progress(CopyProgress(1, 0, rows, 0))

        tell(0)
        manifest, place = copy_keyless(self._settings, self._task, stop, tell)
        on_progress(CopyProgress(1, 1, manifest.rows, manifest.size))
        return self._copied(list(manifest.files), place)

    def _copied(self, files: list[CopiedFile], place: RangePosition) -> Copied:
        rows = sum(file.rows for file in files)
        return Copied(files, place, copy_schema(self._table), rows)

    # --- the plan ---------------------------------------------------------------------

    def _plan(self, stop: Stop) -> CopyPlan:
        """Return the plan with which this copy began, or begins now."""
        columns = tuple(
            (column.name, column.mysql_type, column.target)
            for column in self._table.columns
        )
        plan = CopyPlan.read(self._manifests)
        if plan is not None:
            if (plan.seq, plan.columns) != (self._seq, columns):
                raise LakeError(
                    f"table {self._table.source}: the copy in {self._manifests} was "
                    "begun with other columns, or at another place: copy the table anew"
                )
            return plan
        rows = self._settings.copy.chunk_rows
        with ControlConnection(self._task.access, stop) as connection:
            chunks = cut(connection, self._table, rows)
        plan = CopyPlan(self._seq, columns, tuple(chunks))
        plan.write(self._manifests)
        return plan

    def _rows_per_s(self) -> int:
        """Return what one connection may read."""
        copy = self._settings.copy
        if not copy.rows_per_second:
            return 0
        return max(1, copy.rows_per_second // copy.tables_at_once // self._connections)

    # --- rounds -----------------------------------------------------------------------

    def _round(
        self,
        left: Sequence[Chunk],
        plan: CopyPlan,
        known: dict[int, ChunkManifest],
        tell: _Telling,
        stop: Stop,
    ) -> str:
        """Run Spark's job once, and gather what it has done; returns why it broke."""
        job = _SparkJob(self._spark, self._task, _shares(left, self._connections))
        job.start()
        pause_s = POLL_S
        try:
            while not job.join(pause_s):
                if stop.requested():
                    raise ConnectionLost(
                        f"copying {self._table.source} was given up: a stop was asked "
                        "for"
                    )
                began = time.monotonic()
                self._gather(plan, known)
                tell(known)
                pause_s = max(POLL_S, POLL_SHARE * (time.monotonic() - began))
        finally:
            job.end()
        self._gather(plan, known)
        tell(known)
        job.raise_told(self._table)
        return job.broken

    def _gather(self, plan: CopyPlan, known: dict[int, ChunkManifest]) -> None:
        for manifest in finished(self._manifests, plan.chunks, known):
            known[manifest.chunk] = manifest


@dataclass(slots=True)
class _Telling:
    """Tells how far a copy has come, when that has changed."""

    plan: CopyPlan
    on_progress: Callable[[CopyProgress], None]
    told: int = -1

    def __call__(self, known: dict[int, ChunkManifest]) -> None:
        if len(known) == self.told:
            return
        self.told = len(known)
        sums: Counter[str] = Counter()
        for manifest in known.values():
            sums["rows"] += manifest.rows
            sums["size"] += manifest.size
        progress = CopyProgress(
            len(self.plan.chunks), len(known), sums["rows"], sums["size"]
        )
        self.on_progress(progress)


class _SparkJob:
    """A job of Spark on a thread of its own, which can be waited for and ended."""

    def __init__(self, spark: Any, task: CopyTask, shares: list[list[Chunk]]) -> None:
        self._spark = spark
        self._task = task
        self._shares = shares
        self._tag = f"canal-mirror-{uuid.uuid4().hex}"
        self._told: list[str] = []
        self.broken = ""  # why Spark gave up, if it did
        self._thread = threading.Thread(
            target=self._run, name=f"copy-{task.table.source}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def join(self, seconds: float) -> bool:
        """Wait so long at most; true when the job has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def end(self) -> None:
        """End the job if it still runs, and wait for that."""
        while not self.join(0):
            # A job that has not begun yet has not got the tag, so once more.
            self._spark.sparkContext.cancelJobsWithTag(self._tag)
            self.join(POLL_S)

    def raise_told(self, table: MirrorTable) -> None:
        """Raise what a task has told, if one has."""
        for text in self._told:
            told = json.loads(text)
            kind = _TOLD.get(told["kind"])
            message = f"{told['message']} (chunk {told['chunk']})"
            if str(table.source) not in message:
                message = f"table {table.source}: {message}"
            raise DecodeError(message) if kind is None else kind(message)

    def _run(self) -> None:
        try:
            context = self._spark.sparkContext  # what is set holds for this thread
            context.addJobTag(self._tag)
            context.setInterruptOnCancel(True)  # else tasks would go on
            shares = len(self._shares)
            frame = self._spark.range(0, shares, 1, shares)
            rows = frame.mapInArrow(_worker(self._task, self._shares), _RESULT)
            self._told = [str(row["failure"]) for row in rows.collect()]
        except Exception as error:  # noqa: BLE001  # the thread's outermost frame
            # Tasks were lost, or Spark was: what they have done is in manifests.
            self.broken = str(error).strip().partition("\n")[0][:500]


def _shares(chunks: Sequence[Chunk], connections: int) -> list[list[Chunk]]:
    """Deal chunks out: each share is read over one connection at a time."""
    count = min(connections, len(chunks))
    return [list(chunks[number::count]) for number in range(count)]


# --- in the executors -----------------------------------------------------------------


def _worker(task: CopyTask, shares: list[list[Chunk]]) -> Any:
    """Return what executors run: a share by its number, to what was wrong with it."""

    def copy(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for failure in _copy_share(task, shares[number]):
                    yield pa.RecordBatch.from_pydict({"failure": [failure]})

    return copy


def _copy_share(task: CopyTask, chunks: Sequence[Chunk]) -> Iterator[str]:
    """Copy chunks; yields what is wrong, if trying again would not help."""
    for chunk in chunks:
        backoff = Backoff()
        while True:
            try:
                copy_chunk(task, chunk)
                break
            except CanalError as error:
                delay_s = backoff.delay_s(time.monotonic())
                if backoff.failures >= TRIES_MAX or not _may_pass(error):
                    yield _failure(error, chunk)
                    return
                threading.Event().wait(delay_s)


def _may_pass(error: CanalError) -> bool:
    """Tell whether trying again may help."""
    full = isinstance(error, SourceError) and error.errno in _FULL
    return full or isinstance(error, ConnectionLost)


def _failure(error: CanalError, chunk: Chunk) -> str:
    message = str(error)
    if isinstance(error, SourceError) and error.errno in _FULL:
        message += "; lower copy.connections, or raise the server's limit"
    told = {
        "kind": type(error).__name__,
        "message": message,
        "chunk": chunk.number,
    }
    return json.dumps(told)
