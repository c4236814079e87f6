"""Tables of the lake as Iceberg tables, through pyiceberg.

A table's metadata file itself records its position (`iceberg_commit`), so position and
rows change at once. Leaves out which files changes rewrite (`iceberg_changes`).
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    RESTError,
    ValidationError,
)
from pyiceberg.io import load_file_io

from canal_server.errors import LakeError
from canal_server.mirror.lake import copy_difference
from canal_server.mirror.lake.iceberg import iceberg_commit, iceberg_upkeep
from canal_server.mirror.lake.iceberg.iceberg_catalog import (
    FORMAT,
    identifier_of,
    open_catalog,
)
from canal_server.mirror.lake.iceberg.iceberg_changes import Rewriter
from canal_server.mirror.lake.iceberg.iceberg_columns import (
    arrow_schema,
    columns_of,
    file_schema,
    planned,
    schema_of,
)
from canal_server.mirror.lake.iceberg.iceberg_commit import Change, Commit, Manifests
from canal_server.mirror.lake.iceberg.iceberg_files import (
    FileRows,
    FileWriter,
    copied,
    delete_staged,
    ends,
    nulls,
    sync,
    within,
)
from canal_server.mirror.lake.iceberg.iceberg_partitions import Partitioning
from canal_server.mirror.lake.iceberg.iceberg_reshape import reshaped
from canal_server.mirror.lake.lake_errors import lake_error, unusable
from canal_server.mirror.lake.lake_table import (
    DELETED,
    NOWHERE,
    ROW,
    SEQ,
    TIME,
    Applied,
    Compacted,
    OtherCopyError,
    Size,
    UnusableTableError,
    as_in_lake,
)
from canal_server.mirror.lake.reshape import Reshape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.table import Table

    from canal_server.mirror.lake.conditions import Among, Where
    from canal_server.mirror.lake.iceberg.iceberg_columns import Column
    from canal_server.mirror.lake.lake_table import Files
    from canal_server.mirror.lake.steps import Step
    from canal_server.mirror.settings.table_values import CopiedFile, MirrorTable
    from canal_server.runtime.lifecycle import Stop

T = TypeVar("T")

TRIES: Final = 5  # of a commit that conflicts with another writer's

_PROPERTIES: Final = {
    "format-version": FORMAT,
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "write.parquet.compression-codec": "zstd",
}


class IcebergLakeTable:
    """One Iceberg table, as a `LakeTable`; for one thread at a time."""

    def __init__(
        self, path: str, table: MirrorTable, catalog: Mapping[str, str] | None = None
    ) -> None:
        """Set the folder, or its URL, and the table; nothing is read yet.

        `catalog`: pyiceberg's options of a catalog that records the newest version; by
        default the folder does.
        """
        self._path = path
        self._table = table
        self._options = dict(catalog or {})
        self._name = identifier_of(table.target)
        self._key = table.key_targets
        self._partitioning = Partitioning(table.partitions)
        self._manifests = Manifests()
        self._opened: Catalog | None = None

    def exists(self) -> bool:
        """Check whether the catalog has the table."""
        with self._as_lake_error("read"):
            return self._newest() is not None

    def arrow_schema(self) -> pa.Schema | None:
        """Return the columns of the newest version."""
        with self._as_lake_error("read"):
            table = self._newest()
            return None if table is None else arrow_schema(_columns(table))

    def readers_names(self) -> list[str]:
        """Return the names in the newest version's metadata."""
        with self._as_lake_error("read"):
            table = self._newest()
            return [] if table is None else [each.shown for each in _columns(table)]

    def applied(self, copy_id: str) -> int:
        """Return the position number in the table's properties."""
        with self._as_lake_error("read"):
            table = self._newest()
            if table is None:
                return NOWHERE
            return iceberg_commit.applied(table.metadata, copy_id)

    def file_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns with the ids that they will have in the table."""
        with self._as_lake_error("read"):
            return file_schema(_planned(self._newest(), schema))

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

        The table stays the same for its readers.
        """
        record = iceberg_commit.record(copy_id, at, note)
        with self._as_lake_error("publish the copy of"):
            return self._tried(
                lambda: self._publish(copy_id, schema, files, at, record, stop)
            )

    def _publish(  # noqa: PLR0917  # those of `publish`
        self,
        copy_id: str,
        schema: pa.Schema,
        files: Sequence[CopiedFile],
        at: int,
        record: Mapping[str, str],
        stop: Stop | None,
    ) -> Applied | None:
        table = self._newest()
        columns = _planned(table, schema)
        if table is None:
            self._create(columns, files, record)
            return None
        if iceberg_commit.applied(table.metadata, copy_id) != NOWHERE:
            return None
        wanted = self._partitioning
        is_same = wanted.is_that_of(table.metadata.spec(), columns)
        if is_same and _columns(table) == columns:
            changes = self._difference(table, files, at, stop)
            if changes is not None:
                done = self._commit_changes(table, changes, record)
                delete_staged(table.io, self._path, files)
                return done
        spec = None if is_same else wanted.new_spec(table.metadata, columns)
        with self._writing(table, columns, spec) as writer:
            added = copied(table.io, self._path, columns, files, writer)
            removed = {each.file_path for each in self._manifests.files(table)}
            self._commit(table, Change(added, removed, columns, spec=spec), record)
        return None

    def _create(
        self,
        columns: Sequence[Column],
        files: Sequence[CopiedFile],
        record: Mapping[str, str],
    ) -> None:
        """Create the table with the files of its first copy."""
        if self._options:
            self._catalog.create_namespace_if_not_exists(self._name[:-1])
        creation = self._catalog.create_table_transaction(
            self._name,
            schema_of(columns),
            partition_spec=self._partitioning.spec(columns),
            location=self._path,
            properties={**_PROPERTIES, **record},
        )
        staged = creation.update_snapshot(dict(record)).fast_append()
        io = load_file_io(self._catalog.properties, self._path)
        writer = FileWriter(io, self._path, columns, self._key, self._partitioning)
        for each in copied(io, self._path, columns, files, writer):
            staged.append_data_file(each)
        staged.commit()
        snapshot = creation.table_metadata.current_snapshot()
        assert snapshot is not None  # it was just added
        for path in (
            snapshot.manifest_list,
            *(each.manifest_path for each in iceberg_commit.manifests_of(snapshot, io)),
        ):
            sync(path)
        creation.commit_transaction()

    def _difference(
        self,
        table: Table,
        files: Sequence[CopiedFile],
        at: int,
        stop: Stop | None,
    ) -> pa.Table | None:
        """Return what a copy differs in; None if that is much."""
        columns, now = _columns(table), self._manifests.files(table)
        rows = max(sum(f.rows for f in files), sum(f.record_count for f in now))
        ours = FileRows(table.io, columns, [each.file_path for each in now])
        paths = [f"{self._path}/{each.path}" for each in files]
        theirs = FileRows(table.io, columns, paths, by_name=True)
        return copy_difference.difference(ours, theirs, rows, self._key, at, stop)

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

    def _apply(
        self, copy_id: str, changes: pa.Table, upto: int, note: Mapping[str, str]
    ) -> Applied:
        table = self._published(copy_id)
        applied = iceberg_commit.applied(table.metadata, copy_id)
        if applied >= upto:
            return Applied()
        new = as_in_lake(changes)
        new = new.filter(pc.greater_equal(new[SEQ.name], applied))
        record = iceberg_commit.record(copy_id, upto, note)
        return self._commit_changes(table, new, record)

    def correct(self, copy_id: str, changes: pa.Table) -> Applied:
        """Commit the correct rows; the position of the previous commit stays."""
        with self._as_lake_error("correct rows of"):
            table = self._published(copy_id)
            return self._commit_changes(table, as_in_lake(changes), {})

    def _commit_changes(
        self, table: Table, changes: pa.Table, record: Mapping[str, str]
    ) -> Applied:
        change, done = Change(), Applied()
        with self._writing(table, _columns(table)) as writer:
            if len(changes):
                files = self._rewriter(table, writer)
                if self._table.is_keyless:
                    change, done = files.count(changes)
                else:
                    change, done = files.merge(changes, self._key)
            self._commit(table, change, record)
        return done

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
            table = self._published(copy_id)
            if iceberg_commit.applied(table.metadata, copy_id) >= upto:
                return
            record = iceberg_commit.record(copy_id, upto, note)
            values = {
                DELETED.name: pa.scalar(True),
                SEQ.name: pa.scalar(upto, SEQ.type),
                ROW.name: pa.scalar(0, ROW.type),
                TIME.name: pa.scalar(at_ms * 1000, TIME.type),
            }
            with self._writing(table, _columns(table)) as writer:
                files = self._rewriter(table, writer)
                if self._table.deletes == "soft":
                    change = files.marked(where, values)
                else:
                    change = files.without(where)
                self._commit(table, change, record)

    def has_null(self, column: str) -> bool:
        """Check whether a file has NULL in a column, or may have it."""
        with self._as_lake_error("read"):
            table = self._existing()
            found = next(each for each in _columns(table) if each.name == column)
            return any(nulls(each, found) for each in self._manifests.files(table))

    def evolve(
        self, copy_id: str, steps: Sequence[Step], upto: int, note: Mapping[str, str]
    ) -> None:
        """Change the table's columns; rewrites files only for new values."""
        with self._as_lake_error("change the columns of"):
            table = self._published(copy_id)
            if iceberg_commit.applied(table.metadata, copy_id) >= upto:
                return
            record = iceberg_commit.record(copy_id, upto, note)
            if not steps:
                self._commit(table, Change(), record)
                return
            before = _columns(table)
            reshape = Reshape(arrow_schema(before), steps)
            plan = reshaped(before, table.metadata.last_column_id, reshape, steps)
            with self._writing(table, plan.columns) as writer:
                change = Change(columns=plan.columns, keeps_rows=True)
                if plan.rewrites or self._table.is_keyless:
                    files = self._manifests.files(table)
                    paths = [each.file_path for each in files]
                    rows = FileRows(table.io, before, paths)
                    change.removed, change.keeps_rows = set(paths), False
                    for number in range(len(paths)):
                        written = writer.write(
                            plan.rows(rows.batches(number)), files[number].partition
                        )
                        change.added += [] if written is None else [written]
                self._commit(table, change, record)

    def use_definition(self, table: MirrorTable) -> None:
        """Use the table's current definition from now on, with its key's new names."""
        self._table, self._key = table, table.key_targets
        self._partitioning = Partitioning(table.partitions)

    def compact(self) -> Compacted:
        """Merge small files and reorder keys; the commit changes no row."""
        with self._as_lake_error("compact"):
            table = self._newest()
            if table is None:
                return Compacted()
            columns, files = _columns(table), self._manifests.files(table)
            with self._writing(table, columns) as writer:
                change = iceberg_upkeep.compacted(
                    table.io, columns, files, writer, self._key
                )
                if change.removed:
                    self._commit(table, change, {})
            return Compacted(len(change.removed), len(change.added))

    def vacuum(self, hours: float) -> int:
        """Forget old versions, and delete the files that no version needs."""
        with self._as_lake_error("delete old files of"):
            table = self._newest()
            if table is None:
                return 0
            return iceberg_upkeep.vacuum(table, self._manifests, self._path, hours)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        version: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows of a snapshot, by its id; by default the newest."""
        with self._as_lake_error("read"):
            table = self._existing()
            all_columns, files = self._version(table, version)
            names = [each.name for each in all_columns if not columns]
            names = list(columns) if columns else names
            needed = [*names, *(where.columns if where else [])]
            if where is not None:
                files = within(files, all_columns, where)
            rows = FileRows(table.io, all_columns, [each.file_path for each in files])
            for number in range(len(files)):
                for batch in rows.batches(number, needed):
                    found = batch if where is None else where.rows(batch)
                    if len(found):
                        yield found.select(names)

    def _version(
        self, table: Table, version: int | None
    ) -> tuple[list[Column], list[DataFile]]:
        if version is None:
            return _columns(table), self._manifests.files(table)
        snapshot = table.metadata.snapshot_by_id(version)
        if snapshot is None:
            raise UnusableTableError(f"it has no snapshot {version}")
        schema = table.metadata.schema()
        if snapshot.schema_id is not None:
            schema = table.metadata.schema_by_id(snapshot.schema_id) or schema
        files = [
            entry.data_file
            for manifest in iceberg_commit.manifests_of(snapshot, table.io)
            for entry in iceberg_commit.entries_of(manifest, table.io)
        ]
        return columns_of(schema), files

    def version(self) -> int:
        """Return the id of the newest snapshot; a commit of none keeps it."""
        with self._as_lake_error("read"):
            table = self._newest()
            snapshot = None if table is None else table.metadata.current_snapshot_id
            return -1 if snapshot is None else snapshot

    def version_files(self, version: int) -> Files:
        """Return the files of a snapshot; below 0: of a table without one."""
        with self._as_lake_error("read"):
            table = self._existing()
            columns, files = self._version(table, None if version < 0 else version)
            return FileRows(table.io, columns, [each.file_path for each in files])

    def position(self) -> tuple[int, dict[str, str]]:
        """Return the position number and note of the mirror's newest commit."""
        with self._as_lake_error("read"):
            table = self._newest()
            if table is None:
                return NOWHERE, {}
            return iceberg_commit.position(table.metadata)

    def size(self) -> Size | None:
        """Return the files of the newest version; its number counts the snapshots."""
        with self._as_lake_error("read"):
            table = self._newest()
            if table is None:
                return None
            files = self._manifests.files(table)
            times = [c for c in _columns(table) if c.name == TIME.name]
            newest = [ends(each, times[0])[1] for each in files if times]
            latest = max((each for each in newest if each is not None), default=None)
            return Size(
                len(files),
                sum(each.file_size_in_bytes for each in files),
                int(getattr(table.metadata, "last_sequence_number", 0)),
                table.metadata.last_updated_ms,
                0 if latest is None else round(latest.timestamp() * 1000),
                len({f.partition for f in files}) if self._table.partitions else 0,
            )

    # --- commits ----------------------------------------------------------------------

    def _tried(self, commit: Callable[[], T]) -> T:
        """Commit; retries if another writer was faster.

        The next try sees its commit, and has nothing to do if that was the same change.
        """
        for _ in range(TRIES - 1):
            with suppress(CommitFailedException):
                return commit()
        return commit()

    def _commit(self, table: Table, change: Change, record: Mapping[str, str]) -> None:
        expired = iceberg_upkeep.too_many(table)
        commit = Commit(table, self._manifests)
        try:
            commit.run(change, record, expired)
        except CommitFailedException:
            commit.discard()
            raise

    @contextmanager
    def _writing(
        self,
        table: Table,
        columns: Sequence[Column],
        spec: PartitionSpec | None = None,
    ) -> Iterator[FileWriter]:
        """Give a writer; deletes its files if they are certainly not committed."""
        number = (spec or table.metadata.spec()).spec_id
        writer = FileWriter(
            table.io,
            table.metadata.location,
            columns,
            self._key,
            Partitioning(self._table.partitions, number),
        )
        try:
            yield writer
        except (CommitFailedException, LakeError, pa.ArrowException):
            writer.discard()
            raise

    def _rewriter(self, table: Table, writer: FileWriter) -> Rewriter:
        files = self._manifests.files(table)
        return Rewriter(table.io, _columns(table), files, writer)

    # --- versions ---------------------------------------------------------------------

    @property
    def _catalog(self) -> Catalog:
        if self._opened is None:
            self._opened = open_catalog(self._path, self._options)
        return self._opened

    def _newest(self) -> Table | None:
        """Return the table's current version; None if it does not exist."""
        try:
            return self._existing()
        except NoSuchTableError:
            return None

    def _existing(self) -> Table:
        """Return the table's current version.

        UnusableTableError if it is in another folder: if it was moved, or if a catalog
        has the table of another lake under this name. A vacuum would take its files for
        unknown ones, and a copy would replace the other's rows.
        """
        table = self._catalog.load_table(self._name)
        location = table.metadata.location.rstrip("/")
        if location == self._path:
            return table
        if self._options:
            raise UnusableTableError(
                f"table {'.'.join(self._name)} of the catalog is in {location}: write "
                "lake.path as it was when the table was made, or if another lake has "
                "this name in the catalog, choose another folder (`to` of its rule)"
            )
        raise UnusableTableError(
            f"it was made in {location}, and its files name each other by that "
            "folder: move it back, or move it away and copy the table again"
        )

    def _published(self, copy_id: str) -> Table:
        """Return the table's current version, which must be the given copy."""
        table = self._newest()
        is_copy = table is not None and (
            iceberg_commit.applied(table.metadata, copy_id) != NOWHERE
        )
        if table is None or not is_copy:
            raise OtherCopyError.of(copy_id)
        return table

    @contextmanager
    def _as_lake_error(self, what: str) -> Iterator[None]:
        """Raise LakeError with the table's name for errors of the lake."""
        try:
            yield
        except LakeError as error:
            raise lake_error(f"cannot {what} {self}", error) from error
        except (FileNotFoundError, ValidationError) as error:
            # A file that the metadata names is missing, or the metadata is broken.
            raise unusable(f"cannot {what} {self}", error) from error
        except (
            OSError,
            pa.ArrowException,
            CommitFailedException,
            CommitStateUnknownException,
            NoSuchTableError,
            RESTError,
        ) as error:
            raise lake_error(f"cannot {what} {self}", error) from error
        except Exception as error:
            if not self._options:
                raise
            # A catalog's own library raises what it likes. Errors of thrift cannot be
            # raised through a context manager, and are the context of a TypeError.
            shown = (isinstance(error, TypeError) and error.__context__) or error
            text = f"cannot {what} {self}: {type(shown).__name__}: {shown}"
            raise LakeError(text) from error

    def __str__(self) -> str:
        return f"the lake's table {self._table.target} ({self._path})"


def _columns(table: Table) -> list[Column]:
    return columns_of(table.metadata.schema())


def _planned(table: Table | None, schema: pa.Schema) -> list[Column]:
    if table is None:
        return planned([], 0, schema)
    return planned(_columns(table), table.metadata.last_column_id, schema)
