"""Changes of one table on their way into the lake: rows gathered, DDL applied.

Items come in the order of the binlog, some of them perhaps again: whatever lies before
the place that the lake's table has reached is left out. Places are position numbers
(`spark.offsets.version_of`). Leaves out where items come from (`stream`, `catch_up`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from canal_server.errors import CanalError
from canal_server.mirror import evolve, masks
from canal_server.mirror.model import SourceColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from canal_server.mirror.lake import LakeTable
    from canal_server.mirror.model import MirrorTable, TableName
    from canal_server.spark.packed import Packed

ROWS_MAX: Final = 250_000  # gathered before they are written
BYTES_MAX: Final = 128 << 20
_COMMENT: Final = re.compile(r"/\*.*?\*/", re.DOTALL)

BATCH: Final = "canal.batch"  # in the note of what ended a batch of the stream
ORDER: Final = ("_change_type", "_seq", "_row", "_commit_timestamp")


class CopyNeededError(CanalError):
    """What came cannot be followed; a new copy of the table has it."""


class TableStoppedError(CanalError):
    """What came cannot be followed, and somebody has to decide."""


class TableGoneError(CanalError):
    """The table was dropped or renamed at the source."""


class Follower:
    """Brings the changes of one table into its table of the lake; for one thread."""

    def __init__(
        self,
        table: MirrorTable,
        columns: Sequence[SourceColumn],
        lake: LakeTable,
        copy_id: str,
        plan: Callable[[TableName, Sequence[SourceColumn]], MirrorTable],
        rules: evolve.Rules,
    ) -> None:
        """Go on where the lake's table is.

        Args:
            table: as it is mirrored now
            columns: all that the source's table has, where the lake's table is
            lake: what changes are written to; its copy is published
            copy_id: of that copy
            plan: tells how a table with other columns is mirrored
            rules: what is done with DDL

        """
        self.table = table
        self.columns = tuple(columns)
        self.rows = 0  # that were written since somebody set this to 0
        self._lake = lake
        self._copy_id = copy_id
        self._plan = plan
        self._rules = rules
        self.applied = lake.applied(copy_id)
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
        self._batch = batch
        self._is_done = bool(batch) and self._lake.place()[1].get(BATCH) == batch

    def feed(self, item: Packed, note: Mapping[str, str]) -> None:
        """Take rows or a statement; writes what there is too much of.

        Raises what `flush` raises, and CopyNeededError, TableStoppedError or
        TableGoneError where this table cannot go on.
        """
        if self._is_done:
            if item.kind == "statement" and item.columns:
                self._take_columns(item.columns)
            return
        if item.kind == "statement":
            self._statement(item, note)
            return
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
            self._gathered.append(self._as_in_lake(data))
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
        if not gathered or upto <= self.applied:
            return
        if ends_batch and self._batch:
            note = {**note, BATCH: self._batch}
        done = self._lake.apply(self._copy_id, pa.concat_tables(gathered), upto, note)
        self.rows += done.written + done.deleted
        self.applied = upto

    def drop_gathered(self) -> None:
        """Forget what was gathered; it comes again."""
        self._gathered.clear()
        self._gathered_rows = self._gathered_bytes = 0

    # --------------------------------------------------------------------------------
    # Rows
    # --------------------------------------------------------------------------------

    def _as_in_lake(self, data: pa.Table) -> pa.Table:
        names = [column.name for column in self.table.columns]
        table = masks.apply(data.select(names), self.table)
        for name in ORDER:
            table = table.append_column(name, data[name])
        return table

    def _check_columns(self, data: pa.Table, item: Packed) -> None:
        """Raise unless rows have the columns that the table is known to have."""
        came = columns_of(data.schema)
        if came == self.columns:
            return
        ours = {column.name: column for column in self.columns}
        other = sorted(
            {c.name for c in came if ours.get(c.name) != c}
            | ours.keys() - {c.name for c in came}
        )
        raise CopyNeededError(
            f"rows at {item.journal}:{item.position} have other columns than were "
            f"known ({', '.join(other)[:300] or 'in another order'}), and no statement "
            "told why"
        )

    # --------------------------------------------------------------------------------
    # Statements
    # --------------------------------------------------------------------------------

    def _statement(self, item: Packed, note: Mapping[str, str]) -> None:
        where = f"{item.journal}:{item.position}"
        if not item.is_ddl and item.event_type not in _EMPTYING:
            if item.seq >= self.applied:
                raise CopyNeededError(
                    f"a change was logged as a statement at {where} "
                    f"({item.sql[:200]!r}): its rows are not told"
                )
            return
        if item.seq < self.applied:
            if item.columns:
                self._take_columns(item.columns)
            return
        self.flush(item.seq, note)
        upto = item.seq + 1
        if item.event_type == "TRUNCATE":
            self._lake.empty(self._copy_id, upto, item.commit_ms, note)
            self.applied = upto
        elif item.event_type in _GOING and not item.columns:
            raise TableGoneError(f"dropped or renamed at {where}: {item.sql[:200]}")
        else:
            self._alter(item, upto, note)

    def _alter(self, item: Packed, upto: int, note: Mapping[str, str]) -> None:
        where = f"{item.journal}:{item.position}"
        if not item.columns:
            raise TableGoneError(f"not there any more at {where}: {item.sql[:200]}")
        if item.event_type in _GOING or item.event_type == "CREATE":
            if _creates_nothing(item, self.columns):
                return
            raise CopyNeededError(f"made anew at {where}: {item.sql[:200]}")
        if item.columns == self.columns and not evolve.may_change_rows(item.sql):
            return
        decision = evolve.decide(item.sql, self.columns, item.columns, self._rules)
        if decision.copy:
            raise CopyNeededError(f"{decision.copy} at {where}: {item.sql[:200]}")
        if decision.stop:
            raise TableStoppedError(f"{decision.stop} at {where}: {item.sql[:200]}")
        before = self.table
        self._take_columns(item.columns)
        steps = evolve.in_lake(decision.steps, before, self.table)
        if steps:
            self._lake.evolve(self._copy_id, steps, upto, note)
            self.applied = upto

    def _take_columns(self, columns: Sequence[SourceColumn]) -> None:
        self.columns = tuple(columns)
        self.table = self._plan(self.table.source, self.columns)


_EMPTYING: Final = ("TRUNCATE",)
_GOING: Final = ("ERASE", "RENAME")


def _creates_nothing(item: Packed, columns: Sequence[SourceColumn]) -> bool:
    """Tell whether a CREATE found the table already there."""
    text = _COMMENT.sub(" ", item.sql).upper()
    return (
        item.event_type == "CREATE"
        and "IF NOT EXISTS" in " ".join(text.split())
        and tuple(item.columns) == tuple(columns)
    )


def columns_of(schema: pa.Schema) -> tuple[SourceColumn, ...]:
    """Return the columns of the source's table, of the schema of a run of rows."""
    return tuple(
        SourceColumn(
            field.name,
            _text(field.metadata, b"mysql_type"),
            _text(field.metadata, b"charset"),
            _text(field.metadata, b"key") == "1",
        )
        for field in schema
        if field.metadata and b"mysql_type" in field.metadata
    )


def _text(metadata: Any, key: bytes) -> str:
    return str(metadata.get(key, b"").decode())
