"""The mirror as a whole: the tables that are wanted, their copies, and the stream.

::

    run ── TableWork (threads: copy, catch up, join) ──► ChangeStream ──► lake
      └─── Query (Spark's stream of all tables)  ───────────┘

Everything that is known is in the lake and in Spark's checkpoint: a mirror that was
killed goes on when it is started again.
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
from canal_server.mirror.run.requests import told_to_stop
from canal_server.mirror.run.resume import Resume, look, new_state
from canal_server.mirror.run.table_sync import TableWork
from canal_server.mirror.session.executors import Executors
from canal_server.mirror.session.spark_errors import reason
from canal_server.mirror.session.spark_session import in_settings, open_session
from canal_server.mirror.settings import wanted_tables
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
    from canal_server.mirror.run.resume import Wanted
    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.settings.table_values import TableName
    from canal_server.runtime.lifecycle import Stop
    from canal_server.spark.packed.packed_rows import Packed

log = logging.getLogger(__name__)

TURN_S: Final = 0.5  # how often requests, failures and what is due are looked at
RETRY_FIRST_S: Final = 1.0
RETRY_MAX_S: Final = 60.0
LAKE_RETRY_MAX_S: Final = 10.0  # as long, nothing else is looked at


class Mirror:
    """Runs until a stop is requested, or something is wrong that needs somebody."""

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
        self._clock = clock  # of the wall
        self._folder = open_folder(settings.lake, settings.folder)
        self._store = States(self._folder)
        self._report = Report(settings, self._folder)
        # Whoever is at work on a table stores what becomes of it: the store is newer
        # than these until that is collected. `_newest` knows.
        self._states: dict[TableName, TableState] = {}
        self._guard = threading.RLock()  # of the states and of what is at work
        self._at_work: dict[TableName, Future[None]] = {}
        self._gone = DroppedTables(settings, stop)
        self._knows_of_xa = False
        self._later: dict[TableName, tuple[float, Backoff]] = {}
        self._unusable: Counter[TableName] = Counter()  # times in a row
        self._stream = ChangeStream(
            settings.canal.destination,
            settings.stream.tables_at_once,
            parts_max=settings.stream.max_partitions,
            on_statement=self._other_statement,
            on_left=self._left,
            on_batch=self._batch_taken,
        )
        self._keys = KeyChanges(settings, stop, self._stream)

    def run(self) -> None:
        """Mirror until the stop. Raises CanalError with what somebody has to mend."""
        with Lease(self._folder) as lease:
            try:
                self._run(lease)
            except CanalError as error:
                self._report.end(str(error))
                raise

    def _run(self, lease: Lease) -> None:
        wanted = self._found()
        if wanted is None:
            return
        self._keys.begin(wanted.hidden_keys)
        spark = open_session(self._settings)
        work = TableWork(
            self._settings,
            spark,
            self._store,
            self._stream,
            progress=self._progress,
            stop=self._stop,
            is_mariadb=wanted.is_mariadb,
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
            self._begin(wanted, work)
            query.start()
            self._turns(pool, work, query, lease, Executors(spark))
        finally:
            self._stop.request()  # copies end then, too
            with ExitStack() as ending:  # each of them, whatever one raises
                ending.callback(_ended, "Spark", spark.stop)
                ending.callback(self._gone.close)
                ending.callback(self._keys.close)
                ending.callback(pool.shutdown, wait=True, cancel_futures=True)
                ending.callback(_ended, "the stream", query.stop)

    def _found(self) -> Wanted | None:
        """Return what the servers tell; None when a stop is asked for first."""
        try:
            known = self._store.read_all()
            # What is made from now on comes in the stream.
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
        work: TableWork,
        query: Query,
        lease: Lease,
        executors: Executors,
    ) -> None:
        """Look after everything until the stop."""
        upkeep = Upkeep(self._settings, self._stream)
        backoff = Backoff(RETRY_FIRST_S, LAKE_RETRY_MAX_S)
        pause_s = TURN_S
        while not self._stop.wait(pause_s):
            pause_s = TURN_S
            try:
                self._take_requests()
                self._look_for_gone()
                self._look_for_xa()
                self._keys.turn()
                self._schedule(pool, work)
                self._look_at(query)
                upkeep.turn()
                lease.renew()
            except LakeError as error:
                # What could not be noted there is found again.
                pause_s = backoff.delay_s(time.monotonic())
                mirror_run_messages.MIRROR_LAKE_FAILED.log(log, error, pause_s)
            self._report.turn(executors.problem(), self._keys.warnings)
            self._show()

    def _begin(self, wanted: Wanted, work: TableWork) -> None:
        """Take up each table where it was left."""

        def join(state: TableState) -> None:
            follower = work.follower_of(state)
            if self._stream.feed is not None:
                follower.reached(version_of(self._stream.feed.place))
            with self._stream.joining:
                self._stream.join(follower)

        taking_up = Resume(self._settings, self._store, join)
        self._states = taking_up.states(wanted, self._store.read_all())

    # --------------------------------------------------------------------------------
    # Copies
    # --------------------------------------------------------------------------------

    def _schedule(self, pool: ThreadPoolExecutor, work: TableWork) -> None:
        """Have tables that do not follow yet brought in; several at once."""
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
            folders = self._folders() if due else wanted_tables.Folders()
            for state in due:
                name, target = state.source, self._target(state)
                problem = folders.problem(name, target)
                if problem:
                    # Else the copy of one were replaced by that of the other.
                    self._left(name, TableStoppedError(problem))
                else:
                    folders.take(name, target)
                    self._at_work[name] = pool.submit(work.bring_in, state)

    def _known(self) -> list[TableState]:
        with self._guard:
            return list(self._states.values())

    def _folders(self) -> wanted_tables.Folders:
        """Return the folders to which tables are copied, or were; the first has it."""
        folders = wanted_tables.Folders()
        for name in self._at_work:
            folders.take(name, self._target(self._states[name]))
        copied = [state for state in self._states.values() if state.copy_id]
        for phases in _OWNING:
            for state in copied:
                if state.phase in phases:
                    folders.take(state.source, state.target)
        return folders

    def _target(self, state: TableState) -> str:
        """Return the folder for a table's next copy."""
        rule = self._settings.rule_of(state.source)
        return (
            state.target
            if rule is None
            else wanted_tables.target_of(state.source, rule)
        )

    def _collect(self) -> None:
        """See what came of the copies that ended."""
        with self._guard:
            ended = [name for name, each in self._at_work.items() if each.done()]
            for name in ended:
                state = self._store.read(name) or self._states[name]
                error = self._at_work.pop(name).exception()
                self._progress.copied(name)  # or given up
                self._states[name] = state
                if error is None:
                    self._later.pop(name, None)
                    self._unusable.pop(name, None)
                    if self._states[name].phase is Phase.DROPPED:
                        self._gone.add(name)
                    continue
                if fault := fault_of(error):
                    self._left(name, fault)
                elif self._is_unusable(error, name):
                    self._left(name, error)
                elif isinstance(error, (CanalError, OSError)):
                    self._postpone(name, error)
                else:
                    raise error

    def _is_unusable(
        self, error: BaseException, name: TableName
    ) -> TypeGuard[UnusableTableError]:
        """Tell whether the lake's table was in the way each time of several."""
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
        told = in_settings(str(error))
        mirror_table_messages.MIRROR_TABLE_RETRIED.log(log, name, told, delay_s)
        state = self._states[name] = replace(self._states[name], message=told)
        try:
            self._store.write(state)
        except LakeError as failure:  # perhaps what is told of; it only tells
            mirror_run_messages.MIRROR_STATE_NOT_STORED.log(log, failure)

    # --------------------------------------------------------------------------------
    # From the stream; called in Spark's thread, while a batch is taken
    # --------------------------------------------------------------------------------

    def _other_statement(self, item: Packed) -> None:
        """See whether a statement makes a table that is wanted."""
        if not item.columns or self._settings.rule_of(item.table) is None:
            return
        with self._guard:
            state = self._states.get(item.table)
            if state is None:
                log.info("%s: is new", item.table)
                state = new_state(self._settings, item.table)
                self._states[item.table] = self._store.write(state)
            elif state.phase is Phase.DROPPED:
                self._again(state, "it was made anew")

    def _left(self, name: TableName, why: CanalError) -> None:
        """Take note of a table that cannot follow the stream any more."""
        with self._guard:
            state = self._newest(name) or self._states[name]
            if isinstance(why, CopyNeededError):
                rule = self._settings.rule_of(name)
                if rule is None or rule.drift == "copy":
                    self._again(state, str(why))
                    return
            elif isinstance(why, OtherCopyError) and self._store.read(name) is None:
                raise why  # not the table, the lake is not there
            phase, told = Phase.STOPPED, told_to_stop(name, why)
            if isinstance(why, TableDroppedError):
                phase, told = Phase.DROPPED, str(why)
                self._gone.add(name)
            self._states[name] = self._store.write(state.moved(phase, told))
            # Once it is noted: else the same comes again, as often as that fails.
            fault = why.__cause__ if isinstance(why, TableFaultError) else None
            if phase is Phase.STOPPED:
                mirror_table_messages.MIRROR_TABLE_STOPPED.log(
                    log, name, told, exc_info=fault
                )
            else:
                mirror_table_messages.MIRROR_TABLE_DROPPED.log(log, name, told)

    def _newest(self, name: TableName) -> TableState | None:
        """Return the state of a table that follows, which may have joined just now.

        None where that is not stored any more.
        """
        state = self._states.get(name)
        if state is None or state.phase is not Phase.FOLLOWING:
            return self._store.read(name)
        return state

    def _again(self, state: TableState, why: str) -> None:
        """Have a table copied again, after a pause if that is so all the time."""
        state = pauses.copied_again(state, why, self._clock())
        mirror_table_messages.MIRROR_TABLE_COPIED_AGAIN.log(
            log, state.source, state.message
        )
        self._states[state.source] = self._store.write(state)

    def _batch_taken(self, report: BatchReport) -> None:
        """Keep what a batch changed before Spark takes it for done."""
        with self._guard:
            for name, (columns, kept) in self._stream.columns().items():
                state = self._newest(name)
                if state is None:
                    raise LakeError(f"{self._folder} does not tell of {name} now")
                if (state.columns, state.kept) != (columns, kept):
                    rule = self._settings.rule_of(name)
                    assert rule is not None  # it is followed
                    state = with_columns(state, columns, kept, rule)
                    state = self._store.write(state)
                self._states[name] = state
            if report.feed is not None:
                write_feed(self._folder, report.feed)
        self._report.note(report)
        self._progress.batch(report)

    # --------------------------------------------------------------------------------
    # What is asked for, and what fails
    # --------------------------------------------------------------------------------

    def _take_requests(self) -> None:
        """Copy tables again for which that was asked."""
        for name in self._store.requested():
            with self._stream.joining, self._guard:
                state = self._states.get(name)
                if name in self._at_work:
                    continue  # asked again when that is done
                if state is not None:
                    # Noted first: else it would be followed on after what it missed.
                    told = "a new copy was asked for"
                    self._states[name] = self._store.write(
                        pauses.asked_for(state, told)
                    )
                    self._stream.leave(name)
                    log.info("%s: a new copy was asked for", name)
                self._store.take_request(name)

    def _look_for_gone(self) -> None:
        """Copy tables that were dropped and made again before that was looked at."""
        there = sorted(self._gone.turn())
        try:
            while there:
                with self._guard:
                    state = self._states[there[-1]]
                    if state.phase is Phase.DROPPED:
                        self._again(state, "it was made anew")
                there.pop()
        finally:
            for name in there:  # of which that could not be noted
                self._gone.add(name)

    def _look_for_xa(self) -> None:
        """Warn once where tables were copied that may lack rows of XA transactions."""
        feed = self._stream.feed
        if self._knows_of_xa or feed is None or not feed.xa.is_used:
            return
        self._knows_of_xa = True
        # The source may not answer for long.
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
        for name in running:  # how far they are, they note in the lake
            with suppress(LakeError):
                states[name] = self._store.read(name) or states[name]
        phases = Counter(state.phase for state in states.values())
        self._progress.phases(phases)
        self._progress.caught_up(is_so=self._report.is_caught_up)
        self._progress.draw()

    def _look_at(self, query: Query) -> None:
        """Begin the stream again when it failed; raise what needs somebody."""
        try:
            query.look()
        except DataLossError as error:
            raise _copy_all(error) from error


def _ended(what: str, stop: Callable[[], object]) -> None:
    """End something of Spark's; that it fails is told, what went before counts."""
    try:
        stop()
    except Exception as error:  # noqa: BLE001  # of many kinds, when its JVM is gone
        mirror_run_messages.MIRROR_STAGE_STOP_FAILED.log(log, what, reason(error))


def _copy_all(error: DataLossError) -> ConfigError:
    """Return what tells a person of changes that cannot be had."""
    problem = (
        f"{error}. Run `canal-server mirror copy --all` with these settings, "
        "and start the mirror again: all tables are copied anew then"
    )
    return ConfigError([problem])


_TO_BRING_IN: Final = (Phase.WAITING, Phase.COPYING, Phase.CATCHING_UP)
# To which table a folder belongs. The copy of one that was dropped may be replaced.
_OWNING: Final = (
    (Phase.COPYING, Phase.CATCHING_UP, Phase.FOLLOWING),
    (Phase.WAITING, Phase.STOPPED),
)


def run(settings: MirrorSettings, progress: Any, stop: Stop) -> None:
    """Mirror until a stop is requested. Raises CanalError with what is to be mended."""
    Mirror(settings, progress, stop).run()
