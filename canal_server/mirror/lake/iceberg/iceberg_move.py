"""Gives an Iceberg table another folder and another name, as RENAME does.

::

    shop/old/metadata, data          shop/new/metadata, data
    v7.metadata.json  ─ rewritten ─► v8.metadata.json   the same table, with its id
    manifests         ─ rewritten ─► manifests          of all its snapshots
    data files        ─── linked ──► data files         also those of old snapshots

All files of a table name each other by their full paths, so a folder cannot just be
renamed. The table has its new name at once, when all files are there; then the old
folder is removed. In an object store, where files are copied, only the current snapshot
moves. Leaves out which table is another one's by now (`run.replacements`).
"""

from __future__ import annotations

import logging
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pyiceberg.io import load_file_io
from pyiceberg.manifest import (
    ManifestContent,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table.refs import MAIN_BRANCH

from canal_server.errors import ConnectionLost, LakeError
from canal_server.mirror.lake.iceberg import iceberg_commit
from canal_server.mirror.lake.iceberg.iceberg_catalog import (
    FolderCatalog,
    is_refusal,
    register,
    removal_order,
)
from canal_server.mirror.lake.iceberg.iceberg_commit import (
    AVRO,
    all_entries_of,
    manifests_of,
)
from canal_server.mirror.lake.iceberg.iceberg_files import sync
from canal_server.mirror.lake.lake_table import NOWHERE, UnusableTableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.io import FileIO, OutputFile
    from pyiceberg.manifest import ManifestEntry
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

    from canal_server.mirror.lake.iceberg.iceberg_versions import Versions
    from canal_server.mirror.lake.lake_storage import Folder
    from canal_server.runtime.lifecycle import Stop

log = logging.getLogger(__name__)

_FORMAT: Final = 2
# Where records of pyiceberg have them.
_PATH_OF_FILE: Final = 1
_PATH_OF_MANIFEST: Final = 0
_LENGTH_OF_MANIFEST: Final = 1
_MARKER_LEN: Final = 16  # of Avro files: after the header, and after each block


def move(
    source: Versions,
    target: Versions,
    copy_id: str,
    folders: tuple[Folder, Folder],
    stop: Stop | None = None,
) -> bool:
    """Move a table; `folders` are those of both names.

    Returns False, with nothing done, if `source` is not this copy, if there is another
    table with the new name, if files are missing or damaged, or if the catalog or the
    store refuses it. A repetition after another error finds what is done, and removes
    what is left of the old table. Raises ConnectionLost when a stop is requested before
    the new table is complete.
    """
    now = target.newest()
    if now is None:
        table = source.newest()
        if table is None or _applied(table, copy_id) == NOWHERE:
            return False
        if not _made(table, target, copy_id, folders, stop):
            return False
    elif _applied(now, copy_id) == NOWHERE:
        return False
    _remove(source, copy_id, folders[0])
    return True


def _made(
    table: Table,
    target: Versions,
    copy_id: str,
    folders: tuple[Folder, Folder],
    stop: Stop | None,
) -> bool:
    """Make the table with the new name; False, with nothing left, if it cannot be."""
    if isinstance(table.catalog, FolderCatalog) != isinstance(
        target.catalog, FolderCatalog
    ):
        return False  # one of them is the mirror's own, which no catalog has
    moving = _Moving(table, target, folders, stop)
    try:
        if not moving.is_possible():
            return False
        metadata, output = moving.metadata(), moving.output()
        register(target.catalog, target.name, metadata, output, table)
    except Exception as error:  # a catalog's own library raises what it likes
        if not is_refusal(error):
            raise
        if not _is_there(target, copy_id):
            log.info("%s: cannot be moved to %s: %s", table.name(), target, error)
            moving.undo()
            return False
    return True


def _is_there(target: Versions, copy_id: str) -> bool:
    """Check whether the catalog has the new name in spite of an error.

    Some read a table after they have registered it.
    """
    try:
        now = target.newest()
    except UnusableTableError:
        return False  # that of another lake
    return now is not None and _applied(now, copy_id) != NOWHERE


def _applied(table: Table, copy_id: str) -> int:
    return iceberg_commit.applied(table.metadata, copy_id)


def _remove(source: Versions, copy_id: str, folder: Folder) -> None:
    """Remove what is left under the old name, unless it is another table by now."""
    old = source.newest()
    if old is not None and _applied(old, copy_id) == NOWHERE:
        return
    if old is not None:
        # A folder with some of its files would look like an older version, or damaged.
        if isinstance(source.catalog, FolderCatalog):
            metadata = folder.below("metadata")
            for name in removal_order(metadata.names()):
                metadata.delete(name)
        else:
            source.catalog.drop_table(source.name)
    folder.remove()


class _Moving:
    """One table on its way to another folder."""

    def __init__(
        self,
        table: Table,
        target: Versions,
        folders: tuple[Folder, Folder],
        stop: Stop | None,
    ) -> None:
        self._stop = stop
        self._metadata: TableMetadata = table.metadata
        self._io: FileIO = table.io
        # A catalog may give rights for the table's own folder only.
        self._new_io = load_file_io(target.catalog.properties, target.path)
        self._before = f"{table.metadata.location.rstrip('/')}/"
        self._after = f"{target.path}/"
        self._folders = folders
        self._manifests: dict[str, ManifestFile] = {}  # by their old paths
        self._data: set[str] = set()  # old paths of data files
        # The same in a repetition, which writes the same files again.
        name = f"{table.metadata_location} {self._after}"
        self._unique = uuid.uuid5(table.metadata.table_uuid, name).hex
        self._written: list[str] = []  # new paths of all but the data files
        self._taken: list[str] = []  # names of data files

    @property
    def _snapshots(self) -> Sequence[Snapshot]:
        """The snapshots that move."""
        if self._folders[0].local_path is not None:
            return self._metadata.snapshots
        current = self._metadata.current_snapshot()
        return [] if current is None else [current]

    def is_possible(self) -> bool:
        """Check whether all files are such as a mirror writes.

        Delete files have paths within, and newer formats have further files.
        """
        return self._metadata.format_version == _FORMAT and all(
            manifest.content == ManifestContent.DATA
            for snapshot in self._snapshots
            for manifest in manifests_of(snapshot, self._io)
        )

    def output(self) -> OutputFile:
        """Return the metadata file, for a catalog that does not name it itself."""
        return self._output(f"00000-{uuid.UUID(self._unique)}.metadata.json")

    def undo(self) -> None:
        """Remove what was made; a vacuum deletes what cannot be removed."""
        folder = self._folders[1]
        for path in self._written:
            with suppress(OSError):
                self._new_io.delete(path)
        for name in self._taken:
            with suppress(LakeError):
                folder.delete(name)
        with suppress(LakeError):
            if not folder.sizes_below():
                folder.remove()

    def _output(self, name: str) -> OutputFile:
        path = f"{self._after}metadata/{name}"
        self._written.append(path)
        return self._new_io.new_output(path)

    def metadata(self) -> TableMetadata:
        """Make the files of the new folder, all but the metadata, which names them."""
        snapshots = [self._snapshot(each) for each in self._snapshots]
        self._take_data()
        ids = {each.snapshot_id for each in snapshots}
        refs = {
            name: ref
            for name, ref in self._metadata.refs.items()
            if ref.snapshot_id in ids and (name == MAIN_BRANCH or len(ids) > 1)
        }
        log: list[SnapshotLogEntry] = [
            each for each in self._metadata.snapshot_log if each.snapshot_id in ids
        ]
        # Earlier metadata files, and statistics by other writers, remain.
        return self._metadata.model_copy(
            update={
                "location": self._after.rstrip("/"),
                "snapshots": snapshots,
                "snapshot_log": log,
                "refs": refs,
                "metadata_log": [],
                "statistics": [],
                "partition_statistics": [],
            }
        )

    def _snapshot(self, snapshot: Snapshot) -> Snapshot:
        schema_id = snapshot.schema_id
        found = [
            self._manifest(each, schema_id)
            for each in _all_manifests_of(snapshot, self._io)
        ]
        output = self._output(f"snap-{snapshot.snapshot_id}-{self._unique}.avro")
        with write_manifest_list(
            _FORMAT,
            output,
            snapshot.snapshot_id,
            snapshot.parent_snapshot_id,
            snapshot.sequence_number,
            AVRO,
        ) as writer:
            writer.add_manifests(found)
        sync(output.location)
        return snapshot.model_copy(update={"manifest_list": output.location})

    def _manifest(self, manifest: ManifestFile, schema_id: int | None) -> ManifestFile:
        """Write a manifest with the new paths, unless another snapshot has it, too."""
        known = self._manifests.get(manifest.manifest_path)
        if known is not None:
            return known
        self._check_stop()
        _check_end(manifest.manifest_path, self._io)
        entries = all_entries_of(manifest, self._io)
        schema = self._metadata.schema()
        if schema_id is not None:
            schema = self._metadata.schema_by_id(schema_id) or schema
        spec = self._metadata.specs()[manifest.partition_spec_id]
        output = self._output(f"{self._unique}-m{len(self._manifests)}.avro")
        snapshot_id = manifest.added_snapshot_id or 0
        with write_manifest(_FORMAT, spec, schema, output, snapshot_id, AVRO) as writer:
            for each in entries:
                writer.add_entry(self._entry(each))
        sync(output.location)
        # Not the one that was read: pyiceberg keeps that for others.
        moved = ManifestFile(*(manifest[n] for n in range(len(manifest))))
        moved[_PATH_OF_MANIFEST] = output.location
        moved[_LENGTH_OF_MANIFEST] = len(output)
        self._manifests[manifest.manifest_path] = moved
        return moved

    def _entry(self, entry: ManifestEntry) -> ManifestEntry:
        path = entry.data_file.file_path
        if entry.status != ManifestEntryStatus.DELETED:
            self._data.add(path)
        # One of another writer's folder stays there.
        if path.startswith(self._before):
            new = self._after + path.removeprefix(self._before)
            entry.data_file[_PATH_OF_FILE] = new
        return entry

    def _check_stop(self) -> None:
        if self._stop is not None and self._stop.requested():
            raise ConnectionLost("the move was interrupted by a stop")

    def _take_data(self) -> None:
        """Have the data files in the new folder, too."""
        source, target = self._folders
        sizes = source.sizes_below()
        names = [
            path.removeprefix(self._before)
            for path in sorted(self._data)
            if path.startswith(self._before)
        ]
        if missing := [name for name in names if name not in sizes]:
            raise UnusableTableError(f"it lacks file {self._before}{missing[0]}")
        there = target.sizes_below()  # of an earlier attempt
        for name in names:
            self._check_stop()
            self._taken.append(name)
            if there.get(name) == sizes[name]:
                target.keep(name)
                continue
            if name in there:
                target.delete(name)
            target.link(source, name, name)


def _all_manifests_of(snapshot: Snapshot, io: FileIO) -> list[ManifestFile]:
    """Return what a snapshot names, if these are as many files as it says."""
    found = manifests_of(snapshot, io)
    if found:
        _check_end(snapshot.manifest_list, io)
    files = sum(
        (each.added_files_count or 0) + (each.existing_files_count or 0)
        for each in found
    )
    summary = snapshot.summary
    total = summary and summary.additional_properties.get("total-data-files")
    if total and total != str(files):
        raise UnusableTableError(
            f"{snapshot.manifest_list} is damaged: it has {files} files instead of "
            f"{total}"
        )
    return found


def _check_end(path: str, io: FileIO) -> None:
    """Check that a file with entries ends with the marker of its header.

    pyiceberg's decoder does not: of a file that lacks its end it takes what is in
    memory after it, which may be anything.
    """
    with io.new_input(path).open() as stream:
        content = stream.read()
    if content.find(content[-_MARKER_LEN:]) >= len(content) - _MARKER_LEN:
        raise UnusableTableError(f"{path} is damaged: its end is missing")
