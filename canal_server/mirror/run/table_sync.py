"""One table's way into the stream: copied, published, caught up, joined.

Each step leaves a state in the lake, from which a restart resumes after a crash. Leaves
out which tables to mirror, and when their turn is (`run`).
"""

from __future__ import annotations

import json
import logging
import uuid
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from canal_server.errors import (
    CanalError,
    ClientError,
    ConfigError,
    ConnectionLost,
    DecodeError,
    LakeError,
    SourceError,
)
from canal_server.messages.mirror import mirror_table_messages
from canal_server.mirror.copy.copy_changes import NEAR_ROWS, CatchUp
from canal_server.mirror.copy.copy_files import copy_schema
from canal_server.mirror.copy.copying import Copied, CopyJob
from canal_server.mirror.ddl.renames import (
    hidden_columns,
    hidden_in_another,
    what_is_revealed,
    with_columns,
)
from canal_server.mirror.follow.follower import Follower, epoch_of, shapes
from canal_server.mirror.follow.leaving import (
    CopyNeededError,
    TableDroppedError,
    TableReplacedError,
    TableStoppedError,
    end_of,
)
from canal_server.mirror.follow.micro_batches import POSITION_NOTE, note_of
from canal_server.mirror.follow.source_columns import columns_at, unknown_to
from canal_server.mirror.follow.stream_ends import warn_of_ends
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.lake.row_keys import UnfitRowsError
from canal_server.mirror.rows.copy_positions import OLD_S, latest, start_position
from canal_server.mirror.run import replacements
from canal_server.mirror.run.copy_target import (
    check_owner,
    check_target,
    kept_columns,
    log_copied,
)
from canal_server.mirror.session.slots import Slots
from canal_server.mirror.session.spark_session import cores_of, table_options
from canal_server.mirror.settings import selected_tables
from canal_server.mirror.state.lake_tables import (
    NOWHERE,
    OtherCopyError,
    open_table,
)
from canal_server.mirror.state.state import Phase, TableState
from canal_server.mirror.state.table_shape import Columns
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.server_columns import TableColumns
from canal_server.spark.options.offsets import offset_from_json, version_of
from canal_server.spark.options.servers import Channel
from canal_server.spark.reading.range_tasks import is_lost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from canal_server.client.range_client import RangePosition
    from canal_server.mirror.copy.copy_watch import CopyWatch
    from canal_server.mirror.follow.micro_batches import ChangeStream
    from canal_server.mirror.settings.mirror_settings import MirrorSettings, TableRule
    from canal_server.mirror.settings.table_values import MirrorTable, TableName
    from canal_server.mirror.state.state import Origin, States
    from canal_server.model.columns_known import ColumnMeta
    from canal_server.runtime.lifecycle import Stop
    from canal_server.spark.packed.packed_rows import Packed

log = logging.getLogger(__name__)

_NO_INDEX = "(error 1176)"  # the index that cut the chunks is missing
COPIES_MAX = 5  # in a row, each of which has to be made again


