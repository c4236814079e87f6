"""Applies the changes of one table to the lake: collects rows, applies DDL.

Items arrive in the order of the binlog, some of them repeatedly: items before the
position of the lake's table are skipped. Positions are numbers
(`spark.options.offsets.version_of`). Leaves out where items come from
(`micro_batches`, `copy_changes`).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from canal_server.mirror.ddl.evolve import (
    Copy,
    Dropped,
    Empty,
    Replaced,
    Steps,
    Stop,
    decide,
)
from canal_server.mirror.ddl.partition_statements import partition_statement
from canal_server.mirror.ddl.partitions import (
    NoConditionError,
    deleted_rows,
    partitions_after,
)
from canal_server.mirror.ddl.table_statements import moves_rows_of, read_statement
from canal_server.mirror.ddl.widening import definitions_of
from canal_server.mirror.follow.copied_rows import without_copied
from canal_server.mirror.follow.leaving import (
    CopyNeededError,
    TableDroppedError,
    TableReplacedError,
    TableStoppedError,
    origin_at,
)
from canal_server.mirror.follow.stream_ends import warn_of_ends_by
from canal_server.mirror.lake import masks
from canal_server.mirror.lake.exchange.given_rows import ExchangeTable, ReceivedRows
from canal_server.mirror.lake.lake_table import RowTable
from canal_server.mirror.lake.row_keys import NullKeyError, check_keys
from canal_server.mirror.state.lake_tables import UnlikeError
from canal_server.mirror.state.table_shape import Columns
from canal_server.mirror.state.xa import is_of_xa
from canal_server.model.columns_known import ColumnMeta
from canal_server.model.versions import position_of_version
from canal_server.spark.options.offsets import version_of
from canal_server.spark.packed.packed_rows import PART, PROBLEM, STATEMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from canal_server.errors import CanalError
    from canal_server.mirror.ddl.evolve import Decision
    from canal_server.mirror.lake.conditions import Among
    from canal_server.mirror.lake.exchange.given_rows import GivenRows
    from canal_server.mirror.settings.mirror_settings import TableRule
    from canal_server.mirror.settings.table_values import MirrorTable, TableName
    from canal_server.mirror.state.lake_tables import LakeTable
    from canal_server.mirror.state.table_shape import Partitions
    from canal_server.spark.packed.packed_rows import Packed

ROWS_MAX: Final = 250_000  # collected before they are written
BYTES_MAX: Final = 128 << 20

BATCH: Final = (
    "canal.batch"  # in the note of the commit that ends a batch of the stream
)
_ERASE: Final = "ERASE"
_EMPTIES: Final = "TRUNCATE"
NOT_KEPT: Final = (
    "_commit_version",
    "_position",
)  # of the columns that the stream adds


Shape = tuple[str, str, str, bool]


class Follower:
    """Applies the changes of one table to its table in the lake; for one thread."""

    def __init__(
        self,
        table: MirrorTable,
        columns: Columns,
        lake: LakeTable,
        copy_id: str,
        *,
        plan: Callable[[Sequence[ColumnMeta]], MirrorTable],
        rule: TableRule,
        is_mariadb: bool,
        copied_at: int = 0,
    ) -> None:
        """Start at the position of the lake's table.

        Args:
            table: the table as it is mirrored now
            columns: the source's columns, as of the position of the lake's table
            lake: the table to write to, with its published copy
            copy_id: id of that copy
            plan: returns how the table is mirrored with other columns
            rule: the table's rule in the settings
            is_mariadb: the dialect of statements
            copied_at: number of the position before everything that the copy saw

        """
        self.table = table
        self.columns = columns
        self.copied_at = copied_at
        self.statements = 0  # counter, so that others notice changed partitions
        self.rows = 0  # written rows since the caller set this to 0
        # Before this position number, a row of the copy may be from before or after a
        # statement (`copy_ddl`).
        self.copied_until = 0
        self.lake = lake
        self.copy_id = copy_id
        self._plan = plan
        self._rule = rule
        self._is_mariadb = is_mariadb
        self.applied = lake.applied(copy_id)
        # Whether the table may be beyond the current read.
        self.is_ahead = BATCH not in lake.position()[1]
        self._part = (0, 0)  # positions between which the current items were requested
        self._gathered: list[pa.Table] = []
        self._gathered_rows = 0
        self._gathered_bytes = 0
        self._is_done = False  # whether the current batch was applied before
        self._batch = ""
        self.doubt = ""  # why the current statement is not followed in the lake

    def begin(self, batch: str) -> None:
        """Start a batch of the stream; empty: none.

        A batch that was applied before is skipped as a whole: if the source was
        replaced meanwhile, its rows may have other positions, after the applied one.
        """
        self.drop_gathered()
        self.rows = 0
        self.doubt = ""
        self._part = (0, 0)
        self._batch = batch
        self._is_done = bool(batch) and self.lake.position()[1].get(BATCH) == batch

    def reached(self, position: int) -> None:
        """Record that the current read has reached a position."""
        if epoch_of(position) == epoch_of(self.applied) and position >= self.applied:
            self.is_ahead = False

    def feed(self, item: Packed, note: Mapping[str, str]) -> None:
        """Accept rows or a statement; writes rows if too many are collected.

        An item that describes a part comes before the items of that part. Raises what
        `flush` raises, and CopyNeededError, TableStoppedError or TableDroppedError if
        this table cannot continue.
        """
        if item.kind == PART:
            start, end = item.start[item.destination], item.end[item.destination]
            self._part = version_of(start), version_of(end)
            return
        if is_of_xa(item):
            raise CopyNeededError(
                f"{item.sql} rolled back rows that were applied when it was prepared"
            )
        if self._is_done or self._was_applied_before(item):
            if item.kind == STATEMENT:
                self._accept_repeated(item)
            return
        if item.kind == STATEMENT:
            self._statement(item, note)
            return
        if item.kind == PROBLEM:
            if item.seq >= self.applied:
                raise TableStoppedError(
                    f"{item.sql} (at {item.journal}:{item.position})"
                )
            return
        self._gather(item, note)

    def _gather(self, item: Packed, note: Mapping[str, str]) -> None:
        """Collect rows; writes the earlier ones if there are too many."""
        data = item.data
        assert data is not None
        if self._gathered and (
            self._gathered_rows >= ROWS_MAX or self._gathered_bytes >= BYTES_MAX
        ):
            # All rows of an event arrive in consecutive runs.
            last = self._gathered[-1]["_seq"][-1].as_py()
            if item.seq > last:
                self.flush(item.seq, note)
        if item.seq < self.applied:
            data = data.filter(pc.greater_equal(data["_seq"], self.applied))
        if data.num_rows:
            self._check_columns(data, item)
            self._gathered.append(self.as_in_lake(data))
            self._gathered_rows += data.num_rows
            self._gathered_bytes += data.nbytes

    def flush(
        self, upto: int, note: Mapping[str, str], *, ends_batch: bool = False
    ) -> None:
        """Write the collected rows: then the lake has all changes before a position.

        Raises CanalError if the lake does not accept them.
        """
        gathered, self._gathered = self._gathered, []
        self._gathered_rows = self._gathered_bytes = 0
        ends_batch = ends_batch and bool(self._batch)
        if gathered:
            if ends_batch:
                note = {**note, BATCH: self._batch}
            # A batch from before the source was replaced ends at a lower number.
            upto = max(upto, gathered[-1]["_seq"][-1].as_py() + 1)
            changes = pa.concat_tables(gathered)
            with _needing_a_copy():
                if self._may_be_copied(changes):
                    changes = without_copied(changes, self.lake, self.key_in_lake)
                done = self.lake.apply(self.copy_id, changes, upto, note)
            self.rows += done.changed + done.deleted
            self.applied = upto
        if ends_batch:
            self.reached(upto)

    def _may_be_copied(self, changes: pa.Table) -> bool:
        is_early = changes["_seq"][0].as_py() < self.copied_until
        return is_early and not self.table.is_log

    @property
    def gathered(self) -> Sequence[pa.Table]:
        """Rows of the current batch that are not written yet, in the lake's form."""
        return self._gathered

    @property
    def key_in_lake(self) -> list[str]:
        """The primary key columns' names in the lake."""
        return [c.target for c in self.table.columns if c.name in self.table.key]

    def correct(self, changes: pa.Table) -> None:
        """Correct rows of the lake, after everything that was written.

        They are not changes of the stream, and have the form of `as_in_lake`. Raises
        what `flush` raises.
        """
        with _needing_a_copy():
            done = self.lake.correct(self.copy_id, changes)
        self.rows += done.changed + done.deleted

    def drop_gathered(self) -> None:
        """Discard the collected rows, which will be delivered again."""
        self._gathered.clear()
        self._gathered_rows = self._gathered_bytes = 0

    # --------------------------------------------------------------------------------
    # A source that was replaced
    # --------------------------------------------------------------------------------

    def _was_applied_before(self, item: Packed) -> bool:
        """Check whether the lake has an item under its number of another server.

        Raises CopyNeededError if that is unknown.
        """
        epoch = epoch_of(self.applied)
        if epoch_of(item.seq) <= epoch:
            return False  # its number decides
        start, end = self._part
        if epoch_of(start) != epoch:
            if not self.is_ahead:
                return False
        elif self.applied <= start:
            return False
        elif epoch_of(end) == epoch and self.applied >= end:
            return True
        raise CopyNeededError(
            "the source was replaced after some of its changes were applied, and it "
            f"is unknown whether those at {item.journal}:{item.position} were applied"
        )

    # --------------------------------------------------------------------------------
    # Rows
    # --------------------------------------------------------------------------------

    def as_in_lake(self, data: pa.Table) -> pa.Table:
        """Return rows in the lake's form. Raises TableStoppedError."""
        left_out = [name for name in NOT_KEPT if name in data.column_names]
        rows = masks.apply(data.drop_columns(left_out), self.table)
        try:
            check_keys(rows, self.table)
        except NullKeyError as error:
            raise TableStoppedError(str(error)) from error
        return rows

    def _check_columns(self, data: pa.Table, item: Packed) -> None:
        """Raise unless rows have the known columns of the table."""
        actual, known = shapes_of(data.schema), shapes(self.columns.all)
        if actual == known:
            return
        raise CopyNeededError(
            f"rows at {item.journal}:{item.position} have other columns than known "
            f"({_what_differs(known, actual)[:300]}), without a statement for it"
        )

    # --------------------------------------------------------------------------------
    # Statements
    # --------------------------------------------------------------------------------

    def _statement(self, item: Packed, note: Mapping[str, str]) -> None:
        if item.seq < self.applied:
            self._accept_repeated(item)
            return
        context = self._context(item)
        if not item.is_ddl and item.event_type != _EMPTIES:
            raise CopyNeededError(
                f"a change was logged as a statement, without its rows, {context}"
            )
        if not item.table.table and item.event_type != _ERASE:
            self._unnamed(item, note, context)
            return
        self.flush(item.seq, note)
        upto = item.seq + 1
        if self._changes_partitions(item, note):
            return
        context = self._context(item)
        decision = self._decided(item)
        if isinstance(decision, Dropped | Replaced | Copy | Stop):
            raise _leaving(decision, item, context)
        if isinstance(decision, Empty):
            self.lake.empty(self.copy_id, upto, committed_ms(item), note)
            self.applied = upto
            return
        if item.seq < self.copied_until and decision.copy_doubt:
            raise CopyNeededError(f"{decision.copy_doubt}, {context}")
        if decision.steps or shapes(decision.columns) != shapes(self.columns.all):
            # Also for columns that the lake does not have: a repeated statement is
            # recognized by its position, as its columns match already.
            with _needing_a_copy():
                # Before, as the mirror may be killed in between.
                if self.lake.applied(self.copy_id) < upto:
                    before = self.lake.arrow_schema()
                    warn_of_ends_by(self.table, before, decision.steps)
                self.lake.evolve(self.copy_id, decision.steps, upto, note)
            self.applied = upto
        self._use_columns(decision)

    def _context(self, item: Packed) -> str:
        """Return what messages say about a statement."""
        doubt = f" ({self.doubt})" if self.doubt else ""
        return f"at {item.journal}:{item.position}: {item.sql[:200]}{doubt}"

    def awaits(self, item: Packed, note: Mapping[str, str]) -> bool:
        """Write all rows before a statement, unless that was applied before.

        Returns whether it still has to be applied. Raises what `flush` raises.
        """
        is_applied = item.seq < self.applied
        if self._is_done or self._was_applied_before(item) or is_applied:
            return False
        self.flush(item.seq, note)
        return True

    def get(
        self,
        item: Packed,
        rows: GivenRows,
        where: Among | None,
        note: Mapping[str, str],
        *,
        adds: bool = False,
    ) -> None:
        """Get another table's rows by a statement, for those of a condition.

        None: for all. `adds`: for none.
        """
        lake, upto = self.lake, item.seq + 1
        assert isinstance(lake, ExchangeTable)  # the caller has checked it
        self.statements += 1
        received = ReceivedRows(rows, committed_ms(item), where, adds)
        self.rows += lake.exchange(self.copy_id, received, note)
        self.applied = upto

    def _changes_partitions(self, item: Packed, note: Mapping[str, str]) -> bool:
        """Follow a statement that changes partitions, if it is certain what it does."""
        self.statements += 1
        partitions = self.columns.partitions
        name = self.table.source.table
        statement = partition_statement(item.sql, name) if item.columns else None
        if statement is None:
            if item.columns:
                self.use_partitions(None)
            return False
        if statement.deletes:
            lake = self.lake
            if not isinstance(lake, RowTable):
                return False
            try:
                where = deleted_rows(partitions, statement, self.table, lake)
            except NoConditionError as error:
                self.doubt = str(error)
                return False
            upto = item.seq + 1
            lake.delete(self.copy_id, where, upto, committed_ms(item), note)
            self.applied = upto
        self.use_partitions(partitions and partitions_after(partitions, statement))
        return True

    def use_partitions(self, partitions: Partitions | None) -> None:
        """Use these partitions of the source, as of the position; None: not known."""
        self.columns = self.columns._replace(partitions=partitions)

    def _unnamed(self, item: Packed, note: Mapping[str, str], context: str) -> None:
        """Handle a statement whose tables the server does not know.

        A statement that is known not to concern tables, such as CREATE DATABASE, is
        skipped.
        """
        effect = read_statement(
            item.sql,
            self.table.source,
            schema=item.table.schema,
            exists=True,
            mariadb=self._is_mariadb,
        )
        if effect.problem:
            self.flush(item.seq, note)
            raise CopyNeededError(f"{effect.problem}, {context}")

    def _accept_repeated(self, item: Packed) -> None:
        """Use the columns after a statement that was applied before a crash.

        Raises CopyNeededError for a statement that moved rows after the start of the
        copy, and that this table missed while it caught up.
        """
        if self.lacks(item):
            raise CopyNeededError(
                "a statement on another table added or removed rows, at "
                f"{item.journal}:{item.position}: {item.sql[:200]}"
            )
        if not item.columns:
            return
        self.statements += 1
        partitions = self.columns.partitions
        statement = partition_statement(item.sql, self.table.source.table)
        if statement is not None:
            self.use_partitions(partitions and partitions_after(partitions, statement))
            return
        self.use_partitions(None)
        decision = self._decided(item)
        if isinstance(decision, Steps):
            self._use_columns(decision)

    def lacks(self, item: Packed) -> bool:
        """Check whether rows that a statement on another table moved are missing.

        For a statement before the position of the lake's table.
        """
        lake = self.lake
        return (
            item.seq >= self.copied_at
            and moves_rows_of(item.sql, self.table.source, item.table.schema)
            and not (
                isinstance(lake, ExchangeTable)
                and lake.exchanged(self.copy_id) > item.seq
            )
        )

    def _decided(self, item: Packed) -> Decision:
        return decide(
            item.sql,
            self.table.source,
            self.columns.all,
            [meta_of(*column) for column in item.columns],
            self._rule,
            schema=item.table.schema,
            mariadb=self._is_mariadb,
            kept=self.columns.kept,
        )

    def _use_columns(self, decision: Steps) -> None:
        self.columns = Columns(decision.columns, decision.kept)
        self.table = self._plan(self.columns.all)
        self.lake.use_definition(self.table)


