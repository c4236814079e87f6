"""Compares source and copy at one position: counts, checksums, and rows that differ.

The source is read between two binlog positions: L before the read and H after it. A row
whose key did not change between them is the same at every position in between; for the
other rows the changes show what it was. So the source is known at the copy's position
P, unless P is before H. If P stays before H, keys that changed after P are left out and
counted. A table without a key is read while it does not change; then its changes are
added to the older side.

Leaves out the work of the executors (`verify_rows`, `verify_changes`) and the sums
(`verify_compare`).
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812  # its usual name
from pyspark.storagelevel import StorageLevel

from canal_server.errors import CanalError, ConfigError, LakeError, SourceError
from canal_server.messages.mirror import mirror_run_messages
from canal_server.mirror.follow.foreign_keys import hidden_keys
from canal_server.mirror.lake import masks
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.session.spark_errors import reason
from canal_server.mirror.session.spark_session import end_session, hush, open_session
from canal_server.mirror.state.known_tables import known_tables
from canal_server.mirror.state.state import Phase
from canal_server.mirror.state.verify_results import VerifyResult, VerifyResults
from canal_server.mirror.verify.verify_changes import HashedChanges
from canal_server.mirror.verify.verify_compare import at_position, compare, last_changes
from canal_server.mirror.verify.verify_positions import DroppedError, Positions
from canal_server.mirror.verify.verify_report import (
    DIFFERENT,
    DROPPED,
    EQUAL,
    FAILED,
    LOG,
    TableReport,
    totals_of,
)
from canal_server.mirror.verify.verify_rows import HASHED_TYPES, Hashed, RowForm
from canal_server.mirror.verify.verify_show import Rows
from canal_server.mirror.verify.verify_source import SourceRows
from canal_server.mysql.control_connection import ControlConnection
from canal_server.runtime.lifecycle import Stop
from canal_server.spark.options.offsets import version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.settings.table_values import MirrorTable, TableName
    from canal_server.mirror.verify.verify_compare import Compared
    from canal_server.mirror.verify.verify_positions import CopyPosition
    from canal_server.mirror.verify.verify_rows import Reader

log = logging.getLogger(__name__)

TRIES: Final = 5  # per table: its columns or, without a key, its rows may change
ROWS_SHOWN: Final = 10
WAIT_S: Final = 60.0
_COMPARED: Final = ("k1", "k2", "h", "n", "share")


class _RetryNeeded(Exception):  # noqa: N818  # asks for another read of the table
    """What was read cannot be compared; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """How to compare: rows to show, how long to wait for a copy that lags, the load."""

    rows_shown: int = ROWS_SHOWN
    wait_s: float = WAIT_S
    tasks: int = 0  # that read the copy at a time; 0: as many as there are cores


def verify(
    spark: SparkSession,
    settings: MirrorSettings,
    names: Sequence[TableName],
    wishes: Wishes | None = None,
    log_line: Callable[[str], None] = log.info,
) -> list[TableReport]:
    """Compare tables with their copies; a failure is part of its report."""
    wishes = wishes or Wishes()

    def compare_one(name: TableName) -> TableReport:
        log_line(f"{name}: comparing")
        return verify_table(spark, settings, name, wishes)

    # A single table uses all connections.
    at_once = min(settings.copy.tables_at_once, max(1, len(names)))
    settings = replace(settings, copy=replace(settings.copy, tables_at_once=at_once))
    with ThreadPoolExecutor(at_once, "verify") as pool:
        return list(pool.map(compare_one, names))


def verify_table(
    spark: SparkSession,
    settings: MirrorSettings,
    name: TableName,
    wishes: Wishes,
    stop: Stop | None = None,
) -> TableReport:
    """Compare a table with its copy; a failure is part of the report."""
    started = time.monotonic()
    report = _report(_TableVerify(spark, settings, name, wishes, stop or Stop()))
    return replace(report, seconds=time.monotonic() - started)


def mirrored(settings: MirrorSettings) -> list[TableName]:
    """Return the tables that readers see in the lake, except dropped ones.

    Raises LakeError.
    """
    states = known_tables(settings)
    return sorted(
        name
        for name, state in states.items()
        if state.phase is not Phase.DROPPED and not settings.is_shadow(name)
    )


