"""The output of `mirror status`, for a mirror that runs or has stopped.

Everything is read from the lake, so the command works on any machine.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.run.progress import duration
from canal_server.mirror.state.lake_lease import holder
from canal_server.mirror.state.manifests import ChunkManifest, CopyPlan
from canal_server.mirror.state.run_history import read_status
from canal_server.mirror.state.state import PENDING, Phase, States
from canal_server.mirror.state.verify_results import VerifyResults

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from canal_server.mirror.lake.lake_storage import Folder
    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.state.run_history import Status
    from canal_server.mirror.state.state import TableState
    from canal_server.mirror.state.verify_results import VerifyResult

_OLD: Final = (*PENDING, Phase.STOPPED)  # what the lake has of a table then
SILENT_S: Final = 60.0  # a status is stored every few seconds
HEADINGS: Final = ("table", "phase", "copied", "target", "since")


@dataclass(frozen=True, slots=True)
class Verified:
    """The last comparison of a table; `problem` is why it was not compared."""

    outcome: str
    at_ms: int
    differing: int  # rows, at least
    problem: str


@dataclass(frozen=True, slots=True)
class TableOverview:
    """A table: `rows` are copied; `chunks` are those of an unfinished copy.

    `rows_expected` is the database's estimate when the copy began. While a table does
    not follow the stream, the lake has its rows from `old_since_ms`; 0: it does, or
    there are none. `new_at_ms` is when that copy is expected to be done; 0: unknown.
    """

    table: str
    target: str
    phase: str
    rows: int
    copies: int
    message: str
    since_ms: int
    chunks_done: int = 0
    chunks: int = 0
    rows_expected: int = 0
    due_at_ms: int = 0  # when it is copied again, if it waits for that
    old_since_ms: int = 0
    new_at_ms: int = 0
    verified: Verified | None = None


@dataclass(frozen=True, slots=True)
class Overview:
    """A mirror. `runs_on` names its process; None if it does not run."""

    name: str
    lake: str
    runs_on: str | None
    status: Status | None  # as of the last process
    tables: tuple[TableOverview, ...]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        fields = asdict(self)
        fields["running"] = self.runs_on is not None
        return fields


def overview(settings: MirrorSettings) -> Overview:
    """Read it from the lake. Raises LakeError."""
    folder = open_folder(settings.lake, settings.folder)
    states = States(folder).read_all()
    results = VerifyResults(folder).read_all()
    copies = folder.below("copies")
    return Overview(
        settings.name,
        settings.lake.path,
        holder(folder),
        read_status(folder),
        tuple(
            _table(states[name], copies, results.get(name)) for name in sorted(states)
        ),
    )


def _table(
    state: TableState, copies: Folder, result: VerifyResult | None
) -> TableOverview:
    rows, done, chunks = state.rows, 0, 0
    if state.phase is Phase.COPYING:
        rows, done, chunks = _copied(copies.below(state.copy_id))
    return TableOverview(
        str(state.source),
        state.target,
        state.phase.value,
        rows,
        state.copies,
        state.message,
        state.updated_at_ms,
        done,
        chunks,
        state.rows_expected,
        state.due_at_ms,
        state.old_since_ms if state.phase in _OLD else 0,
        _end_of_copy(state.updated_at_ms, done, chunks),
        None
        if result is None
        else Verified(result.outcome, result.at_ms, result.differing, result.problem),
    )


def _end_of_copy(began_ms: int, done: int, chunks: int) -> int:
    """Return when a copy will be done if it continues as it began; 0: unknown."""
    if not done or done >= chunks:
        return 0
    now_ms = time.time() * 1000
    return round(now_ms + (now_ms - began_ms) / done * (chunks - done))


def _copied(folder: Folder) -> tuple[int, int, int]:
    """Return a copy's progress: rows, finished chunks, all chunks."""
    plan = CopyPlan.read(folder)
    if plan is None:
        return 0, 0, 0
    names = set(folder.names())
    numbers = [
        chunk.number
        for chunk in plan.chunks
        if ChunkManifest.name(chunk.number) in names
    ]
    found = [ChunkManifest.read(folder, number) for number in numbers]
    rows = sum(each.rows for each in found if each is not None)
    return rows, len(numbers), len(plan.chunks)


# --- as text --------------------------------------------------------------------------