def _leaving(
    decision: Dropped | Replaced | Copy | Stop, item: Packed, context: str
) -> CanalError:
    """Return the error for a statement that the table cannot follow."""
    match decision:
        case Dropped():
            return TableDroppedError(f"dropped or renamed {context}", item.seq)
        case Replaced(source, reason):
            origin = origin_at(item, source)
            return TableReplacedError(f"{reason}, {context}", origin)
        case Copy(reason):
            return CopyNeededError(f"{reason}, {context}")
        case Stop(reason):
            return TableStoppedError(f"{reason}, {context}")


def is_about(item: Packed, table: TableName) -> bool:
    """Check whether an item changes a table.

    A statement without a table may concern each table that its text names, and one that
    drops a schema concerns all of its tables.
    """
    return item.concerns(table)


@contextmanager
def _needing_a_copy() -> Iterator[None]:
    """Raise CopyNeededError for a copy that does not match the changes."""
    try:
        yield
    except UnlikeError as error:
        raise CopyNeededError(str(error)) from error


def epoch_of(number: int) -> int:
    """Return the epoch of a position number: it grows when the source is replaced."""
    return position_of_version(number).epoch if number > 0 else 0


def committed_ms(item: Packed) -> int:
    """Return when an item's transaction was committed; 0 if unknown."""
    return 0 if item.committed is None else round(item.committed.timestamp() * 1000)