def run(
    settings: MirrorSettings,
    names: Sequence[TableName] = (),
    wishes: Wishes | None = None,
    log_line: Callable[[str], None] = log.info,
) -> list[TableReport]:
    """Compare tables (default: all that the mirror knows) in a separate session.

    Raises LakeError, ConfigError.
    """
    known = mirrored(settings)
    names = names or known
    if not names:
        return []
    spark = open_session(settings)
    try:
        hush(spark)
        reports = verify(spark, settings, names, wishes, log_line)
        _keep(settings, names, reports)
        return with_warnings(settings, reports)
    finally:
        end_session(spark)


def _keep(
    settings: MirrorSettings, names: Sequence[TableName], reports: Sequence[TableReport]
) -> None:
    """Store the results in the lake, for the metrics of the mirror."""
    now_ms = round(time.time() * 1000)
    try:
        results = VerifyResults(open_folder(settings.lake, settings.folder))
        for name, report in zip(names, reports, strict=True):
            if report.outcome in (EQUAL, DIFFERENT, FAILED):
                found = report.outcome, now_ms, report.differing, report.problem
                results.write(VerifyResult(name, *found))
    except LakeError as error:  # perhaps this account may only read it
        mirror_run_messages.MIRROR_VERIFY_NOT_STORED.log(log, error)


def with_warnings(
    settings: MirrorSettings, reports: Sequence[TableReport]
) -> list[TableReport]:
    """Add warnings of foreign keys that may make a copy differ.

    If the keys cannot be listed, the warning gives the reason.
    """
    try:
        with ControlConnection(settings.source.access) as connection:
            keys = hidden_keys(connection, settings)
    except SourceError as error:
        why = f"cannot list the foreign keys of the source: {error}"
        return [replace(report, warnings=(why,)) for report in reports]
    found: dict[str, list[str]] = {}
    for each in keys:
        if each.warning:
            found.setdefault(str(each.child), []).append(each.warning)
    return [
        replace(report, warnings=tuple(found.get(report.table, ())))
        for report in reports
    ]


def _report(table: _TableVerify) -> TableReport:
    why = ""
    for _ in range(TRIES):
        try:
            return table.compared()
        except _RetryNeeded as error:
            why = str(error)
        except DroppedError as dropped:
            return table.dropped(dropped)
        except ConfigError as error:
            return table.failed("; ".join(error.problems))
        except (CanalError, PySparkException, OSError, ValueError) as error:
            return table.failed(_in_one_line(error))
    return table.failed(f"{why}, {TRIES} times; retry at a quieter time")


