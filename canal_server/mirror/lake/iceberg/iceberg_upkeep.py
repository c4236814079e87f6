"""Upkeep of an Iceberg table: merges small files, forgets and deletes old ones.

No row changes. Each commit writes all snapshots that a table remembers, so these are
limited by number as well as by age. Leaves out when this is done (`upkeep`).
"""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import fs
from pyiceberg.io.pyarrow import PyArrowFileIO

from canal_server.mirror.lake.file_groups import KeyedFile, groups_of
from canal_server.mirror.lake.iceberg.iceberg_commit import (
    Change,
    Commit,
    Manifests,
    entries_of,
    manifests_of,
)
from canal_server.mirror.lake.iceberg.iceberg_files import (
    FILE_ROWS,
    FileRows,
    ends,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.typedef import Record

    from canal_server.mirror.lake.iceberg.iceberg_columns import Column
    from canal_server.mirror.lake.iceberg.iceberg_files import FileWriter

SNAPSHOTS_MAX: Final = 500  # remembered; then every second one is forgotten
NEWEST: Final = 50  # of which none is
# Files that no snapshot names belong to a running copy, or are left over.
UNKNOWN_HOURS: Final = 7 * 24
WRITTEN_HOURS: Final = 24  # the same for files of changes, whose commits are quick
FILE_BYTES: Final = 8 << 20
HELD_BYTES_MAX: Final = 512 << 20  # of rows in memory
HOUR_MS: Final = 3_600_000


def too_many(table: Table) -> list[int]:
    """Return the snapshots that the next commit forgets because of their number.

    The oldest stays, so time can still be travelled as far back, in larger steps. A
    file of a forgotten snapshot is one of a remembered one, or was written later than
    the oldest of these: so it is deleted only when it is that old itself.
    """
    ordered = _in_order(table.metadata.snapshots)
    if len(ordered) < SNAPSHOTS_MAX:
        return []
    kept = _protected(table)
    return [
        each.snapshot_id
        for each in ordered[1:-NEWEST:2]
        if each.snapshot_id not in kept
    ]


def compacted(
    io: FileIO,
    columns: Sequence[Column],
    files: Sequence[DataFile],
    writer: FileWriter,
    key: Sequence[str],
) -> Change:
    """Separate overlapping files and merge small ones."""
    by_path = {each.file_path: each for each in files}
    size = _size(files)
    change = Change(keeps_rows=True)
    by_partition: dict[Record, list[KeyedFile]] = {}
    for each in _keyed(files, columns, key):
        partition = by_path[each.path].partition
        by_partition.setdefault(partition, []).append(each)
    for group in groups_of(by_partition.values(), size):
        rows = _rows(io, columns, [each.path for each in group])
        if rows is None:
            continue
        if key:
            rows = rows.sort_by([(name, "ascending") for name in key])
        count = max(
            1, round(sum(by_path[f.path].file_size_in_bytes for f in group) / size)
        )
        each_rows = max(1, -(-len(rows) // count))
        if count >= len(group) and len(group) == 1:
            continue
        change.removed |= {each.path for each in group}
        for first in range(0, len(rows), each_rows):
            part = rows.slice(first, each_rows)
            change.added += writer.write_table(part)
    return change


def vacuum(table: Table, manifests: Manifests, path: str, hours: float) -> int:
    """Forget snapshots that are older, and delete files that none needs."""
    kept_ids = _protected(table)
    oldest_ms = time.time() * 1000 - hours * HOUR_MS
    expired = _replaced_before(table.metadata.snapshots, oldest_ms, kept_ids)
    before: set[str] = set()
    if expired:
        before = _named(table, table.metadata.snapshots)
        Commit(table, manifests).run(
            Change(), {}, [each.snapshot_id for each in expired]
        )
        table = table.catalog.load_table(table.name())
    now = _named(table, table.metadata.snapshots)
    removed = _delete(table.io, before - now)
    now |= {each.metadata_file for each in table.metadata.metadata_log}
    return removed + _delete(table.io, _unknown(table, path, now, hours))


def _replaced_before(
    snapshots: Sequence[Snapshot], oldest_ms: float, kept: set[int]
) -> list[Snapshot]:
    """Return the snapshots that were not the newest one any more at a time."""
    return [
        each
        for each, following in pairwise(_in_order(snapshots))
        if following.timestamp_ms < oldest_ms and each.snapshot_id not in kept
    ]


def _in_order(snapshots: Iterable[Snapshot]) -> list[Snapshot]:
    return sorted(snapshots, key=lambda each: each.sequence_number or 0)


def _protected(table: Table) -> set[int]:
    """Return the snapshots that are the newest one, or have a name."""
    return {each.snapshot_id for each in table.metadata.refs.values()}


def _named(table: Table, snapshots: Iterable[Snapshot]) -> set[str]:
    """Return all files that snapshots need."""
    found, known = set(), set()
    for snapshot in snapshots:
        found.add(snapshot.manifest_list)
        for manifest in manifests_of(snapshot, table.io):
            if manifest.manifest_path in known:
                continue
            known.add(manifest.manifest_path)
            found |= {
                entry.data_file.file_path for entry in entries_of(manifest, table.io)
            }
    return found | known


def _unknown(table: Table, path: str, named: set[str], hours: float) -> set[str]:
    """Return old files of the table's folder that nothing names."""
    if not isinstance(table.io, PyArrowFileIO):
        return set()
    scheme, address, root = table.io.parse_location(path)
    store = table.io.fs_by_scheme(scheme, address)
    now = time.time()
    latest = now - max(hours, UNKNOWN_HOURS) * 3600
    latest_written = now - max(hours, WRITTEN_HOURS) * 3600
    prefix = path[: len(path) - len(root)] if path.endswith(root) else ""
    found = set()
    selector = fs.FileSelector(root, allow_not_found=True, recursive=True)
    for each in store.get_file_info(selector):
        if each.type != fs.FileType.File or each.mtime is None:
            continue
        name = each.path.rpartition("/")[2]
        is_metadata = name.endswith(".metadata.json") or name == "version-hint.text"
        is_written = each.path.startswith((f"{root}/data/", f"{root}/metadata/"))
        limit = latest_written if is_written else latest
        if each.mtime.timestamp() < limit and not is_metadata:
            found.add(prefix + each.path)
    return found - named


def _delete(io: FileIO, paths: Iterable[str]) -> int:
    removed = 0
    for path in paths:
        with suppress(FileNotFoundError):
            io.delete(path)
            removed += 1
    return removed


def _keyed(
    files: Sequence[DataFile], columns: Sequence[Column], key: Sequence[str]
) -> Iterator[KeyedFile]:
    """Yield files with the ends of the key's first column, if all have them."""
    first = next((each for each in columns if key and each.name == key[0]), None)
    found: list[tuple[Any, Any]] = [
        (number, number) if first is None else ends(each, first)
        for number, each in enumerate(files)
    ]
    if any(None in each for each in found):
        found = [(number, number) for number in range(len(files))]
    for each, file in zip(found, files, strict=True):
        size = file.file_size_in_bytes
        yield KeyedFile(*each, file.file_path, size, file.record_count)


def _size(files: Sequence[DataFile]) -> int:
    """Return the size of a file of `FILE_ROWS` rows, in bytes."""
    rows = sum(each.record_count for each in files)
    if not rows:
        return FILE_BYTES
    size = sum(each.file_size_in_bytes for each in files) * FILE_ROWS // rows
    return max(1 << 20, size)


def _rows(io: FileIO, columns: Sequence[Column], paths: Sequence[str]) -> Any:
    """Return the rows of files; None if they need too much memory."""
    files, parts, held = FileRows(io, columns, paths), [], 0
    for number in range(len(files)):
        for batch in files.batches(number):
            parts.append(batch)
            held += batch.nbytes
            if held > HELD_BYTES_MAX:
                return None
    return pa.Table.from_batches(parts, files.schema)
