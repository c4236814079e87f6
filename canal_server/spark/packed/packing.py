"""The work of a task for `payload = arrow`: each table's changes as Arrow streams.

One pass over the entries fills the columns of all tables. A run of rows of one table
becomes a row for Spark, and so does a statement; a run never spans a statement that may
affect its table. Consuming the rows is left to `packed_rows`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from canal_server.arrow.arrow_batches import ROWS_MAX, typed_batches
from canal_server.arrow.arrow_columns import requested_column
from canal_server.arrow.table_router import TableRouter
from canal_server.errors import CanalError, DecodeError, TableMetaError
from canal_server.model.entry import EventType
from canal_server.model.versions import version as version_at
from canal_server.spark.options.source_options import TableName
from canal_server.spark.packed.packed_form import (
    PROBLEM,
    ROWS,
    STATEMENT,
    batch_of,
    columns_as_json,
    event_name,
    meta_of,
    packed_bytes,
    packed_schema,
)
from canal_server.spark.reading.ddl_statements import (
    dropped_schema,
    may_concern,
    tables_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from canal_server.arrow.arrow_batches import Batches
    from canal_server.arrow.table_router import FoundStatement, Held, Refused
    from canal_server.client.range_client import RangeTable

RUN_BYTES_MAX: Final = 16 << 20
ALL_BYTES_MAX: Final = 32 << 20  # of unfinished runs
TABLES_MAX: Final = 1000  # whose columns a task keeps


class ColumnsAt(NamedTuple):
    """A binlog position at which the columns of a table are requested."""

    journal: str
    position: int


if TYPE_CHECKING:
    # Returns the columns of a table at a position; None: at the start of the range.
    Ask = Callable[[TableName, ColumnsAt | None], RangeTable]


@dataclass(slots=True)
class Run:
    """The rows of one table that are not delivered yet."""

    name: TableName
    batches: Batches
    columns: str  # JSON
    asked_at: ColumnsAt | None


@dataclass(slots=True)
class Limits:
    """Limits of buffered bytes and of the size of a run."""

    rows: int = ROWS_MAX
    run_bytes: int = RUN_BYTES_MAX
    all_bytes: int = ALL_BYTES_MAX
    tables: int = TABLES_MAX


@dataclass(slots=True)
class _Made:
    """Finished rows for Spark."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    bytes: int = 0

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        self.bytes += len(row.get("arrow") or "") + len(row.get("sql") or "")

    def take(self) -> pa.RecordBatch:
        rows, self.rows, self.bytes = self.rows, [], 0
        return batch_of(rows)


