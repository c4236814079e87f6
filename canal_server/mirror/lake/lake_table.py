"""What the mirror asks of a table in the lake, whatever the lake's format.

Readers of the lake never see a part of anything here: each of these is there as a whole
or not at all, also when the process is killed in it. Done a second time, with the same
place, each changes nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa

from canal_server.errors import LakeError
from canal_server.spark.reading.arrow_batches import typed_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from canal_server.mirror.lake.steps import Step
    from canal_server.mirror.settings.table_values import CopiedFile, MirrorTable

STREAM_TIME = "_commit_timestamp"  # the stream's name for when it was committed
NOWHERE = -1  # the position number of a table to which nothing was applied

SEQ = pa.field("_seq", pa.int64())
ROW = pa.field("_row", pa.int32())
# Not by the stream's name: readers of Delta's change data feed get that beside the
# columns, as the time of a commit of the lake.
TIME = pa.field("_committed_at", pa.timestamp("us", tz="UTC"))
DELETED = pa.field("_deleted", pa.bool_())
HASH = pa.field("_row_hash", pa.int64())
META = (SEQ.name, ROW.name, TIME.name)  # that tell a row's last change
ADDED = frozenset(field.name for field in (SEQ, ROW, TIME, DELETED, HASH))


class UnlikeError(LakeError):
    """What is in the lake is not what changes are of: a new copy has it right."""


class UnusableTableError(LakeError):
    """A table's own log, files or constraints are in the way; the store is not.

    It may have been another writer that came between, so whoever meets it tries again.
    """


class OtherCopyError(LakeError):
    """A table is not the copy to which changes are to be applied, or is not there."""

    @classmethod
    def of(cls, copy_id: str) -> OtherCopyError:
        """Return what is wrong with a table that is not this copy."""
        return cls(
            f"it is not of copy {copy_id}, to which changes are to be applied: does "
            "another mirror write it? if not, copy the table again"
        )


class Applied(NamedTuple):
    """What came of changes, in rows of the lake."""

    changed: int = 0  # inserted or updated
    deleted: int = 0


class Compacted(NamedTuple):
    """What came of putting files together."""

    files: int = 0  # that are gone
    made: int = 0  # that are there instead


class LakeTable(Protocol):
    """One table of the lake. Every method may raise LakeError."""

    def exists(self) -> bool:
        """Tell whether there is anything that a reader can read."""

    def arrow_schema(self) -> pa.Schema | None:
        """Return the columns that the table has now; None when it is not there."""

    def applied(self, copy_id: str) -> int:
        """Return the position number up to which changes are in.

        NOWHERE when what is published is not this copy.
        """

    def publish(
        self,
        copy_id: str,
        schema: pa.Schema,
        files: Sequence[CopiedFile],
        at: int,
        note: Mapping[str, str],
    ) -> None:
        """Replace all that is there by a copy's files, as of the position `at`."""

    def apply(
        self,
        copy_id: str,
        changes: pa.Table,
        upto: int,
        note: Mapping[str, str],
    ) -> Applied:
        """Apply changes, in their order, and move what is applied to `upto`.

        `changes` has columns of the table, by their names in the lake and masked, and
        _change_type, _seq, _row, _commit_timestamp. Those before what is applied are
        left out.
        """

    def correct(self, copy_id: str, changes: pa.Table) -> Applied:
        """Apply rows that are no changes of the stream: what is applied stays.

        Else as `apply`. Only for a table with a key that is no log.
        """

    def empty(
        self, copy_id: str, upto: int, at_ms: int, note: Mapping[str, str]
    ) -> None:
        """Delete all rows: TRUNCATE, at a time."""

    def evolve(
        self, copy_id: str, steps: Sequence[Step], upto: int, note: Mapping[str, str]
    ) -> None:
        """Change the table's columns."""

    def take(self, table: MirrorTable) -> None:
        """Go on with the source's table as it is now: its key may have other names.

        Changes nothing in the lake; for when `evolve` has, now or before a crash.
        """

    def compact(self) -> Compacted:
        """Put small files together; rows, places and notes stay."""

    def vacuum(self, hours: float) -> int:
        """Delete what no version of the last hours needs; returns how many files.

        Files of a copy that is not published yet stay.
        """

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        version: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows, in any order; `where` is a condition in SQL."""

    def place(self) -> tuple[int, dict[str, str]]:
        """Return the position number and the note of the newest change by a mirror."""


def as_in_lake(changes: pa.Table) -> pa.Table:
    """Return changes of the stream with their order as the lake has it."""
    names = [TIME.name if n == STREAM_TIME else n for n in changes.column_names]
    return changes.rename_columns(names)


def lake_schema(table: MirrorTable) -> pa.Schema:
    """Return the columns that a table has in the lake.

    Raises ConfigError for a column with the name of one that is added.
    """
    wanted = [replace(column.wanted, name=column.target) for column in table.columns]
    fields = list(typed_schema(wanted))[: len(wanted)]
    fields += added_fields(table)
    return pa.schema(fields)


def added_fields(table: MirrorTable) -> list[pa.Field]:
    """Return the columns that the lake has besides the table's own."""
    fields = [SEQ, ROW, TIME]
    if table.deletes == "soft":
        fields.append(DELETED)
    if table.is_keyless:
        fields.append(HASH)
    return fields
