"""Changes of an Iceberg table's rows: writes their files, and commits these.

Leaves out which files they rewrite (`iceberg_changes`).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException

from canal_server.errors import LakeError
from canal_server.mirror.lake.iceberg.iceberg_changes import Rewriter
from canal_server.mirror.lake.iceberg.iceberg_commit import Change
from canal_server.mirror.lake.iceberg.iceberg_files import FileWriter
from canal_server.mirror.lake.iceberg.iceberg_partitions import Partitioning
from canal_server.mirror.lake.iceberg.iceberg_versions import current_columns
from canal_server.mirror.lake.lake_table import Applied

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.table import Table

    from canal_server.mirror.lake.iceberg.iceberg_columns import Column
    from canal_server.mirror.lake.iceberg.iceberg_versions import Versions
    from canal_server.mirror.settings.table_values import MirrorTable


@contextmanager
def writing(
    table: Table,
    definition: MirrorTable,
    columns: Sequence[Column],
    spec: PartitionSpec | None = None,
) -> Iterator[FileWriter]:
    """Give a writer; deletes its files if they are certainly not committed."""
    number = (spec or table.metadata.spec()).spec_id
    writer = FileWriter(
        table.io,
        table.metadata.location,
        columns,
        definition.key_targets,
        Partitioning(definition.partitions, number),
    )
    try:
        yield writer
    except (CommitFailedException, LakeError, pa.ArrowException):
        writer.discard()
        raise


def rewriter(versions: Versions, table: Table, writer: FileWriter) -> Rewriter:
    """Return what rewrites the files of a version."""
    files = versions.files(table)
    return Rewriter(table.io, current_columns(table), files, writer)


def commit_changes(
    versions: Versions,
    table: Table,
    definition: MirrorTable,
    changes: pa.Table,
    record: Mapping[str, str],
) -> Applied:
    """Commit changes of rows, by the key or counted; returns what they changed."""
    change, done = Change(), Applied()
    with writing(table, definition, current_columns(table)) as writer:
        if len(changes):
            files = rewriter(versions, table, writer)
            if definition.is_keyless:
                change, done = files.count(changes)
            else:
                change, done = files.merge(changes, definition.key_targets)
        versions.commit(table, change, record)
    return done
