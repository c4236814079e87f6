"""Commits of an Iceberg table: one snapshot each, with the mirror's position.

The copy, the position number and the note are properties of the table, which the same
metadata file changes as adds the snapshot. A commit that changes neither rows nor
columns adds none.
"""

from __future__ import annotations

import hashlib
import json
import time
import zlib
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriter,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotsUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)

from canal_server.mirror.lake.iceberg.iceberg_columns import columns_of, schema_of
from canal_server.mirror.lake.iceberg.iceberg_files import sync
from canal_server.mirror.lake.lake_table import NOWHERE, UnusableTableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableRequirement, TableUpdate

    from canal_server.mirror.lake.iceberg.iceberg_columns import Column

MANIFESTS_MAX: Final = 16  # of a snapshot; beyond that, the small ones are merged
ENTRIES_MAX: Final = 2_000  # of a merged manifest
AVRO: Final = "deflate"

# What pyiceberg's decoder raises for damaged files.
_DAMAGED: Final = (
    ArithmeticError,
    EOFError,
    LookupError,
    SystemError,
    TypeError,
    ValueError,
    zlib.error,
)
_COPY: Final = "canal.copy"
_UPTO: Final = "canal.upto"
_NOTE: Final = "canal.note"
_EXCHANGED: Final = "canal.exchanged"  # see `_Exchanged`
_NO_VERSION: Final = -1  # in place of a snapshot id


class _Exchanged(NamedTuple):
    """The last exchange of rows with another table, as a property has it."""

    copy_id: str
    upto: int  # the position number after the statement
    before: int  # the snapshot before it, or _NO_VERSION

    @classmethod
    def of(cls, metadata: TableMetadata) -> _Exchanged | None:
        """Return that of a table; None if there was none."""
        text = metadata.properties.get(_EXCHANGED)
        if text is None:
            return None
        copy_id, upto, before = text.split(" ")
        return cls(copy_id, int(upto), int(before))

    def __str__(self) -> str:
        return f"{self.copy_id} {self.upto} {self.before}"


@dataclass
class Change:
    """What a commit does to a table's files and columns."""

    added: list[DataFile] = field(default_factory=list)
    removed: set[str] = field(default_factory=set)  # paths
    columns: Sequence[Column] | None = None  # None: they stay
    keeps_rows: bool = False  # as when files are merged
    spec: PartitionSpec | None = None  # of the added files; None: the table's