def as_text(found: Overview) -> Iterator[str]:
    """Yield lines for a person."""
    now_ms = time.time() * 1000
    yield _first_line(found, now_ms)
    if found.status is not None:
        status = found.status
        is_silent = now_ms - status.updated_at_ms > SILENT_S * 1000
        if found.runs_on is None or is_silent:
            status = replace(
                status, caught_up=False
            )  # it was so when the status was stored
        yield _stream_line(status, now_ms)
        if found.runs_on is None and found.status.message:
            yield f"ended: {found.status.message}"
        elif found.status.failing:
            yield _failing_line(found.status, now_ms)
        if found.runs_on is not None and found.status.spark:
            yield found.status.spark
        if found.runs_on is not None and is_silent:
            yield (
                f"it has stored nothing for {_ago(now_ms, status.updated_at_ms)}: if "
                "the lake is full or cannot be written, its log says why"
            )
    yield ""
    yield from aligned([HEADINGS, *(_row(each, now_ms) for each in found.tables)])
    for each in found.tables:
        yield from _table_lines(each, now_ms)
    yield from _verified(found.tables, now_ms)
    if not found.tables:
        yield "no table has been started yet"
    if found.status is not None:
        yield from (f"warning: {each}" for each in found.status.warnings)


def _verified(tables: Sequence[TableOverview], now_ms: float) -> Iterator[str]:
    """Yield what comparisons with the source have found, if there were any."""
    compared = [(each.table, each.verified) for each in tables if each.verified]
    if not compared:
        return
    counts = Counter(result.outcome for _, result in compared)
    oldest_ms = min(result.at_ms for _, result in compared)
    numbers = ", ".join(f"{count:,} {outcome}" for outcome, count in counts.items())
    yield (
        f"verify: {numbers}, of {len(tables):,} tables; the oldest result is "
        f"{duration((now_ms - oldest_ms) / 1000)} old"
    )
    for table, result in compared:
        ago = f"{_ago(now_ms, result.at_ms)} ago"
        if result.differing:
            yield f"{table}: {result.differing:,} or more rows differed {ago}"
        elif result.problem:
            yield f"{table}: could not be compared {ago}: {result.problem}"


def _first_line(found: Overview, now_ms: float) -> str:
    head = f"mirror {found.name} into {found.lake}"
    status = found.status
    if found.runs_on is None:
        if status is None:
            return f"{head}: not running"
        if status.ended_at_ms == 0:
            ago = _ago(now_ms, status.updated_at_ms)
            return (
                f"{head}: not running; it was killed, or crashed: its last status is "
                f"{ago} old"
            )
        ended_at_ms = status.ended_at_ms or status.updated_at_ms
        return f"{head}: not running; stopped {_ago(now_ms, ended_at_ms)} ago"
    if status is None:
        return f"{head}: {found.runs_on}"
    return f"{head}: {found.runs_on}, up {_ago(now_ms, status.started_at_ms)}"


def _stream_line(status: Status, now_ms: float) -> str:
    last = status.last
    if last is None:
        return "stream: no batch yet"
    delay = f"delay {last.delay_ms / 1000:.1f} s, " if last.delay_ms >= 0 else ""
    if status.caught_up:
        delay = "caught up, "
    position = f", up to {last.journal}:{last.position}" if last.journal else ""
    return (
        f"stream: {delay}{status.rows_per_second:,.0f} rows/s, last batch "
        f"{last.rows:,} rows in {last.seconds:.2f} s, {_ago(now_ms, last.at_ms)} ago"
        f"{position}"
    )


def _table_lines(table: TableOverview, now_ms: float) -> Iterator[str]:
    if table.message:
        yield f"{table.table}: {table.message}"
    if table.old_since_ms:
        yield f"{table.table}: {_old_line(table, now_ms)}"


def _old_line(table: TableOverview, now_ms: float) -> str:
    """Return since when the lake's rows are old, and when they will be new."""
    text = f"the lake has its rows as of {_time(table.old_since_ms)}"
    if table.new_at_ms:
        left = duration((table.new_at_ms - now_ms) / 1000)
        return f"{text}; the copy will be done in about {left}"
    if table.due_at_ms > now_ms:
        return f"{text}; it is copied again at {_time(table.due_at_ms)}"
    return text


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000).astimezone().isoformat(" ", "seconds")


def _failing_line(status: Status, now_ms: float) -> str:
    since = datetime.fromtimestamp(status.failing_since_ms / 1000).astimezone()
    return (
        f"the stream has been failing since {since.isoformat(timespec='seconds')} "
        f"({_ago(now_ms, status.failing_since_ms)}): {status.failing}"
    )


def _row(table: TableOverview, now_ms: float) -> tuple[str, ...]:
    phase = table.phase
    if table.chunks:
        phase = f"{phase} {table.chunks_done / table.chunks:.0%}"
    if table.due_at_ms > now_ms:
        phase = f"{phase}, {duration((table.due_at_ms - now_ms) / 1000)} left"
    return (
        table.table,
        phase,
        f"{table.rows:,}",
        table.target,
        f"{_ago(now_ms, table.since_ms)} ago",
    )


def _ago(now_ms: float, at_ms: int) -> str:
    return duration((now_ms - at_ms) / 1000)


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows of a table with numbers aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width)
            if cell.replace(",", "").isdecimal()
            else cell.ljust(width)
            for cell, width in zip(row, widths, strict=True)
        ]
        yield "  ".join(cells).rstrip()
