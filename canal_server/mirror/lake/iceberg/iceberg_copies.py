"""Copies of a table, or rows of another one, that become the rows of an Iceberg table.

Only what differs is written, if that is not much; else the copy's files replace those
of the table, which stays the same for its readers. Leaves out how copies are made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyiceberg.io import load_file_io

from canal_server.mirror.lake import copy_difference
from canal_server.mirror.lake.iceberg import iceberg_commit
from canal_server.mirror.lake.iceberg.iceberg_catalog import FORMAT
from canal_server.mirror.lake.iceberg.iceberg_columns import schema_of
from canal_server.mirror.lake.iceberg.iceberg_commit import Change
from canal_server.mirror.lake.iceberg.iceberg_files import (
    FileRows,
    FileWriter,
    copied,
    delete_staged,
    sync,
)
from canal_server.mirror.lake.iceberg.iceberg_partitions import Partitioning
from canal_server.mirror.lake.iceberg.iceberg_versions import (
    current_columns,
    planned_columns,
)
from canal_server.mirror.lake.iceberg.iceberg_writes import commit_changes, writing
from canal_server.mirror.lake.lake_table import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyiceberg.table import Table

    from canal_server.mirror.lake.iceberg.iceberg_columns import Column
    from canal_server.mirror.lake.iceberg.iceberg_versions import Versions
    from canal_server.mirror.lake.lake_table import Applied
    from canal_server.mirror.settings.table_values import CopiedFile, MirrorTable
    from canal_server.runtime.lifecycle import Stop

_PROPERTIES: Final = {
    "format-version": FORMAT,
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "write.parquet.compression-codec": "zstd",
}


class Copies:
    """What publishes copies of one table; for one thread at a time."""

    def __init__(self, versions: Versions, definition: MirrorTable) -> None:
        """Set the table, and its definition in the source."""
        self._versions = versions
        self._definition = definition
        self._partitioning = Partitioning(definition.partitions)

    def publish(  # noqa: PLR0917  # those of `LakeTable.publish`
        self,
        copy_id: str,
        schema: pa.Schema,
        files: Sequence[CopiedFile],
        at: int,
        record: Mapping[str, str],
        stop: Stop | None,
    ) -> Applied | None:
        """Commit a copy; returns what differed, or None if its files are the table's.

        Raises CommitFailedException if another writer was faster.
        """
        versions = self._versions
        table = versions.newest()
        columns = planned_columns(table, schema)
        if table is None:
            self._create(columns, files, record)
            return None
        if iceberg_commit.applied(table.metadata, copy_id) != NOWHERE:
            return None
        wanted = self._partitioning
        is_same = wanted.is_that_of(table.metadata.spec(), columns)
        if is_same and current_columns(table) == columns:
            changes = self._difference(table, files, at, stop)
            if changes is not None:
                done = commit_changes(
                    versions, table, self._definition, changes, record
                )
                delete_staged(table.io, versions.path, files)
                return done
        spec = None if is_same else wanted.new_spec(table.metadata, columns)
        with writing(table, self._definition, columns, spec) as writer:
            added = copied(table.io, versions.path, columns, files, writer)
            removed = {each.file_path for each in versions.files(table)}
            change = Change(added, removed, columns, spec=spec)
            versions.commit(table, change, record)
        kept = {each.file_path for each in added}
        rest = [f for f in files if f"{versions.path}/{f.path}" not in kept]
        delete_staged(table.io, versions.path, rest)
        return None

    def _create(
        self,
        columns: Sequence[Column],
        files: Sequence[CopiedFile],
        record: Mapping[str, str],
    ) -> None:
        """Create the table with the files of its first copy."""
        versions, partitioning = self._versions, self._partitioning
        catalog, path = versions.catalog, versions.path
        if versions.options:
            catalog.create_namespace_if_not_exists(versions.name[:-1])
        creation = catalog.create_table_transaction(
            versions.name,
            schema_of(columns),
            partition_spec=partitioning.spec(columns),
            location=path,
            properties={**_PROPERTIES, **record},
        )
        staged = creation.update_snapshot(dict(record)).fast_append()
        io = load_file_io(catalog.properties, path)
        key = self._definition.key_targets
        writer = FileWriter(io, path, columns, key, partitioning)
        for each in copied(io, path, columns, files, writer):
            staged.append_data_file(each)
        staged.commit()
        snapshot = creation.table_metadata.current_snapshot()
        assert snapshot is not None  # it was just added
        for written in (
            snapshot.manifest_list,
            *(each.manifest_path for each in iceberg_commit.manifests_of(snapshot, io)),
        ):
            sync(written)
        creation.commit_transaction()

    def _difference(
        self,
        table: Table,
        files: Sequence[CopiedFile],
        at: int,
        stop: Stop | None,
    ) -> pa.Table | None:
        """Return what a copy differs in; None if that is much."""
        columns, now = current_columns(table), self._versions.files(table)
        rows = max(sum(f.rows for f in files), sum(f.record_count for f in now))
        ours = FileRows(table.io, columns, [each.file_path for each in now])
        paths = [f"{self._versions.path}/{each.path}" for each in files]
        theirs = FileRows(table.io, columns, paths, files)
        key = self._definition.key_targets
        return copy_difference.difference(ours, theirs, rows, key, at, stop)
