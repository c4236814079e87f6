"""Tables of the lake as Delta tables, through delta-rs.

The Delta log itself records a table's position (`delta_log`), in the same commit as the
changes. Leaves out how changes are written to files (`delta_changes`) and how files are
rewritten (`delta_rows`).
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import create_table_with_add_actions

from canal_server.errors import LakeError
from canal_server.mirror.lake import copy_difference
from canal_server.mirror.lake.delta import (
    delta_changes,
    delta_log,
    delta_rows,
    delta_upkeep,
)
from canal_server.mirror.lake.delta import delta_properties as properties
from canal_server.mirror.lake.delta.delta_exchange import DeltaGivenRows, replace_rows
from canal_server.mirror.lake.delta.delta_files import VersionFiles
from canal_server.mirror.lake.delta.delta_layout import (
    Layout,
    added,
    files_of,
    values_of,
)
from canal_server.mirror.lake.file_bounds import quoted
from canal_server.mirror.lake.lake_errors import lake_error
from canal_server.mirror.lake.lake_table import (
    NOWHERE,
    SEQ,
    Applied,
    Compacted,
    OtherCopyError,
    Size,
    as_in_lake,
)
from canal_server.mirror.lake.reshape import Reshape, are_alike

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from deltalake import CommitProperties

    from canal_server.mirror.lake.conditions import Among, Where
    from canal_server.mirror.lake.exchange.given_rows import GivenRows, ReceivedRows
    from canal_server.mirror.lake.lake_table import Files
    from canal_server.mirror.lake.steps import Step
    from canal_server.mirror.settings.table_values import CopiedFile, MirrorTable
    from canal_server.runtime.lifecycle import Stop

T = TypeVar("T")

TRIES: Final = 5  # of a commit that conflicts with another writer's


class DeltaLakeTable:
    """One Delta table, as a `LakeTable`; for one thread at a time."""

    def __init__(
        self,
        path: str,
        table: MirrorTable,
        storage_options: Mapping[str, str] | None = None,
        *,
        change_feed: bool = True,
        kept_hours: int = properties.KEPT_HOURS,
    ) -> None:
        """Set the folder, or its URL, and the table; nothing is read yet.

        `kept_hours`: how long a published copy keeps its versions.
        """
        self._path = path
        self._table = table
        self._options = dict(storage_options or {})
        self._change_feed = change_feed
        self._kept_hours = kept_hours
        self._key = table.key_targets
        self._layout = Layout(table.partitions)
        self._kept: DeltaTable | None = None

    def exists(self) -> bool:
        """Check whether a Delta log exists."""
        with self._as_lake_error("read"):
            return self._newest() is not None

    def arrow_schema(self) -> pa.Schema | None:
        """Return the columns of the newest version."""
        with self._as_lake_error("read"):
            delta = self._newest()
            return None if delta is None else pa.schema(delta.schema().to_arrow())

    def readers_names(self) -> list[str]:
        """Return the names of `arrow_schema`: they are the same."""
        schema = self.arrow_schema()
        return [] if schema is None else list(schema.names)

    def applied(self, copy_id: str) -> int:
        """Return the position number in the log's transaction of the copy."""
        with self._as_lake_error("read"):
            delta = self._newest()
            return NOWHERE if delta is None else delta_log.applied(delta, copy_id)

    def publish(
        self,
        copy_id: str,
        schema: pa.Schema,
        files: Sequence[CopiedFile],
        at: int,
        note: Mapping[str, str],
        *,
        stop: Stop | None = None,
    ) -> Applied | None:
        """Commit what differs in a copy, or its files if that is much.

        The table stays the same for its readers, whose streams continue.
        """
        commit = delta_log.commit(copy_id, at, note, is_copy=True)
        with self._as_lake_error("publish the copy of"):
            return self._tried(
                lambda: self._publish(copy_id, schema, files, at, commit, stop)
            )

    def _publish(  # noqa: PLR0917  # those of `publish`
        self,
        copy_id: str,
        schema: pa.Schema,
        files: Sequence[CopiedFile],
        at: int,
        commit: CommitProperties,
        stop: Stop | None,
    ) -> Applied | None:
        delta = self._newest()
        if delta is None:
            self._create(copy_id, schema, files, commit)
            return None
        if delta_log.applied(delta, copy_id) != NOWHERE:
            return None
        changes = None
        before = pa.schema(delta.schema().to_arrow())
        is_alike = are_alike(before, schema) and self._layout.fits(delta)
        if is_alike:
            changes = self._difference(delta, files, at, stop)
        if changes is None:
            self._replace(delta, schema, files, commit)
            return None
        done = self._commit_difference(delta, changes, commit)
        self._delete_staged(files)
        return done

    def _create(
        self,
        copy_id: str,
        schema: pa.Schema,
        files: Sequence[CopiedFile],
        commit: CommitProperties,
    ) -> None:
        """Create the table with the files of its first copy."""
        configuration = self._properties(schema, files)
        create_table_with_add_actions(
            self._path,
            Schema.from_arrow(schema),
            added(files, configuration),
            partition_by=self._layout.names or None,
            name=str(self._table.source),
            description=delta_log.description(copy_id),
            configuration=configuration,
            storage_options=self._options,
            commit_properties=commit,
        )

    def _replace(
        self,
        delta: DeltaTable,
        schema: pa.Schema,
        files: Sequence[CopiedFile],
        commit: CommitProperties,
    ) -> None:
        """Replace all files, and the columns, by those of a copy."""
        delta_rows.allow_local_times(delta, schema, delta_log.commit_of_upkeep(delta))
        configuration = self._properties(schema, files)
        # Before, so that no file has statistics of a column that must have none.
        self._set_properties(delta, configuration)
        if not self._layout.fits(delta):
            self._rewrite_copy(delta, schema, files, commit)
            return
        delta.create_write_transaction(
            added(files, configuration),
            "overwrite",
            Schema.from_arrow(schema),
            commit_properties=commit,
        )

    def _rewrite_copy(
        self,
        delta: DeltaTable,
        schema: pa.Schema,
        files: Sequence[CopiedFile],
        commit: CommitProperties,
    ) -> None:
        """Write a copy's rows again: delta-rs changes partitions in no other way."""
        rows = self._copied_rows(schema, files)
        batches = (batch for n in range(len(rows)) for batch in rows.batches(n))

        def following() -> pa.Table | None:
            batch = next(batches, None)
            return None if batch is None else pa.table(batch)

        delta_rows.write(delta, following, rows.schema, self._layout, commit)
        self._delete_staged(files)

    def _copied_rows(
        self, schema: pa.Schema, files: Sequence[CopiedFile]
    ) -> delta_rows.FileRows:
        own = self._layout.rows(schema)
        paths, values = [file.path for file in files], values_of(files, own)
        return delta_rows.FileRows(self._store(), paths, own, values)

    def _difference(
        self,
        delta: DeltaTable,
        files: Sequence[CopiedFile],
        at: int,
        stop: Stop | None,
    ) -> pa.Table | None:
        """Return what a copy differs in; None if that is much."""
        store, schema = self._store(), pa.schema(delta.schema().to_arrow())
        now = pa.table(delta.get_add_actions(flatten=True))
        rows = sum(file.rows for file in files)
        if "num_records" in now.column_names:  # unless another writer left it out
            rows = max(rows, pc.sum(now["num_records"]).as_py() or 0)
        known = files_of(delta)
        paths, values = [each.path for each in known], [each.values for each in known]
        own = self._layout.rows(schema)
        ours = delta_rows.FileRows(store, paths, own, values)
        theirs = self._copied_rows(schema, files)
        return copy_difference.difference(ours, theirs, rows, self._key, at, stop)

    def _commit_difference(
        self, delta: DeltaTable, changes: pa.Table, commit: CommitProperties
    ) -> Applied:
        """Commit what a copy differs in, if only that it is the copy now."""
        self._set_properties(
            delta,
            {
                properties.CHANGE_FEED: str(self._change_feed).lower(),
                **properties.retention(self._kept_hours),
            },
        )
        if len(changes) == 0:
            delta_log.commit_alone(delta, commit)
            return Applied()
        return self._merged(delta, changes, commit)

    def _properties(
        self, schema: pa.Schema, files: Sequence[CopiedFile]
    ) -> dict[str, str]:
        return properties.of_copy(
            self._layout.stored(schema),
            self._key,
            files,
            change_feed=self._change_feed,
            kept_hours=self._kept_hours,
            sources=self._layout.sources,
        )

    def _set_properties(self, delta: DeltaTable, wanted: Mapping[str, str]) -> None:
        """Set the properties that the table does not have yet."""
        if wanted.items() - delta.metadata().configuration.items():
            delta.alter.set_table_properties(
                dict(wanted), commit_properties=delta_log.commit_of_upkeep(delta)
            )

    def _delete_staged(self, files: Sequence[CopiedFile]) -> None:
        """Delete the files of a copy that were compared and are not of the table."""
        store = self._store()
        for file in files:
            # A vacuum deletes what is left.
            with suppress(OSError, DeltaError):
                store.delete_file(file.path)

    def files(self) -> list[CopiedFile]:
        """Return the files of the newest version: all current rows."""
        with self._as_lake_error("read"):
            delta = self._newest()
            return [] if delta is None else delta_log.files(delta)

    def file_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns in the order that the table will have."""
        with self._as_lake_error("read"):
            delta = self._newest()
            if delta is None:
                return schema
            return delta_rows.in_order(pa.schema(delta.schema().to_arrow()), schema)

    def apply(
        self,
        copy_id: str,
        changes: pa.Table,
        upto: int,
        note: Mapping[str, str],
    ) -> Applied:
        """Commit changes; retries if another writer was faster."""
        with self._as_lake_error("apply changes to"):
            return self._tried(lambda: self._apply(copy_id, changes, upto, note))

    def correct(self, copy_id: str, changes: pa.Table) -> Applied:
        """Commit the correct rows, with the position of the previous commit."""
        with self._as_lake_error("correct rows of"):
            delta = self._published(copy_id)
            commit = delta_log.commit_of_upkeep(delta)
            return self._merged(delta, as_in_lake(changes), commit)

    def empty(
        self, copy_id: str, upto: int, at_ms: int, note: Mapping[str, str]
    ) -> None:
        """Commit the removal of all rows, or marks them all as deleted."""
        self.delete(copy_id, None, upto, at_ms, note)

    def delete(  # those of `empty`, and the condition
        self,
        copy_id: str,
        where: Among | None,
        upto: int,
        at_ms: int,
        note: Mapping[str, str],
    ) -> None:
        """Commit the removal of rows, or marks them as deleted; None: all of them."""
        with self._as_lake_error("delete rows of"):
            delta = self._published(copy_id)
            if delta_log.applied(delta, copy_id) >= upto:
                return
            commit = delta_log.commit(copy_id, upto, note)
            before = delta.version()
            if self._table.deletes == "soft":
                delta_changes.mark(delta, where, upto, at_ms, commit)
            else:
                condition = None if where is None else where.sql
                delta.delete(condition, commit_properties=commit)
            if delta.version() == before:  # there was no such row
                delta_log.commit_alone(delta, commit)

    def given(self, copy_id: str, where: Among | None, upto: int) -> GivenRows | None:
        """Return the rows of the newest version, or of the one before the statement."""
        with self._as_lake_error("read"):
            delta = self._published(copy_id)
            version: int | None = delta.version()
            if delta_log.applied(delta, copy_id) >= upto:
                version = delta_log.version_before(delta, copy_id, upto)
            if version is None:
                return None
            schema = self._layout.rows(pa.schema(delta.schema().to_arrow()))
            return DeltaGivenRows(
                self._path, self._options, version, schema, where, upto
            )

    def exchange(
        self, copy_id: str, received: ReceivedRows, note: Mapping[str, str]
    ) -> int:
        """Commit other rows, and which statement it was."""
        with self._as_lake_error("exchange rows of"):
            delta, upto = self._published(copy_id), received.rows.upto
            if delta_log.applied(delta, copy_id) >= upto:
                return 0
            schema = pa.schema(delta.schema().to_arrow())
            self._leave_out_statistics(delta, schema, received.rows.tables)
            commit = delta_log.commit(copy_id, upto, note, is_exchange=True)
            return replace_rows(delta, received, self._layout, commit)

    def exchanged(self, copy_id: str) -> int:
        """Return the position number after the last exchange; NOWHERE if none."""
        with self._as_lake_error("read"):
            return delta_log.exchanged(self._published(copy_id), copy_id)

    def has_null(self, column: str) -> bool:
        """Check whether any row has NULL in a column."""
        with self._as_lake_error("read"):
            delta = self._newest()
            if delta is None:
                return False
            reader = pa.RecordBatchReader.from_stream(
                delta.scan([column], f"{quoted(column)} IS NULL")
            )
            return any(batch.num_rows for batch in reader)

    def evolve(
        self, copy_id: str, steps: Sequence[Step], upto: int, note: Mapping[str, str]
    ) -> None:
        """Change the table's columns; any step but adding rewrites the table."""
        with self._as_lake_error("change the columns of"):
            delta = self._published(copy_id)
            if delta_log.applied(delta, copy_id) >= upto:
                return
            commit = delta_log.commit(copy_id, upto, note)
            if not steps:
                delta_log.commit_alone(delta, commit)
                return
            before = pa.schema(delta.schema().to_arrow())
            reshape = Reshape(self._layout.rows(before), steps)
            self._adjust_statistics(delta, before, reshape)
            if self._table.is_keyless or not reshape.is_metadata_only:
                files = delta_rows.files(delta, self._store(), self._key, self._layout)
                delta_rows.rewrite(delta, files, reshape, self._layout, commit)
            elif fields := reshape.new_fields():
                delta.alter.add_columns(
                    list(Schema.from_arrow(pa.schema(fields)).fields),
                    commit_properties=commit,
                )
            else:
                delta_log.commit_alone(delta, commit)

    def use_definition(self, table: MirrorTable) -> None:
        """Use the table's current definition from now on, with its key's new names."""
        self._table, self._key = table, table.key_targets
        self._layout = Layout(table.partitions)

    def compact(self) -> Compacted:
        """Merge small files and reorder keys; the commit changes no row."""
        with self._as_lake_error("compact"):
            delta = self._newest()
            if delta is None:
                return Compacted()
            return delta_upkeep.compact(delta, self._store(), self._key, self._layout)

    def vacuum(self, hours: float) -> int:
        """Delete old files, and the log before the readable versions."""
        with self._as_lake_error("delete old files of"):
            delta = self._newest()
            if delta is None:
                return 0
            return delta_upkeep.vacuum(delta, self._store(), hours)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        version: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows of a version, by default the newest."""
        with self._as_lake_error("read"):
            delta = DeltaTable(
                self._path, version=version, storage_options=self._options
            )
            names = list(columns) if columns is not None else None
            yield from delta_rows.batches(delta, names, where)

    def version(self) -> int:
        """Return the newest version of the log."""
        with self._as_lake_error("read"):
            delta = self._newest()
            return -1 if delta is None else int(delta.version())

    def version_files(self, version: int) -> Files:
        """Return the files that a version of the log names."""
        with self._as_lake_error("read"):
            options = tuple(sorted(self._options.items()))
            return VersionFiles.of(self._path, version, options)

    def position(self) -> tuple[int, dict[str, str]]:
        """Return the position number and note of the mirror's newest commit."""
        with self._as_lake_error("read"):
            delta = self._newest()
            return (NOWHERE, {}) if delta is None else delta_log.position(delta)

    def size(self) -> Size | None:
        """Return the files of the newest version, from the log."""
        with self._as_lake_error("read"):
            delta = self._newest()
            return None if delta is None else delta_log.size(delta)

    def _tried(self, commit: Callable[[], T]) -> T:
        """Commit; retries if another writer was faster.

        The next try sees its commit, and has nothing to do if that was the same change.
        """
        for _ in range(TRIES - 1):
            with suppress(CommitFailedError):
                return commit()
        return commit()

    def _apply(
        self,
        copy_id: str,
        changes: pa.Table,
        upto: int,
        note: Mapping[str, str],
    ) -> Applied:
        delta = self._published(copy_id)
        applied = delta_log.applied(delta, copy_id)
        if applied >= upto:
            return Applied()
        new = as_in_lake(changes)
        new = new.filter(pc.greater_equal(new[SEQ.name], applied))
        commit = delta_log.commit(copy_id, upto, note)
        if len(new) == 0:
            delta_log.commit_alone(delta, commit)
            return Applied()
        return self._merged(delta, new, commit)

    def _merged(
        self, delta: DeltaTable, new: pa.Table, commit: CommitProperties
    ) -> Applied:
        self._leave_out_statistics(delta, new.schema, lambda: [new])
        if self._table.is_keyless:
            return delta_changes.count(delta, new, self._layout, commit)
        return delta_changes.merge(delta, new, self._key, self._layout, commit)

    def _adjust_statistics(
        self, delta: DeltaTable, before: pa.Schema, reshape: Reshape
    ) -> None:
        """Choose the columns with statistics after columns were added or dropped.

        Dropped columns keep theirs until then.
        """
        chosen = properties.statistics_columns(delta.metadata().configuration)
        if chosen is None:
            return
        after = self._layout.stored(reshape.schema)
        unchosen = [n for n in before.names if n not in chosen]
        always = [*self._key, *self._layout.sources]
        key = [(name, reshape.renamed(name)) for name in always]
        wide = [now for was, now in key if was not in unchosen]
        then = properties.with_statistics(after, [now for _, now in key], wide)
        then += [name for name in chosen if name not in after.names]
        if then != chosen:
            self._set_statistics(delta, then)

    def _leave_out_statistics(
        self,
        delta: DeltaTable,
        schema: pa.Schema,
        tables: Callable[[], Iterable[pa.Table]],
    ) -> None:
        """Leave out columns whose statistics rows would make wrong.

        Before these are written: merges and readers rely on them.
        """
        chosen = properties.statistics_columns(delta.metadata().configuration)
        wide = properties.too_wide(tables, schema, chosen or ())
        if chosen and wide:
            self._set_statistics(delta, [name for name in chosen if name not in wide])

    def _set_statistics(self, delta: DeltaTable, names: Sequence[str]) -> None:
        """Choose the columns with statistics in new files."""
        chosen = {properties.STATISTICS_COLUMNS: properties.text_of(names)}
        self._set_properties(delta, chosen)

    def _newest(self) -> DeltaTable | None:
        """Return the table's current version; None if it does not exist."""
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

    def _store(self) -> DeltaStorageHandler:
        return DeltaStorageHandler(self._path, self._options)

    def _published(self, copy_id: str) -> DeltaTable:
        """Return the table's current version, which must be the given copy."""
        delta = self._newest()
        if delta is None or delta_log.applied(delta, copy_id) == NOWHERE:
            raise OtherCopyError.of(copy_id)
        return delta

    @contextmanager
    def _as_lake_error(self, what: str) -> Iterator[None]:
        """Raise LakeError with the table's name for errors of the lake."""
        try:
            yield
        except LakeError as error:
            raise lake_error(f"cannot {what} {self}", error) from error
        except (DeltaError, OSError, pa.ArrowException) as error:
            self._kept = None
            raise lake_error(f"cannot {what} {self}", error) from error

    def __str__(self) -> str:
        return f"the lake's table {self._table.target} ({self._path})"
