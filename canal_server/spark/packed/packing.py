"""What a task does for `payload = arrow`: each table's changes as Arrow streams.

One pass over the entries fills the columns of all tables. A run of rows of one table
becomes a row for Spark, and so does a statement; nothing in a run is behind a statement
that may concern its table. Leaves out what becomes of them (`packed`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from canal_server.arrow.table_router import TableRouter
from canal_server.errors import CanalError, DecodeError, TableMetaError
from canal_server.model.entry import EventType
from canal_server.model.versions import version as version_at
from canal_server.spark.columns.spark_columns import wanted_column
from canal_server.spark.options.source_options import TableName
from canal_server.spark.packed.packed_form import (
    PROBLEM,
    ROWS,
    STATEMENT,
    batch_of,
    event_name,
    meta_of,
    packed_bytes,
    packed_schema,
    told_columns,
)
from canal_server.spark.reading.arrow_batches import ROWS_MAX, typed_batches
from canal_server.spark.reading.ddl_statements import (
    dropped_schema,
    may_concern,
    tables_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from canal_server.arrow.table_router import FoundStatement, Held, Refused
    from canal_server.client.range_client import RangeTable
    from canal_server.spark.reading.arrow_batches import Batches

RUN_BYTES_MAX: Final = 16 << 20
ALL_BYTES_MAX: Final = 32 << 20  # of runs that are not finished
TABLES_MAX: Final = 1000  # that a task keeps columns of


class Place(NamedTuple):
    """A place in the binlog of which the columns of a table are asked."""

    journal: str
    position: int


if TYPE_CHECKING:
    # Tells the columns of a table at a place; None: where the range begins.
    Ask = Callable[[TableName, Place | None], RangeTable]


@dataclass(slots=True)
class Run:
    """The rows of one table that are not handed out yet."""

    name: TableName
    batches: Batches
    columns: str  # JSON
    asked_at: Place | None
    is_compared: bool = True


@dataclass(slots=True)
class Limits:
    """How much is held, and how large a run may be."""

    rows: int = ROWS_MAX
    run_bytes: int = RUN_BYTES_MAX
    all_bytes: int = ALL_BYTES_MAX
    tables: int = TABLES_MAX


@dataclass(slots=True)
class _Made:
    """Rows for Spark that are finished."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    bytes: int = 0

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        self.bytes += len(row.get("arrow") or "") + len(row.get("sql") or "")

    def take(self) -> pa.RecordBatch:
        rows, self.rows, self.bytes = self.rows, [], 0
        return batch_of(rows)


