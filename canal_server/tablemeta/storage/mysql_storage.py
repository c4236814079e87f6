"""The table history of a destination in a MySQL or MariaDB, beside others'.

Its rows are in the original's two tables, which the original can go on with. Two
tables of ours say what it does not know::

    canal_server_stretch ◄─ canal_server_place ─► meta_history, meta_snapshot

A place belongs to one row: the stretch it is part of, its order, and as JSON what has
no column. Rows without a place are the original's own; `open` makes a stretch of them
(`storage_java`). The original has one row for each place of each server: where a newer
stretch needs that of an older one, because the binlog was begun anew, the older row
gets another, negative server id in its column, and keeps its own in the JSON.
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

PAGE_ROWS: Final = 500  # statements that are read at once


class MysqlHistoryStorage:
    """A `HistoryStorage` in a MySQL; one server writes a destination's at a time.

    A lock keeps a second one away. On several servers that replicate to each other
    it is held on the one that is connected to, so name one of them.
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
        """`owner`: of a destination that servers share, where it is to be written."""
        lock = None if read_only else HistoryLock(destination, lock_wait_s, owner)
        self._server = HistoryServer(access, database, lock)
        self._rows = Rows(self._server, destination)
        self._segments = MysqlSegments(self._server, destination)
        self._destination = destination
        self._read_only = read_only

    def open(self) -> None:
        """Create missing tables, check the others, take the original's rows over."""
        try:
            self._server.open()
            self._check_tables()
            if not self._read_only:
                self._server.transaction(self._mend)
                self._server.transaction(self._adopt)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the connection; idempotent."""
        self._server.close()

    def segments(self) -> list[BinlogSegment]:
        """Return all stretches, the one that was written last at the end."""
        return self._segments.all()

    def begin(
        self, segment: BinlogSegment, base: Iterable[StoredSchema]
    ) -> BinlogSegment:
        """Add a stretch with its base; returns it with the id that it was given."""
        schemas, token = tuple(base), secrets.token_hex(16)

        def work() -> BinlogSegment:
            # A first try may have been committed.
            known = self._segments.id_of(token)
            if known is not None:
                return replace(segment, id=known)
            begun = self._segments.add(segment, token)
            self._put_snapshot(begun.id, begun.first, schemas)
            return begun

        return self._server.transaction(work)

    def identify(self, segment_id: int, source: str, traits: SourceTraits) -> None:
        """Say whose binlog a stretch is of, where more was learnt about it."""

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
        """Move the ends of what is known without a hole."""
        self._server.transaction(lambda: self._move_ends(segment_id, first, last))

    def append(
        self, segment_id: int, record: DdlRecord, *, last: EntryPosition | None = None
    ) -> bool:
        """Add a statement; false when that of its place is known already."""
        added = 0

        def work() -> None:
            nonlocal added
            self._move_ends(segment_id, None, last)
            # Added by the first try, it is known to the second one.
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
        """Add statements and move the ends as `extend` does, all or nothing."""
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
        """Yield statements in the order of the binlog, `start` <= place < `stop`."""
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
        """Keep the tables as of a place; one that is there already is replaced."""
        given = tuple(schemas)

        def work() -> None:
            self._move_ends(segment_id, None, None)
            self._put_snapshot(segment_id, position, given)

        self._server.transaction(work)

    def snapshot(
        self, segment_id: int, at: EntryPosition | None = None
    ) -> Snapshot | None:
        """Return the newest snapshot at or before a place (None: of all)."""
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
            return Snapshot(_place(note), schemas)
        except (ValueError, LookupError, TypeError) as error:
            raise self._server.error(
                f"has a snapshot of {self._destination} that cannot be read ({error});"
                " somebody changed it in meta_snapshot: delete that row"
            ) from error

    def expire(self, before_ms: int) -> int:
        """Forget what is needed only for places older than a time."""
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
        """Make the newest snapshot that is old enough the base of a stretch."""
        base = segment.first
        for note in self._rows.notes(SNAPSHOT, segment.id):
            place = _place(json.loads(note))
            if 0 < (place.timestamp or 0) < before_ms:
                base = max(base, place, key=EntryPosition.order)
        if base.order() == segment.first.order():
            return 0
        return self._begin_later(segment, base)

    def _begin_later(self, segment: BinlogSegment, base: EntryPosition) -> int:
        """Make a snapshot the base of a stretch; returns how much that deletes."""
        self._segments.update(replace(segment, first=base), written=False)
        return sum(
            self._rows.delete(kind, segment.id, before=base.order())
            for kind in (HISTORY, SNAPSHOT)
        )

    # --- tables -----------------------------------------------------------------------

    def _check_tables(self) -> None:
        """Create what is missing, if we may write."""
        found: dict[str, str] = dict(
            self._server.query(
                "SELECT TABLE_NAME, TABLE_COMMENT FROM information_schema.TABLES"
                " WHERE TABLE_SCHEMA = DATABASE()"
            )
        )
        missing = [name for name in TABLES if name not in found]
        if missing and self._read_only:
            raise self._server.error(
                f"is not there: table {missing[0]} is missing; a running server makes"
                " it, see whether canal.instance.tsdb.url names the right data base"
            )
        for name in missing:
            self._server.query(TABLES[name])
        comment = found.get("canal_server_stretch", "")
        _, _, version = comment.rpartition("version ")
        if version.isdecimal() and int(version) > VERSION:
            raise self._server.error(
                f"was made by a newer canal-server (version {version}, this one knows"
                f" up to {VERSION}); start that one again, or name another data base"
            )

    # --- stretches --------------------------------------------------------------------

    def _move_ends(
        self,
        segment_id: int,
        first: EntryPosition | None,
        last: EntryPosition | None,
    ) -> None:
        """Take note of new ends, where they are farther, and that it was written."""
        segment = self._segments.locked(segment_id)
        if first is not None and first.order() <= segment.first.order():
            self._move_snapshot(segment_id, segment.first, first)
            segment = replace(segment, first=first)
        if last is not None and last.order() >= segment.last.order():
            segment = replace(segment, last=last)
        self._segments.update(segment)

    # --- statements and snapshots -----------------------------------------------------

    def _put_records(self, segment_id: int, records: Sequence[DdlRecord]) -> int:
        """Add those of places without one; returns how many."""
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
                f"lacks the statement at {_place(note)} of {self._destination}, which"
                " somebody deleted from meta_history; put it back, or begin the history"
                f" anew: DELETE FROM canal_server_stretch WHERE id = {segment_id}"
            )
        return DdlRecord(
            _place(note),
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
        """Give the base, which is the snapshot at `old`, another place."""
        row = self._rows.snapshot(segment_id, old.order())
        if row is None:
            return
        text, data = row
        note = json.loads(text)
        if _place(note).order() != old.order():
            return
        for place in (old, new):
            self._rows.delete(SNAPSHOT, segment_id, at=place.order())
        note["at"] = entry_position_to_json(new)
        self._rows.put(SNAPSHOT, segment_id, [(new, compact(note), (data,))])

    # --- the original's rows ----------------------------------------------------------

    def _mend(self) -> None:
        """Let stretches begin where the original, which expires by time, left them.

        It deletes snapshots that are a base of ours; without one nothing of what lies
        before the next snapshot can be told.
        """
        for segment in self._segments.all():
            places = [
                _place(json.loads(note))
                for note in self._rows.notes(SNAPSHOT, segment.id)
            ]
            if any(each.order() == segment.first.order() for each in places):
                continue
            history_messages.HISTORY_SNAPSHOT_DELETED.log(
                _log,
                self._destination,
                segment.first,
                segment.last,
                self._server,
                "it begins at the next one" if places else "that part is lost",
            )
            if places:
                self._begin_later(segment, min(places, key=EntryPosition.order))
            else:
                self._forget(segment)

    def _adopt(self) -> None:
        """Make a stretch of what the original wrote since we looked, if that can be.

        Its base is the base dump, placed at the first statement, or a snapshot. Of the
        source the id is known alone.
        """
        statements = [
            java.JavaStatement(int(row[0]), java.place(*row[1:5]), *row[5:])
            for row in self._rows.foreign_statements()
        ]
        snapshots = [
            java.JavaSnapshot(int(row[0]), java.place(*row[1:5]), int(row[5]))
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
        begun = self._segments.add(
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
        self._rows.place(
            SNAPSHOT, begun.id, [(found.base.id, found.first.order(), note)]
        )
        self._rows.place(
            HISTORY,
            begun.id,
            [
                (row_id, record.position.order(), _note(record))
                for row_id, record in found.records
            ],
        )
        _log.info(
            "destination %s: %s was the Java server's until now: took over %d"
            " statements from %s to %s, %d of them without a text",
            self._destination,
            self._server,
            len(found.records),
            found.first,
            found.last,
            sum(not record.ddl for _, record in found.records),
        )


def _place(note: dict[str, Any]) -> EntryPosition:
    return entry_position_from_json(note["at"])


def _note(record: DdlRecord) -> str:
    """Return what a row of the original has no room for."""
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
