"""Copies one table by jobs of Spark: executors read chunks, this process waits.

    plan ──► lots of chunks ──► tasks: chunk ──► files, manifest ──► all files
             (one connection each)                  └─ progress, restart

Nothing is visible in the lake before the files that `run` returns are published.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from canal_server.errors import ConnectionLost, LakeError, SourceError
from canal_server.mirror.copy.copy_files import (
    CopyTask,
    copy_schema,
    is_whole,
    sizes_of,
)
from canal_server.mirror.copy.copy_round import CopyRound
from canal_server.mirror.copy.keyless_copy import copy_keyless
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.rows.chunks import cut
from canal_server.mirror.session.slots import Slots
from canal_server.mirror.state.lake_tables import open_table
from canal_server.mirror.state.manifests import ChunkManifest, CopyPlan, finished
from canal_server.mysql.control_connection import ControlConnection
from canal_server.spark.options.offsets import version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from canal_server.client.range_client import RangePosition
    from canal_server.mirror.rows.chunks import Chunk
    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.settings.table_values import CopiedFile, MirrorTable
    from canal_server.runtime.lifecycle import Stop

POLL_S: Final = 0.5  # how often progress is checked
POLL_SHARE: Final = 10  # checks use at most this part of the time
ROUNDS_MAX: Final = 5  # after lost tasks


class CopyProgress(NamedTuple):
    """The progress of a copy."""

    chunks: int
    chunks_done: int
    rows: int
    size: int  # bytes of the files


class Copied(NamedTuple):
    """The result of a copy."""

    files: list[CopiedFile]
    position: RangePosition  # where its changes start
    schema: pa.Schema
    rows: int


class CopyJob:
    """A copy of one table, new or resumed; `run` once.

    `copy_id` consists of letters, digits, `-` and `_`; the same id resumes an earlier
    copy. Changes from `position` on will be applied to the copy, whose rows are read
    after everything before `position` was visible (`copy_positions`). A table without a
    key is read at a later position, which `run` returns.
    """

    def __init__(
        self,
        spark: Any,
        settings: MirrorSettings,
        table: MirrorTable,
        copy_id: str,
        position: RangePosition,
        *,
        slots: Slots | None = None,
    ) -> None:
        """Set what to copy, and how; nothing is done yet.

        `slots` is shared by all copies that run at the same time.
        """
        if not copy_id.replace("-", "").replace("_", "").isalnum():
            raise ValueError(
                f"{copy_id!r} cannot be in a file name: use letters, digits, - and _"
            )
        self._spark = spark
        self._settings = settings
        self._table = table
        self._position = position
        self._seq = version_of(position)
        lake = open_folder(settings.lake)
        self._manifests = lake.below(f"{settings.folder}/copies/{copy_id}")
        self._connections = settings.copy.connections_each
        self._slots = slots or Slots(settings.copy.connections)
        self._task = CopyTask(
            access=settings.source.read_from,
            table=table,
            copy_id=copy_id,
            seq=self._seq,
            folder=lake.below(table.target),
            manifests=self._manifests,
            file_schema=open_table(settings, table).file_schema(copy_schema(table)),
            rows_per_s=settings.copy.rows_per_connection,
        )

    def run(self, on_progress: Callable[[CopyProgress], None], stop: Stop) -> Copied:
        """Copy all chunks that are not copied yet; returns all files.

        `on_progress` is called on this thread at intervals. Raises ConnectionLost when
        a stop is requested; SourceError, DecodeError, TableMetaError, NullKeyError or
        LakeError for a task's failure; LakeError for a copy that began with other
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
        report = _ProgressReport(plan, on_progress)
        report(known)
        for _ in range(ROUNDS_MAX):
            left = [chunk for chunk in plan.chunks if chunk.number not in known]
            if not left:
                break
            failure = self._round(left, plan, known, report, stop)
        missing = len(plan.chunks) - len(known)
        if missing:
            raise SourceError(
                f"table {self._table.source}: {missing} of {len(plan.chunks)} chunks "
                f"were not copied in {ROUNDS_MAX} runs of Spark's job: "
                f"{failure or self._not_here()}"
            )
        files = [file for number in sorted(known) for file in known[number].files]
        return self._copied(files, self._position)

    def _not_here(self) -> str:
        """Describe files that tasks have written but that are not visible here."""
        return (
            f"its tasks succeeded, but what they wrote is not in {self._manifests} "
            "here: use a lake.path that is one folder for all machines with executors"
        )

    def _exactly(
        self, on_progress: Callable[[CopyProgress], None], stop: Stop
    ) -> Copied:
        """Copy a table without a key in this process."""

        def report(rows: int) -> None:
            on_progress(CopyProgress(1, 0, rows, 0))

        report(0)
        manifest, position = copy_keyless(self._settings, self._task, stop, report)
        on_progress(CopyProgress(1, 1, manifest.rows, manifest.size))
        return self._copied(list(manifest.files), position)

    def _copied(self, files: list[CopiedFile], position: RangePosition) -> Copied:
        rows = sum(file.rows for file in files)
        return Copied(files, position, copy_schema(self._table), rows)

    # --- the plan ---------------------------------------------------------------------

    def _plan(self, stop: Stop) -> CopyPlan:
        """Return the plan of this copy, stored earlier or made now."""
        columns = tuple(
            (column.name, column.mysql_type, column.target)
            for column in self._table.columns
        )
        plan = CopyPlan.read(self._manifests)
        if plan is not None:
            if (plan.seq, plan.columns) != (self._seq, columns):
                raise LakeError(
                    f"table {self._table.source}: the copy in {self._manifests} was "
                    "started with other columns or at another position: copy the "
                    "table again"
                )
            return plan
        rows = self._settings.copy.chunk_rows
        with ControlConnection(self._task.access, stop) as connection:
            chunks = cut(connection, self._table, rows)
        plan = CopyPlan(self._seq, columns, tuple(chunks))
        plan.write(self._manifests)
        return plan

    # --- rounds -----------------------------------------------------------------------

    def _round(
        self,
        left: Sequence[Chunk],
        plan: CopyPlan,
        known: dict[int, ChunkManifest],
        report: _ProgressReport,
        stop: Stop,
    ) -> str:
        """Run a round in Spark and collect its chunks; returns why it failed."""
        job = CopyRound(self._spark, self._task, left, self._connections, self._slots)
        job.start()
        pause_s = POLL_S
        try:
            while not job.join(pause_s):
                if stop.requested():
                    raise ConnectionLost(
                        f"the copy of {self._table.source} was interrupted by a stop"
                    )
                began = time.monotonic()
                self._gather(plan, known)
                report(known)
                pause_s = max(POLL_S, POLL_SHARE * (time.monotonic() - began))
        finally:
            job.end()
        self._gather(plan, known)
        report(known)
        job.raise_failure(self._table)
        return job.broken

    def _gather(self, plan: CopyPlan, known: dict[int, ChunkManifest]) -> None:
        for manifest in finished(self._manifests, plan.chunks, known):
            known[manifest.chunk] = manifest


@dataclass(slots=True)
class _ProgressReport:
    """Reports a copy's progress when it has changed."""

    plan: CopyPlan
    on_progress: Callable[[CopyProgress], None]
    reported: int = -1

    def __call__(self, known: dict[int, ChunkManifest]) -> None:
        if len(known) == self.reported:
            return
        self.reported = len(known)
        sums: Counter[str] = Counter()
        for manifest in known.values():
            sums["rows"] += manifest.rows
            sums["size"] += manifest.size
        progress = CopyProgress(
            len(self.plan.chunks), len(known), sums["rows"], sums["size"]
        )
        self.on_progress(progress)