class PackedBatches:
    """Turns entries into rows that each hold a run of changes; for one thread."""

    def __init__(
        self,
        destination: str,
        ask: Ask,
        *,
        epoch: int = 0,
        zone: str = "",
        wants: Callable[[str], bool] = lambda _: True,
        limits: Limits | None = None,
    ) -> None:
        """Take whom to ask for columns.

        `zone`: of TIMESTAMP, before the server's. `wants`: whether the filter takes
        `schema.table`.
        """
        self._destination = destination
        self._ask = ask
        self._epoch = epoch
        self._zone = zone
        self._wants = wants
        self._limits = limits or Limits()
        self._router = TableRouter(epoch=epoch, bytes_max=self._limits.all_bytes)
        self._runs: dict[TableName, Run] = {}
        self._ended: list[Run] = []  # that wait for their commit
        self._statements: dict[int, list[dict[str, Any]]] = {}  # that do
        self._since: Place | None = None  # behind the last statement
        self._made = _Made()

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[pa.RecordBatch]:
        """Take whole entries (a body of Messages); yields rows when there are enough.

        Raises DecodeError for entries that cannot be read at all.
        """
        rest = memoryview(data)
        router = self._router
        while rest:
            rest = rest[router.feed(rest) :]
            for refused in router.refused():
                self._refused(refused)
            for statement in router.met():
                self._met(statement)
            self._end_transactions()
            held = router.held()
            if held is not None:
                self._learn(held)
            if router.full:
                self._make_room()
            if self._made.bytes >= self._limits.run_bytes:
                yield self._made.take()

    def expect(self, version: int, time_ms: int, xid: str = "") -> None:
        """Tell the commit of the transaction at hand, else of the next one."""
        self._router.expect(version, time_ms, xid)

    def finish(self, version: int, time_ms: int, xid: str = "") -> None:
        """Tell the commit of the rows whose transaction did not end."""
        self._router.finish(version, time_ms, xid)

    def rest(self) -> pa.RecordBatch | None:
        """Return what is left when everything was fed; None without rows.

        ValueError when the commit of some is not known.
        """
        self._end_transactions()
        for run in self._runs.values():
            self._pack(run)
        if self._ended or self._statements:
            raise ValueError("rows or statements wait for their commit")
        return self._made.take() if self._made.rows else None

    # --- runs -------------------------------------------------------------------

    def _learn(self, held: Held) -> None:
        """Find out what columns a table has at the entry that was held."""
        name = TableName(held.schema, held.table)
        here = Place(held.journal, held.position)
        run = self._runs.get(name)
        if held.is_unlike and run is not None and run.asked_at == here:
            # The server says what the rows deny: the error of a value tells more.
            run.batches.typed.compare(None)
            return
        if held.is_unlike:
            self._end(name, forgets=False)
        if self._router.tables >= self._limits.tables:
            self._end_all()
        at = here if held.is_unlike else self._since
        table = self._ask(name, at)
        if not table.found and at != here:
            at, table = here, self._ask(name, here)
        try:
            run = self._run(name, table, at)
        except CanalError as error:
            self._router.set_table(*name, None)
            self._made.add(self._problem(held, str(error)))
        else:
            self._runs[name] = run
            self._router.set_table(*name, run.batches.typed)

    def _run(self, name: TableName, table: RangeTable, at: Place | None) -> Run:
        """Return an empty run of a table. Raises CanalError if there can be none."""
        if not table.found:
            raise TableMetaError(f"what columns table {name} has is not known here")
        columns = table.columns
        schema = packed_schema(name, columns)
        is_keyed = any(column.key for column in columns)
        wanted = [wanted_column(meta_of(column)) for column in columns]
        zone = self._zone or table.zone
        if not zone and any(column.kind == "timestamp" for column in wanted):
            raise TableMetaError(
                f"table {name} has TIMESTAMP columns, and the server does not tell in "
                "which zone it writes them; set option timeZone to the server's zone"
            )
        updates = "postimage" if is_keyed else "both"
        batches = typed_batches(
            *name,
            wanted,
            updates=updates,
            split_keys=is_keyed,
            zone=zone or "UTC",
            epoch=self._epoch,
            rows_max=self._limits.rows,
            bytes_max=self._limits.run_bytes,
        )
        batches.typed.compare([(each.mysql_type, each.key) for each in columns])
        batches.schema = schema
        return Run(name, batches, told_columns(columns), at)

    def _end(self, name: TableName, *, forgets: bool = True) -> None:
        """Have nothing more come into the run of a table."""
        run = self._runs.pop(name, None)
        if run is not None:
            if run.batches.pending:
                self._ended.append(run)
            else:
                self._pack(run)
        if forgets:
            self._router.forget(*name)

    def _end_all(self) -> None:
        for name in list(self._runs):
            self._end(name)

    def _end_transactions(self) -> None:
        """Hand out what waited for a commit that is known now."""
        for number, version, time_ms in self._router.committed_statements():
            for row in self._statements.pop(number):
                row["_commit_version"] = version
                row["_commit_timestamp"] = time_ms * 1000
                self._made.add(row)
        if self._ended:
            for run in [each for each in self._ended if not each.batches.pending]:
                self._ended.remove(run)
                self._pack(run)

    def _make_room(self) -> None:
        """Hand out the runs that are full, and the largest if all are too large."""
        sizes = []
        for run in self._runs.values():
            columns = run.batches.typed
            if columns.full:
                self._pack(run)
            elif columns.rows and not columns.pending:
                sizes.append((columns.bytes_held, run))
        total = sum(size for size, _ in sizes)
        if total >= self._limits.all_bytes:
            for size, run in sorted(sizes, key=lambda each: -each[0]):
                self._pack(run)
                total -= size
                if total < self._limits.all_bytes // 2:
                    break
        self._router.room_made()

    def _pack(self, run: Run) -> None:
        """Make rows for Spark of the rows of a run."""
        batch = run.batches.rest()
        if batch is None:
            return
        # A long transaction may have more than a run is to have.
        count = max(
            -(-batch.num_rows // self._limits.rows),
            -(-batch.nbytes // self._limits.run_bytes),
        )
        each = -(-batch.num_rows // count)
        for first in range(0, batch.num_rows, each):
            self._made.add(self._packed(run, batch.slice(first, each)))

    def _packed(self, run: Run, batch: pa.RecordBatch) -> dict[str, Any]:
        last = batch.num_rows - 1
        journal, _, position = batch["_position"][0].as_py().rpartition(":")
        return {
            "destination": self._destination,
            "db": run.name.schema,
            "table": run.name.table,
            "kind": ROWS,
            "rows": batch.num_rows,
            "arrow": packed_bytes(batch),
            "columns": run.columns,
            "_commit_version": batch["_commit_version"][last].as_py(),
            "_commit_timestamp": batch["_commit_timestamp"][last].as_py(),
            "_seq": batch["_seq"][0].as_py(),
            "_row": batch["_row"][0].as_py(),
            "journal": journal,
            "position": int(position),
        }

    # --- statements and problems --------------------------------------------------

    def _met(self, statement: FoundStatement) -> None:
        """Take note of a statement, and end the runs that it may concern."""
        if statement.is_ddl:
            self._since = Place(statement.journal, statement.end)
            for name in [*self._runs]:
                if may_concern(statement.sql, name):
                    self._end(name)
        self._statements[statement.number] = [
            {
                "destination": self._destination,
                "db": name.schema,
                "table": name.table,
                "kind": STATEMENT,
                "sql": statement.sql,
                "event_type": event_name(event_type),
                "is_ddl": statement.is_ddl,
                "columns": columns,
                "_seq": statement.seq,
                "_row": 0,
                "journal": statement.journal,
                "position": statement.position,
            }
            for name, event_type, columns in self._told_of(statement)
        ]

    def _told_of(
        self, statement: FoundStatement
    ) -> Iterator[tuple[TableName, int, str | None]]:
        """Yield the tables for which a statement is told, with what it is for them."""
        kind, first = statement.event_type, TableName(statement.schema, statement.table)
        schema = dropped_schema(statement.sql) if statement.is_ddl else None
        if schema is not None:
            yield TableName(schema, ""), EventType.ERASE, told_columns(())
        elif not statement.is_ddl:
            yield first, kind, None
        else:
            names = tables_of(
                kind, statement.sql, first, statement.default_schema, self._wants
            )
            for name in names:
                yield name, kind, self._columns_behind(name)

    def _columns_behind(self, name: TableName) -> str:
        if not (name.schema and name.table):
            return told_columns(())
        return told_columns(self._ask(name, self._since).columns)

    def _refused(self, refused: Refused) -> None:
        """Tell of a table whose rows cannot be read."""
        self._runs.pop(TableName(refused.schema, refused.table), None)
        error = DecodeError(
            refused.problem, file=refused.journal, position=refused.position
        )
        self._made.add(self._problem(refused, str(error)))

    def _problem(self, at: Held | Refused, text: str) -> dict[str, Any]:
        seq = version_at(self._epoch, at.journal, at.position)
        return {
            "destination": self._destination,
            "db": at.schema,
            "table": at.table,
            "kind": PROBLEM,
            "sql": text,
            "_seq": getattr(at, "seq", seq),
            "_row": getattr(at, "row", 0),
            "journal": at.journal,
            "position": at.position,
        }