def meta_of(name: str, mysql_type: str, charset: str, is_key: bool) -> ColumnMeta:
    """Return a column as Spark's source describes it, without its NULL attribute."""
    return ColumnMeta(name, mysql_type, charset or None, is_key)


def shapes(columns: Sequence[ColumnMeta]) -> tuple[Shape, ...]:
    """Return the attributes of columns that determine how rows are read."""
    return tuple((c.name, c.mysql_type, c.charset or "", c.is_key) for c in columns)


def shapes_of(schema: pa.Schema) -> tuple[Shape, ...]:
    """Return the same attributes of a run of rows."""
    return tuple(
        (
            field.name,
            _text(field.metadata, b"mysql_type"),
            _text(field.metadata, b"charset"),
            _text(field.metadata, b"key") == "1",
        )
        for field in schema
        if field.metadata and b"mysql_type" in field.metadata
    )


def _what_differs(known: Sequence[Shape], actual: Sequence[Shape]) -> str:
    """Return the columns that differ between two tables, with their types."""
    before, after = (
        {each[0]: meta_of(*each) for each in side} for side in (known, actual)
    )
    differences = []
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            differences.append(f"no {name}")
        elif name not in before:
            differences.append(f"{name} is new")
        elif before[name] != after[name]:
            was, now = definitions_of(before[name], after[name])
            differences.append(f"{name} was {was} and is now {now}")
    return ", ".join(differences) or "in another order"


def _text(metadata: Any, key: bytes) -> str:
    return str(metadata.get(key, b"").decode())