def _in_one_line(error: Exception) -> str:
    if isinstance(error, PySparkException):
        return reason(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else repr(error)


@dataclass(frozen=True, slots=True)
class _Span:
    """Position numbers: before and after the read, and of the copy."""

    before: int
    after: int
    copy: int

    @property
    def first(self) -> int:
        """Return where differences may start: earlier changes are on both sides."""
        return min(self.before, self.copy)

    @property
    def last(self) -> int:
        """Return where differences may end: later changes are on neither side."""
        return max(self.after, self.copy)


class _TableVerify:
    """Compares one table; every try starts from scratch."""

    def __init__(
        self,
        spark: SparkSession,
        settings: MirrorSettings,
        name: TableName,
        wishes: Wishes,
        stop: Stop,
    ) -> None:
        self._spark = spark
        self._stop = stop
        self._settings = settings
        self._name = name
        self._wishes = wishes
        self._report = TableReport(table=str(name), target="", outcome=EQUAL)

    def failed(self, problem: str) -> TableReport:
        """Return a report that gives the reason why it was not compared."""
        return replace(self._report, outcome=FAILED, problem=problem)

    def dropped(self, why: DroppedError) -> TableReport:
        """Return a report of a table that the source has dropped."""
        return replace(
            self._report, outcome=DROPPED, target=why.target, problem=str(why)
        )

    def compared(self) -> TableReport:
        """Read both sides and compare them.

        Raises _RetryNeeded when the table must be read again, CanalError and what Spark
        raises.
        """
        with Positions(self._settings, self._name, self._stop) as positions:
            table = positions.table()
            self._report = replace(self._report, target=table.target)
            if table.is_log:
                problem = "is a log of changes, not a copy"
                return replace(self._report, outcome=LOG, problem=problem)
            form = _form(table)
            before = positions.before_reading()
            reader = self._source_rows(positions, table)
            connections = self._settings.copy.connections_each
            source = _cached(self._read(reader, len(reader.chunks), connections, form))
            after = positions.head()
            position = positions.copy(table, after, self._wishes.wait_s)
            copy = positions.rows(table, position, form.schema)
            span = _Span(version_of(before), version_of(after), position.upto)
            start = min(before, position.known, key=version_of)
            options = positions.changes(start, positions.head())
        changes = self._spark.read.format("canal").options(**options).load()
        task = HashedChanges(table, form)
        seq = F.col("seq")
        hashed = changes.mapInArrow(task, HASHED_TYPES)
        hashed = _cached(hashed.where((seq >= span.first) & (seq < span.last)))
        self._check(hashed, span, position)
        tasks = self._wishes.tasks or self._spark.sparkContext.defaultParallelism
        sides = source, self._read(copy, copy.files, tasks, form)
        compare_rows = self._keyed if table.key else self._keyless
        found, left_out = compare_rows(sides, hashed, span)
        rows = Rows(self._spark, table, form, reader, copy, changes)
        return replace(
            self._report,
            outcome=DIFFERENT if found.differing else EQUAL,
            position=str(position),
            source=totals_of(found.source),
            copy=totals_of(found.copy),
            left_out=left_out,
            differing=found.differing,
            is_all=found.is_all,
            first=rows.differences(found.first),
        )

    def _check(self, changes: DataFrame, span: _Span, position: CopyPosition) -> None:
        """Raise if a statement changed the table beyond what row changes show."""
        ddl = changes.where("n = 0").agg(F.min("seq"), F.max("seq")).first()
        assert ddl is not None  # an aggregate without groups has one row
        if ddl[0] is None:
            return
        if span.before <= ddl[1]:
            raise _RetryNeeded(
                "its columns changed, or it was emptied, while it was read"
            )
        raise LakeError(
            f"the copy is at {position}; after that the table's columns changed, or it "
            "was emptied: let the mirror run until it has applied this"
        )

    def _keyed(
        self, sides: tuple[DataFrame, DataFrame], changes: DataFrame, span: _Span
    ) -> tuple[Compared, int]:
        """Compare as of the copy's position, without keys that changed after it."""
        if changes.isEmpty():
            return compare(*sides, self._wishes.rows_shown), 0
        last = _cached(last_changes(changes))
        left_out = last.where(F.col("seq") >= span.copy).count()
        sides = at_position(*sides, last, span.copy)
        return compare(*sides, self._wishes.rows_shown), left_out

    def _keyless(
        self, sides: tuple[DataFrame, DataFrame], changes: DataFrame, span: _Span
    ) -> tuple[Compared, int]:
        """Add the changes between read and copy to the older of the two sides."""
        seq = F.col("seq")
        meanwhile = changes.where((seq >= span.before) & (seq < span.after))
        if not meanwhile.isEmpty():
            raise _RetryNeeded("it has no key, and changed while it was read")
        older = int(span.copy < span.after)  # the copy, else the source
        source, copy = (
            side.unionByName(changes.select(*_COMPARED)) if number == older else side
            for number, side in enumerate(sides)
        )
        return compare(source, copy, self._wishes.rows_shown), 0

    def _source_rows(self, positions: Positions, table: MirrorTable) -> SourceRows:
        rows_per_s = self._settings.copy.rows_per_connection
        access = self._settings.source.read_from
        return SourceRows(access, table, positions.chunks(table), rows_per_s)

    def _read(
        self, reader: Reader, shares: int, tasks: int, form: RowForm
    ) -> DataFrame:
        """Return the hashes of the rows of `shares`, spread over `tasks` tasks."""
        numbers = self._spark.range(0, shares, 1, max(1, min(shares, tasks)))
        hashed = numbers.mapInArrow(Hashed(reader, form), HASHED_TYPES)
        return hashed.select(*_COMPARED)


def _form(table: MirrorTable) -> RowForm:
    schema = masks.lake_schema(table)
    targets = {column.name: column.target for column in table.columns}
    key = tuple(targets[name] for name in table.key)
    return RowForm(tuple(schema.names), key, schema)


def _cached(rows: DataFrame) -> DataFrame:
    """Return rows that are read once, now, and cached.

    Losing an executor loses its rows, which is an error: another read would give rows
    of a later moment.
    """
    return rows.localCheckpoint(eager=True, storageLevel=StorageLevel.DISK_ONLY)
