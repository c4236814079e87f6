"""Changes of one table on their way into the lake: rows gathered, DDL applied.

Items come in the order of the binlog, some of them perhaps again: whatever lies before
the place that the lake's table has reached is left out. Places are position numbers
(`spark.offsets.version_of`). Leaves out where items come from (`stream`, `catch_up`).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from canal_server.errors import CanalError
from canal_server.mirror.follow.evolve import Copy, Empty, Gone, Steps, Stop, decide
from canal_server.mirror.follow.table_statements import is_moved_beside, read_statement
from canal_server.mirror.follow.widening import told_apart
from canal_server.mirror.lake import masks
from canal_server.mirror.lake.row_keys import NullKeyError, check_keys
from canal_server.mirror.state.lake_tables import UnlikeError
from canal_server.mirror.state.xa import is_of_xa
from canal_server.model.columns_known import ColumnMeta
from canal_server.model.versions import place_of
from canal_server.spark.options.offsets import version_of
from canal_server.spark.packed.packed_rows import PART, PROBLEM, STATEMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from canal_server.mirror.follow.evolve import Decision
    from canal_server.mirror.settings.mirror_settings import TableRule
    from canal_server.mirror.settings.table_values import MirrorTable, TableName
    from canal_server.mirror.state.lake_tables import LakeTable
    from canal_server.spark.packed.packed_rows import Packed

ROWS_MAX: Final = 250_000  # gathered before they are written
BYTES_MAX: Final = 128 << 20

BATCH: Final = "canal.batch"  # in the note of what ended a batch of the stream
_ERASE: Final = "ERASE"
_EMPTIES: Final = "TRUNCATE"
NOT_KEPT: Final = ("_commit_version", "_position")  # of what the stream adds


Shape = tuple[str, str, str, bool]


class Columns(NamedTuple):
    """The columns of a table in the source, and those that only the lake still has."""

    all: tuple[ColumnMeta, ...]
    kept: tuple[str, ...] = ()  # by their names in the lake


class CopyNeededError(CanalError):
    """What came cannot be followed; a new copy of the table has it."""


class TableStoppedError(CanalError):
    """What came cannot be followed, and somebody has to decide."""


class TableDroppedError(CanalError):
    """The table was dropped or renamed at the source."""


class Follower:
    """Brings the changes of one table into its table of the lake; for one thread."""

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
        begun: int = 0,
    ) -> None:
        """Go on where the lake's table is.

        Args:
            table: as it is mirrored now
            columns: those of the source's table, where the lake's table is
            lake: what changes are written to; its copy is published
            copy_id: of that copy
            plan: tells how the table is mirrored when it has other columns
            rule: the settings' rule for the table
            is_mariadb: whose words statements are
            begun: number of the place before everything that the copy saw

        """
        self.table = table
        self.columns = columns
        self.begun = begun
        self.rows = 0  # that were written since somebody set this to 0
        # Before this position number, rows of the copy may be of before or behind a
        # statement (`amid_copy`).
        self.copied_until = 0
        self.lake = lake
        self._copy_id = copy_id
        self._plan = plan
        self._rule = rule
        self._is_mariadb = is_mariadb
        self.applied = lake.applied(copy_id)
        # Whether that may be more than what is read now has come to.
        self.is_ahead = BATCH not in lake.place()[1]
        self._part = (0, 0)  # between which places the items at hand were asked for
        self._gathered: list[pa.Table] = []
        self._gathered_rows = 0
        self._gathered_bytes = 0
        self._is_done = False  # with the batch at hand, before it came again
        self._batch = ""

    def begin(self, batch: str) -> None:
        """Begin with a batch of the stream; empty: with none.

        One that was taken before is left out as a whole: when the source was replaced
        since then, its rows may have other places, behind the one that is applied.
        """
        self.drop_gathered()
        self.rows = 0
        self._part = (0, 0)
        self._batch = batch
        self._is_done = bool(batch) and self.lake.place()[1].get(BATCH) == batch

    def reached(self, place: int) -> None:
        """Take note that what is read now has come to a place."""
        if epoch_of(place) == epoch_of(self.applied) and place >= self.applied:
            self.is_ahead = False

    def feed(self, item: Packed, note: Mapping[str, str]) -> None:
        """Take rows or a statement; writes what there is too much of.

        An item that tells of a part comes before what is in that part. Raises what
        `flush` raises, and CopyNeededError, TableStoppedError or TableDroppedError
        where this table cannot go on.
        """
        if item.kind == PART:
            start, end = item.start[item.destination], item.end[item.destination]
            self._part = version_of(start), version_of(end)
            return
        if is_of_xa(item):
            raise CopyNeededError(
                f"{item.sql} took back rows that came when it was prepared"
            )
        if self._is_done or self._was_applied_before(item):
            if item.kind == STATEMENT:
                self._take_again(item)
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
        """Take rows; what was gathered before is written when it is too much."""
        data = item.data
        assert data is not None
        if self._gathered and (
            self._gathered_rows >= ROWS_MAX or self._gathered_bytes >= BYTES_MAX
        ):
            # All rows of an event come in runs that follow each other.
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
        """Write what was gathered: all changes before a place are in the lake then.

        Raises CanalError where the lake does not take it.
        """
        gathered, self._gathered = self._gathered, []
        self._gathered_rows = self._gathered_bytes = 0
        ends_batch = ends_batch and bool(self._batch)
        if gathered:
            if ends_batch:
                note = {**note, BATCH: self._batch}
            # A batch of before the source was replaced ends at a lower number.
            upto = max(upto, gathered[-1]["_seq"][-1].as_py() + 1)
            changes = pa.concat_tables(gathered)
            with _needing_a_copy():
                done = self.lake.apply(self._copy_id, changes, upto, note)
            self.rows += done.changed + done.deleted
            self.applied = upto
        if ends_batch:
            self.reached(upto)

    @property
    def gathered(self) -> Sequence[pa.Table]:
        """Rows of the batch at hand, as the lake has them, that it has not yet."""
        return self._gathered

    @property
    def key_in_lake(self) -> list[str]:
        """The names of the primary key's columns in the lake."""
        return [c.target for c in self.table.columns if c.name in self.table.key]

    def correct(self, changes: pa.Table) -> None:
        """Bring rows of the lake in line, behind all that was written.

        They are no changes of the stream, and as `as_in_lake` gives them. Raises what
        `flush` raises.
        """
        with _needing_a_copy():
            done = self.lake.correct(self._copy_id, changes)
        self.rows += done.changed + done.deleted

    def drop_gathered(self) -> None:
        """Forget what was gathered; it comes again."""
        self._gathered.clear()
        self._gathered_rows = self._gathered_bytes = 0

    # --------------------------------------------------------------------------------
    # A source that was replaced
    # --------------------------------------------------------------------------------

    def _was_applied_before(self, item: Packed) -> bool:
        """Tell whether an item is in the lake, under its number of another server.

        Raises CopyNeededError where nobody can tell.
        """
        epoch = epoch_of(self.applied)
        if epoch_of(item.seq) <= epoch:
            return False  # its number tells
        start, end = self._part
        if epoch_of(start) != epoch:
            if not self.is_ahead:
                return False
        elif self.applied <= start:
            return False
        elif epoch_of(end) == epoch and self.applied >= end:
            return True
        raise CopyNeededError(
            "the source was replaced when some of its changes were applied, and it "
            f"cannot be told whether those at {item.journal}:{item.position} were"
        )

    # --------------------------------------------------------------------------------
    # Rows
    # --------------------------------------------------------------------------------

    def as_in_lake(self, data: pa.Table) -> pa.Table:
        """Return rows as the lake has them. Raises TableStoppedError."""
        left_out = [name for name in NOT_KEPT if name in data.column_names]
        rows = masks.apply(data.drop_columns(left_out), self.table)
        try:
            check_keys(rows, self.table)
        except NullKeyError as error:
            raise TableStoppedError(str(error)) from error
        return rows

    def _check_columns(self, data: pa.Table, item: Packed) -> None:
        """Raise unless rows have the columns that the table is known to have."""
        came, known = shapes_of(data.schema), shapes(self.columns.all)
        if came == known:
            return
        raise CopyNeededError(
            f"rows at {item.journal}:{item.position} have other columns than were "
            f"known ({_what_differs(known, came)[:300]}), and no statement told why"
        )

    # --------------------------------------------------------------------------------
    # Statements
    # --------------------------------------------------------------------------------

    def _statement(self, item: Packed, note: Mapping[str, str]) -> None:
        where = f"{item.journal}:{item.position}"
        if item.seq < self.applied:
            self._take_again(item)
            return
        told = f"at {where}: {item.sql[:200]}"
        if not item.is_ddl and item.event_type != _EMPTIES:
            raise CopyNeededError(
                f"a change was logged as a statement, so that its rows are not told, "
                f"{told}"
            )
        if not item.table.table and item.event_type != _ERASE:
            self._unnamed(item, note, told)
            return
        self.flush(item.seq, note)
        upto = item.seq + 1
        decision = self._decided(item)
        if isinstance(decision, Gone):
            raise TableDroppedError(f"dropped or renamed {told}")
        if isinstance(decision, Copy):
            raise CopyNeededError(f"{decision.reason}, {told}")
        if isinstance(decision, Stop):
            raise TableStoppedError(f"{decision.reason}, {told}")
        if isinstance(decision, Empty):
            self.lake.empty(self._copy_id, upto, committed_ms(item), note)
            self.applied = upto
            return
        if item.seq < self.copied_until and decision.unsure_amid_copy:
            raise CopyNeededError(f"{decision.unsure_amid_copy}, {told}")
        if decision.steps or shapes(decision.columns) != shapes(self.columns.all):
            # Also for columns that the lake has not: a statement that comes again is
            # known by its place, for by then its columns are what they were made.
            with _needing_a_copy():
                self.lake.evolve(self._copy_id, decision.steps, upto, note)
            self.applied = upto
        self._take(decision)

    def _unnamed(self, item: Packed, note: Mapping[str, str], told: str) -> None:
        """See to a statement of which the server could not tell the tables.

        One that is known for what it does, such as CREATE DATABASE, is about none.
        """
        said = read_statement(
            item.sql,
            self.table.source,
            schema=item.table.schema,
            exists=True,
            mariadb=self._is_mariadb,
        )
        if said.problem:
            self.flush(item.seq, note)
            raise CopyNeededError(f"{said.problem}, {told}")

    def _take_again(self, item: Packed) -> None:
        """Take the columns behind a statement that was applied before a crash.

        Raises CopyNeededError for one that moved rows behind the copy's beginning,
        and that this table was not told of while it caught up.
        """
        if item.seq >= self.begun and is_moved_beside(
            item.sql, self.table.source, item.table.schema
        ):
            raise CopyNeededError(
                "rows came or went with a statement on another table, at "
                f"{item.journal}:{item.position}: {item.sql[:200]}"
            )
        if item.columns:
            decision = self._decided(item)
            if isinstance(decision, Steps):
                self._take(decision)

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

    def _take(self, decision: Steps) -> None:
        self.columns = Columns(decision.columns, decision.kept)
        self.table = self._plan(self.columns.all)
        self.lake.take(self.table)


