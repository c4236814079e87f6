"""The table history of a destination in MySQL or MariaDB, together with others.

Its rows are in the two tables of the Java server, which can continue with them. Two
tables of our own hold the rest::

    canal_server_stretch ◄─ canal_server_place ─► meta_history, meta_snapshot

A row of canal_server_place belongs to one row: its segment, its order, and as JSON the
values without a column. Rows without one were written by the Java server; `open` makes
a segment of them (`java_tables`). The Java server has one row per position per server:
if a newer segment needs the row of an older one, because the binlog was reset, the
older row gets another, negative server id in its column, and keeps its own in the JSON.
"""

# ruff: noqa: S608  # names of tables and columns are ours, values are parameters
from __future__ import annotations

import json
import logging
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from canal_server.messages import history_messages
from canal_server.model.positions import (
    EntryPosition,
    entry_position_from_json,
    entry_position_to_json,
)
from canal_server.tablemeta.model.session_context import Context
from canal_server.tablemeta.storage import java_tables as java
from canal_server.tablemeta.storage.history_storage import (
    BinlogSegment,
    DdlRecord,
    Snapshot,
    SourceTraits,
    StoredSchema,
)
from canal_server.tablemeta.storage.mysql_lock import WAIT_S, HistoryLock, Owner
from canal_server.tablemeta.storage.mysql_rows import (
    HISTORY,
    SNAPSHOT,
    TABLES,
    VERSION,
    Rows,
)
from canal_server.tablemeta.storage.mysql_segments import MysqlSegments
from canal_server.tablemeta.storage.mysql_server import HistoryServer
from canal_server.tablemeta.storage.storage_text import compact

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from canal_server.mysql.login_session import Row
    from canal_server.mysql.source_settings import Access

_log = logging.getLogger(__name__)

PAGE_ROWS: Final = 500  # statements per query


