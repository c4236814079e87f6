"""Compares tables with their source on a schedule, in the process of the mirror.

One table at a time, the one that was compared longest ago first, with one connection
to the database and with one of Spark's cores left to the stream. Nothing is compared
while tables are copied. Leaves out how a table is compared (`verify`).
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from canal_server.errors import LakeError
from canal_server.messages.mirror import mirror_run_messages, mirror_table_messages
from canal_server.mirror.session.spark_session import cores_of
from canal_server.mirror.settings.table_values import LOGS
from canal_server.mirror.state.state import Phase
from canal_server.mirror.state.verify_results import VerifyResult, VerifyResults
from canal_server.mirror.verify.verify_report import (
    DIFFERENT,
    EQUAL,
    FAILED,
    TableReport,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from concurrent.futures import Future

    from canal_server.mirror.lake.lake_storage import Folder
    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.settings.table_values import TableName
    from canal_server.mirror.state.state import TablesNow, TableState
    from canal_server.runtime.lifecycle import Stop

    Compare = Callable[[TableName], TableReport]

log = logging.getLogger(__name__)

CANCEL_S: Final = 0.5  # between two attempts to end Spark's jobs
RETRY_S: Final = 3600.0  # after a comparison that failed, unless `every` is shorter
_GROUP: Final = "verify"  # of Spark's jobs


class VerifySchedule:
    """Starts comparisons that are due; for one thread, which is not held up."""

    def __init__(
        self,
        settings: MirrorSettings,
        folder: Folder,
        compare: Compare,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Set the mirror's own folder, and what compares a table."""
        self._settings = settings
        self._results = VerifyResults(folder)
        self._compare = compare
        self._wall = wall
        self._known: dict[TableName, VerifyResult] | None = None
        self._met: set[TableName] = set()  # compared by this process
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="verify")
        self._work: tuple[TableState, Future[TableReport]] | None = None

    def poll(self, tables: TablesNow, *, is_once: bool = False) -> bool:
        """Start the next comparison; returns whether one runs.

        `is_once`: no table is compared twice, however short its period is, so that this
        comes to an end. Raises LakeError.
        """
        if not self._settings.verify.every_s:
            return False
        if self._work is not None:
            before, work = self._work
            if not work.done():
                return True
            self._work = None
            self._ended(before, work, tables.states.get(before.source))
        if tables.running:
            return False
        due = self._next(tables, self._met if is_once else ())
        if due is None:
            return False
        self._met.add(due)
        self._work = tables.states[due], self._pool.submit(self._compare, due)
        return True

    def close(self, cancel: Callable[[], None]) -> None:
        """End the thread; `cancel` ends what it waits for, perhaps repeatedly."""
        if self._work is not None:
            while not wait([self._work[1]], CANCEL_S).done:
                cancel()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _next(
        self, tables: TablesNow, left_out: Collection[TableName]
    ) -> TableName | None:
        """Return the table that was compared longest ago, if it is due."""
        known = self._read()
        now = self._wall()
        due = [
            (known[name].at_ms if name in known else 0, name)
            for name, state in tables.states.items()
            if state.phase is Phase.FOLLOWING
            and name not in left_out
            and self._applies_to(name)
            and (name not in known or self._is_due(known[name], now))
        ]
        return min(due)[1] if due else None

    def _applies_to(self, name: TableName) -> bool:
        rule = self._settings.rule_of(name)
        is_copy = rule is not None and rule.form not in LOGS
        # What an online schema change makes is not for readers yet.
        is_shadow = self._settings.is_shadow(name)
        return is_copy and not is_shadow and self._settings.verify.applies_to(name)

    def _is_due(self, result: VerifyResult, now: float) -> bool:
        every_s = self._every_s(result.outcome)
        # A time in the future is of a clock that was set back.
        return not 0 <= now - result.at_ms / 1000 < every_s

    def _every_s(self, outcome: str) -> float:
        every_s = self._settings.verify.every_s
        return min(every_s, RETRY_S) if outcome == FAILED else every_s

    def _read(self) -> dict[TableName, VerifyResult]:
        if self._known is None:
            self._known = self._results.read_all()
        return self._known

    def _ended(
        self, before: TableState, work: Future[TableReport], now: TableState | None
    ) -> None:
        """Record what a comparison has found.

        `before` and `now` are the table's states, when it was started and now.
        """
        name, fault = before.source, work.exception()
        if fault is None:
            report = work.result()
        else:  # a bug, or Spark has ended, which the stream meets as well
            text = f"internal error: {fault!r}"[:500]
            report = TableReport(
                table=str(name), target="", outcome=FAILED, problem=text
            )
        if report.outcome == FAILED and not _is_unchanged(before, now):
            log.info("%s: changed while it was compared: %s", name, report.problem)
            return
        result = VerifyResult(
            name,
            report.outcome,
            round(self._wall() * 1000),
            report.differing,
            report.problem,
        )
        self._read()[name] = result  # it is not due, even if it cannot be stored
        if report.outcome == DIFFERENT:
            least = "" if report.is_all else "at least "
            many = f"{least}{report.differing:,} row{'s'[: report.differing != 1]}"
            mirror_table_messages.MIRROR_TABLE_DIFFERS.log(
                log, name, many, report.position
            )
        elif report.outcome == FAILED:
            mirror_table_messages.MIRROR_TABLE_NOT_COMPARED.log(
                log,
                name,
                report.problem,
                f"{self._every_s(FAILED):.0f} s",
                exc_info=fault,
            )
        else:
            log.info("%s: its copy is as the source: %s", name, report.outcome)
        if report.outcome not in (EQUAL, DIFFERENT, FAILED):
            return
        try:
            self._results.write(result)
        except LakeError as error:
            mirror_run_messages.MIRROR_VERIFY_NOT_STORED.log(log, error)


def _is_unchanged(before: TableState, now: TableState | None) -> bool:
    """Check whether no statement has changed a table since its comparison began."""
    return (
        now is not None
        and now.phase is Phase.FOLLOWING
        and (now.columns, now.copy_id) == (before.columns, before.copy_id)
    )


def comparing(
    spark: Any, settings: MirrorSettings, stop: Stop, *, wait_s: float
) -> Compare:
    """Return a function that compares a table beside the stream, in one session.

    `wait_s` is how long it waits for a copy that lags.
    """
    limits = replace(
        settings.copy,
        connections=1,
        tables_at_once=1,
        rows_per_second=settings.verify.rows_per_second,
    )
    settings = replace(settings, copy=limits)

    def compare(name: TableName) -> TableReport:
        # Loads pyspark's SQL, which a mirror without a schedule does not need.
        from canal_server.mirror.verify.verify import (  # noqa: PLC0415
            Wishes,
            verify_table,
        )

        tasks = max(1, cores_of(spark) - 1)
        spark.sparkContext.setJobGroup(_GROUP, f"compare {name}", True)
        wishes = Wishes(rows_shown=0, wait_s=wait_s, tasks=tasks)
        return verify_table(spark, settings, name, wishes, stop)

    return compare


def end_jobs(spark: Any) -> None:
    """Cancel the comparison's jobs, whose thread then ends."""
    spark.sparkContext.cancelJobGroup(_GROUP)
