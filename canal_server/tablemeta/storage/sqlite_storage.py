"""The table history of a destination in an SQLite file.

Table definitions are stored once, however many snapshots contain them, and so are
unchanged schemas::

    stretch ◄─ record          statements
       ▲
    snapshot ─► schema_image ─► definition

Everything that is read is verified by the checksum or digest written with it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from canal_server.doors.sqlite import Database, FileForm
from canal_server.errors import TableMetaStoreError
from canal_server.model.positions import EntryPosition
from canal_server.tablemeta.model.session_context import Context
from canal_server.tablemeta.storage.history_storage import (
    BinlogSegment,
    DdlRecord,
    Snapshot,
)
from canal_server.tablemeta.storage.sqlite_tables import (
    TABLES,
    collect_unused,
    get_schemas,
    put_schemas,
)
from canal_server.tablemeta.storage.storage_text import (
    position_from_text,
    position_to_text,
    sum_of,
    traits_from_text,
    traits_to_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from canal_server.doors.sqlite import Row
    from canal_server.tablemeta.storage.history_storage import (
        SourceTraits,
        StoredSchema,
    )

FILE_NAME: Final = "tablemeta.sqlite"

PAGE_ROWS: Final = 500  # statements per query

_FIRST_VERSION: Final = (
    """CREATE TABLE stretch (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        source TEXT NOT NULL,
        traits TEXT NOT NULL,
        first TEXT NOT NULL,
        last TEXT NOT NULL,
        created_ms INTEGER NOT NULL,
        written INTEGER NOT NULL,
        sum INTEGER NOT NULL
    )""",
    # file_number and start are the order of the position.
    """CREATE TABLE record (
        stretch INTEGER NOT NULL,
        file_number INTEGER NOT NULL,
        start INTEGER NOT NULL,
        place TEXT NOT NULL,
        use_schema TEXT NOT NULL,
        ddl TEXT NOT NULL,
        context TEXT NOT NULL,
        contained INTEGER NOT NULL,
        event_type TEXT NOT NULL,
        sql_schema TEXT NOT NULL,
        sql_table TEXT NOT NULL,
        sum INTEGER NOT NULL,
        UNIQUE (stretch, file_number, start)
    )""",
    # images: what `put_schemas` returned.
    """CREATE TABLE snapshot (
        stretch INTEGER NOT NULL,
        file_number INTEGER NOT NULL,
        start INTEGER NOT NULL,
        place TEXT NOT NULL,
        images BLOB NOT NULL,
        sum INTEGER NOT NULL,
        UNIQUE (stretch, file_number, start)
    )""",
    *TABLES,
)

FORM: Final = FileForm(
    what="table history",
    application_id=0x43414E4C,  # "CANL"
    steps=(_FIRST_VERSION,),
    without=(
        "a new history starts, and older positions of the binlog are read with the"
        " current columns"
    ),
    error=TableMetaStoreError,
)

_AFTER_ALL: Final = (2**63 - 1, 2**63 - 1)  # an order of positions
_SEGMENT: Final = "id, source, traits, first, last, created_ms, written, sum"
_RECORD: Final = (
    "place, use_schema, ddl, context, contained, event_type, sql_schema, sql_table, sum"
)


class SqliteHistoryStorage:
    """A `HistoryStorage` in one file; one server writes it, others may read."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._database = Database(path, FORM, read_only=read_only)

    def open(self) -> None:
        """Create or upgrade the file, and check it."""
        self._database.open()

    def close(self) -> None:
        """Close the file; idempotent."""
        self._database.close()

    def segments(self) -> list[BinlogSegment]:
        """Return all segments, the one that was written last at the end."""
        return [
            self._segment(row)
            for row in self._database.query(
                f"SELECT {_SEGMENT} FROM stretch ORDER BY written"  # noqa: S608  # ours
            )
        ]

    def begin(
        self, segment: BinlogSegment, base: Iterable[StoredSchema]
    ) -> BinlogSegment:
        """Add a segment with its base; returns it with its new id."""
        with self._database.transaction():
            # The checksum covers the id, which is not known before.
            started = replace(
                segment,
                id=self._database.insert(
                    "INSERT INTO stretch (source, traits, first, last, created_ms,"
                    " written, sum) VALUES ('', '', '', '', 0, 0, 0)"
                ),
            )
            self._update_segment(started)
            self._put_snapshot(started.id, started.first, base)
        return started

    def identify(self, segment_id: int, source: str, traits: SourceTraits) -> None:
        """Store whose binlog a segment belongs to, once more is known about it."""
        with self._database.transaction():
            segment = self._segment_of(segment_id)
            self._update_segment(
                replace(segment, source=source, traits=traits), written=False
            )

    def extend(
        self,
        segment_id: int,
        *,
        first: EntryPosition | None = None,
        last: EntryPosition | None = None,
    ) -> None:
        """Move the ends of the range that is known without a gap."""
        with self._database.transaction():
            self._move_ends(segment_id, first, last)

    def append(
        self, segment_id: int, record: DdlRecord, *, last: EntryPosition | None = None
    ) -> bool:
        """Add a statement; false if that of its position is known already."""
        with self._database.transaction():
            added = self._put_records(segment_id, (record,))
            self._move_ends(segment_id, None, last)
        return bool(added)

    def append_all(
        self,
        segment_id: int,
        records: Iterable[DdlRecord],
        *,
        first: EntryPosition | None = None,
        last: EntryPosition | None = None,
    ) -> None:
        """Add statements and move the ends like `extend`, all or nothing."""
        with self._database.transaction():
            self._put_records(segment_id, records)
            self._move_ends(segment_id, first, last)

    def records(
        self,
        segment_id: int,
        *,
        start: EntryPosition | None = None,
        stop: EntryPosition | None = None,
    ) -> Iterator[DdlRecord]:
        """Yield statements in binlog order, `start` <= position < `stop`."""
        sql = (
            f"SELECT {_RECORD} FROM record WHERE stretch = ?"  # noqa: S608  # ours
            " AND (file_number, start) {} (?, ?)"
            + (" AND (file_number, start) < (?, ?)" if stop else "")
            + f" ORDER BY file_number, start LIMIT {PAGE_ROWS}"
        )
        ends = stop.order() if stop else ()
        comparison, begins = ">=", start.order() if start else (0, 0)
        while True:
            rows = self._database.query(
                sql.format(comparison), (segment_id, *begins, *ends)
            )
            for row in rows:
                record = self._record(segment_id, row)
                yield record
            if len(rows) < PAGE_ROWS:
                return
            comparison, begins = ">", record.position.order()

    def write_snapshot(
        self, segment_id: int, position: EntryPosition, schemas: Iterable[StoredSchema]
    ) -> None:
        """Store the tables at a position; replaces an existing snapshot there."""
        with self._database.transaction():
            self._put_snapshot(segment_id, position, schemas)
            self._move_ends(segment_id, None, None)

    def snapshot(
        self, segment_id: int, at: EntryPosition | None = None
    ) -> Snapshot | None:
        """Return the newest snapshot at or before a position (None: of all)."""
        with self._database.reading():
            rows = self._database.query(
                "SELECT place, images, sum FROM snapshot WHERE stretch = ?"
                " AND (file_number, start) <= (?, ?)"
                " ORDER BY file_number DESC, start DESC LIMIT 1",
                (segment_id, *(at.order() if at else _AFTER_ALL)),
            )
            if not rows:
                return None
            position, images = self._position_and_images(segment_id, rows[0])
            return Snapshot(position, get_schemas(self._database, images))

    def expire(self, before_ms: int) -> int:
        """Delete what is needed only for positions older than a time."""
        with self._database.transaction():
            segments = self.segments()
            forgotten = 0
            for segment in segments:
                ended_ms = segment.last.timestamp or 0
                if segment is not segments[-1] and 0 < ended_ms < before_ms:
                    forgotten += self._forget(segment)
                else:
                    forgotten += self._shorten(segment, before_ms)
            collect_unused(self._database)
        return forgotten

    # --- segments ---------------------------------------------------------------------

    def _segment(self, row: Row) -> BinlogSegment:
        identity, source, traits, first, last, created_ms, _, found = row
        if found != sum_of(row[:-1]):
            raise self._database.damaged(f"segment {identity} has a wrong checksum")
        return BinlogSegment(
            identity,
            source,
            traits_from_text(traits),
            position_from_text(first),
            position_from_text(last),
            created_ms,
        )

    def _segment_of(self, segment_id: int) -> BinlogSegment:
        rows = self._database.query(
            f"SELECT {_SEGMENT} FROM stretch WHERE id = ?",  # noqa: S608  # ours
            (segment_id,),
        )
        if not rows:
            raise TableMetaStoreError(
                f"the table history {self._database.path} has no segment {segment_id}"
            )
        return self._segment(rows[0])

    def _update_segment(self, segment: BinlogSegment, *, written: bool = True) -> None:
        """Write a segment; `written` makes it the one that was written last."""
        ((order,),) = self._database.query(
            "SELECT MAX(written) + 1 FROM stretch"
            if written
            else "SELECT written FROM stretch WHERE id = ?",
            () if written else (segment.id,),
        )
        values = (
            segment.source,
            traits_to_text(segment.traits),
            position_to_text(segment.first),
            position_to_text(segment.last),
            segment.created_ms,
            order,
        )
        self._database.execute(
            "UPDATE stretch SET source = ?, traits = ?, first = ?, last = ?,"
            " created_ms = ?, written = ?, sum = ? WHERE id = ?",
            (*values, sum_of((segment.id, *values)), segment.id),
        )

    def _move_ends(
        self,
        segment_id: int,
        first: EntryPosition | None,
        last: EntryPosition | None,
    ) -> None:
        """Store the ends that moved further, and that the segment was written."""
        segment = self._segment_of(segment_id)
        if first is not None and first.order() <= segment.first.order():
            self._move_snapshot(segment_id, segment.first, first)
            segment = replace(segment, first=first)
        if last is not None and last.order() >= segment.last.order():
            segment = replace(segment, last=last)
        self._update_segment(segment)

    def _forget(self, segment: BinlogSegment) -> int:
        delete = self._database.execute
        return (
            delete("DELETE FROM record WHERE stretch = ?", (segment.id,))
            + delete("DELETE FROM snapshot WHERE stretch = ?", (segment.id,))
            + delete("DELETE FROM stretch WHERE id = ?", (segment.id,))
        )

    def _shorten(self, segment: BinlogSegment, before_ms: int) -> int:
        """Make the newest snapshot that is old enough the base of a segment."""
        base = segment.first
        for row in self._database.query(
            "SELECT place, images, sum FROM snapshot WHERE stretch = ?", (segment.id,)
        ):
            position, _ = self._position_and_images(segment.id, row)
            if 0 < (position.timestamp or 0) < before_ms:
                base = max(base, position, key=EntryPosition.order)
        if base.order() == segment.first.order():
            return 0
        self._update_segment(replace(segment, first=base), written=False)
        return sum(
            self._database.execute(
                f"DELETE FROM {table} WHERE stretch = ?"  # noqa: S608  # ours
                " AND (file_number, start) < (?, ?)",
                (segment.id, *base.order()),
            )
            for table in ("record", "snapshot")
        )

    # --- statements -------------------------------------------------------------------

    def _put_records(self, segment_id: int, records: Iterable[DdlRecord]) -> int:
        """Add the records of new positions; returns how many."""
        return self._database.execute_many(
            f"INSERT OR IGNORE INTO record (stretch, file_number, start, {_RECORD})"  # noqa: S608  # ours
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (_record_row(segment_id, record) for record in records),
        )

    def _record(self, segment_id: int, row: Row) -> DdlRecord:
        position, schema, ddl, context, contained, *change, found = row
        if found != sum_of((segment_id, *row[:-1])):
            raise self._database.damaged(
                f"the statement at {position} of segment {segment_id} has a wrong"
                " checksum"
            )
        return DdlRecord(
            position_from_text(position),
            schema,
            ddl,
            Context.from_json(context),
            bool(contained),
            *change,
        )

    # --- snapshots --------------------------------------------------------------------

    def _put_snapshot(
        self, segment_id: int, position: EntryPosition, schemas: Iterable[StoredSchema]
    ) -> None:
        images = put_schemas(self._database, schemas)
        self._put_images(segment_id, position, images)

    def _put_images(
        self, segment_id: int, position: EntryPosition, images: bytes
    ) -> None:
        text = position_to_text(position)
        self._database.execute(
            "INSERT OR REPLACE INTO snapshot (stretch, file_number, start, place,"
            " images, sum) VALUES (?, ?, ?, ?, ?, ?)",
            (
                segment_id,
                *position.order(),
                text,
                images,
                sum_of((segment_id, text, images)),
            ),
        )

    def _move_snapshot(
        self, segment_id: int, old: EntryPosition, new: EntryPosition
    ) -> None:
        """Move the base, which is the snapshot at `old`, to another position."""
        for row in self._database.query(
            "SELECT place, images, sum FROM snapshot WHERE stretch = ?"
            " AND (file_number, start) = (?, ?)",
            (segment_id, *old.order()),
        ):
            _, images = self._position_and_images(segment_id, row)
            self._database.execute(
                "DELETE FROM snapshot WHERE stretch = ?"
                " AND (file_number, start) = (?, ?)",
                (segment_id, *old.order()),
            )
            self._put_images(segment_id, new, images)

    def _position_and_images(
        self, segment_id: int, row: Row
    ) -> tuple[EntryPosition, bytes]:
        position, images, found = row
        if found != sum_of((segment_id, position, images)):
            raise self._database.damaged(
                f"the snapshot at {position} of segment {segment_id} has a wrong"
                " checksum"
            )
        return position_from_text(position), images


def _record_row(segment_id: int, record: DdlRecord) -> tuple[object, ...]:
    values = (
        position_to_text(record.position),
        record.schema,
        record.ddl,
        record.context.to_json(),
        int(record.contained),
        record.event_type,
        record.sql_schema,
        record.sql_table,
    )
    return (
        segment_id,
        *record.position.order(),
        *values,
        sum_of((segment_id, *values)),
    )
