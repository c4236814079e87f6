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
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from canal_server.errors import CanalError, ConfigError, LakeError, SourceError
from canal_server.messages import mirror_run_messages, mirror_table_messages
from canal_server.mirror.follow.dropped_tables import DroppedTables
from canal_server.mirror.follow.follower import (
    CopyNeededError,
    TableDroppedError,
    TableStoppedError,
)
from canal_server.mirror.follow.key_changes import KeyChanges
from canal_server.mirror.follow.micro_batches import UNUSABLE_TRIES, ChangeStream
from canal_server.mirror.follow.renames import with_columns
from canal_server.mirror.follow.spark_query import Query
from canal_server.mirror.follow.stream_start import DataLossError, begin_stream
from canal_server.mirror.follow.table_faults import TableFaultError, fault_of
from canal_server.mirror.follow.upkeep import Upkeep
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.report.report import Report
from canal_server.mirror.rows.copy_positions import warn_of_unseen_xa
from canal_server.mirror.run import pauses
from canal_server.mirror.run.requests import stopped_message
from canal_server.mirror.run.resume import Resume, look, new_state
from canal_server.mirror.run.table_sync import TableSync
from canal_server.mirror.session.executors import Executors
from canal_server.mirror.session.spark_errors import reason
from canal_server.mirror.session.spark_session import in_settings, open_session
from canal_server.mirror.settings import selected_tables
from canal_server.mirror.state.feed import write_feed
from canal_server.mirror.state.lake_lease import Lease
from canal_server.mirror.state.lake_tables import OtherCopyError, UnusableTableError
from canal_server.mirror.state.state import Phase, States, TableState
from canal_server.runtime.backoff import Backoff
from canal_server.spark.options.offsets import version_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.mirror.follow.micro_batches import BatchReport
    from canal_server.mirror.run.progress import Progress
    from canal_server.mirror.run.resume import Selected
    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.settings.table_values import TableName
    from canal_server.runtime.lifecycle import Stop
    from canal_server.spark.packed.packed_rows import Packed

log = logging.getLogger(__name__)

TURN_S: Final = 0.5  # how often requests, failures and due tables are checked
RETRY_FIRST_S: Final = 1.0
RETRY_MAX_S: Final = 60.0
LAKE_RETRY_MAX_S: Final = 10.0  # meanwhile nothing else is checked


