"""The metrics of a mirror, made of what it counted and of what was looked up."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from canal_server.doors.prometheus.metric_families import Families, info
from canal_server.mirror.report.mirror_counts import SECONDS_BOUNDS, Counts
from canal_server.mirror.state.state import Phase, TablesNow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from canal_server.doors.prometheus.metric_families import Metric
    from canal_server.mirror.lake.lake_table import Size
    from canal_server.mirror.settings.table_values import TableName
    from canal_server.mirror.state.state import TableState
    from canal_server.mirror.state.verify_results import VerifyResult

STATES: Final = {  # of tables, and what they mean
    "waiting": "to be copied",
    "copying": "is being copied",
    "catching_up": "copied; what changed since then is read outside the stream",
    "following": "part of the stream",
    "stopped": "needs a decision of a person",
    "dropped": "dropped in the source; its copy stays unchanged",
}
OUTCOMES: Final = {  # of comparisons, and what they mean
    "equal": "source and copy were equal",
    "different": "rows differed",
    "not_compared": "the comparison failed",
}
_BOUNDS: Final = [*map(str, SECONDS_BOUNDS), "+Inf"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorReading:
    """What a mirror shows at one moment."""

    mirror: str
    destination: str
    version: str
    counts: Counts
    tables: TablesNow = field(default_factory=TablesNow)
    sizes: Mapping[TableName, Size] = field(default_factory=dict)
    verified: Mapping[TableName, VerifyResult] = field(default_factory=dict)
    lacking: int | None = None  # transactions
    is_caught_up: bool = False
    warnings: int = 0
    lacks_executors: bool = False
    memory: Mapping[str, int] = field(default_factory=dict)


def mirror_metrics(reading: MirrorReading) -> Iterator[Metric]:
    """Yield all metrics of a mirror."""
    yield info(
        "canal_mirror_info",
        "This mirror",
        mirror=reading.mirror,
        destination=reading.destination,
        version=reading.version,
    )
    families = Families()
    _add_stream(families, reading)
    _add_process(families, reading)
    for state in reading.tables.states.values():
        _add_table(families, reading, state)
        _add_lake(families, reading, state)
        _add_verified(families, reading, state)
    yield from families.all()


def _add_stream(families: Families, reading: MirrorReading) -> None:
    counts, now_s = reading.counts, time.time()
    labels = {"mirror": reading.mirror}
    lag_s = 0.0 if reading.is_caught_up else counts.lag_s(now_s)
    if lag_s is not None:
        families.gauge(
            "canal_mirror_lag_seconds",
            "For how long the lake may lack changes; 0 if the last poll brought nothing"
            " new",
            lag_s,
            **labels,
        )
    lacking = 0 if reading.is_caught_up else reading.lacking
    if lacking is not None:
        families.gauge(
            "canal_mirror_lag_transactions",
            "Transactions that the source has executed and the stream has not read,"
            " those of other tables included; missing without GTIDs",
            lacking,
            **labels,
        )
    since_ms = counts.failing_since_ms
    families.gauge(
        "canal_mirror_failing_seconds",
        "How long the stream has been failing; 0 if it works",
        max(0.0, now_s - since_ms / 1000) if since_ms else 0.0,
        **labels,
    )
    for suffix, help_, value in (
        ("stream_failures", "Failures of the stream, or of its start", counts.failures),
        (
            "stream_restarts",
            "Starts of the stream after the first one",
            max(0, counts.starts - 1),
        ),
        (
            "received_rows",
            "Changed rows received from the server",
            counts.received_rows,
        ),
    ):
        families.counter(f"canal_mirror_{suffix}_total", help_, value, **labels)
    families.histogram(
        "canal_mirror_batch_seconds",
        "Time that batches of the stream took to be written to the lake",
        labels,
        bounds=_BOUNDS,
        numbers=counts.batch_numbers,
        sum_=counts.batch_s,
    )
    if counts.batches:
        families.gauge(
            "canal_mirror_last_batch_timestamp_seconds",
            "When the last batch was in the lake",
            counts.batch_at_ms / 1000,
            **labels,
        )
    if counts.delay_ms >= 0:
        families.gauge(
            "canal_mirror_delay_seconds",
            "Time from the commit of the last batch's newest change until it was in the"
            " lake",
            counts.delay_ms / 1000,
            **labels,
        )


def _add_process(families: Families, reading: MirrorReading) -> None:
    labels = {"mirror": reading.mirror}
    for state, number in reading.tables.copies().items():
        families.gauge(
            "canal_mirror_copies",
            "Tables whose copy is running, or pending",
            number,
            state=state,
            **labels,
        )
    families.gauge(
        "canal_mirror_warnings",
        "Warnings about lasting conditions that `mirror status` shows",
        reading.warnings,
        **labels,
    )
    families.gauge(
        "canal_mirror_spark_waiting",
        "Whether Spark has jobs of the mirror but no executor for them",
        float(reading.lacks_executors),
        **labels,
    )
    for kind, size in reading.memory.items():
        families.gauge(
            "canal_mirror_memory_bytes",
            "Resident memory of the mirror's processes on this machine",
            size,
            process=kind,
            **labels,
        )
    for (level, message, table), number in sorted(reading.counts.messages.items()):
        families.counter(
            "canal_mirror_messages_total",
            "Warnings and errors of the log, by the name of the message; `table` is"
            " empty where no table is concerned",
            number,
            level=level,
            message=message,
            table=table,
            **labels,
        )


def _labels(reading: MirrorReading, state: TableState) -> dict[str, str]:
    return {"mirror": reading.mirror, "table": str(state.source)}


def _add_table(families: Families, reading: MirrorReading, table: TableState) -> None:
    labels = _labels(reading, table)
    now = table.phase.value.replace("-", "_")
    for state in STATES:
        families.gauge(
            "canal_mirror_table_state",
            "1 for the state of the table",
            float(state == now),
            state=state,
            **labels,
        )
    families.counter(
        "canal_mirror_table_copies_total",
        "Copies of the table that were started, also before the mirror's last start",
        table.copies,
        **labels,
    )
    counted = reading.counts.tables.get(table.source)
    for suffix, help_, rows in (
        ("copied_rows", "Rows copied", counted.copied_rows if counted else 0),
        (
            "stream_rows",
            "Rows inserted, updated or deleted in the lake by the stream",
            counted.stream_rows if counted else 0,
        ),
    ):
        families.counter(f"canal_mirror_table_{suffix}_total", help_, rows, **labels)
    copy = reading.counts.copies.get(table.source)
    if copy is None or table.phase is not Phase.COPYING:
        return
    for suffix, help_, value in (
        ("rows", "Rows of the running copy so far", copy.rows),
        (
            "expected_rows",
            "Rows that the database estimates for the running copy; 0: unknown",
            copy.rows_expected,
        ),
        ("chunks", "Chunks of the running copy", copy.chunks),
        ("done_chunks", "Finished chunks of the running copy", copy.chunks_done),
    ):
        families.gauge(f"canal_mirror_table_copy_{suffix}", help_, value, **labels)


def _add_lake(families: Families, reading: MirrorReading, table: TableState) -> None:
    labels = _labels(reading, table)
    size = reading.sizes.get(table.source)
    counted = reading.counts.tables.get(table.source)
    written_ms = max(
        size.committed_ms if size else 0, counted.written_ms if counted else 0
    )
    newest_ms = max(size.newest_ms if size else 0, counted.newest_ms if counted else 0)
    for suffix, help_, at_ms in (
        ("last_commit", "When the table was last written in the lake", written_ms),
        (
            "newest_change",
            "When the newest change in the lake's table was committed in the source",
            newest_ms,
        ),
    ):
        if at_ms:
            families.gauge(
                f"canal_mirror_table_{suffix}_timestamp_seconds",
                help_,
                at_ms / 1000,
                **labels,
            )
    if size is None:
        return
    families.gauge(
        "canal_mirror_table_files", "Files of the newest version", size.files, **labels
    )
    families.gauge(
        "canal_mirror_table_bytes",
        "Size of the files of the newest version",
        size.bytes,
        **labels,
    )
    if size.version >= 0:
        families.gauge(
            "canal_mirror_table_version",
            "Newest version of a table; of Iceberg tables the sequence number",
            size.version,
            **labels,
        )


def _add_verified(
    families: Families, reading: MirrorReading, table: TableState
) -> None:
    found = reading.verified.get(table.source)
    if found is None:
        return
    labels = _labels(reading, table)
    now = found.outcome.replace(" ", "_")
    for outcome in OUTCOMES:
        families.gauge(
            "canal_mirror_table_verified",
            "1 for the outcome of the last comparison of the table with its source",
            float(outcome == now),
            outcome=outcome,
            **labels,
        )
    families.gauge(
        "canal_mirror_table_verified_timestamp_seconds",
        "When the last comparison of the table with its source ended",
        found.at_ms / 1000,
        **labels,
    )
    families.gauge(
        "canal_mirror_table_different_rows",
        "Rows that differed at the last comparison of the table, at least",
        found.differing,
        **labels,
    )