class TableSync:
    """Syncs tables with the stream; each call is for one thread and one table."""

    def __init__(
        self,
        settings: MirrorSettings,
        spark: object,
        store: States,
        stream: ChangeStream,
        *,
        progress: CopyWatch,
        stop: Stop,
        is_mariadb: bool,
        known: Callable[[], Iterable[TableState]] = tuple,
    ) -> None:
        """Sync tables; `known` gives those that were synced before."""
        self._known = known
        self._settings = settings
        self._spark = spark
        self._store = store
        self._stream = stream
        self._progress = progress
        self._stop = stop
        self._is_mariadb = is_mariadb
        self._slots = Slots(
            settings.copy.connections,
            cores=lambda: cores_of(spark),
            is_followed=lambda: bool(stream.tables),
        )

    # --------------------------------------------------------------------------------
    # The steps of a table
    # --------------------------------------------------------------------------------

    def sync(self, state: TableState) -> None:
        """Copy the table if necessary, and make it follow the stream.

        Ends early when a stop is requested. A problem of this table alone is written
        into its state. Raises CanalError and OSError for what concerns all tables: the
        server, the database or the lake is unavailable.
        """
        why = ""
        for _ in range(COPIES_MAX):
            try:
                self._sync_steps(state)
            except TableReplacedError as error:
                state = self._store.read(state.source) or state
                ended = error.origin.seq if error.origin else 0
                state = replace(state.moved(Phase.WAITING, str(error)), ended=ended)
                self._store.write(replace(state, origin=error.origin))
            except CopyNeededError as error:
                why = str(error)
                mirror_table_messages.MIRROR_TABLE_COPIED_AGAIN.log(
                    log, state.source, why
                )
                state = self._store.read(state.source) or state
                state = replace(state.moved(Phase.WAITING, why), origin=None)
                state = self._store.write(state)
                continue
            except TableDroppedError as error:
                state = self._store.read(state.source) or state
                self._store.write(
                    replace(state.moved(Phase.DROPPED, str(error)), ended=error.seq)
                )
            except (TableStoppedError, OtherCopyError) as error:
                self._stopped(state, str(error))
            return
        self._stopped(
            state,
            f"each of {COPIES_MAX} copies in a row had to be made again; run "
            f"`canal-server mirror copy` when the reason has ended (last: {why})",
        )

    def _sync_steps(self, state: TableState) -> None:
        continues = state.phase not in (Phase.WAITING, Phase.COPYING)
        if not continues:
            try:
                state = self._copied(state)
            except ConnectionLost:
                # A stop interrupts what takes long: a move, or a comparison.
                if not self._stop.requested():
                    raise
            if self._stop.requested():
                return
        follower = self.follower_of(state)
        catching = self._catching(state.source, continues=continues)
        try:
            self._caught_up(follower, state, catching)
        finally:
            catching.close()

    def _copied(self, state: TableState) -> TableState:
        """Copy a table and publish the copy; resumes an unfinished copy."""
        channel = self._channel(state.source)
        try:
            if (renamed := self._renamed(state, channel)) is not None:
                return renamed
            state, table = self._start(state, channel)
        except ClientError as error:
            if state.origin is None or not is_lost(error):
                raise
            raise self._not_in_lake(state, state.origin) from error
        finally:
            channel.close()
        lake = open_table(self._settings, table)
        destination = self._settings.canal.destination
        if lake.applied(state.copy_id) != NOWHERE:
            # It was published, but its state was not stored.
            position = offset_from_json(json.loads(lake.position()[1][POSITION_NOTE]))
            state = replace(state, position=position[destination])
        else:
            copied = self._rows(state, table)
            if copied is None:
                return state
            if table.is_keyless:
                self._check_columns_at(state, copied.position)
            check_owner(self._settings, table, lake, state.copy_id)
            note = note_of(copied.position, destination)
            at = version_of(copied.position)
            done = lake.publish(
                state.copy_id, copied.schema, copied.files, at, note, stop=self._stop
            )
            log_copied(state, copied, done)
            state = replace(state, position=copied.position, rows=copied.rows)
            if state.origin is not None:
                state = replace(state, kept=kept_columns(copied.schema, table))
        self._progress.copied(state.source)
        is_exact = table.is_keyless or state.origin is not None
        seen = 0 if is_exact else version_of(self._latest(state.source))
        assert state.position is not None  # as the copy was started
        copied_at = version_of(state.position)
        state = replace(
            state,
            phase=Phase.CATCHING_UP,
            seen=seen,
            copied_at=copied_at,
            old_since_ms=state.old_since_ms if state.origin else state.updated_at_ms,
            origin=None,
        )
        state = self._store.write(state)
        self._forget_copy(state)
        return state

    def _forget_copy(self, state: TableState) -> None:
        """Delete the files of a copy that is published or abandoned."""
        if not state.copy_id:
            return
        folder = open_folder(self._settings.lake, self._settings.folder)
        try:
            folder.below("copies").below(state.copy_id).remove()
        except LakeError as error:
            mirror_table_messages.MIRROR_TABLE_LEFTOVER.log(log, state.source, error)

    def _renamed(self, state: TableState, channel: Channel) -> TableState | None:
        """Continue a table under its new name; None if it is not only renamed."""
        origin = state.origin
        if origin is None or state.phase is not Phase.WAITING:
            return None
        columns = columns_at(channel, state.source, origin.position)
        if not columns or columns_at(channel, origin.source, None):
            return None  # there is another one with the old name
        table = self._plan(state, columns)
        other = replacements.renamed_table(
            self._settings, self._store, state, table, self._stop
        )
        if other is None:
            return None
        schema = open_table(self._settings, table).arrow_schema()
        assert schema is not None  # it was moved
        log.info("%s: continues in the lake as %s", origin.source, state.source)
        return self._store.write(
            replace(
                state,
                target=table.target,
                phase=Phase.CATCHING_UP,
                copy_id=other.copy_id,
                position=origin.position,
                seen=0,
                copied_at=version_of(origin.position),
                old_since_ms=other.old_since_ms,
                columns=columns,
                kept=kept_columns(schema, table),
                hidden=hidden_columns(columns, self._rule(state.source)),
                plan=selected_tables.signature(state.source, self._settings),
                message="",
                rows=other.rows,
                origin=None,
                ended=0,
                partitions=None,
            )
        )

    def _rows(self, state: TableState, table: MirrorTable) -> Copied | None:
        """Return the rows to publish; None when this was stopped."""
        origin = state.origin
        if origin is None:
            return self._run(state, table)
        copied = replacements.rows_of_other(self._settings, self._store, state, table)
        if copied is not None:
            return copied
        raise self._not_in_lake(state, origin)

    def _not_in_lake(self, state: TableState, origin: Origin) -> CanalError:
        """Return the error for rows of another table that the lake does not have."""
        why = (
            f"table {origin.source} got its name, and the lake does not have the rows "
            "of that table as of then"
        )
        if self._rule(state.source).drift == "stop":
            return TableStoppedError(why)
        return CopyNeededError(why)

    def _run(self, state: TableState, table: MirrorTable) -> Copied | None:
        """Return the result of a copy; None when it was stopped."""
        assert state.position is not None  # as the copy was started
        job = CopyJob(
            self._spark,
            self._settings,
            table,
            state.copy_id,
            state.position,
            slots=self._slots,
        )
        try:
            copying = self._progress.copying
            report = partial(copying, state.source, expected=state.rows_expected)
            return job.run(report, self._stop)
        except UnfitRowsError as error:
            raise TableStoppedError(str(error)) from error
        except (SourceError, DecodeError) as error:
            if self._stop.requested():
                return None
            now = self._columns_now(state.source)
            if shapes(now) != shapes(state.columns) or _NO_INDEX in str(error):
                raise CopyNeededError(
                    f"the table changed while it was copied ({error})"
                ) from error
            raise

    def _check_columns_at(self, state: TableState, position: RangePosition) -> None:
        """Raise unless a table's columns are the same at the position of its copy.

        Earlier statements do not appear in the stream.
        """
        channel = self._channel(state.source)
        try:
            columns = columns_at(channel, state.source, position)
        finally:
            channel.close()
        if columns != state.columns:
            raise CopyNeededError(
                "its columns changed between the start of the copy and the position "
                "at which it was read"
            )

    def _start(
        self, state: TableState, channel: Channel
    ) -> tuple[TableState, MirrorTable]:
        """Return where a copy begins, with the columns as of that position."""
        if state.phase is Phase.COPYING:
            now = self._columns_now(state.source)
            if shapes(now) == shapes(state.columns):
                return state, self._plan(state, state.columns)
        position = self._begins(state, channel)
        columns = columns_at(channel, state.source, position)
        if not columns:
            self._raise_missing(state.source)
        table = self._plan(state, columns)
        rule = self._rule(state.source)
        self._check_hidden(state, columns, position, channel)
        check_target(self._settings, table, position, channel, state.copy_id)
        before = open_table(self._settings, table).arrow_schema()
        if before is not None:
            warn_of_ends(table, before, copy_schema(table))
        self._forget_copy(state)
        state = replace(
            state,
            target=table.target,
            phase=Phase.COPYING,
            copy_id=uuid.uuid4().hex[:12],
            position=position,
            seen=0,
            columns=columns,
            kept=(),
            hidden=hidden_columns(columns, rule),
            plan=selected_tables.signature(state.source, self._settings),
            message="",
            rows=0,
            ended=0,
            partitions=None,
            rows_expected=0 if state.origin else self._estimate(state.source),
            copies=state.copies + 1,
        )
        return self._store.write(state), table

    def _begins(self, state: TableState, channel: Channel) -> RangePosition:
        """Return the position that everything that a copy may lack is after."""
        if state.origin is not None:
            return state.origin.position
        feed = self._stream.feed
        position = start_position(
            self._settings,
            channel,
            self._stop,
            has_xa=feed is not None and feed.xa.is_used,
        )
        if not position.gtids:
            self._check_since(state.source, position)
        if self._stream.is_moved_since(state.source, version_of(position)):
            raise SourceError(
                f"without GTIDs a copy starts {OLD_S} s in the past, and since then a "
                "statement on another table added or removed rows"
            )
        return position

    def _check_hidden(
        self,
        state: TableState,
        columns: Sequence[ColumnMeta],
        position: RangePosition,
        channel: Channel,
    ) -> None:
        """Raise if a copy may reveal what was hidden under another name."""
        name, rule = state.source, self._rule(state.source)
        revealed = what_is_revealed(state, columns, rule)
        if not state.columns:
            found = hidden_in_another(name, columns, rule, self._known())
            for other, reason in found.items():
                if not columns_at(channel, other, position):
                    revealed = reason
        if revealed:
            raise TableStoppedError(
                f"{revealed}; then start the mirror again, and run `canal-server "
                f"mirror copy {name}`"
            )

    def _estimate(self, name: TableName) -> int:
        """Return an estimate of the rows to copy."""
        access = self._settings.source.read_from
        with ControlConnection(access, self._stop) as connection:
            return selected_tables.estimate(connection, name)

    def _raise_missing(self, name: TableName) -> NoReturn:
        """Raise for a table that canal-server does not know."""
        with ControlConnection(self._settings.source.access, self._stop) as control:
            found = TableColumns(control).fetch(name.schema, name.table)
        if found is None:
            raise TableDroppedError("the source has no such table")
        raise ConfigError([unknown_to(self._settings.canal.destination)])

    def _caught_up(
        self, follower: Follower, state: TableState, catching: CatchUp
    ) -> None:
        """Read the changes that the stream has and the table lacks, then join."""
        at = state.position
        assert at is not None  # as it was copied
        while not self._stop.requested():
            end = catching.latest()
            is_replaced = epoch_of(state.seen) not in (0, end.epoch)
            follower.copied_until = version_of(end) if is_replaced else state.seen
            rows = catching.read(follower, at, end)
            if self._stop.requested():
                return
            at = end
            state = self._keep(replace(state, position=at), follower)
            if rows > NEAR_ROWS:
                continue
            with self._stream.joining:
                # No batch is applied now, so the stream has nothing beyond this read.
                end = catching.latest()
                catching.read(follower, at, end)
                if self._stop.requested():
                    return
                if self._stream.is_moved_since(state.source, state.copied_at):
                    raise CopyNeededError(
                        "a statement on another table added or removed rows while "
                        "the table was copied"
                    )
                state = replace(state.moved(Phase.FOLLOWING), position=end)
                self._keep(state, follower)
                self._stream.join(follower)
            log.info("%s: follows the stream", state.source)
            return

    def _keep(self, state: TableState, follower: Follower) -> TableState:
        rule = self._rule(state.source)
        return self._store.write(with_columns(state, follower.columns, rule))

    def follow_new(self, item: Packed) -> TableState | None:
        """Follow a table from the statement that creates it, which makes it empty.

        Called by the stream during a batch. None if the table has to be copied.
        """
        position = end_of(item)
        if position is None:
            return None
        name = item.table
        channel = self._channel(name)
        try:
            columns = columns_at(channel, name, position)
            table = self._plan(TableState(name, ""), columns)
        except (CanalError, OSError):
            return None  # the copy will show that
        finally:
            channel.close()
        rule = self._rule(name)
        state = TableState(
            name,
            table.target,
            Phase.FOLLOWING,
            uuid.uuid4().hex[:12],
            position=position,
            copied_at=version_of(position),
            columns=columns,
            hidden=hidden_columns(columns, rule),
            plan=selected_tables.signature(name, self._settings),
        )
        note = note_of(position, self._settings.canal.destination)
        lake = open_table(self._settings, table)
        lake.publish(state.copy_id, copy_schema(table), [], version_of(position), note)
        state = self._store.write(state)
        self._stream.join(self.follower_of(state))
        log.info("%s: new table, follows the stream", name)
        return state

    # --------------------------------------------------------------------------------
    # Helpers
    # --------------------------------------------------------------------------------

    def follower_of(self, state: TableState) -> Follower:
        """Return what applies a table's changes to the lake, from its position on."""
        table = self._plan(state, state.columns)
        return Follower(
            table,
            Columns(state.columns, state.kept, state.partitions),
            open_table(self._settings, table),
            state.copy_id,
            plan=partial(self._plan, state),
            rule=self._rule(state.source),
            is_mariadb=self._is_mariadb,
            copied_at=state.copied_at,
        )

    def _rule(self, name: TableName) -> TableRule:
        rule = self._settings.rule_of(name)
        assert rule is not None  # a rule matches it
        return rule

    def _plan(self, state: TableState, columns: Sequence[ColumnMeta]) -> MirrorTable:
        try:
            return selected_tables.mirror_table(
                state.source, columns, self._settings, state.target
            )
        except ConfigError as error:
            raise TableStoppedError("; ".join(error.problems)) from error

    def _check_since(self, name: TableName, position: RangePosition) -> None:
        """Raise SourceError for a table that changed after an earlier position.

        A copy that starts at that position would meet the change and fail.
        """
        catching = self._catching(name)
        try:
            for item in catching.statements(name, position, catching.latest()):
                raise SourceError(
                    f"without GTIDs a copy starts {OLD_S} s in the past, and since "
                    f"then the table was changed by {item.sql[:200]}"
                )
        finally:
            catching.close()

    def _catching(self, name: TableName, *, continues: bool = False) -> CatchUp:
        return CatchUp(
            table_options(self._settings, name),
            self._settings.canal.destination,
            self._settings.name,
            lambda end: note_of(end, self._settings.canal.destination),
            self._stop,
            name=name,
            continues=continues,
        )

    def _latest(self, name: TableName) -> RangePosition:
        channel = self._channel(name)
        try:
            return latest(self._settings, channel)
        finally:
            channel.close()

    def _channel(self, name: TableName) -> Channel:
        return Channel(
            table_options(self._settings, name),
            self._settings.canal.destination,
            stop=self._stop,
        )

    def _columns_now(self, name: TableName) -> tuple[ColumnMeta, ...]:
        channel = self._channel(name)
        try:
            return columns_at(channel, name, None)
        finally:
            channel.close()

    def _stopped(self, state: TableState, why: str) -> None:
        mirror_table_messages.MIRROR_TABLE_STOPPED.log(log, state.source, why)
        self._note(state, Phase.STOPPED, why)

    def _note(self, state: TableState, phase: Phase, message: str) -> None:
        state = self._store.read(state.source) or state
        self._store.write(state.moved(phase, message))