class PackedBatches:
    """Packs entries into rows that each contain a run of changes; for one thread."""

    def __init__(
        self,
        destination: str,
        ask: Ask,
        *,
        epoch: int = 0,
        zone: str = "",
        selects: Callable[[str], bool] = lambda _: True,
        limits: Limits | None = None,
    ) -> None:
        """Store the source of columns.

        `zone`: of TIMESTAMP, overrides that of the server. `selects`: whether the
        filter accepts `schema.table`.
        """
        self._destination = destination
        self._ask = ask
        self._epoch = epoch
        self._zone = zone
        self._selects = selects
        self._limits = limits or Limits()
        self._router = TableRouter(epoch=epoch, bytes_max=self._limits.all_bytes)
        self._runs: dict[TableName, Run] = {}
        self._ended: list[Run] = []  # waiting for their commit
        self._statements: dict[int, list[dict[str, Any]]] = {}  # waiting as well
        self._since: ColumnsAt | None = None  # after the last statement
        self._made = _Made()

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[pa.RecordBatch]:
        """Process whole entries (a body of Messages); yields rows if there are enough.

        Raises DecodeError for entries that cannot be decoded at all.
        """
        rest = memoryview(data)
        router = self._router
        while rest:
            rest = rest[router.feed(rest) :]
            for refused in router.refused():
                self._refused(refused)
            for statement in router.met():
                self._receive_statement(statement)
            self._end_transactions()
            held = router.held()
            if held is not None:
                self._learn(held)
            if router.full:
                self._make_room()
            if self._made.bytes >= self._limits.run_bytes:
                yield self._made.take()

    def expect(self, version: int, time_ms: int, xid: str = "") -> None:
        """Set the commit of the current transaction, or else of the next one."""
        self._router.expect(version, time_ms, xid)

    def finish(self, version: int, time_ms: int, xid: str = "") -> None:
        """Set the commit of the rows whose transaction did not end."""
        self._router.finish(version, time_ms, xid)

    def rest(self) -> pa.RecordBatch | None:
        """Return the remaining rows after all entries; None if there are none.

        Raises ValueError if the commit of some is unknown.
        """
        self._end_transactions()
        for run in self._runs.values():
            self._pack(run)
        if self._ended or self._statements:
            raise ValueError("rows or statements have no commit yet")
        return self._made.take() if self._made.rows else None

    # --- runs -------------------------------------------------------------------

    def _learn(self, held: Held) -> None:
        """Find the columns of a table at the entry where reading paused."""
        name = TableName(held.schema, held.table)
        here = ColumnsAt(held.journal, held.position)
        run = self._runs.get(name)
        if held.is_unlike and run is not None and run.asked_at == here:
            # The rows contradict the server: the error of a value is more specific.
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

    def _run(self, name: TableName, table: RangeTable, at: ColumnsAt | None) -> Run:
        """Return an empty run of a table. Raises CanalError if that is impossible."""
        if not table.found:
            raise TableMetaError(f"the columns of table {name} are unknown here")
        columns = table.columns
        schema = packed_schema(name, columns)
        is_keyed = any(column.key for column in columns)
        requested = [requested_column(meta_of(column)) for column in columns]
        zone = self._zone or table.zone
        if not zone and any(column.kind == "timestamp" for column in requested):
            raise TableMetaError(
                f"table {name} has TIMESTAMP columns, but the server does not report "
                "their time zone; set option timeZone to the zone of the server"
            )
        updates = "postimage" if is_keyed else "both"
        batches = typed_batches(
            *name,
            requested,
            updates=updates,
            split_keys=is_keyed,
            zone=zone or "UTC",
            epoch=self._epoch,
            rows_max=self._limits.rows,
            bytes_max=self._limits.run_bytes,
        )
        batches.typed.compare([(each.mysql_type, each.key) for each in columns])
        batches.schema = schema
        return Run(name, batches, columns_as_json(columns), at)

    def _end(self, name: TableName, *, forgets: bool = True) -> None:
        """Add no more rows to the run of a table."""
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
        """Deliver what waited for a commit that is now known."""
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
        """Deliver full runs, and the largest ones if all together are too large."""
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
        """Convert the rows of a run to rows for Spark."""
        batch = run.batches.rest()
        if batch is None:
            return
        # A long transaction may exceed the size of a run.
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

    def _receive_statement(self, statement: FoundStatement) -> None:
        """Add a statement, and end the runs that it may affect."""
        if statement.is_ddl:
            self._since = ColumnsAt(statement.journal, statement.end)
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
            for name, event_type, columns in self._affected(statement)
        ]

    def _affected(
        self, statement: FoundStatement
    ) -> Iterator[tuple[TableName, int, str | None]]:
        """Yield the tables that a statement affects, with its form for them."""
        kind, first = statement.event_type, TableName(statement.schema, statement.table)
        schema = dropped_schema(statement.sql) if statement.is_ddl else None
        if schema is not None:
            yield TableName(schema, ""), EventType.ERASE, columns_as_json(())
        elif not statement.is_ddl:
            yield first, kind, None
        else:
            names = tables_of(
                kind, statement.sql, first, statement.default_schema, self._selects
            )
            for name in names:
                yield name, kind, self._columns_after(name)

    def _columns_after(self, name: TableName) -> str:
        if not (name.schema and name.table):
            return columns_as_json(())
        return columns_as_json(self._ask(name, self._since).columns)

    def _refused(self, refused: Refused) -> None:
        """Report a table whose rows cannot be decoded."""
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
