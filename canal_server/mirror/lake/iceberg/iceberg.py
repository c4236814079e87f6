"""Tables of the lake as Iceberg tables, through pyiceberg.

A table's metadata file itself records its position (`iceberg_commit`), so position and
rows change at once. Leaves out which files changes rewrite (`iceberg_changes`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from canal_server.mirror.lake.iceberg import (
    iceberg_commit,
    iceberg_move,
    iceberg_upkeep,
)
from canal_server.mirror.lake.iceberg.iceberg_columns import (
    arrow_schema,
    columns_of,
    file_schema,
)
from canal_server.mirror.lake.iceberg.iceberg_commit import Change
from canal_server.mirror.lake.iceberg.iceberg_copies import Copies
from canal_server.mirror.lake.iceberg.iceberg_exchange import (
    IcebergGivenRows,
    replace_rows,
)
from canal_server.mirror.lake.iceberg.iceberg_files import (
    FileRows,
    ends,
    nulls,
    within,
)
from canal_server.mirror.lake.iceberg.iceberg_reshape import reshaped
from canal_server.mirror.lake.iceberg.iceberg_versions import (
    Versions,
    current_columns,
    planned_columns,
    tried,
)
from canal_server.mirror.lake.iceberg.iceberg_writes import (
    commit_changes,
    rewriter,
    writing,
)
from canal_server.mirror.lake.lake_table import (
    DELETED,
    NOWHERE,
    ROW,
    SEQ,
    TIME,
    Applied,
    Compacted,
    Size,
    UnlikeError,
    UnusableTableError,
    as_in_lake,
)
from canal_server.mirror.lake.reshape import Reshape
from canal_server.mirror.settings.table_values import CopiedFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from canal_server.mirror.lake.conditions import Among, Where
    from canal_server.mirror.lake.exchange.given_rows import GivenRows, ReceivedRows
    from canal_server.mirror.lake.iceberg.iceberg_columns import Column
    from canal_server.mirror.lake.lake_storage import Folder
    from canal_server.mirror.lake.lake_table import Files
    from canal_server.mirror.lake.steps import Step
    from canal_server.mirror.settings.table_values import MirrorTable
    from canal_server.runtime.lifecycle import Stop


class IcebergLakeTable:
    """One Iceberg table, as a `LakeTable`; for one thread at a time."""

    def __init__(
        self,
        path: str,
        table: MirrorTable,
        catalog: Mapping[str, str] | None = None,
        store: Mapping[str, str] | None = None,
    ) -> None:
        """Set the folder, or its URL, and the table; nothing is read yet.

        `catalog`: pyiceberg's options of a catalog that records the newest version; by
        default the folder does. `store`: those of the object store of such a folder.
        """
        self._path = path
        self._table = table
        self.versions = Versions(path, table.target, catalog, store)

    def exists(self) -> bool:
        """Check whether the catalog has the table."""
        with self.versions.as_lake_error("read"):
            return self.versions.newest() is not None

    def arrow_schema(self) -> pa.Schema | None:
        """Return the columns of the newest version."""
        with self.versions.as_lake_error("read"):
            table = self.versions.newest()
            return None if table is None else arrow_schema(current_columns(table))

    def readers_names(self) -> list[str]:
        """Return the names in the newest version's metadata."""
        with self.versions.as_lake_error("read"):
            table = self.versions.newest()
            return (
                [] if table is None else [each.shown for each in current_columns(table)]
            )

    def applied(self, copy_id: str) -> int:
        """Return the position number in the table's properties."""
        with self.versions.as_lake_error("read"):
            table = self.versions.newest()
            if table is None:
                return NOWHERE
            return iceberg_commit.applied(table.metadata, copy_id)

    def file_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns with the ids that they will have in the table."""
        with self.versions.as_lake_error("read"):
            return file_schema(planned_columns(self.versions.newest(), schema))

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
        copies = Copies(self.versions, self._table)
        with self.versions.as_lake_error("publish the copy of"):
            return tried(
                lambda: copies.publish(copy_id, schema, files, at, record, stop)
            )

    def files(self) -> list[CopiedFile]:
        """Return the files of the newest version, with the ids of their columns."""
        with self.versions.as_lake_error("read"):
            table = self.versions.newest()
            if table is None:
                return []
            ids = {each.name: each.id for each in current_columns(table)}
            found = []
            for each in self.versions.files(table):
                path = each.file_path.removeprefix(f"{self._path}/")
                if path == each.file_path:
                    raise UnusableTableError(
                        f"{path} is in another folder: another writer added it"
                    )
                size, rows = each.file_size_in_bytes, each.record_count
                found.append(CopiedFile(path, size, rows, "", ids=ids))
            return found

    def move(
        self,
        to: IcebergLakeTable,
        copy_id: str,
        folders: tuple[Folder, Folder],
        stop: Stop | None = None,
    ) -> bool:
        """Make this the other table, which has the second folder. False if impossible.

        A repetition finds that it is done. Raises ConnectionLost when a stop is
        requested.
        """
        with self.versions.as_lake_error("move"):
            return iceberg_move.move(self.versions, to.versions, copy_id, folders, stop)

    def apply(
        self,
        copy_id: str,
        changes: pa.Table,
        upto: int,
        note: Mapping[str, str],
    ) -> Applied:
        """Commit changes; retries if another writer was faster."""
        with self.versions.as_lake_error("apply changes to"):
            return tried(lambda: self._apply(copy_id, changes, upto, note))

    def _apply(
        self, copy_id: str, changes: pa.Table, upto: int, note: Mapping[str, str]
    ) -> Applied:
        table = self.versions.published(copy_id)
        applied = iceberg_commit.applied(table.metadata, copy_id)
        if applied >= upto:
            return Applied()
        new = as_in_lake(changes)
        new = new.filter(pc.greater_equal(new[SEQ.name], applied))
        record = iceberg_commit.record(copy_id, upto, note)
        return commit_changes(self.versions, table, self._table, new, record)

    def correct(self, copy_id: str, changes: pa.Table) -> Applied:
        """Commit the correct rows; the position of the previous commit stays."""
        with self.versions.as_lake_error("correct rows of"):
            table = self.versions.published(copy_id)
            return commit_changes(
                self.versions, table, self._table, as_in_lake(changes), {}
            )

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
        with self.versions.as_lake_error("delete rows of"):
            table = self.versions.published(copy_id)
            if iceberg_commit.applied(table.metadata, copy_id) >= upto:
                return
            record = iceberg_commit.record(copy_id, upto, note)
            values = {
                DELETED.name: pa.scalar(True),
                SEQ.name: pa.scalar(upto, SEQ.type),
                ROW.name: pa.scalar(0, ROW.type),
                TIME.name: pa.scalar(at_ms * 1000, TIME.type),
            }
            with writing(table, self._table, current_columns(table)) as writer:
                files = rewriter(self.versions, table, writer)
                if self._table.deletes == "soft":
                    change = files.marked(where, values)
                else:
                    change = files.without(where)
                self.versions.commit(table, change, record)

    def given(self, copy_id: str, where: Among | None, upto: int) -> GivenRows | None:
        """Return rows of the newest snapshot, or of the one before the statement."""
        with self.versions.as_lake_error("read"):
            table = self.versions.published(copy_id)
            columns, files = self._version(table, None)
            if iceberg_commit.applied(table.metadata, copy_id) >= upto:
                before = iceberg_commit.version_before(table.metadata, copy_id, upto)
                if before is None:
                    return None
                files = self._version(table, before)[1] if before >= 0 else []
            rows = FileRows(table.io, columns, [each.file_path for each in files])
            return IcebergGivenRows(rows, where, upto)

    def exchange(
        self, copy_id: str, received: ReceivedRows, note: Mapping[str, str]
    ) -> int:
        """Commit other rows in one snapshot, and which statement it was."""
        with self.versions.as_lake_error("exchange rows of"):
            table = self.versions.published(copy_id)
            metadata, upto = table.metadata, received.rows.upto
            if iceberg_commit.applied(metadata, copy_id) >= upto:
                return 0
            record = iceberg_commit.record_of_exchange(metadata, copy_id, upto, note)
            return replace_rows(self.versions, table, self._table, received, record)

    def exchanged(self, copy_id: str) -> int:
        """Return the position number of the last exchange in the table's properties."""
        with self.versions.as_lake_error("read"):
            table = self.versions.published(copy_id)
            return iceberg_commit.exchanged(table.metadata, copy_id)

    def has_null(self, column: str) -> bool:
        """Check whether a file has NULL in a column, or may have it."""
        with self.versions.as_lake_error("read"):
            table = self.versions.existing()
            found = next(each for each in current_columns(table) if each.name == column)
            return any(nulls(each, found) for each in self.versions.files(table))

    def evolve(
        self, copy_id: str, steps: Sequence[Step], upto: int, note: Mapping[str, str]
    ) -> None:
        """Change the table's columns; rewrites files only for new values."""
        with self.versions.as_lake_error("change the columns of"):
            table = self.versions.published(copy_id)
            if iceberg_commit.applied(table.metadata, copy_id) >= upto:
                return
            record = iceberg_commit.record(copy_id, upto, note)
            if not steps:
                self.versions.commit(table, Change(), record)
                return
            before = current_columns(table)
            reshape = Reshape(arrow_schema(before), steps)
            plan = reshaped(before, table.metadata.last_column_id, reshape, steps)
            left = {each.id for each in plan.columns}
            for field in table.metadata.spec().fields:
                if field.source_id not in left:
                    raise UnlikeError(
                        f"partition {field.name} is of a column whose new type is "
                        "another column for Iceberg, so all rows get new partitions"
                    )
            with writing(table, self._table, plan.columns) as writer:
                change = Change(columns=plan.columns, keeps_rows=True)
                if plan.rewrites or self._table.is_keyless:
                    files = self.versions.files(table)
                    paths = [each.file_path for each in files]
                    rows = FileRows(table.io, before, paths)
                    change.removed, change.keeps_rows = set(paths), False
                    for number in range(len(paths)):
                        written = writer.write(
                            plan.rows(rows.batches(number)), files[number].partition
                        )
                        change.added += [] if written is None else [written]
                self.versions.commit(table, change, record)

    def use_definition(self, table: MirrorTable) -> None:
        """Use the table's current definition from now on, with its key's new names."""
        self._table = table

    def compact(self) -> Compacted:
        """Merge small files and reorder keys; the commit changes no row."""
        with self.versions.as_lake_error("compact"):
            table = self.versions.newest()
            if table is None:
                return Compacted()
            columns, files = current_columns(table), self.versions.files(table)
            with writing(table, self._table, columns) as writer:
                change = iceberg_upkeep.compacted(
                    table.io, columns, files, writer, self._table.key_targets
                )
                if change.removed:
                    self.versions.commit(table, change, {})
            return Compacted(len(change.removed), len(change.added))

    def vacuum(self, hours: float) -> int:
        """Forget old versions, and delete the files that no version needs."""
        with self.versions.as_lake_error("delete old files of"):
            table = self.versions.newest()
            if table is None:
                return 0
            return iceberg_upkeep.vacuum(
                table, self.versions.manifests, self._path, hours
            )

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        version: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows of a snapshot, by its id; by default the newest."""
        with self.versions.as_lake_error("read"):
            table = self.versions.existing()
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
            return current_columns(table), self.versions.files(table)
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
        with self.versions.as_lake_error("read"):
            table = self.versions.newest()
            snapshot = None if table is None else table.metadata.current_snapshot_id
            return -1 if snapshot is None else snapshot

    def version_files(self, version: int) -> Files:
        """Return the files of a snapshot; below 0: of a table without one."""
        with self.versions.as_lake_error("read"):
            table = self.versions.existing()
            columns, files = self._version(table, None if version < 0 else version)
            return FileRows(table.io, columns, [each.file_path for each in files])

    def position(self) -> tuple[int, dict[str, str]]:
        """Return the position number and note of the mirror's newest commit."""
        with self.versions.as_lake_error("read"):
            table = self.versions.newest()
            if table is None:
                return NOWHERE, {}
            return iceberg_commit.position(table.metadata)

    def size(self) -> Size | None:
        """Return the files of the newest version; its number counts the snapshots."""
        with self.versions.as_lake_error("read"):
            table = self.versions.newest()
            if table is None:
                return None
            files = self.versions.files(table)
            times = [c for c in current_columns(table) if c.name == TIME.name]
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

    def __str__(self) -> str:
        return f"the lake's table {self._table.target} ({self._path})"
