"""Copying one table by jobs of Spark: executors read chunks, this process waits.

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

POLL_S: Final = 0.5  # how often progress is looked at
POLL_SHARE: Final = 10  # looking takes this part of the time at most
ROUNDS_MAX: Final = 5  # when tasks are lost


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
        *,
        slots: Slots | None = None,
    ) -> None:
        """Take what is copied and how; nothing is done yet.

        `slots` are those of all copies that run at the same time.
        """
        if not copy_id.replace("-", "").replace("_", "").isalnum():
            raise ValueError(f"{copy_id!r} cannot be part of a file's name")
        self._spark = spark
        self._settings = settings
        self._table = table
        self._place = place
        self._seq = version_of(place)
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
            rows_per_s=settings.copy.rows_per_connection,
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
                f"were not copied in {ROUNDS_MAX} runs of Spark's job: "
                f"{failure or self._not_here()}"
            )
        files = [file for number in sorted(known) for file in known[number].files]
        return self._copied(files, self._place)

    def _not_here(self) -> str:
        """Tell of files that tasks have written, and that are not to be seen."""
        return (
            f"its tasks ended well, but what they wrote is not in {self._manifests} "
            "here: is lake.path one folder for all machines, where executors run too?"
        )

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

    # --- rounds -----------------------------------------------------------------------

    def _round(
        self,
        left: Sequence[Chunk],
        plan: CopyPlan,
        known: dict[int, ChunkManifest],
        tell: _Telling,
        stop: Stop,
    ) -> str:
        """Have Spark copy, and gather what it has done; returns why it broke."""
        job = CopyRound(self._spark, self._task, left, self._connections, self._slots)
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
