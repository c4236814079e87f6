"""Copies a table without a key exactly as it is at one binlog position.

Rows that can only be counted must be neither applied twice nor missing, so the copy is
made at a moment when no change of the table is in flight:

    L ── snapshot ── H      everything before L is visible, H is read afterwards

If the table has no change between L and H, the snapshot is the table at H.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from canal_server.errors import SourceError, SourceRefused
from canal_server.mirror.copy.copy_files import is_whole, sizes_of, write_files
from canal_server.mirror.ddl.widening import definitions_of
from canal_server.mirror.rows.chunk_read import open_stream, read_rows
from canal_server.mirror.rows.chunks import Chunk, quoted, table_in_sql
from canal_server.mirror.rows.copy_positions import latest, start_position
from canal_server.mirror.session.spark_session import table_options
from canal_server.mirror.state.manifests import ChunkManifest
from canal_server.model.columns_known import ColumnMeta
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.result_stream import ResultStream
from canal_server.mysql.server_errors import account_text
from canal_server.spark.columns.spark_schema import packed_schema
from canal_server.spark.options.offsets import (
    offset_from_json,
    offset_to_json,
    version_of,
)
from canal_server.spark.options.servers import Channel
from canal_server.spark.packed.packed_rows import PART, unpack
from canal_server.spark.reading.range_tasks import Range, cut
from canal_server.spark.row_batches import read_rows as read_changes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from canal_server.client.range_client import RangePosition
    from canal_server.mirror.copy.copy_files import CopyTask
    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.settings.table_values import MirrorTable
    from canal_server.runtime.lifecycle import Stop

log = logging.getLogger(__name__)

TRIES: Final = 10
PAUSE_S: Final = 0.5  # after the first try; doubled after each further one
PAUSE_MAX_S: Final = 10.0
LOCKED_PATIENCE_S: Final = 10.0  # writers wait meanwhile

_SNAPSHOT: Final = (
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT",
)


def copy_keyless(
    settings: MirrorSettings,
    task: CopyTask,
    stop: Stop,
    on_rows: Callable[[int], None],
) -> tuple[ChunkManifest, RangePosition]:
    """Copy a table in this process, unless that is done; returns its position.

    Raises SourceError for a table that is written to all the time, and what reading and
    writing raise.
    """
    chunk = Chunk(0)
    known = ChunkManifest.read(task.manifests, chunk.number)
    if known is not None and is_whole(known, sizes_of(task)):
        return known, _position_of(settings, known)
    window = _Window(settings, task.table, stop)
    with ResultStream(settings.source.read_from, stop) as stream, closing(window):
        open_stream(stream)
        position = window.find(stream)
        rows = read_rows(stream, task.table, chunk, rows_per_s=task.rows_per_s)
        files = write_files(
            replace(task, seq=version_of(position)), chunk, _counted(rows, on_rows)
        )
    manifest = ChunkManifest(
        chunk.number,
        sum(file.rows for file in files),
        tuple(files),
        offset_to_json({settings.canal.destination: position}),
    )
    manifest.write(task.manifests)
    return manifest, position


def _position_of(settings: MirrorSettings, manifest: ChunkManifest) -> RangePosition:
    return offset_from_json(manifest.place)[settings.canal.destination]


def _counted(
    batches: Iterator[pa.RecordBatch], on_rows: Callable[[int], None]
) -> Iterator[pa.RecordBatch]:
    rows = 0
    for batch in batches:
        yield batch
        rows += batch.num_rows
        on_rows(rows)


class _Window:
    """Finds a moment when no change of a table is in flight."""

    def __init__(
        self, settings: MirrorSettings, table: MirrorTable, stop: Stop
    ) -> None:
        self._settings = settings
        self._table = table
        self._stop = stop
        self._options = table_options(settings, table.source)
        self._channel = Channel(self._options, settings.canal.destination, stop=stop)

    def close(self) -> None:
        """Close the connection to the server."""
        self._channel.close()

    def find(self, stream: ResultStream) -> RangePosition:
        """Open a snapshot of the table as of one position; returns the position."""
        pause_s = PAUSE_S
        for number in range(1, TRIES + 1):
            position = self._opened(stream, locked=False)
            if position is not None:
                return position
            log.info("%s: the table changed during try %d", self._table.source, number)
            if number < TRIES:
                stream.pause(pause_s)
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
        if not self._settings.copy.keyless_lock:
            raise SourceError(
                f"table {self._table.source} has no primary key and changed during "
                f"each of {TRIES} tries, but its copy needs a moment without changes: "
                "set copy.keyless_lock = true, which makes writers wait for a moment "
                "(LOCK TABLES … READ), or add a primary key"
            )
        position = self._opened(stream, locked=True)
        assert position is not None, "a locked table does not change"
        return position

    def _opened(self, stream: ResultStream, *, locked: bool) -> RangePosition | None:
        """Open a snapshot; None if the table changed meanwhile."""
        name = table_in_sql(self._table.source)
        with ExitStack() as stack:
            if locked:
                access = self._settings.source.access
                control = stack.enter_context(ControlConnection(access, self._stop))
                self._lock(control, name)
                before = start_position(
                    self._settings,
                    self._channel,
                    self._stop,
                    patience_s=LOCKED_PATIENCE_S,
                )
            else:
                before = start_position(self._settings, self._channel, self._stop)
            for statement in _SNAPSHOT:
                stream.query(statement)
            # From here to the end of the snapshot, the table's columns cannot change.
            stream.query(f"SELECT 1 FROM {name} LIMIT 0")  # noqa: S608  # quoted
            after = latest(self._settings, self._channel)
        if self._has_changes(before, after):
            stream.query("ROLLBACK")
            return None
        self._check_columns(after)
        return after

    def _lock(self, control: ControlConnection, name: str) -> None:
        """Make writers of the table wait until the connection is closed."""
        try:
            control.query(f"LOCK TABLES {name} READ")
        except SourceRefused as error:
            account = control.access.credentials.user
            raise SourceRefused(
                f"copy.keyless_lock: account {account} may not lock table "
                f"{self._table.source}, which has no primary key; have an "
                "administrator run: GRANT LOCK TABLES ON "
                f"{quoted(self._table.source.schema)}.* TO {account_text(account)} "
                f"(error {error.errno})",
                errno=error.errno,
            ) from error

    def _has_changes(self, start: RangePosition, end: RangePosition) -> bool:
        if version_of(start) >= version_of(end):
            return False
        whole = Range(self._settings.canal.destination, start, end)
        return any(
            item.kind != PART and item.table == self._table.source
            for part in cut(self._channel, self._options, whole, None)
            for batch in read_changes(
                self._options, packed_schema(), part, self._channel
            )
            for item in unpack(pa.Table.from_batches([batch]))
        )

    def _check_columns(self, position: RangePosition) -> None:
        """Check that the columns are those with which the copy was started."""
        name = self._table.source
        found = self._channel.call(
            lambda c: c.schema(
                self._settings.canal.destination, name.schema, name.table, position
            )
        )
        there = {each.name: each for each in found.columns}
        for column in self._table.columns:
            now = there.get(column.name)
            if now is None:
                raise SourceError(
                    f"table {name}: column {column.name}, with which the copy was "
                    "started, was dropped: copy the table again"
                )
            if (now.mysql_type, now.charset) != (column.mysql_type, column.charset):
                texts = definitions_of(
                    ColumnMeta(column.name, column.mysql_type, column.charset),
                    ColumnMeta(column.name, now.mysql_type, now.charset),
                )
                raise SourceError(
                    f"table {name}: column {column.name} was {texts[0]} when the copy "
                    f"was started and is now {texts[1]}: copy the table again"
                )
