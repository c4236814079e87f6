"""The mirror as a whole: the selected tables, their copies, and the stream.

::

    run ── TableSync (threads: copy, catch up, join) ──► ChangeStream ──► lake
      └─── Query (Spark's stream of all tables)  ───────────┘

All state is in the lake and in Spark's checkpoint: a mirror that was killed resumes
when it is started again.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from canal_server.errors import (
    CanalError,
    ConfigError,
    ConnectionLost,
    LakeError,
    SourceError,
)
from canal_server.messages.mirror import mirror_run_messages
from canal_server.mirror.copy.copy_watch import CopyWatches
from canal_server.mirror.follow.dropped_tables import DroppedTables
from canal_server.mirror.follow.key_changes import KeyChanges
from canal_server.mirror.follow.micro_batches import ChangeStream
from canal_server.mirror.follow.partition_watch import PartitionWatch
from canal_server.mirror.follow.spark_query import Query
from canal_server.mirror.follow.stream_start import DataLossError, begin_stream
from canal_server.mirror.follow.upkeep import Upkeep
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.report.mirror_counts import MirrorCounts
from canal_server.mirror.report.report import Report
from canal_server.mirror.rows.copy_positions import latest, warn_of_unseen_xa
from canal_server.mirror.run.ending import INTERRUPTED, Ending, Seen, check_stopped
from canal_server.mirror.run.resume import Resume, look
from canal_server.mirror.run.table_schedule import TableSchedule
from canal_server.mirror.run.table_sync import TableSync
from canal_server.mirror.run.watching import Shown, Watching
from canal_server.mirror.session.executors import Executors
from canal_server.mirror.session.spark_session import (
    in_settings,
    open_session,
    source_options,
    stop_and_log,
)
from canal_server.mirror.settings.lake_paths import path_warnings
from canal_server.mirror.state.feed import write_feed
from canal_server.mirror.state.known_tables import known_tables
from canal_server.mirror.state.lake_lease import Lease
from canal_server.mirror.state.run_history import read_status
from canal_server.mirror.state.state import Phase, States, TablesNow, TableState
from canal_server.mirror.state.upkeep_times import UpkeepTimes
from canal_server.mirror.verify.verify_schedule import (
    VerifySchedule,
    comparing,
    end_jobs,
)
from canal_server.runtime.backoff import Backoff
from canal_server.spark.options.offsets import version_of
from canal_server.spark.options.servers import Channel
from canal_server.spark.options.source_options import read_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canal_server.client.range_client import RangePosition
    from canal_server.mirror.follow.micro_batches import BatchReport
    from canal_server.mirror.run.progress import Progress
    from canal_server.mirror.run.resume import Selected
    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.settings.table_values import TableName
    from canal_server.mirror.state.feed import Feed
    from canal_server.runtime.lifecycle import Stop

log = logging.getLogger(__name__)

TURN_S: Final = 0.5  # how often requests, failures and due tables are checked
RETRY_FIRST_S: Final = 1.0
SOURCE_RETRY_MAX_S: Final = 10.0
LAG_WAIT_S: Final = 60.0  # how long a comparison waits for the stream
LAKE_RETRY_MAX_S: Final = 10.0  # meanwhile nothing else is checked


class Mirror:
    """Runs until a stop is requested or a problem needs a person.

    With an `ending`, it ends as soon as that decides.
    """

    def __init__(
        self,
        settings: MirrorSettings,
        progress: Progress,
        stop: Stop,
        ending: Ending | None = None,
    ) -> None:
        self._settings = settings
        self._progress = progress
        self._stop = stop
        self._ending = ending
        self._folder = open_folder(settings.lake, settings.folder)
        self._store = States(self._folder)
        self._report = Report(settings, self._folder)
        self._counts = MirrorCounts()
        self._copies = CopyWatches(progress, self._counts)
        self._dropped = DroppedTables(settings, stop)
        self._tables = TableSchedule(
            settings, self._store, self._copies, self._dropped, reached=self._reached
        )
        self._has_checked_xa = False
        self._is_done = False  # only with an ending
        self._stream = ChangeStream(
            settings.canal.destination,
            settings.stream.tables_at_once,
            parts_max=settings.stream.max_partitions,
            on_statement=self._tables.on_statement,
            on_leave=self._tables.on_leave,
            on_batch=self._batch_applied,
        )
        self._keys = KeyChanges(settings, stop, self._stream)
        self._partitions = PartitionWatch(settings, stop, self._stream)
        self._ended_at_ms: int | None = None  # the last run
        self._watching = Watching(
            settings, self._folder, self._counts, self._applied, stop
        )

    def run(self) -> None:
        """Mirror until the end. Raises CanalError for what a person must repair."""
        lease = Lease(self._folder, on_lost=self._stop.request)
        with lease, self._watching:
            self._report.metrics_port = self._watching.port
            for warning in path_warnings(self._settings):
                mirror_run_messages.MIRROR_PATH_DOUBTFUL.log(log, warning)
            try:
                status = read_status(self._folder)
                self._ended_at_ms = None if status is None else status.updated_at_ms
                self._counts.resume(status)
                self._run(lease)
                if lease.lost is not None:  # which has requested the stop
                    raise lease.lost
                self._check_done()
                if not self._is_done:  # which is stored already
                    self._report.end()
            except CanalError as error:
                if lease.lost is None:  # else the status is another process's
                    self._report.end(str(error))
                raise

    def _run(self, lease: Lease) -> None:
        selected = self._await_source()
        if selected is None:
            return
        self._keys.begin(selected.hidden_keys)
        spark = open_session(self._settings)
        work = TableSync(
            self._settings,
            spark,
            self._store,
            self._stream,
            progress=self._copies,
            stop=self._stop,
            is_mariadb=selected.is_mariadb,
            known=self._tables.known,
        )
        self._tables.follow_new = work.follow_new
        query = Query(
            self._settings,
            spark,
            self._stream,
            self._store,
            self._stop,
            on_start=self._counts.started,
            on_failure=self._failed,
            on_idle=self._idle,
            end=self._end if self._ending is not None else None,
        )
        verifying = VerifySchedule(
            self._settings,
            self._folder,
            comparing(
                spark,
                self._settings,
                self._stop,
                # The stream of a mirror that runs once has ended then.
                wait_s=LAG_WAIT_S if self._ending is None else 0.0,
            ),
        )
        pool = ThreadPoolExecutor(
            self._settings.copy.tables_at_once, thread_name_prefix="copy"
        )
        try:
            self._begin(selected, work)
            if self._ending is not None:
                self._partitions.begin()
            query.start()
            self._turns(
                pool, work, query, verifying, lease=lease, executors=Executors(spark)
            )
        finally:
            self._stop.request()  # also ends the copies
            with ExitStack() as ending:  # all of them, even if one raises
                ending.callback(stop_and_log, "Spark", spark.stop)
                ending.callback(self._dropped.close)
                ending.callback(self._keys.close)
                ending.callback(self._partitions.close)
                ending.callback(pool.shutdown, wait=True, cancel_futures=True)
                ending.callback(
                    stop_and_log,
                    "the comparison",
                    partial(verifying.close, partial(end_jobs, spark)),
                )
                ending.callback(stop_and_log, "the stream", query.stop)

    def _check_done(self) -> None:
        """Raise CanalError if the mirror was stopped before it was done."""
        if self._ending is not None and not self._is_done:
            raise CanalError(INTERRUPTED)

    def _await_source(self) -> Selected | None:
        """Return what the servers report; None when a stop is requested first.

        A mirror that has copied tables waits for its source, as it does while it runs;
        before, the settings may be wrong, which is an error.
        """
        backoff = Backoff(RETRY_FIRST_S, SOURCE_RETRY_MAX_S)
        while True:
            known = known_tables(self._settings)
            self._watching.show(Shown(TablesNow(known)))
            try:
                return self._found(known)
            except ConnectionLost as error:
                if not known:
                    raise CanalError(in_settings(str(error))) from error
                self._counts.failed()
                pause_s = backoff.delay_s(time.monotonic())
                mirror_run_messages.MIRROR_SOURCE_UNAVAILABLE.log(
                    log, in_settings(str(error)), pause_s
                )
                if self._ending is not None:
                    self._ending.failed(error)
                if self._stop.wait(pause_s):
                    return None

    def _found(self, known: Mapping[TableName, TableState]) -> Selected | None:
        """Return what the servers report; None when a stop is requested first."""
        try:
            feed = self._begin_stream(known)
            found = look(self._settings, known, self._stop)
            self._stream.feed = replace(feed, source=found.source)
            write_feed(self._folder, self._stream.feed)
        except CanalError as error:
            if self._stop.requested():
                return None
            if isinstance(error, DataLossError):
                raise _copy_all(error) from error
            if isinstance(error, ConnectionLost):
                raise
            if isinstance(error, SourceError):
                raise CanalError(in_settings(str(error))) from error
            raise
        return None if self._stop.requested() else found

    def _begin_stream(self, known: Mapping[TableName, TableState]) -> Feed:
        """Start the stream: tables that are created from now on appear in it."""
        try:
            return begin_stream(
                self._settings,
                self._folder,
                self._store.generation(),
                self._stop,
                is_followed=any(
                    state.phase is Phase.FOLLOWING for state in known.values()
                ),
            )
        except CanalError as error:
            is_first = not known and not isinstance(error, DataLossError)
            if not is_first or self._stop.requested():
                raise
            raise self._with_others(in_settings(str(error))) from error

    def _with_others(self, problem: str) -> CanalError:
        """Return what prevents a first start, with all that the database reports."""
        try:
            look(self._settings, {}, self._stop)
        except ConfigError as error:
            return ConfigError([problem, *error.problems])
        except CanalError as error:
            return CanalError(f"{problem}; {in_settings(str(error))}")
        return CanalError(problem)

    def _turns(
        self,
        pool: ThreadPoolExecutor,
        work: TableSync,
        query: Query,
        verifying: VerifySchedule,
        *,
        lease: Lease,
        executors: Executors,
    ) -> None:
        """Check everything until the end."""
        upkeep = Upkeep(self._settings, self._stream, UpkeepTimes(self._folder))
        backoff = Backoff(RETRY_FIRST_S, LAKE_RETRY_MAX_S)
        pause_s = TURN_S
        while not self._stop.wait(pause_s):
            pause_s = TURN_S
            try:
                self._tables.accept_requests(self._stream)
                self._tables.check_recreated()
                self._tables.check_missing(self._stream)
                self._check_xa()
                self._keys.poll()
                self._partitions.poll()
                self._tables.start_due(pool, work.sync)
                self._look_at(query)
                upkeep.run_next()
                is_comparing = self._compares(verifying, query)
                lease.check()
                if self._ending is None:
                    pass
                elif self._ends(query, self._ending) and not is_comparing:
                    upkeep.run_all(self._stop)
                    self._report_end(self._ending)
                    return
            except LakeError as error:
                if self._ending is not None:
                    self._ending.failed(error)
                # What could not be stored there is found again.
                pause_s = backoff.delay_s(time.monotonic())
                mirror_run_messages.MIRROR_LAKE_FAILED.log(log, error, pause_s)
            problem = executors.problem()
            self._report.store(problem, self._keys.warnings)
            self._show(lacks_executors=bool(problem))

    def _end(self) -> RangePosition:
        """Return the end of the source's binlog."""
        destination = self._settings.canal.destination
        options = read_options(source_options(self._settings))
        channel = Channel(options, destination, stop=self._stop)
        try:
            return latest(self._settings, channel)
        finally:
            channel.close()

    def _compares(self, verifying: VerifySchedule, query: Query) -> bool:
        """Start the next comparison with the source, if any; returns whether one runs.

        A mirror that runs once compares at its end. While the stream fails, a
        comparison would do so as well, for the same reason.
        """
        if not self._settings.verify.every_s or self._report.failure:
            return False
        tables = self._tables.current()
        if self._ending is not None and (
            query.reached is None or tables.copies()["pending"]
        ):
            return False
        if self._ending is not None and tables.running:
            return True  # a table that may have been copied just now is compared, too
        return verifying.poll(tables, is_once=self._ending is not None)

    def _ends(self, query: Query, ending: Ending) -> bool:
        """Check whether everything is in the lake. Raises CanalError if it fails."""
        # In this order: the stream may find new tables until its end.
        reached, failure = query.reached, self._report.failure
        if reached is not None:
            self._keys.reached(reached)
            if self._keys.awaits_stream:
                query.start_again()
        tables, counts = self._tables.current(), self._counts.read()
        copied = sum(each.copied_rows for each in counts.tables.values())
        seen = Seen(
            tables=tables,
            failing=self._tables.failing(),
            reached=reached,
            failure=failure,
            is_settled=self._keys.is_settled,
            is_listed=not self._dropped.is_waiting,
            progress=(counts.batches, copied, tables.phases()[Phase.FOLLOWING]),
        )
        return ending.look(seen)

    def _report_end(self, ending: Ending) -> None:
        """Store that the mirror is done. Raises CanalError for stopped tables."""
        self._report.store("", self._keys.warnings, at_once=True)
        check_stopped(self._tables.current())
        self._is_done = True
        text = f"the lake has everything up to {ending.reached}"
        self._report.end(text)
        log.info("%s", text)

    def _begin(self, selected: Selected, work: TableSync) -> None:
        """Resume each table where it stopped."""

        def join(state: TableState) -> None:
            follower = work.follower_of(state)
            if self._stream.feed is not None:
                follower.reached(version_of(self._stream.feed.position))
            with self._stream.joining:
                self._stream.join(follower)

        resuming = Resume(self._settings, self._store, join, self._ended_at_ms)
        states = resuming.states(selected, self._store.read_all())
        missing = [
            name
            for name in states.keys() - set(selected.names)
            if states[name].phase is Phase.FOLLOWING
        ]
        self._tables.resume(states, missing, selected.end)

    def _batch_applied(self, report: BatchReport) -> None:
        """Store what a batch changed, before Spark records the batch as done."""
        self._tables.on_columns(self._stream.columns())
        if report.feed is not None:
            write_feed(self._folder, report.feed)
        self._report.note(report)
        self._counts.batch(report)
        self._progress.batch(report)

    def _failed(self, why: str) -> None:
        self._report.failed(why)
        self._counts.failed()

    def _idle(self) -> None:
        self._report.idle()
        self._counts.idle()
        self._watching.caught_up()

    def _reached(self) -> int:
        """Return the number of the stream's stored position."""
        position = self._applied()
        return 0 if position is None else version_of(position)

    def _applied(self) -> RangePosition | None:
        return None if self._stream.feed is None else self._stream.feed.position

    def _check_xa(self) -> None:
        """Warn once if copied tables may lack rows of XA transactions."""
        feed = self._stream.feed
        if self._has_checked_xa or feed is None or not feed.xa.is_used:
            return
        self._has_checked_xa = True
        # The source may take long to answer.
        threading.Thread(
            target=warn_of_unseen_xa,
            args=(self._settings.source.access, self._stop),
            name="xa",
            daemon=True,
        ).start()

    def _show(self, *, lacks_executors: bool) -> None:
        tables, is_caught_up = self._tables.current(), self._report.is_caught_up
        self._watching.show(
            Shown(tables, is_caught_up, len(self._keys.warnings), lacks_executors)
        )
        self._progress.phases(tables.phases())
        self._progress.caught_up(is_so=is_caught_up)
        self._progress.draw()

    def _look_at(self, query: Query) -> None:
        """Restart the stream after a failure; raise what needs a person."""
        was_at_end = query.reached is not None
        try:
            query.look()
        except DataLossError as error:
            raise _copy_all(error) from error
        if query.reached is not None and not was_at_end:
            self._idle()


def _copy_all(error: DataLossError) -> ConfigError:
    """Return the message for changes that cannot be read."""
    problem = (
        f"{error}; run `canal-server mirror copy --all` with these settings, "
        "then start the mirror again to copy all tables"
    )
    return ConfigError([problem])


def run(
    settings: MirrorSettings, progress: Any, stop: Stop, *, once: bool = False
) -> None:
    """Mirror until a stop is requested; once: at most to the end that the binlog has.

    Raises CanalError for what must be repaired; once, also for tables that are stopped,
    and if a stop is requested before the end.
    """
    Mirror(settings, progress, stop, Ending() if once else None).run()
