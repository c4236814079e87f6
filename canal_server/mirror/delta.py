"""Tables of the lake as Delta tables, by delta-rs.

How far a table has come stands in the Delta log itself, as the version of an
application's transaction: in the same commit as what it tells of.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import (
    CommitProperties,
    DeltaTable,
    Schema,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, create_table_with_add_actions
from pyarrow.fs import PyFileSystem

from canal_server.errors import LakeError
from canal_server.mirror import fold
from canal_server.mirror.bounds import bounds, literal, quoted
from canal_server.mirror.keyless import difference, row_hashes
from canal_server.mirror.lake_table import (
    ADDED,
    DELETED,
    HASH,
    META,
    NOWHERE,
    ROW,
    SEQ,
    TIME,
    Applied,
    StreamBatch,
)
from canal_server.mirror.reshape import Reshape

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from deltalake.table import TableMerger

    from canal_server.mirror.model import CopiedFile, MirrorTable
    from canal_server.mirror.steps import Step

APP: Final = "canal-mirror"  # of transactions in the Delta log
COPY: Final = "canal-server mirror, copy "  # a description, before the id
NOTE: Final = "canal"  # our part of a commit's own metadata
FILE_ROWS: Final = 100_000  # a merge rewrites whole files
FILE_BYTES: Final = (1 << 20, 128 << 20)  # at least, at most
FILE_BYTES_UNKNOWN: Final = 8 << 20
FILES_MAX: Final = 5_000  # above, files become larger instead
TRIES: Final = 5  # of a change with which that of another writer collides
COMMITS_MAX: Final = 10_000  # of others, behind which our note is looked for
INDEXED_COLUMNS: Final = 32  # of which Delta keeps least and greatest values
LOG_DAYS: Final = 7

_OP: Final = "_change_type"
_INSERT: Final = "insert"
_LEAST, _GREATEST, _ROWS = "least", "greatest", "rows"
_WRITER = WriterProperties(compression="ZSTD", compression_level=1)


class DeltaLakeTable:
    """One Delta table; for one thread at a time."""

    def __init__(
        self,
        path: str,
        table: MirrorTable,
        storage_options: Mapping[str, str] | None = None,
        *,
        change_feed: bool = True,
    ) -> None:
        """Take the folder, or its URL, and what the table is; nothing is read yet."""
        self._path = path
        self._table = table
        self._options = dict(storage_options or {})
        self._change_feed = change_feed
        targets = {column.name: column.target for column in table.columns}
        self._key = [targets[name] for name in table.key]
        self._kept: DeltaTable | None = None

    def exists(self) -> bool:
        """Tell whether there is anything that a reader can read."""
        with self._telling("read"):
            return self._newest() is not None

    def arrow_schema(self) -> pa.Schema | None:
        """Return the columns that the table has now; None when it is not there."""
        with self._telling("read"):
            delta = self._newest()
            return None if delta is None else pa.schema(delta.schema().to_arrow())

    def applied(self, copy_id: str) -> int:
        """Return the position number up to which changes are in; else NOWHERE."""
        with self._telling("read"):
            delta = self._newest()
            return NOWHERE if delta is None else _applied(delta, copy_id)

    def publish(
        self,
        copy_id: str,
        schema: pa.Schema,
        files: Sequence[CopiedFile],
        at: int,
        note: Mapping[str, str],
    ) -> None:
        """Replace all that is there by a copy's files, as of a position number."""
        with self._telling("publish the copy of"):
            delta = self._newest()
            if delta is not None and _applied(delta, copy_id) != NOWHERE:
                return
            now_ms = int(time.time() * 1000)
            create_table_with_add_actions(
                self._path,
                Schema.from_arrow(schema),
                [
                    AddAction(file.path, file.size, {}, now_ms, True, file.stats)
                    for file in files
                ],
                mode="overwrite",
                name=str(self._table.source),
                description=COPY + copy_id,
                configuration=self._configuration(schema, files),
                storage_options=self._options,
                commit_properties=_commit(copy_id, at, note),
            )

    def apply(
        self,
        copy_id: str,
        changes: pa.Table,
        upto: int,
        note: Mapping[str, str],
        batch: StreamBatch | None = None,
    ) -> Applied:
        """Apply changes, in their order, and move what is applied to `upto`."""
        with self._telling("apply changes to"):
            for _ in range(TRIES - 1):
                try:
                    return self._apply(copy_id, changes, upto, note, batch)
                except CommitFailedError:
                    # Another writer was faster. What it did is seen by the next try;
                    # was it the same change, that one finds nothing to do.
                    continue
            return self._apply(copy_id, changes, upto, note, batch)

    def empty(
        self, copy_id: str, upto: int, at_ms: int, note: Mapping[str, str]
    ) -> None:
        """Delete all rows: TRUNCATE, at a time."""
        with self._telling("empty"):
            delta = self._published(copy_id)
            if _applied(delta, copy_id) >= upto:
                return
            commit = _commit(copy_id, upto, note)
            if self._table.deletes != "soft":
                delta.delete(commit_properties=commit)
                return
            at = pa.scalar(at_ms * 1000, TIME.type).as_py()
            delta.update(
                {
                    quoted(DELETED.name): "true",
                    quoted(SEQ.name): str(upto),
                    quoted(ROW.name): "0",
                    quoted(TIME.name): literal(at, TIME.type),
                },
                predicate=f"NOT {quoted(DELETED.name)}",
                writer_properties=_WRITER,
                commit_properties=commit,
            )

    def evolve(
        self, copy_id: str, steps: Sequence[Step], upto: int, note: Mapping[str, str]
    ) -> None:
        """Change the table's columns; what is more than adding some rewrites it."""
        with self._telling("change the columns of"):
            delta = self._published(copy_id)
            if _applied(delta, copy_id) >= upto:
                return
            commit = _commit(copy_id, upto, note)
            reshape = Reshape(pa.schema(delta.schema().to_arrow()), steps)
            if self._table.is_keyless or not reshape.is_metadata_only:
                self._rewrite(delta, reshape, commit)
            elif fields := reshape.new_fields():
                delta.alter.add_columns(
                    list(Schema.from_arrow(pa.schema(fields)).fields),
                    commit_properties=commit,
                )
            else:
                _commit_alone(delta, commit)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        version: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows, in any order; `where` is a condition in SQL."""
        with self._telling("read"):
            delta = DeltaTable(
                self._path, version=version, storage_options=self._options
            )
            names = list(columns) if columns is not None else None
            yield from _batches(delta, names, where)

    def place(self) -> tuple[int, dict[str, str]]:
        """Return the position number and the note of the newest change by a mirror."""
        with self._telling("read"):
            delta = self._newest()
            if delta is None:
                return NOWHERE, {}
            limit = 1
            while limit <= COMMITS_MAX:
                commits = delta.history(limit)
                for commit in commits:
                    if NOTE in commit:
                        told = commit[NOTE]
                        return int(told["upto"]), dict(told["note"])
                if len(commits) < limit:
                    break
                limit *= 10
            return NOWHERE, {}

    def _apply(
        self,
        copy_id: str,
        changes: pa.Table,
        upto: int,
        note: Mapping[str, str],
        batch: StreamBatch | None,
    ) -> Applied:
        delta = self._published(copy_id)
        applied = _applied(delta, copy_id)
        if applied >= upto or _has(delta, copy_id, batch):
            return Applied()
        new = changes.filter(pc.greater_equal(changes[SEQ.name], applied))
        commit = _commit(copy_id, upto, note, batch)
        if len(new) == 0:
            _commit_alone(delta, commit)
            return Applied()
        if self._table.is_keyless:
            return self._count(delta, new, commit)
        return self._merge(delta, fold.newest(new, self._key), commit)

    def _count(
        self, delta: DeltaTable, changes: pa.Table, commit: CommitProperties
    ) -> Applied:
        """Apply changes of a table without a key."""
        lake = pa.schema(delta.schema().to_arrow())
        own = [name for name in lake.names if name not in ADDED]
        if missing := [name for name in own if name not in changes.column_names]:
            raise LakeError(
                f"changes of the table have no column {missing[0]}, without which its "
                "rows cannot be told apart: copy the table again"
            )
        source = _typed(changes, lake).select([*own, *META, _OP])

        def find(gone: pa.Int64Array) -> pa.Table:
            found = [batch.filter(pc.is_in(batch[HASH.name], gone)) for batch in rows]
            return pa.Table.from_batches(found, lake)

        soft = self._table.deletes == "soft"
        live = f"NOT {quoted(DELETED.name)}" if soft else None
        rows = _batches(delta, None, live)
        made = difference(source, soft=soft, find=find)
        if len(made.gone) == 0:
            return self._append(delta, made.added, commit)
        marks = pa.table({HASH.name: made.gone}).cast(pa.schema([HASH]))
        marks = marks.append_column(_OP, pa.repeat(pa.scalar(fold.DELETE), len(marks)))
        added = made.added.append_column(
            _OP, pa.repeat(pa.scalar(_INSERT), len(made.added))
        )
        both = pa.concat_tables([added, marks], promote_options="default")
        condition = f"t.{quoted(HASH.name)} = s.{quoted(HASH.name)}"
        condition += f" AND s.{quoted(_OP)} = '{fold.DELETE}'"
        if live:
            condition += f" AND NOT t.{quoted(DELETED.name)}"
        names = [name for name in both.column_names if name != _OP]
        done = (
            self._merger(delta, both, condition, commit)
            .when_matched_delete()
            .when_not_matched_insert(
                {quoted(name): f"s.{quoted(name)}" for name in names},
                f"s.{quoted(_OP)} = '{_INSERT}'",
            )
            .execute()
        )
        again = done["num_target_rows_deleted"] - made.counts[1]
        return Applied(made.counts[0] - again, made.counts[1])

    def _merger(
        self,
        delta: DeltaTable,
        source: pa.Table,
        condition: str,
        commit: CommitProperties,
    ) -> TableMerger:
        return delta.merge(
            source,
            condition,
            source_alias="s",
            target_alias="t",
            # Else it would leave out files by statistics that are not quite true.
            streamed_exec=True,
            writer_properties=_WRITER,
            commit_properties=commit,
        )

    def _merge(
        self, delta: DeltaTable, rows: pa.Table, commit: CommitProperties
    ) -> Applied:
        """Merge the last change of each key."""
        source = self._source(delta, rows)
        names = [name for name in source.column_names if name != _OP]
        values = {quoted(name): f"s.{quoted(name)}" for name in names}
        within, hit = self._bounds(delta, source)
        if hit == 0:
            if DELETED.name not in names:
                source = source.filter(pc.not_equal(source[_OP], fold.DELETE))
            return self._append(delta, source.drop_columns([_OP]), commit)
        condition = " AND ".join([*(_same(source, n) for n in self._key), *within])
        merge = self._merger(delta, source, condition, commit)
        kept = None
        if DELETED.name not in names:
            merge = merge.when_matched_delete(f"s.{quoted(_OP)} = '{fold.DELETE}'")
            kept = f"s.{quoted(_OP)} <> '{fold.DELETE}'"
        merge = merge.when_matched_update(values)
        done = merge.when_not_matched_insert(values, kept).execute()
        return Applied(
            done["num_target_rows_inserted"] + done["num_target_rows_updated"],
            done["num_target_rows_deleted"],
        )

    def _rewrite(
        self, delta: DeltaTable, reshape: Reshape, commit: CommitProperties
    ) -> None:
        """Write all rows anew, file by file in the order of the key."""
        tables = self._files(delta)
        errors: list[LakeError] = []

        def reshaped() -> pa.Table | None:
            table = next(tables, None)
            if table is None:
                return None
            table = reshape.rows(table)
            if self._table.is_keyless:
                place = table.schema.get_field_index(HASH.name)
                table = table.set_column(place, HASH, row_hashes(table))
            return table

        def batches(reader: ThreadPoolExecutor) -> Iterator[pa.RecordBatch]:
            # Asked from within delta-rs, where its own files cannot be read.
            try:
                while (table := reader.submit(reshaped).result()) is not None:
                    yield from table.to_batches()
            except LakeError as error:
                errors.append(error)
                raise

        with ThreadPoolExecutor(1, "canal-lake-reader") as reader:
            try:
                write_deltalake(
                    delta,
                    pa.RecordBatchReader.from_batches(reshape.schema, batches(reader)),
                    mode="overwrite",
                    schema_mode="overwrite",
                    writer_properties=_WRITER,
                    commit_properties=commit,
                )
            except DeltaError as error:
                raise (errors or [error])[0] from None

    def _files(self, delta: DeltaTable) -> Iterator[pa.Table]:
        """Yield the rows of each file, in the order of the key's first column."""
        schema = pa.schema(delta.schema().to_arrow())
        files = pa.table(delta.get_add_actions(flatten=True))
        if self._key and f"min.{self._key[0]}" in files.column_names:
            files = files.sort_by(f"min.{self._key[0]}")
        store = PyFileSystem(DeltaStorageHandler(self._path, self._options))
        for path in files["path"].to_pylist():
            with store.open_input_file(path) as file:
                for batch in pq.ParquetFile(file).iter_batches():
                    yield _complete(pa.table(batch), schema)

    def _append(
        self, delta: DeltaTable, rows: pa.Table, commit: CommitProperties
    ) -> Applied:
        """Add rows that are in no file."""
        if len(rows) == 0:
            _commit_alone(delta, commit)
            return Applied()
        write_deltalake(
            delta,
            _complete(rows, pa.schema(delta.schema().to_arrow())),
            mode="append",
            writer_properties=_WRITER,
            commit_properties=commit,
        )
        return Applied(len(rows))

    def _source(self, delta: DeltaTable, rows: pa.Table) -> pa.Table:
        """Return changes in the types of the lake, with what it has besides."""
        schema = pa.schema(delta.schema().to_arrow())
        if self._table.deletes == "soft":
            deleted = pc.equal(rows[_OP], fold.DELETE)
            rows = rows.append_column(DELETED, deleted)
        return _typed(rows, schema)

    def _bounds(self, delta: DeltaTable, source: pa.Table) -> tuple[list[str], int]:
        """Return conditions on the keys, and the rows of the files that they leave."""
        files = pa.table(delta.get_add_actions(flatten=True))
        told = [
            bounds(source[name], f"t.{quoted(name)}", _ranges(files, name))
            for name in self._key
        ]
        found = [bound.condition for bound in told if bound.condition]
        return found, min(bound.rows for bound in told)

    def _configuration(
        self, schema: pa.Schema, files: Sequence[CopiedFile]
    ) -> dict[str, str | None]:
        """Return the properties of a table that is published."""
        rows = sum(file.rows for file in files)
        size = FILE_BYTES_UNKNOWN
        if rows:
            rows_of_file = max(FILE_ROWS, rows // FILES_MAX)
            size = sum(file.size for file in files) * rows_of_file // rows
        least, most = FILE_BYTES
        behind_key = max(
            (schema.get_field_index(name) + 1 for name in self._key), default=0
        )
        return {
            "delta.enableChangeDataFeed": str(self._change_feed).lower(),
            "delta.targetFileSize": str(min(max(size, least), most)),
            "delta.dataSkippingNumIndexedCols": str(max(INDEXED_COLUMNS, behind_key)),
            "delta.logRetentionDuration": f"interval {LOG_DAYS} days",
        }

    def _newest(self) -> DeltaTable | None:
        """Return the table as it is now; None when it is not there."""
        if self._kept is not None:
            try:
                self._kept.update_incremental()
            except TableNotFoundError:
                self._kept = None
            else:
                return self._kept
        try:
            self._kept = DeltaTable(self._path, storage_options=self._options)
        except TableNotFoundError:
            return None
        return self._kept

    def _published(self, copy_id: str) -> DeltaTable:
        """Return the table as it is now, which must be that copy."""
        delta = self._newest()
        if delta is None or _applied(delta, copy_id) == NOWHERE:
            raise LakeError(
                f"it is not of copy {copy_id}, to which changes are to be applied: "
                "does another mirror write it? if not, copy the table again"
            )
        return delta

    @contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        """Raise LakeError, by the table's name, for what the lake raises."""
        try:
            yield
        except LakeError as error:
            raise LakeError(f"cannot {what} {self}: {error}") from error
        except (DeltaError, OSError, pa.ArrowException) as error:
            self._kept = None
            raise LakeError(f"cannot {what} {self}: {error}") from error

    def __str__(self) -> str:
        return f"the lake's table {self._table.target} ({self._path})"


def _applied(delta: DeltaTable, copy_id: str) -> int:
    if delta.metadata().description != COPY + copy_id:
        return NOWHERE
    version = delta.transaction_version(_app(copy_id))
    return NOWHERE if version is None else version


def _has(delta: DeltaTable, copy_id: str, batch: StreamBatch | None) -> bool:
    """Tell whether a micro-batch was applied."""
    if batch is None:
        return False
    last = delta.transaction_version(_app(copy_id, batch.stream))
    return last is not None and last >= batch.number


def _app(copy_id: str, stream: str = "") -> str:
    return "/".join(filter(None, (APP, copy_id, stream)))


def _commit(
    copy_id: str,
    upto: int,
    note: Mapping[str, str],
    batch: StreamBatch | None = None,
) -> CommitProperties:
    """Return what a commit tells besides the change."""
    transactions = [Transaction(_app(copy_id), upto)]
    if batch is not None:
        transactions.append(Transaction(_app(copy_id, batch.stream), batch.number))
    told = {"copy": copy_id, "upto": upto, "note": dict(note)}
    return CommitProperties(custom_metadata={NOTE: told}, app_transactions=transactions)


def _commit_alone(delta: DeltaTable, commit: CommitProperties) -> None:
    """Tell how far a table has come where nothing of it changes."""
    delta.create_write_transaction(
        [], "append", delta.schema(), commit_properties=commit
    )


def _ranges(files: pa.Table, name: str) -> pa.Table:
    """Return what the Delta log tells of a column: least, greatest and rows by file."""
    nothing = pa.nulls(len(files))
    found = {
        _LEAST: f"min.{name}",
        _GREATEST: f"max.{name}",
        _ROWS: "num_records",
    }
    return pa.table(
        {
            ours: files[theirs] if theirs in files.column_names else nothing
            for ours, theirs in found.items()
        }
    )


def _same(source: pa.Table, name: str) -> str:
    """Return the condition by which a column of the key is the same."""
    column = quoted(name)
    if pa.types.is_floating(source.schema.field(name).type):
        return f"t.{column} + 0.0 = s.{column} + 0.0"  # -0.0 is 0.0
    return f"t.{column} = s.{column}"


def _typed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return changes in the types of the lake."""
    fields = []
    for name in rows.column_names:
        if name != _OP and name not in schema.names:
            raise LakeError(
                f"it has no column {name}, which changes of the table have: "
                "copy the table again"
            )
        fields.append(rows.schema.field(name) if name == _OP else schema.field(name))
    return rows.cast(pa.schema(fields))


def _batches(
    delta: DeltaTable, names: list[str] | None, where: str | None
) -> Iterator[pa.RecordBatch]:
    """Yield rows, in any order."""
    schema = pa.schema(delta.schema().to_arrow())
    for batch in pa.RecordBatchReader.from_stream(delta.scan(names, where)):
        # It gives texts as views.
        yield batch.cast(pa.schema([schema.field(name) for name in batch.schema.names]))


def _complete(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with all columns of the lake, in their order."""
    return pa.table(
        [
            rows[field.name].cast(field.type)
            if field.name in rows.column_names
            else pa.nulls(len(rows), field.type)
            for field in schema
        ],
        schema=schema,
    )