def record(copy_id: str, upto: int, note: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that name a position of the mirror."""
    text = json.dumps(dict(note), ensure_ascii=False, sort_keys=True)
    return {_COPY: copy_id, _UPTO: str(upto), _NOTE: text}


def record_of_exchange(
    metadata: TableMetadata, copy_id: str, upto: int, note: Mapping[str, str]
) -> dict[str, str]:
    """Return the same for an exchange of rows with another table."""
    before = metadata.current_snapshot_id
    done = _Exchanged(copy_id, upto, _NO_VERSION if before is None else before)
    return record(copy_id, upto, note) | {_EXCHANGED: str(done)}


def exchanged(metadata: TableMetadata, copy_id: str) -> int:
    """Return the position number after the last exchange with another table.

    NOWHERE if this copy has had none.
    """
    done = _Exchanged.of(metadata)
    return NOWHERE if done is None or done.copy_id != copy_id else done.upto


def version_before(metadata: TableMetadata, copy_id: str, upto: int) -> int | None:
    """Return the snapshot before the last exchange, if it was up to this position.

    Below 0: there was none. None if the table no longer has it.
    """
    done = _Exchanged.of(metadata)
    if done is None or (done.copy_id, done.upto) != (copy_id, upto):
        return None
    is_known = (
        done.before == _NO_VERSION or metadata.snapshot_by_id(done.before) is not None
    )
    return done.before if is_known else None


def applied(metadata: TableMetadata, copy_id: str) -> int:
    """Return the position number up to which changes are applied.

    NOWHERE if the table is not this copy.
    """
    if metadata.properties.get(_COPY) != copy_id:
        return NOWHERE
    return int(metadata.properties[_UPTO])


def position(metadata: TableMetadata) -> tuple[int, dict[str, str]]:
    """Return the position number and the note of the newest change by a mirror."""
    properties = metadata.properties
    if _COPY not in properties:
        return NOWHERE, {}
    return int(properties[_UPTO]), dict(json.loads(properties[_NOTE]))


def manifests_of(snapshot: Snapshot, io: FileIO) -> list[ManifestFile]:
    """Return what a snapshot names. UnusableTableError if that is damaged."""
    with _readable(snapshot.manifest_list):
        return snapshot.manifests(io)


def entries_of(manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
    """Return what a manifest names. UnusableTableError if it is damaged."""
    with _readable(manifest.manifest_path):
        return manifest.fetch_manifest_entry(io)


def all_entries_of(manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
    """Return the same, with the entries of deleted files.

    UnusableTableError also if some are missing: a file that ends after a block of
    entries can be read.
    """
    path = manifest.manifest_path
    with _readable(path):
        found = manifest.fetch_manifest_entry(io, discard_deleted=False)
    counts = Counter(each.status for each in found)
    for status, count in (
        (ManifestEntryStatus.ADDED, manifest.added_files_count),
        (ManifestEntryStatus.EXISTING, manifest.existing_files_count),
        (ManifestEntryStatus.DELETED, manifest.deleted_files_count),
    ):
        if count is not None and count != counts[status]:
            raise UnusableTableError(
                f"{path} is damaged: it has {counts[status]} {status.name.lower()} "
                f"files instead of {count}"
            )
    return found


@contextmanager
def _readable(path: str) -> Iterator[None]:
    try:
        yield
    except _DAMAGED as error:
        kind = type(error).__name__
        raise UnusableTableError(f"{path} is damaged: {kind}: {error}") from error


class Manifests:
    """The entries of manifests, which never change once they are written."""

    def __init__(self) -> None:
        self._known: dict[str, list[ManifestEntry]] = {}

    def of(self, table: Table) -> list[tuple[ManifestFile, list[ManifestEntry]]]:
        """Return the manifests of the newest snapshot, with their live entries."""
        snapshot = table.metadata.current_snapshot()
        manifests = [] if snapshot is None else manifests_of(snapshot, table.io)
        found = []
        for each in manifests:
            if each.content == ManifestContent.DELETES:
                raise UnusableTableError(
                    "it has delete files, which only another writer makes: rewrite "
                    "its files with that, or copy it again"
                )
            path = each.manifest_path
            if path not in self._known:
                self._known[path] = entries_of(each, table.io)
            found.append((each, self._known[path]))
        current = {each.manifest_path for each in manifests}
        self._known = {p: e for p, e in self._known.items() if p in current}
        return found

    def files(self, table: Table) -> list[DataFile]:
        """Return the data files of the newest snapshot."""
        return [entry.data_file for _, each in self.of(table) for entry in each]


class Commit:
    """One commit of a table; raises CommitFailedException if another was faster."""

    def __init__(self, table: Table, manifests: Manifests) -> None:
        """Commit on top of the table's current version."""
        self._table = table
        self._manifests = manifests
        self._metadata = table.metadata
        self._io: FileIO = table.io
        self._id = self._metadata.new_snapshot_id()
        self._name = hashlib.sha256(f"{self._id}{time.time_ns()}".encode()).hexdigest()
        self._written: list[str] = []

    def run(
        self,
        change: Change,
        properties: Mapping[str, str],
        expired: Sequence[int] = (),
    ) -> None:
        """Commit files, columns, properties and the end of old snapshots at once."""
        updates: list[TableUpdate] = []
        schema = self._metadata.schema()
        if change.columns is not None:
            schema, updates = self._schema(change.columns)
        if change.spec is not None:
            updates += self._spec(change.spec)
        before = self._metadata.properties
        if news := {k: v for k, v in properties.items() if before.get(k) != v}:
            updates.append(SetPropertiesUpdate(updates=news))
        adds_snapshot = bool(change.added or change.removed or change.columns)
        if adds_snapshot:
            snapshot = self._snapshot(change, schema, properties)
            main = {
                "ref-name": MAIN_BRANCH,
                "type": SnapshotRefType.BRANCH,
                "snapshot-id": self._id,
            }
            updates += [
                AddSnapshotUpdate(snapshot=snapshot),
                SetSnapshotRefUpdate.model_validate(main),
            ]
        if expired:
            ids = {"snapshot-ids": list(expired)}
            updates.append(RemoveSnapshotsUpdate.model_validate(ids))
        if updates:
            if not adds_snapshot:
                self._check_newest()
            self._commit(updates)

    def _check_newest(self) -> None:
        """Raise CommitFailedException if there is a newer version.

        A catalog compares snapshots only, and this commit adds none.
        """
        newest = self._table.catalog.load_table(self._table.name())
        if newest.metadata_location != self._table.metadata_location:
            raise CommitFailedException(f"{self._metadata.location} has changed")

    def _commit(self, updates: Sequence[TableUpdate]) -> None:
        current = self._metadata.current_snapshot_id
        main = {"ref": MAIN_BRANCH, "snapshot-id": current}
        requirements: tuple[TableRequirement, ...] = (
            AssertTableUUID(uuid=self._metadata.table_uuid),
            AssertRefSnapshotId.model_validate(main),
        )
        for path in self._written:
            sync(path)
        done = self._table.catalog.commit_table(
            self._table, requirements, tuple(updates)
        )
        left = {each.metadata_file for each in done.metadata.metadata_log}
        for each in self._metadata.metadata_log:
            if each.metadata_file not in left:
                with suppress(OSError):
                    self._io.delete(each.metadata_file)

    def discard(self) -> None:
        """Delete what was written, as it is not committed."""
        for path in self._written:
            with suppress(OSError):
                self._io.delete(path)

    def _schema(self, columns: Sequence[Column]) -> tuple[Schema, list[TableUpdate]]:
        for known in self._metadata.schemas:
            if columns_of(known) == list(columns):
                return known, [_set_schema(known.schema_id)]
        number = 1 + max(each.schema_id for each in self._metadata.schemas)
        schema = schema_of(columns, number)
        return schema, [
            AddSchemaUpdate(schema=schema),
            _set_schema(-1),
        ]

    def _spec(self, spec: PartitionSpec) -> list[TableUpdate]:
        """Make a spec the table's; it may be one that the table had before."""
        if any(each.spec_id == spec.spec_id for each in self._metadata.partition_specs):
            return [_set_spec(spec.spec_id)]
        return [AddPartitionSpecUpdate(spec=spec), _set_spec(-1)]

    def _snapshot(
        self, change: Change, schema: Schema, properties: Mapping[str, str]
    ) -> Snapshot:
        parent = self._metadata.current_snapshot()
        parent_id = None if parent is None else parent.snapshot_id
        manifests, removed = self._kept(change.removed)
        if change.added:
            spec = change.spec or self._metadata.spec()
            manifests.insert(0, self._added(change.added, schema, spec))
        number = self._metadata.next_sequence_number()
        path = self._path(f"snap-{self._id}-0-{self._name[:32]}.avro")
        with write_manifest_list(
            2, self._io.new_output(path), self._id, parent_id, number, AVRO
        ) as writer:
            writer.add_manifests(manifests)
        return Snapshot.model_validate(
            {
                "snapshot-id": self._id,
                "parent-snapshot-id": parent_id,
                "manifest-list": path,
                "sequence-number": number,
                "summary": _summary(change, removed, schema, parent, properties),
                "schema-id": schema.schema_id,
            }
        )

    def _added(
        self, files: Sequence[DataFile], schema: Schema, spec: PartitionSpec
    ) -> ManifestFile:
        with self._manifest(schema, spec) as writer:
            for each in files:
                writer.add(_entry(each, self._id))
        return writer.to_manifest_file()

    def _kept(self, removed: set[str]) -> tuple[list[ManifestFile], list[DataFile]]:
        """Return the manifests of the other files, and the removed files."""
        kept: list[tuple[ManifestFile, list[ManifestEntry]]] = []
        touched: list[tuple[list[ManifestEntry], list[ManifestEntry]]] = []
        dropped = []
        for manifest, entries in self._manifests.of(self._table):
            away = [e for e in entries if e.data_file.file_path in removed]
            if away:
                stay = [e for e in entries if e.data_file.file_path not in removed]
                touched.append((stay, away))
                dropped += [each.data_file for each in away]
            elif entries:
                kept.append((manifest, entries))
        if missing := removed - {each.file_path for each in dropped}:
            raise UnusableTableError(f"it lacks file {min(missing)}")
        small = [e for e in kept if len(e[1]) < ENTRIES_MAX]
        if len(kept) + len(touched) >= MANIFESTS_MAX and len(small) > 1:
            kept = [e for e in kept if len(e[1]) >= ENTRIES_MAX]
            touched += [(entries, []) for _, entries in small]
        found = [manifest for manifest, _ in kept]
        room, pending = ENTRIES_MAX, [*touched]
        group: list[tuple[list[ManifestEntry], list[ManifestEntry]]] = []
        for each in pending:
            if group and room < len(each[0]):
                found.append(self._again(group))
                group, room = [], ENTRIES_MAX
            group.append(each)
            room -= len(each[0])
        if group:
            found.append(self._again(group))
        return found, dropped

    def _again(
        self, parts: Sequence[tuple[list[ManifestEntry], list[ManifestEntry]]]
    ) -> ManifestFile:
        # Their spec may name columns that the table does not have after this commit.
        with self._manifest(self._metadata.schema(), self._metadata.spec()) as writer:
            for stay, away in parts:
                for each in stay:
                    writer.existing(each)
                for each in away:
                    writer.delete(each)
        return writer.to_manifest_file()

    def _manifest(self, schema: Schema, spec: PartitionSpec) -> ManifestWriter:
        path = self._path(f"{self._name[:32]}-m{len(self._written)}.avro")
        output = self._io.new_output(path)
        return write_manifest(2, spec, schema, output, self._id, AVRO)

    def _path(self, name: str) -> str:
        path = f"{self._metadata.location}/metadata/{name}"
        self._written.append(path)
        return path


def _set_schema(number: int) -> SetCurrentSchemaUpdate:
    """Make a schema the current one; -1: the one that was added."""
    return SetCurrentSchemaUpdate.model_validate({"schema-id": number})


def _set_spec(number: int) -> SetDefaultSpecUpdate:
    """Make a spec the table's; -1: the one that was added."""
    return SetDefaultSpecUpdate.model_validate({"spec-id": number})


def _entry(file: DataFile, snapshot_id: int) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=snapshot_id,
        sequence_number=None,
        file_sequence_number=None,
        data_file=file,
    )


def _summary(
    change: Change,
    removed: Sequence[DataFile],
    schema: Schema,
    parent: Snapshot | None,
    properties: Mapping[str, str],
) -> Summary:
    collector = SnapshotSummaryCollector()
    for each in change.added:
        collector.add_file(each, schema)
    for each in removed:
        collector.remove_file(each, schema)
    operation = Operation.OVERWRITE
    if not removed:
        operation = Operation.APPEND
    elif not change.added:
        operation = Operation.DELETE
    ours = {name: properties[name] for name in (_COPY, _UPTO) if name in properties}
    summary = update_snapshot_summaries(
        Summary(operation=operation, **collector.build(), **ours),
        None if parent is None else parent.summary,
    )
    if change.keeps_rows:
        # Readers of changes skip it.
        totals = summary.additional_properties
        return Summary(operation=Operation.REPLACE, **totals)
    return summary