class Mirror:
    """Runs until a stop is requested or a problem needs a person."""

    def __init__(
        self,
        settings: MirrorSettings,
        progress: Progress,
        stop: Stop,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._progress = progress
        self._stop = stop
        self._clock = clock  # wall clock
        self._folder = open_folder(settings.lake, settings.folder)
        self._store = States(self._folder)
        self._report = Report(settings, self._folder)
        # The thread that works on a table stores its state: until the result is
        # collected, the store is newer than this. `_newest` handles that.
        self._states: dict[TableName, TableState] = {}
        self._guard = threading.RLock()  # of the states and the running work
        self._at_work: dict[TableName, Future[None]] = {}
        self._dropped = DroppedTables(settings, stop)
        self._has_checked_xa = False
        self._later: dict[TableName, tuple[float, Backoff]] = {}
        self._unusable: Counter[TableName] = Counter()  # failures in a row
        self._stream = ChangeStream(
            settings.canal.destination,
            settings.stream.tables_at_once,
            parts_max=settings.stream.max_partitions,
            on_statement=self._other_statement,
            on_leave=self._table_left,
            on_batch=self._batch_applied,
        )
        self._keys = KeyChanges(settings, stop, self._stream)

    def run(self) -> None:
        """Mirror until the stop. Raises CanalError for what a person must repair."""
        with Lease(self._folder) as lease:
            try:
                self._run(lease)
            except CanalError as error:
                self._report.end(str(error))
                raise

    def _run(self, lease: Lease) -> None:
        selected = self._found()
        if selected is None:
            return
        self._keys.begin(selected.hidden_keys)
        spark = open_session(self._settings)
        work = TableSync(
            self._settings,
            spark,
            self._store,
            self._stream,
            progress=self._progress,
            stop=self._stop,
            is_mariadb=selected.is_mariadb,
            known=self._known,
        )
        query = Query(
            self._settings,
            spark,
            self._stream,
            self._store,
            self._stop,
            on_failure=self._report.failed,
            on_idle=self._report.idle,
        )
        pool = ThreadPoolExecutor(
            self._settings.copy.tables_at_once, thread_name_prefix="copy"
        )
        try:
            self._begin(selected, work)
            query.start()
            self._turns(pool, work, query, lease, Executors(spark))
        finally:
            self._stop.request()  # also ends the copies
            with ExitStack() as ending:  # all of them, even if one raises
                ending.callback(_ended, "Spark", spark.stop)
                ending.callback(self._dropped.close)
                ending.callback(self._keys.close)
                ending.callback(pool.shutdown, wait=True, cancel_futures=True)
                ending.callback(_ended, "the stream", query.stop)

    def _found(self) -> Selected | None:
        """Return what the servers report; None when a stop is requested first."""
        try:
            known = self._store.read_all()
            # Tables created from now on appear in the stream.
            feed = begin_stream(
                self._settings,
                self._folder,
                self._store.generation(),
                self._stop,
                is_followed=any(
                    state.phase is Phase.FOLLOWING for state in known.values()
                ),
            )
            found = look(self._settings, known, self._stop)
            self._stream.feed = replace(feed, source=found.source)
            write_feed(self._folder, self._stream.feed)
        except CanalError as error:
            if self._stop.requested():
                return None
            if isinstance(error, DataLossError):
                raise _copy_all(error) from error
            if isinstance(error, SourceError):
                raise CanalError(in_settings(str(error))) from error
            raise
        return None if self._stop.requested() else found

    def _turns(
        self,
        pool: ThreadPoolExecutor,
        work: TableSync,
        query: Query,
        lease: Lease,
        executors: Executors,
    ) -> None:
        """Check everything until the stop."""
        upkeep = Upkeep(self._settings, self._stream)
        backoff = Backoff(RETRY_FIRST_S, LAKE_RETRY_MAX_S)
        pause_s = TURN_S
        while not self._stop.wait(pause_s):
            pause_s = TURN_S
            try:
                self._accept_requests()
                self._check_recreated()
                self._check_xa()
                self._keys.poll()
                self._schedule(pool, work)
                self._look_at(query)
                upkeep.run_next()
                lease.renew()
            except LakeError as error:
                # What could not be stored there is found again.
                pause_s = backoff.delay_s(time.monotonic())
                mirror_run_messages.MIRROR_LAKE_FAILED.log(log, error, pause_s)
            self._report.store(executors.problem(), self._keys.warnings)
            self._show()

    def _begin(self, selected: Selected, work: TableSync) -> None:
        """Resume each table where it stopped."""

        def join(state: TableState) -> None:
            follower = work.follower_of(state)
            if self._stream.feed is not None:
                follower.reached(version_of(self._stream.feed.position))
            with self._stream.joining:
                self._stream.join(follower)

        resuming = Resume(self._settings, self._store, join)
        self._states = resuming.states(selected, self._store.read_all())

    # --------------------------------------------------------------------------------
    # Copies
    # --------------------------------------------------------------------------------

    def _schedule(self, pool: ThreadPoolExecutor, work: TableSync) -> None:
        """Start syncing tables that do not follow yet; several at once."""
        self._collect()
        now = time.monotonic()
        with self._guard:
            due = [
                state
                for name, state in self._states.items()
                if state.phase in _TO_BRING_IN and name not in self._at_work
                if name not in self._later or self._later[name][0] <= now
                if pauses.is_due(state, self._clock())
            ]
            folders = self._folders() if due else selected_tables.Folders()
            for state in due:
                name, target = state.source, self._target(state)
                problem = folders.problem(name, target)
                if problem:
                    # Otherwise one table's copy would replace the other's.
                    self._table_left(name, TableStoppedError(problem))
                else:
                    folders.assign(name, target)
                    self._at_work[name] = pool.submit(work.sync, state)

    def _known(self) -> list[TableState]:
        with self._guard:
            return list(self._states.values())

    def _folders(self) -> selected_tables.Folders:
        """Return the owner of each folder: the first table that is copied there."""
        folders = selected_tables.Folders()
        for name in self._at_work:
            folders.assign(name, self._target(self._states[name]))
        copied = [state for state in self._states.values() if state.copy_id]
        for phases in _OWNING:
            for state in copied:
                if state.phase in phases:
                    folders.assign(state.source, state.target)
        return folders

    def _target(self, state: TableState) -> str:
        """Return the folder of a table's next copy."""
        rule = self._settings.rule_of(state.source)
        return (
            state.target
            if rule is None
            else selected_tables.target_of(state.source, rule)
        )

    def _collect(self) -> None:
        """Collect the results of finished copies."""
        with self._guard:
            ended = [name for name, each in self._at_work.items() if each.done()]
            for name in ended:
                state = self._store.read(name) or self._states[name]
                error = self._at_work.pop(name).exception()
                self._progress.copied(name)  # or abandoned
                self._states[name] = state
                if error is None:
                    self._later.pop(name, None)
                    self._unusable.pop(name, None)
                    if self._states[name].phase is Phase.DROPPED:
                        self._dropped.add(name)
                    continue
                if fault := fault_of(error):
                    self._table_left(name, fault)
                elif self._is_unusable(error, name):
                    self._table_left(name, error)
                elif isinstance(error, (CanalError, OSError)):
                    self._postpone(name, error)
                else:
                    raise error

    def _is_unusable(
        self, error: BaseException, name: TableName
    ) -> TypeGuard[UnusableTableError]:
        """Check whether the lake's table was unusable several times in a row."""
        if not isinstance(error, UnusableTableError):
            self._unusable.pop(name, None)
            return False
        self._unusable[name] += 1
        if self._unusable[name] < UNUSABLE_TRIES:
            return False
        del self._unusable[name]
        self._later.pop(name, None)
        return True

    def _postpone(self, name: TableName, error: BaseException) -> None:
        backoff = self._later.get(name, (0.0, Backoff(RETRY_FIRST_S, RETRY_MAX_S)))[1]
        now = time.monotonic()
        delay_s = backoff.delay_s(now)
        self._later[name] = now + delay_s, backoff
        text = in_settings(str(error))
        mirror_table_messages.MIRROR_TABLE_RETRIED.log(log, name, text, delay_s)
        state = self._states[name] = replace(self._states[name], message=text)
        try:
            self._store.write(state)
        except LakeError as failure:  # perhaps the same failure; the state only informs
            mirror_run_messages.MIRROR_STATE_NOT_STORED.log(log, failure)

    # --------------------------------------------------------------------------------
    # Callbacks of the stream; called in Spark's thread during a batch
    # --------------------------------------------------------------------------------

    def _other_statement(self, item: Packed) -> None:
        """Check whether a statement creates a table to mirror."""
        if not item.columns or self._settings.rule_of(item.table) is None:
            return
        with self._guard:
            state = self._states.get(item.table)
            if state is None:
                log.info("%s: new table", item.table)
                state = new_state(self._settings, item.table)
                self._states[item.table] = self._store.write(state)
            elif state.phase is Phase.DROPPED:
                self._copy_again(state, "the table was recreated")

    def _table_left(self, name: TableName, why: CanalError) -> None:
        """Record that a table can no longer follow the stream."""
        with self._guard:
            state = self._newest(name) or self._states[name]
            if isinstance(why, CopyNeededError):
                rule = self._settings.rule_of(name)
                if rule is None or rule.drift == "copy":
                    self._copy_again(state, str(why))
                    return
            elif isinstance(why, OtherCopyError) and self._store.read(name) is None:
                raise why  # the lake is unavailable, not the table
            phase, text = Phase.STOPPED, stopped_message(name, why)
            if isinstance(why, TableDroppedError):
                phase, text = Phase.DROPPED, str(why)
                self._dropped.add(name)
            self._states[name] = self._store.write(state.moved(phase, text))
            # Logged after it is stored: a failing store would repeat the line.
            fault = why.__cause__ if isinstance(why, TableFaultError) else None
            if phase is Phase.STOPPED:
                mirror_table_messages.MIRROR_TABLE_STOPPED.log(
                    log, name, text, exc_info=fault
                )
            else:
                mirror_table_messages.MIRROR_TABLE_DROPPED.log(log, name, text)

    def _newest(self, name: TableName) -> TableState | None:
        """Return the state of a table that follows, which may have just joined.

        None if it is no longer stored.
        """
        state = self._states.get(name)
        if state is None or state.phase is not Phase.FOLLOWING:
            return self._store.read(name)
        return state

    def _copy_again(self, state: TableState, why: str) -> None:
        """Copy a table again, after a pause if that happens repeatedly."""
        state = pauses.paused(state, why, self._clock())
        mirror_table_messages.MIRROR_TABLE_COPIED_AGAIN.log(
            log, state.source, state.message
        )
        self._states[state.source] = self._store.write(state)

    def _batch_applied(self, report: BatchReport) -> None:
        """Store what a batch changed, before Spark records the batch as done."""
        with self._guard:
            for name, (columns, kept) in self._stream.columns().items():
                state = self._newest(name)
                if state is None:
                    raise LakeError(f"{self._folder} has no state of {name}")
                if (state.columns, state.kept) != (columns, kept):
                    rule = self._settings.rule_of(name)
                    assert rule is not None  # it follows the stream
                    state = with_columns(state, columns, kept, rule)
                    state = self._store.write(state)
                self._states[name] = state
            if report.feed is not None:
                write_feed(self._folder, report.feed)
        self._report.note(report)
        self._progress.batch(report)

    # --------------------------------------------------------------------------------
    # Requests and failures
    # --------------------------------------------------------------------------------

    def _accept_requests(self) -> None:
        """Copy the requested tables again."""
        for name in self._store.requested():
            with self._stream.joining, self._guard:
                state = self._states.get(name)
                if name in self._at_work:
                    continue  # the request waits until the work is done
                if state is not None:
                    # Stored first: otherwise it would follow the stream with a gap.
                    text = "a new copy was requested"
                    self._states[name] = self._store.write(
                        pauses.requested(state, text)
                    )
                    self._stream.leave(name)
                    log.info("%s: a new copy was requested", name)
                self._store.remove_request(name)

    def _check_recreated(self) -> None:
        """Copy tables that were dropped and recreated before the drop was handled."""
        there = sorted(self._dropped.poll())
        try:
            while there:
                with self._guard:
                    state = self._states[there[-1]]
                    if state.phase is Phase.DROPPED:
                        self._copy_again(state, "the table was recreated")
                there.pop()
        finally:
            for name in there:  # whose state could not be stored
                self._dropped.add(name)

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

    def _show(self) -> None:
        with self._guard:
            states = dict(self._states)
            running = [name for name, each in self._at_work.items() if each.running()]
        for name in running:  # their progress is in the lake
            with suppress(LakeError):
                states[name] = self._store.read(name) or states[name]
        phases = Counter(state.phase for state in states.values())
        self._progress.phases(phases)
        self._progress.caught_up(is_so=self._report.is_caught_up)
        self._progress.draw()

    def _look_at(self, query: Query) -> None:
        """Restart the stream after a failure; raise what needs a person."""
        try:
            query.look()
        except DataLossError as error:
            raise _copy_all(error) from error


def _ended(what: str, stop: Callable[[], object]) -> None:
    """Stop a part of Spark; a failure is logged, as an earlier error matters more."""
    try:
        stop()
    except Exception as error:  # noqa: BLE001  # of many kinds, when its JVM has died
        mirror_run_messages.MIRROR_STAGE_STOP_FAILED.log(log, what, reason(error))


def _copy_all(error: DataLossError) -> ConfigError:
    """Return the message for changes that cannot be read."""
    problem = (
        f"{error}; run `canal-server mirror copy --all` with these settings, "
        "then start the mirror again to copy all tables"
    )
    return ConfigError([problem])


_TO_BRING_IN: Final = (Phase.WAITING, Phase.COPYING, Phase.CATCHING_UP)
# Which table owns a folder. The copy of a dropped table may be replaced.
_OWNING: Final = (
    (Phase.COPYING, Phase.CATCHING_UP, Phase.FOLLOWING),
    (Phase.WAITING, Phase.STOPPED),
)


def run(settings: MirrorSettings, progress: Any, stop: Stop) -> None:
    """Mirror until a stop is requested. Raises CanalError for what must be repaired."""
    Mirror(settings, progress, stop).run()