class MysqlHistoryStorage:
    """A `HistoryStorage` in MySQL; one server at a time writes that of a destination.

    A lock keeps a second server out. On several servers that replicate to each other,
    the lock exists only on the one that is connected to, so configure only one of them.
    """

    def __init__(
        self,
        access: Access,
        database: str,
        destination: str,
        *,
        read_only: bool = False,
        lock_wait_s: int = WAIT_S,
        owner: Owner | None = None,
    ) -> None:
        """`owner`: for a destination that servers share, if it is to be written."""
        lock = None if read_only else HistoryLock(destination, lock_wait_s, owner)
        self._server = HistoryServer(access, database, lock)
        self._rows = Rows(self._server, destination)
        self._segments = MysqlSegments(self._server, destination)
        self._destination = destination
        self._read_only = read_only

    def open(self) -> None:
        """Create missing tables, check the others, adopt rows of the Java server."""
        try:
            self._server.open()
            self._check_tables()
            if not self._read_only:
                self._server.transaction(self._repair)
                self._server.transaction(self._adopt)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; idempotent."""
        self._server.close()

    def segments(self) -> list[BinlogSegment]:
        """Return all segments, the one that was written last at the end."""
        return self._segments.all()

    def begin(
        self, segment: BinlogSegment, base: Iterable[StoredSchema]
    ) -> BinlogSegment:
        """Add a segment with its base; returns it with its new id."""
        schemas, token = tuple(base), secrets.token_hex(16)

        def work() -> BinlogSegment:
            # A first attempt may have been committed.
            known = self._segments.id_of(token)
            if known is not None:
                return replace(segment, id=known)
            started = self._segments.add(segment, token)
            self._put_snapshot(started.id, started.first, schemas)
            return started

        return self._server.transaction(work)

    def identify(self, segment_id: int, source: str, traits: SourceTraits) -> None:
        """Store whose binlog a segment belongs to, once more is known about it."""

        def work() -> None:
            segment = self._segments.locked(segment_id)
            self._segments.update(
                replace(segment, source=source, traits=traits), written=False
            )

        self._server.transaction(work)

    def extend(
        self,
        segment_id: int,
        *,
        first: EntryPosition | None = None,
        last: EntryPosition | None = None,
    ) -> None:
        """Move the ends of the range that is known without a gap."""
        self._server.transaction(lambda: self._move_ends(segment_id, first, last))

    def append(
        self, segment_id: int, record: DdlRecord, *, last: EntryPosition | None = None
    ) -> bool:
        """Add a statement; false if that of its position is known already."""
        added = 0

        def work() -> None:
            nonlocal added
            self._move_ends(segment_id, None, last)
            # If the first attempt added it, it is known to the second.
            added += self._put_records(segment_id, (record,))

        self._server.transaction(work)
        return added > 0

    def append_all(
        self,
        segment_id: int,
        records: Iterable[DdlRecord],
        *,
        first: EntryPosition | None = None,
        last: EntryPosition | None = None,
    ) -> None:
        """Add statements and move the ends like `extend`, all or nothing."""
        given = tuple(records)

        def work() -> None:
            self._move_ends(segment_id, first, last)
            self._put_records(segment_id, given)

        self._server.transaction(work)

    def records(
        self,
        segment_id: int,
        *,
        start: EntryPosition | None = None,
        stop: EntryPosition | None = None,
    ) -> Iterator[DdlRecord]:
        """Yield statements in binlog order, `start` <= position < `stop`."""
        begins = start.order() if start else (0, 0)
        ends = stop.order() if stop else None
        while True:
            rows = self._rows.page(segment_id, begins, ends, PAGE_ROWS)
            for row in rows:
                yield self._record(segment_id, row)
            if len(rows) < PAGE_ROWS:
                return
            file_number, offset = rows[-1][:2]
            begins = (int(file_number), int(offset) + 1)

    def write_snapshot(
        self, segment_id: int, position: EntryPosition, schemas: Iterable[StoredSchema]
    ) -> None:
        """Store the tables at a position; replaces an existing snapshot there."""
        given = tuple(schemas)

        def work() -> None:
            self._move_ends(segment_id, None, None)
            self._put_snapshot(segment_id, position, given)

        self._server.transaction(work)

    def snapshot(
        self, segment_id: int, at: EntryPosition | None = None
    ) -> Snapshot | None:
        """Return the newest snapshot at or before a position (None: of all)."""
        row = self._rows.snapshot(segment_id, at.order() if at else None)
        if row is None:
            return None
        text, data = row
        try:
            note = json.loads(text)
            schemas = (
                java.schemas_of(data, note["schemas"])
                if "schemas" in note
                else java.schemas_of_java(data)
            )
            return Snapshot(_position(note), schemas)
        except (ValueError, LookupError, TypeError) as error:
            raise self._server.error(
                f"has an invalid snapshot of {self._destination} ({error}); its row in"
                " meta_snapshot was changed: delete that row"
            ) from error

    def expire(self, before_ms: int) -> int:
        """Delete what is needed only for positions older than a time."""
        return self._server.transaction(lambda: self._expire(before_ms))

    def _expire(self, before_ms: int) -> int:
        segments = self._segments.all()
        forgotten = 0
        for segment in segments:
            ended_ms = segment.last.timestamp or 0
            if segment is not segments[-1] and 0 < ended_ms < before_ms:
                forgotten += self._forget(segment)
            else:
                forgotten += self._shorten(segment, before_ms)
        return forgotten

    def _forget(self, segment: BinlogSegment) -> int:
        deleted = sum(
            self._rows.delete(kind, segment.id) for kind in (HISTORY, SNAPSHOT)
        )
        self._segments.delete(segment.id)
        return deleted + 1

    def _shorten(self, segment: BinlogSegment, before_ms: int) -> int:
        """Make the newest snapshot that is old enough the base of a segment."""
        base = segment.first
        for note in self._rows.notes(SNAPSHOT, segment.id):
            position = _position(json.loads(note))
            if 0 < (position.timestamp or 0) < before_ms:
                base = max(base, position, key=EntryPosition.order)
        if base.order() == segment.first.order():
            return 0
        return self._begin_later(segment, base)

    def _begin_later(self, segment: BinlogSegment, base: EntryPosition) -> int:
        """Make a snapshot the base of a segment; returns how much that deletes."""
        self._segments.update(replace(segment, first=base), written=False)
        return sum(
            self._rows.delete(kind, segment.id, before=base.order())
            for kind in (HISTORY, SNAPSHOT)
        )

    # --- tables -----------------------------------------------------------------------

    def _check_tables(self) -> None:
        """Create missing tables, if writing is allowed."""
        found: dict[str, str] = dict(
            self._server.query(
                "SELECT TABLE_NAME, TABLE_COMMENT FROM information_schema.TABLES"
                " WHERE TABLE_SCHEMA = DATABASE()"
            )
        )
        missing = [name for name in TABLES if name not in found]
        if missing and self._read_only:
            raise self._server.error(
                f"is missing: there is no table {missing[0]}; a running server creates"
                " it, so check that canal.instance.tsdb.url has the right database"
            )
        for name in missing:
            self._server.query(TABLES[name])
        comment = found.get("canal_server_stretch", "")
        _, _, version = comment.rpartition("version ")
        if version.isdecimal() and int(version) > VERSION:
            raise self._server.error(
                f"was written by a newer canal-server (version {version}, this one"
                f" supports up to {VERSION}); use that one, or another database"
            )

    # --- segments ---------------------------------------------------------------------

    def _move_ends(
        self,
        segment_id: int,
        first: EntryPosition | None,
        last: EntryPosition | None,
    ) -> None:
        """Store the ends that moved further, and that the segment was written."""
        segment = self._segments.locked(segment_id)
        if first is not None and first.order() <= segment.first.order():
            self._move_snapshot(segment_id, segment.first, first)
            segment = replace(segment, first=first)
        if last is not None and last.order() >= segment.last.order():
            segment = replace(segment, last=last)
        self._segments.update(segment)

    # --- statements and snapshots -----------------------------------------------------

    def _put_records(self, segment_id: int, records: Sequence[DdlRecord]) -> int:
        """Add the records of new positions; returns how many."""
        return self._rows.put(
            HISTORY,
            segment_id,
            [(record.position, _note(record), _columns(record)) for record in records],
        )

    def _record(self, segment_id: int, row: Row) -> DdlRecord:
        _, _, identity, text, schema, sql_schema, sql_table, ddl, event_type = row
        note = json.loads(text)
        if identity is None:
            raise self._server.error(
                f"lacks the statement at {_position(note)} of {self._destination},"
                " whose row in meta_history was deleted; restore it, or start a new"
                f" history: DELETE FROM canal_server_stretch WHERE id = {segment_id}"
            )
        return DdlRecord(
            _position(note),
            schema or "",
            note.get("ddl", ddl) or "",
            Context.from_json(json.dumps(note.get("context", {}))),
            bool(note.get("contained")),
            event_type or "",
            sql_schema or "",
            sql_table or "",
        )

    def _put_snapshot(
        self, segment_id: int, position: EntryPosition, schemas: Sequence[StoredSchema]
    ) -> None:
        self._rows.delete(SNAPSHOT, segment_id, at=position.order())
        note = {
            "at": entry_position_to_json(position),
            "schemas": java.note_of(schemas),
        }
        row = (position, compact(note), (java.data_of(schemas),))
        self._rows.put(SNAPSHOT, segment_id, [row])

    def _move_snapshot(
        self, segment_id: int, old: EntryPosition, new: EntryPosition
    ) -> None:
        """Move the base, which is the snapshot at `old`, to another position."""
        row = self._rows.snapshot(segment_id, old.order())
        if row is None:
            return
        text, data = row
        note = json.loads(text)
        if _position(note).order() != old.order():
            return
        for position in (old, new):
            self._rows.delete(SNAPSHOT, segment_id, at=position.order())
        note["at"] = entry_position_to_json(new)
        self._rows.put(SNAPSHOT, segment_id, [(new, compact(note), (data,))])

    # --- rows of the Java server
    # -------------------------------------------------------

    def _repair(self) -> None:
        """Shorten segments whose start the Java server has deleted as expired.

        It deletes snapshots that are a base of ours; without a base, nothing before the
        next snapshot can be restored.
        """
        for segment in self._segments.all():
            positions = [
                _position(json.loads(note))
                for note in self._rows.notes(SNAPSHOT, segment.id)
            ]
            if any(each.order() == segment.first.order() for each in positions):
                continue
            history_messages.HISTORY_SNAPSHOT_DELETED.log(
                _log,
                self._destination,
                segment.first,
                segment.last,
                self._server,
                "it begins at the next one" if positions else "that part is lost",
            )
            if positions:
                self._begin_later(segment, min(positions, key=EntryPosition.order))
            else:
                self._forget(segment)

    def _adopt(self) -> None:
        """Make a segment of new rows of the Java server, if possible.

        Its base is the base dump, placed at the first statement, or a snapshot. Only
        the id of the source is known.
        """
        statements = [
            java.JavaStatement(int(row[0]), java.position_of(*row[1:5]), *row[5:])
            for row in self._rows.foreign_statements()
        ]
        snapshots = [
            java.JavaSnapshot(int(row[0]), java.position_of(*row[1:5]), int(row[5]))
            for row in self._rows.foreign_snapshots()
        ]
        if not snapshots:
            return
        for found in java.adoptable(statements, snapshots):
            try:
                java.schemas_of_java(self._rows.data(found.base.id))
            except ValueError as error:
                history_messages.JAVA_SNAPSHOT_UNREADABLE.log(
                    _log, self._destination, found.base.position, self._server, error
                )
            else:
                self._take_over(found)
                break
        self._rows.leave_aside()

    def _take_over(self, found: java.Adoptable) -> None:
        source = str(found.first.server_id or "")
        started = self._segments.add(
            BinlogSegment(
                0,
                source,
                SourceTraits(),
                found.first,
                found.last,
                created_ms=found.base.created_ms,
            ),
            secrets.token_hex(16),
        )
        note = compact({"at": entry_position_to_json(found.first)})
        self._rows.assign(
            SNAPSHOT, started.id, [(found.base.id, found.first.order(), note)]
        )
        self._rows.assign(
            HISTORY,
            started.id,
            [
                (row_id, record.position.order(), _note(record))
                for row_id, record in found.records
            ],
        )
        _log.info(
            "destination %s: %s was used by a Java server: adopted %d statements"
            " from %s to %s, %d of them without text",
            self._destination,
            self._server,
            len(found.records),
            found.first,
            found.last,
            sum(not record.ddl for _, record in found.records),
        )


def _position(note: dict[str, Any]) -> EntryPosition:
    return entry_position_from_json(note["at"])


def _note(record: DdlRecord) -> str:
    """Return the values that have no column in the row."""
    note: dict[str, Any] = {"at": entry_position_to_json(record.position)}
    context = json.loads(record.context.to_json())
    if context:
        note["context"] = context
    if record.contained:
        note["contained"] = True
    if java.has_long_characters(record.ddl):
        note["ddl"] = record.ddl
    return compact(note)


def _columns(record: DdlRecord) -> tuple[str, ...]:
    return (
        record.schema,
        record.sql_schema,
        record.sql_table,
        java.without_long_characters(record.ddl),
        record.event_type,
    )