def is_about(item: Packed, table: TableName) -> bool:
    """Tell whether an item changes a table.

    A statement that comes without a table may be about each that its text names, and
    one that drops a schema is about all of its tables.
    """
    return item.concerns(table)


@contextmanager
def _needing_a_copy() -> Iterator[None]:
    """Raise CopyNeededError for a copy that is not what changes are of."""
    try:
        yield
    except UnlikeError as error:
        raise CopyNeededError(str(error)) from error


def epoch_of(number: int) -> int:
    """Return the epoch of a position number: it grows when the source is replaced."""
    return place_of(number).epoch if number > 0 else 0


def committed_ms(item: Packed) -> int:
    """Return when an item's transaction was committed; 0 when it is not told."""
    return 0 if item.committed is None else round(item.committed.timestamp() * 1000)


def meta_of(name: str, mysql_type: str, charset: str, is_key: bool) -> ColumnMeta:
    """Return a column as the source of Spark tells it; NULL is not told."""
    return ColumnMeta(name, mysql_type, charset or None, is_key)


def shapes(columns: Sequence[ColumnMeta]) -> tuple[Shape, ...]:
    """Return what has to be the same of columns for rows to be read alike."""
    return tuple((c.name, c.mysql_type, c.charset or "", c.is_key) for c in columns)


def shapes_of(schema: pa.Schema) -> tuple[Shape, ...]:
    """Return the same of a run of rows."""
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


def _what_differs(known: Sequence[Shape], came: Sequence[Shape]) -> str:
    """Return the columns that two tables do not have alike, with what they are."""
    before, after = (
        {each[0]: meta_of(*each) for each in side} for side in (known, came)
    )
    told = []
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            told.append(f"no {name}")
        elif name not in before:
            told.append(f"{name} is new")
        elif before[name] != after[name]:
            was, now = told_apart(before[name], after[name])
            told.append(f"{name} was {was} and is now {now}")
    return ", ".join(told) or "in another order"


def _text(metadata: Any, key: bytes) -> str:
    return str(metadata.get(key, b"").decode())
