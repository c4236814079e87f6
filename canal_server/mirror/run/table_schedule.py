"""Which tables are synced next, and what becomes of each.

The main loop starts tables that are due and collects the results; the stream reports
what it finds in a batch, in Spark's thread. Leaves out the work on a table
(`table_sync`) and what a restart changes (`resume`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeGuard

from canal_server.errors import CanalError, LakeError
from canal_server.messages.mirror import mirror_run_messages, mirror_table_messages
from canal_server.mirror.ddl.renames import with_columns
from canal_server.mirror.ddl.table_statements import creates_empty, ends
from canal_server.mirror.follow.leaving import (
    CopyNeededError,
    TableDroppedError,
    TableReplacedError,
    TableStoppedError,
    origin_of,
)
from canal_server.mirror.follow.micro_batches import UNUSABLE_TRIES
from canal_server.mirror.follow.table_faults import TableFaultError, fault_of
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.run import pauses, replacements
from canal_server.mirror.run.requests import stopped_message
from canal_server.mirror.run.resume import MISSING, new_state
from canal_server.mirror.session.spark_session import in_settings
from canal_server.mirror.settings import selected_tables
from canal_server.mirror.state.known_tables import targets_of
from canal_server.mirror.state.lake_tables import OtherCopyError, UnusableTableError
from canal_server.mirror.state.state import PENDING, Phase, TablesNow
from canal_server.model.entry import EventType
from canal_server.runtime.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from concurrent.futures import Executor, Future

    from canal_server.mirror.copy.copy_watch import CopyWatch
    from canal_server.mirror.follow.dropped_tables import DroppedTables
    from canal_server.mirror.follow.micro_batches import ChangeStream
    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.settings.table_values import TableName
    from canal_server.mirror.state.state import Origin, States, TableState
    from canal_server.mirror.state.table_shape import Columns
    from canal_server.spark.packed.packed_rows import Packed

log = logging.getLogger(__name__)

RETRY_FIRST_S: Final = 1.0
RETRY_MAX_S: Final = 60.0
# Which table owns a folder. The copy of a dropped table may be replaced.
_OWNING: Final = (
    (Phase.COPYING, Phase.CATCHING_UP, Phase.FOLLOWING),
    (Phase.WAITING, Phase.STOPPED),
)


class TableSchedule:
    """The state of each table, and the running work; thread-safe.

    Each method may raise LakeError.
    """

    def __init__(
        self,
        settings: MirrorSettings,
        store: States,
        progress: CopyWatch,
        dropped: DroppedTables,
        *,
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        reached: Callable[[], int] = lambda: 0,
    ) -> None:
        """Schedule tables; `reached` gives the stream's stored position number."""
        self._reached = reached
        self._settings = settings
        self._store = store
        self._progress = progress
        self._dropped = dropped
        self._now = now
        self._wall = wall
        # The thread that works on a table stores its state: until the result is
        # collected, the store is newer than this. `_newest` handles that.
        self._states: dict[TableName, TableState] = {}
        # Follows a table from the statement that creates it; may be replaced.
        self.follow_new: Callable[[Packed], TableState | None] = lambda item: None  # noqa: ARG005
        self._guard = threading.RLock()  # of the states and the running work
        self._at_work: dict[TableName, Future[None]] = {}
        self._later: dict[TableName, tuple[float, Backoff]] = {}
        self._unusable: Counter[TableName] = Counter()  # failures in a row
        # Tables that the source has lost since the last run, and those that it has got.
        self._missing: set[TableName] = set()
        self._new: set[TableName] = set()
        self._end = 0
        # Of the former: tables that exist only between two statements of the stream.
        self._between: set[TableName] = set()
        self._ended: set[TableName] = set()  # dropped, which is not logged yet

    def resume(
        self,
        states: Mapping[TableName, TableState],
        missing: Iterable[TableName] = (),
        end: int = 0,
    ) -> None:
        """Continue from the stored states of all tables.

        `missing` follow the stream, though the source no longer has them. The statement
        that ended one is before `end`, the position number of the binlog's end.
        """
        with self._guard:
            self._states = dict(states)
            self._missing, self._end = set(missing), end
            self._new = {
                name
                for name, state in states.items()
                if self._missing and state.phase is Phase.WAITING and not state.copy_id
            }

    def known(self) -> list[TableState]:
        """Return the states of all tables, running work as of its start."""
        with self._guard:
            return list(self._states.values())

    def current(self) -> TablesNow:
        """Return the states of all tables, running work as it is stored."""
        with self._guard:
            states = dict(self._states)
            running = [name for name, each in self._at_work.items() if each.running()]
        for name in running:  # their progress is in the lake
            with suppress(LakeError):
                states[name] = self._store.read(name) or states[name]
        return TablesNow(states, frozenset(running))

    def failing(self) -> frozenset[TableName]:
        """Return the tables whose last attempt to sync them has failed."""
        with self._guard:
            return frozenset(self._later)

    # --------------------------------------------------------------------------------
    # The main loop: work on tables that do not follow the stream
    # --------------------------------------------------------------------------------

    def start_due(self, pool: Executor, sync: Callable[[TableState], None]) -> None:
        """Start syncing tables that do not follow yet; several at once.

        Collects the results of earlier ones first, and raises what ended them if it
        concerns all tables.
        """
        self._collect()
        now = self._now()
        with self._guard:
            self._remove_shadows()
            self._forget_renamed()
            self._log_dropped()
            due = [
                state
                for name, state in self._states.items()
                if state.phase in PENDING and name not in self._at_work
                if name not in self._later or self._later[name][0] <= now
                if pauses.is_due(state, self._wall())
                if not self._waits(state)
            ]
            folders = self._folders() if due else selected_tables.Folders()
            for state in due:
                name, target = state.source, self._target(state)
                problem = folders.problem(name, target)
                if problem:
                    # Otherwise one table's copy would replace the other's.
                    self.on_leave(name, TableStoppedError(problem))
                else:
                    folders.assign(name, target)
                    self._at_work[name] = pool.submit(sync, state)

    def _waits(self, state: TableState) -> bool:
        """Check whether a table waits for others, because tables were renamed."""
        return (
            (state.origin is not None and state.origin.source in self._at_work)
            or self._may_be_renamed(state)
            or replacements.is_blocked(state, self._states, self._reached())
        )

    def _may_be_renamed(self, state: TableState) -> bool:
        """Check whether a new table may be one that the source no longer has.

        The stream has not reached the statement that would say so.
        """
        return bool(self._missing) and state.source in self._new and not state.origin

    def _remove_shadows(self) -> None:
        """Remove what is left of schema changes that have ended.

        Not before the batch that ended one is stored: the same batch shows which table
        gets the rows. Only in the folder for that: an earlier version, or other
        settings, may have mirrored the table for readers.
        """
        own = self._settings.migrations_folder
        for state in self._dropped_before(self._reached()):
            name = state.source
            if state.target.startswith(f"{own}/") and not self._is_needed(name):
                open_folder(self._settings.lake, state.target).remove()
                self._store.forget(name)
                del self._states[name]

    def _forget_renamed(self) -> None:
        """Forget tables that continue under a new name: another one has their copy."""
        dropped = self._dropped_before(self._reached())
        if dropped:
            kept = {
                state.copy_id
                for name, state in self._states.items()
                if state.phase is not Phase.DROPPED or self._is_needed(name)
            }
            for state in dropped:
                name = state.source
                if state.copy_id in kept - {""} and not self._is_needed(name):
                    self._store.forget(name)
                    del self._states[name]

    def _log_dropped(self) -> None:
        """Warn of dropped tables, unless another table gets their rows."""
        self._ended &= {
            name for name, state in self._states.items() if state.phase is Phase.DROPPED
        }
        if self._ended:
            for state in self._dropped_before(self._reached()):
                name = state.source
                if name in self._ended and not self._is_needed(name):
                    self._ended.remove(name)
                    mirror_table_messages.MIRROR_TABLE_DROPPED.log(
                        log, name, state.message
                    )

    def _dropped_before(self, reached: int) -> list[TableState]:
        """Return tables of which the batch is stored that shows what they became."""
        return [
            state
            for name, state in self._states.items()
            if state.phase is Phase.DROPPED
            and state.ended <= reached
            and name not in self._at_work
        ]

    def _is_needed(self, name: TableName) -> bool:
        """Check whether another table still has to get this one's rows."""
        return any(replacements.recipients(name, self._states))

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
            else selected_tables.target_of(state.source, rule, state.target)
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
                    if state.phase is Phase.DROPPED:
                        self._note_ended(name)
                    continue
                if fault := fault_of(error):
                    self.on_leave(name, fault)
                elif self._is_unusable(error, name):
                    self.on_leave(name, error)
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
        now = self._now()
        delay_s = backoff.delay_s(now)
        self._later[name] = now + delay_s, backoff
        text = in_settings(str(error))
        mirror_table_messages.MIRROR_TABLE_RETRIED.log(log, name, text, delay_s)
        state = self._states[name] = replace(self._states[name], message=text)
        try:
            self._store.write(state)
        except LakeError as failure:  # perhaps the same failure; the state only informs
            mirror_run_messages.MIRROR_STATE_NOT_STORED.log(log, failure)

    def accept_requests(self, stream: ChangeStream) -> None:
        """Copy the requested tables again; they leave the stream."""
        for name in self._store.requested():
            with stream.joining, self._guard:
                state = self._states.get(name)
                if name in self._at_work:
                    continue  # the request waits until the work is done
                if state is not None:
                    # Stored first: otherwise it would follow the stream with a gap.
                    text = "a new copy was requested"
                    self._states[name] = self._store.write(
                        pauses.requested(state, text)
                    )
                    stream.leave(name)
                    log.info("%s: a new copy was requested", name)
                self._store.remove_request(name)

    def check_recreated(self) -> None:
        """Copy tables that were dropped and recreated before the drop was handled."""
        there = sorted(self._dropped.poll())
        try:
            while there:
                with self._guard:
                    name = there[-1]
                    state = self._states.get(name)
                    if state is None and self._settings.rule_of(name) is not None:
                        state = new_state(self._settings, name)
                        self._states[name] = self._store.write(state)
                    elif state is not None and state.phase is Phase.DROPPED:
                        self._copy_again(state, "the table was recreated")
                there.pop()
        finally:
            for name in there:  # whose state could not be stored
                self._dropped.add(name)

    def check_missing(self, stream: ChangeStream) -> None:
        """Drop tables that the source no longer has, if the stream does not say so."""
        with self._guard:
            reached, left = self._reached(), set()
            for name in self._missing:
                state = self._states.get(name)
                if state is None or (
                    state.phase is not Phase.FOLLOWING
                    and state.ended <= reached
                    and not (name in self._between and state.phase in PENDING)
                ):
                    left.add(name)  # the batch is stored: new tables know of it
            self._missing -= left
            unlogged = set(self._missing) if reached >= self._end else set()
        if not unlogged:
            return
        with stream.joining, self._guard:
            for name in unlogged:
                if stream.leave(name) is not None:
                    self.on_leave(name, TableDroppedError(MISSING))
            self._missing -= unlogged

    # --------------------------------------------------------------------------------
    # Callbacks of the stream; called in Spark's thread during a batch
    # --------------------------------------------------------------------------------

    def on_statement(self, item: Packed) -> None:
        """Check what a statement means for tables that do not follow the stream.

        It may create a table to mirror, or drop one that is stopped.
        """
        name = item.table
        if item.columns or item.event_type == EventType.CREATE.name:
            self._note_created(item)
        if not item.columns:
            self._drop_stopped(item)
        elif self._settings.rule_of(name) is not None:
            self._on_new_columns(item)

    def _on_new_columns(self, item: Packed) -> None:
        name = item.table
        with self._guard:
            state = self._states.get(name)
            is_new = state is not None and self._may_be_renamed(state)
            if state is not None and state.phase is not Phase.DROPPED and not is_new:
                return
            if (
                not is_new
                and self._settings.is_shadow(name)
                and not self._is_needed(name)
                and creates_empty(item.sql, name)
            ):
                followed = self.follow_new(item)
                if followed is not None:
                    self._states[name] = followed
                    return
            origin = origin_of(item)
            if origin is not None and self._has_rows_of(origin, name):
                if not is_new and self._missing and item.seq < self._end:
                    # The source does not have it any more.
                    self._between.add(name)
                    self._missing.add(name)
                self._replaced(
                    state or new_state(self._settings, name),
                    origin,
                    f"it was {origin.source} before",
                    replacements.RENAME_S,
                )
            elif is_new:
                return  # it waits for the end of others, and is copied then
            elif state is None:
                log.info("%s: new table", name)
                state = new_state(self._settings, name)
                self._states[name] = self._store.write(state)
            else:
                self._copy_again(state, "the table was recreated")

    def _note_created(self, item: Packed) -> None:
        """Note whether a table that is new to the mirror is of a schema change.

        One with a new name is, even if the changed table has just lost its own.
        """
        name, is_made = item.table, item.event_type == EventType.CREATE.name
        with self._guard:
            state = self._states.get(name)
            if state is None or state.phase is Phase.DROPPED:
                known = targets_of(self._states) if is_made else self._states
                self._settings.note_created(name, known)

    def on_leave(self, name: TableName, why: CanalError) -> None:
        """Record that a table can no longer follow the stream."""
        with self._guard:
            state = self._newest(name) or self._states[name]
            origin = why.origin if isinstance(why, TableReplacedError) else None
            if origin is not None and self._has_rows_of(origin, name):
                self._replaced(state, origin, str(why))
                return
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
                state = replace(state, ended=why.seq)
                self._note_ended(name)
            self._states[name] = self._store.write(state.moved(phase, text))
            # Logged after it is stored: a failing store would repeat the line.
            fault = why.__cause__ if isinstance(why, TableFaultError) else None
            if phase is Phase.STOPPED:
                mirror_table_messages.MIRROR_TABLE_STOPPED.log(
                    log, name, text, exc_info=fault
                )
            else:
                log.info("%s: %s", name, text)

    def _note_ended(self, name: TableName) -> None:
        """Note a table that was dropped: it may be recreated, or have a new name."""
        self._dropped.add(name)
        if not self._settings.is_shadow(name):
            self._ended.add(name)

    def _drop_stopped(self, item: Packed) -> None:
        """Drop the stopped tables that a statement drops: nothing is left to decide."""
        with self._guard:
            for name, state in self._states.items():
                if (
                    state.phase is Phase.STOPPED
                    and name not in self._at_work
                    and item.concerns(name)
                    and ends(item.sql, name, item.table.schema)
                ):
                    why = "dropped or renamed while it was stopped"
                    # Not as of the statement: others must not get its old rows.
                    dropped = replace(state.moved(Phase.DROPPED, why), ended=0)
                    self._states[name] = self._store.write(dropped)
                    self._note_ended(name)

    def on_columns(self, followed: Mapping[TableName, Columns]) -> None:
        """Store the columns of followed tables after a batch, where they differ."""
        with self._guard:
            for name, known in followed.items():
                state = self._newest(name)
                if state is None:
                    raise LakeError(f"{self._store} has no state of {name}")
                if (state.columns, state.kept, state.partitions) != known:
                    rule = self._settings.rule_of(name)
                    assert rule is not None  # it follows the stream
                    state = with_columns(state, known, rule)
                    state = self._store.write(state)
                self._states[name] = state

    def _newest(self, name: TableName) -> TableState | None:
        """Return the state of a table that follows, which may have just joined.

        None if it is no longer stored.
        """
        state = self._states.get(name)
        if state is None or state.phase is not Phase.FOLLOWING:
            return self._store.read(name)
        return state

    def _has_rows_of(self, origin: Origin, name: TableName) -> bool:
        """Check whether a table can get another one's rows in the lake."""
        other = self._newest(origin.source)  # it may have been copied just now
        states = self._states if other is None else {origin.source: other}
        return replacements.is_possible(self._settings, name, origin, states)

    def _replaced(
        self, state: TableState, origin: Origin, why: str, pause_s: float = 0
    ) -> None:
        """Give a table the rows that another one has in the lake, after a pause."""
        ended = origin.seq if state.phase is Phase.FOLLOWING else state.ended
        due_at_ms = round((self._wall() + pause_s) * 1000) if pause_s else 0
        state = replace(
            state.moved(Phase.WAITING, why),
            origin=origin,
            ended=ended,
            due_at_ms=due_at_ms,
        )
        log.info("%s: %s", state.source, why)
        self._states[state.source] = self._store.write(state)

    def _copy_again(self, state: TableState, why: str) -> None:
        """Copy a table again, after a pause if that happens repeatedly."""
        state = replace(pauses.paused(state, why, self._wall()), origin=None)
        mirror_table_messages.MIRROR_TABLE_COPIED_AGAIN.log(
            log, state.source, state.message
        )
        self._states[state.source] = self._store.write(state)
