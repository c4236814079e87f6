"""The interface of a table in the lake, for either format.

Each operation is atomic: readers see all of it or nothing, even if the process is
killed meanwhile. Repeating one with the same position changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from canal_server.arrow.arrow_batches import typed_schema
from canal_server.errors import LakeError
from canal_server.mirror.lake.conditions import DELETED_NAME
from canal_server.mirror.lake.partition_values import derived_fields
from canal_server.mirror.lake.value_forms import parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from canal_server.mirror.lake.conditions import Among, Where
    from canal_server.mirror.lake.steps import Step
    from canal_server.mirror.settings.table_values import CopiedFile, MirrorTable
    from canal_server.runtime.lifecycle import Stop

STREAM_TIME = "_commit_timestamp"  # the stream's name for the commit time
NOWHERE = -1  # the position number of a table to which nothing was applied

SEQ = pa.field("_seq", pa.int64())
ROW = pa.field("_row", pa.int32())
# Not the stream's name: readers of Delta's change data feed get that name in addition
# to the columns, for the time of a commit of the lake.
TIME = pa.field("_committed_at", pa.timestamp("us", tz="UTC"))
DELETED = pa.field(DELETED_NAME, pa.bool_())
HASH = pa.field("_row_hash", pa.int64())
META = (SEQ.name, ROW.name, TIME.name)  # of a row's last change
ADDED = frozenset(field.name for field in (SEQ, ROW, TIME, DELETED, HASH))


class UnlikeError(LakeError):
    """The lake's rows do not match the changes: a new copy repairs that."""


class UnusableTableError(LakeError):
    """A table's own log, files or constraints are unusable; the store works.

    Another writer may have interfered, so callers retry.
    """


class OtherCopyError(LakeError):
    """A table is not the copy to which changes belong, or does not exist."""

    @classmethod
    def of(cls, copy_id: str) -> OtherCopyError:
        """Return the message for a table that is not this copy."""
        return cls(
            f"it is not copy {copy_id}, to which the changes belong: check whether "
            "another mirror writes it; if not, copy the table again"
        )


class Applied(NamedTuple):
    """The effect of changes, in rows of the lake."""

    changed: int = 0  # inserted or updated
    deleted: int = 0


class Compacted(NamedTuple):
    """The result of merging files."""

    files: int = 0  # removed
    made: int = 0  # written instead


class Size(NamedTuple):
    """How large a table is. 0: unknown, or nothing."""

    files: int
    bytes: int
    version: int = -1  # below 0: the format has none
    committed_ms: int = 0  # time of its newest commit
    newest_ms: int = 0  # commit time in the source of its newest row
    partitions: int = 0  # that have files; 0: it is not partitioned


class Files(Protocol):
    """Files of rows that all have the same columns; can be pickled."""

    def __len__(self) -> int:
        """Return the number of files."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""

    def batches(
        self, number: int, names: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file, always in the same order.

        `names`: only these columns are needed.
        """


class LakeTable(Protocol):
    """One table of the lake. Every method may raise LakeError."""

    def exists(self) -> bool:
        """Check whether readers can read anything."""

    def arrow_schema(self) -> pa.Schema | None:
        """Return the table's current columns; None if it does not exist."""

    def readers_names(self) -> list[str]:
        """Return the names of the columns for readers, in the order of `arrow_schema`.

        [] if the table does not exist.
        """

    def applied(self, copy_id: str) -> int:
        """Return the position number up to which changes are applied.

        NOWHERE if the published table is not this copy.
        """

    def file_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return how files of a copy with these columns are to be written.

        The names are the same; a type, and what Parquet has beside it, may be others.
        The order is that of the table, in which rows without a key are hashed.
        """

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
        """Make the contents equal to a copy's files, as of the position `at`.

        Returns what differed, if only that was written; None if the files are now those
        of the table. Raises ConnectionLost when a stop is requested, before anything is
        visible.
        """

    def apply(
        self,
        copy_id: str,
        changes: pa.Table,
        upto: int,
        note: Mapping[str, str],
    ) -> Applied:
        """Apply changes in their order, and advance the position to `upto`.

        `changes` has columns of the table, masked and with the lake's names, and
        _change_type, _seq, _row, _commit_timestamp. Changes before the current position
        are skipped.
        """

    def correct(self, copy_id: str, changes: pa.Table) -> Applied:
        """Apply rows that are not changes of the stream: the position stays.

        Otherwise like `apply`. Only for a table with a key that is not a log.
        """

    def empty(
        self, copy_id: str, upto: int, at_ms: int, note: Mapping[str, str]
    ) -> None:
        """Delete all rows: TRUNCATE at a time."""

    def evolve(
        self, copy_id: str, steps: Sequence[Step], upto: int, note: Mapping[str, str]
    ) -> None:
        """Change the table's columns."""

    def use_definition(self, table: MirrorTable) -> None:
        """Use the source table's current definition: its key may have other names.

        Does not change the lake; for use after `evolve`, now or before a crash.
        """

    def compact(self) -> Compacted:
        """Merge small files; rows, position and note stay."""

    def vacuum(self, hours: float) -> int:
        """Delete files that no version of the last hours needs; returns their number.

        Files of an unpublished copy stay.
        """

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        version: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows, in any order; of the newest version, or of one."""

    def version(self) -> int:
        """Return the number of the newest version, by which `scan` finds it.

        Below 0 if the table has none.
        """

    def version_files(self, version: int) -> Files:
        """Return the files of a version, for example for other processes."""

    def position(self) -> tuple[int, dict[str, str]]:
        """Return the position number and the note of the mirror's newest change."""

    def size(self) -> Size | None:
        """Return how large the table is now; None if it does not exist."""


@runtime_checkable
class RowTable(LakeTable, Protocol):
    """A table of rows; logs of changes are none."""

    def delete(
        self,
        copy_id: str,
        where: Among | None,
        upto: int,
        at_ms: int,
        note: Mapping[str, str],
    ) -> None:
        """Delete some rows at a time, in one commit; None: all of them."""

    def files(self) -> list[CopiedFile]:
        """Return the files of the newest version: all current rows."""

    def has_null(self, column: str) -> bool:
        """Check whether a row may have NULL in a column, also one that is deleted."""


def as_in_lake(changes: pa.Table) -> pa.Table:
    """Return changes of the stream with the lake's columns for their order."""
    names = [TIME.name if n == STREAM_TIME else n for n in changes.column_names]
    return changes.rename_columns(names)


def lake_schema(table: MirrorTable) -> pa.Schema:
    """Return the columns of a table in the lake.

    Raises ConfigError for a column with the name of an added one.
    """
    requested = [part.requested for each in table.columns for part in parts_of(each)]
    fields = list(typed_schema(requested))[: len(requested)]
    fields += added_fields(table)
    return pa.schema(fields)


def added_fields(table: MirrorTable) -> list[pa.Field]:
    """Return the columns that the lake has in addition to the table's own."""
    fields = [SEQ, ROW, TIME]
    if table.deletes == "soft":
        fields.append(DELETED)
    if table.is_keyless:
        fields.append(HASH)
    if table.form == "delta":
        fields += derived_fields(table.partitions)
    return fields
