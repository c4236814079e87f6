"""Reads a server's binlog twice, with ours and with mysql-replication, and compares.

The one module that needs mysql-replication. Both streams are merged by the end offsets
of their row events. The library's values are converted to canal's text form by
`canal_server.source.read.compare_values`, which also lists the known differences.
"""

from __future__ import annotations

import logging
import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from canal_server.decoder.rows.table_map import YEAR
from canal_server.errors import CanalError, SourceError
from canal_server.model.entry import EntryType, EventType
from canal_server.model.positions import EntryPosition, binlog_file_number
from canal_server.mysql.login_session import login_options
from canal_server.mysql.replication import replica_id
from canal_server.runtime.lifecycle import Stop
from canal_server.source.read.binlog_part import FilePosition, Part
from canal_server.source.read.compare_values import KNOWN, Known, is_readable, text_of

try:
    from pymysqlreplication import BinLogStreamReader
    from pymysqlreplication.constants.NONE_SOURCE import COLS_BITMAP
    from pymysqlreplication.event import NotImplementedEvent
    from pymysqlreplication.row_event import (
        DeleteRowsEvent,
        PartialUpdateRowsEvent,
        TableMapEvent,
        UpdateRowsEvent,
        WriteRowsEvent,
    )
except ImportError as error:
    raise CanalError(
        "decode --compare needs mysql-replication: pip install mysql-replication"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from canal_server.model.columns_known import TableMeta
    from canal_server.mysql.source_settings import Access
    from canal_server.ports import TablePredicate, TableSchemas
    from canal_server.protocol.entry_messages import Column, Entry, RowData

_log = logging.getLogger(__name__)

_ROW_EVENTS: Final = {
    WriteRowsEvent: EventType.INSERT,
    UpdateRowsEvent: EventType.UPDATE,
    PartialUpdateRowsEvent: EventType.UPDATE,
    DeleteRowsEvent: EventType.DELETE,
}
# Transaction payloads, and MariaDB's compressed statements and rows.
_COMPRESSED: Final = frozenset({40, *range(165, 172)})
_REPLICA: Final = 2
_ANYWHERE: Final = EntryPosition()  # columns from files hold at every position
_SET_LABELS: Final = range(64)  # of a SET
# A codec that does not exist makes the library return the bytes of text unchanged.
_NO_CODEC: Final = "bytes as they are"
_NO_POSITIONS: Final = (
    "decode --compare needs events that say where they end, and MariaDB since 11.4"
    " leaves that out: SET GLOBAL binlog_legacy_event_pos = ON, and compare what is"
    " written from then on"
)
# What the library raises for events that it does not understand.
_NOT_UNDERSTOOD: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    struct.error,
)

Image = dict[int, Any]  # a row's values by the index of their columns


@dataclass(frozen=True, slots=True)
class Difference:
    """A value, or a number of rows, that differs between the two."""

    table: str
    kind: str  # INSERT, UPDATE, DELETE
    file: str
    position: int  # offset at which the event begins
    row: int  # in the event, counted from 0
    key: dict[str, str | None]
    what: str  # the image and the column, or "rows"
    ours: str | None
    theirs: str | None

    def as_json(self) -> dict[str, Any]:
        """Return a form that JSON can hold."""
        return {
            "table": self.table,
            "type": self.kind,
            "file": self.file,
            "position": self.position,
            "row": self.row,
            "key": self.key,
            "column": self.what,
            "ours": self.ours,
            "theirs": self.theirs,
        }


@dataclass(slots=True)
class Counts:
    """How much was compared, and what was not, by the keys of KNOWN."""

    rows: int = 0
    values: int = 0
    known: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        lines = [f"compared {self.values} values of {self.rows} rows"]
        lines += [
            f"not compared: {count} for {name} ({KNOWN[name]})"
            for name, count in sorted(self.known.items())
        ]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class TheirEvent:
    """A row event of mysql-replication, or one that it does not read."""

    file: str
    end: int
    table: str = ""
    kind: EventType | None = None
    rows: Sequence[tuple[Image, Image]] = ()  # before, after
    problem: str = ""  # why rows are missing: a key of KNOWN, or its error

    @property
    def order(self) -> tuple[int, int]:
        """Return what sorts events of one server."""
        return binlog_file_number(self.file), self.end


class Comparison:
    """Compares one part of a server's binlog; `counts` fills while it runs.

    `images` are the columns that the server has now. A part in which they were
    different ends with TableMetaError.
    """

    def __init__(self, images: TableSchemas, table_filter: TablePredicate) -> None:
        self.counts = Counts()
        self._images = images
        self._table_filter = table_filter
        self._found: list[Difference] = []
        self._problem = ""  # the library's last problem with an event

    def run(
        self, access: Access, start: FilePosition, until: FilePosition
    ) -> list[Difference]:
        """Return all differences. Raises SourceError, DecodeError, TableMetaError."""
        theirs = Theirs(access, start, until, self._images, self._table_filter)
        part = Part(
            images=self._images,
            take=self.against(theirs.events()),
            table_filter=self._table_filter,
            until=until,
        )
        try:
            part.read_server(access, start, Stop())
            return self.finish()
        finally:
            theirs.close()

    def against(self, events: Iterator[TheirEvent]) -> Callable[[Entry], bool]:
        """Return the consumer of our entries; call `finish` after the last one."""
        self._events = events
        self._next = next(events, None)
        return self._consume

    def finish(self) -> list[Difference]:
        """Return the differences; the events that remain exist on their side only."""
        while self._next is not None:
            self._only_theirs(self._next)
            self._next = next(self._events, None)
        return self._found

    def _consume(self, entry: Entry) -> bool:
        if entry.entry_type != EntryType.ROWDATA:
            return True
        change = entry.row_change()
        if not change.row_datas:
            return True
        header = entry.header
        end = header.logfile_offset + header.event_length
        order = binlog_file_number(header.logfile_name), end
        while self._next is not None and self._next.order < order:
            self._only_theirs(self._next)
            self._next = next(self._events, None)

        event = self._next
        if event is None or event.order > order:
            readable = is_readable(self._meta_of(entry))
            problem = self._problem if readable else "unreadable"
            event = TheirEvent(header.logfile_name, end, problem=problem)
        elif event.problem not in KNOWN:  # a compressed one covers several of ours
            self._next = next(self._events, None)
        if event.problem in KNOWN:
            self.counts.known[event.problem] += 1
        else:
            self._problem = ""
            self._compare(entry, change.row_datas, event)
        return True

    def _only_theirs(self, event: TheirEvent) -> None:
        if event.kind is None:
            self._problem = event.problem  # the likely reason for missing rows
        elif event.problem not in KNOWN:
            self._found.append(
                Difference(
                    event.table, event.kind.name, event.file, event.end, 0, {}, "rows",
                    "0", str(len(event.rows)),
                )
            )  # fmt: skip

    def _compare(
        self, entry: Entry, rows: Sequence[RowData], event: TheirEvent
    ) -> None:
        header, meta = entry.header, self._meta_of(entry)
        kind = entry.row_change().event_type
        name = kind.name if isinstance(kind, EventType) else str(kind)

        def differs(row: int, what: str, ours: str | None, theirs: str | None) -> None:
            columns = rows[row].after_columns or rows[row].before_columns
            key = {column.name: column.text for column in columns if column.is_key}
            self._found.append(
                Difference(
                    str(meta), name, header.logfile_name, header.logfile_offset, row,
                    key, what, ours, theirs,
                )
            )  # fmt: skip

        if event.problem or kind != event.kind or len(rows) != len(event.rows):
            their_rows = (
                f"{event.kind.name} of {len(event.rows)}" if event.kind else "none"
            )
            differs(0, "rows", f"{name} of {len(rows)}", event.problem or their_rows)
            return
        for number, (row, (before, after)) in enumerate(
            zip(rows, event.rows, strict=True)
        ):
            self.counts.rows += 1
            for side, columns, image in (
                ("before", row.before_columns, before),
                ("after", row.after_columns, after),
            ):
                for what, ours, theirs in self._unlike(meta, columns, image):
                    differs(number, f"{side} {what}", ours, theirs)

    def _meta_of(self, entry: Entry) -> TableMeta:
        header = entry.header
        meta = self._images.find(header.schema_name, header.table_name, _ANYWHERE)
        assert meta is not None  # the entry was decoded with these columns
        return meta

    def _unlike(
        self, meta: TableMeta, columns: Sequence[Column], image: Image
    ) -> Iterator[tuple[str, str | None, str | None]]:
        """Yield name and both values of the columns that differ."""
        ours = {column.index: column for column in columns}
        for index in sorted(ours.keys() | image.keys()):
            name = meta.columns[index].name
            if index not in image and _is_json_null(ours[index].text, meta, index):
                self.counts.known["json"] += 1  # the cause is in an earlier row
                continue
            if index not in ours or index not in image:
                yield name, _presence(index in ours), _presence(index in image)
                continue
            text = ours[index].text
            try:
                theirs = text_of(image[index], meta.columns[index], text)
            except Known as known:
                self.counts.known[str(known)] += 1
                continue
            self.counts.values += 1
            if text != theirs:
                yield name, text, theirs


def _presence(is_present: bool) -> str:
    return "present" if is_present else "not in the image"


def _is_json_null(text: str | None, meta: TableMeta, index: int) -> bool:
    return text in ("null", "") and meta.columns[index].mysql_type == "json"


class _Indexes:
    """ENUM labels that are their own numbers."""

    def __getitem__(self, index: int) -> int:
        return index


class Theirs:
    """The row events of a part of a server's binlog, as mysql-replication reads them.

    The library gets the columns from here, because most servers write too little
    metadata into table maps for it. Signedness comes from the table map.
    """

    def __init__(
        self,
        access: Access,
        start: FilePosition,
        until: FilePosition,
        images: TableSchemas,
        table_filter: TablePredicate,
    ) -> None:
        logging.getLogger("pymysqlreplication").setLevel(logging.ERROR)
        self._until = until
        self._images = images
        self._table_filter = table_filter
        self._reader = BinLogStreamReader(
            connection_settings={
                **login_options(access),
                "connect_timeout": access.connect_timeout_s,
            },
            server_id=replica_id("compare", reader=_REPLICA).server_id,
            resume_stream=True,
            log_file=start.file,
            log_pos=start.offset,
            only_events=[*_ROW_EVENTS, TableMapEvent, NotImplementedEvent],
            filter_non_implemented_events=False,
            enable_logging=False,
        )

    def close(self) -> None:
        """Close its connections."""
        self._reader.close()

    def events(self) -> Iterator[TheirEvent]:
        """Yield the events of tables that pass the filter. Raises SourceError."""
        end = 0
        while True:
            try:
                event = self._reader.fetchone()
            except _NOT_UNDERSTOOD as error:
                # The library has consumed the event: the next call resumes after it.
                yield TheirEvent(self._reader.log_file, end, problem=_problem(error))
                continue
            except Exception as error:
                raise SourceError(f"mysql-replication: {error}") from error
            if event is None:
                return
            file, end = self._reader.log_file, _end_of(event)
            if self._until.reached_by(file, end - event.packet.event_size):
                return
            if isinstance(event, NotImplementedEvent):
                if event.packet.event_type in _COMPRESSED:
                    yield TheirEvent(file, end, problem="compressed")
            elif isinstance(event, TableMapEvent):
                self._set_columns(event)
            elif self._table_filter(((event.schema, event.table),)):
                yield self._rows_of(event, file, end)

    def _set_columns(self, event: Any) -> None:
        signs = event.optional_metadata.unsigned_column_list
        meta = self._images.find(event.schema, event.table, _ANYWHERE)
        if meta is not None and any(column.type == YEAR for column in event.columns):
            signs = []  # in old releases it has no sign, which the library ignores
        for index, column in enumerate(event.columns):
            column.name = str(index)
            column.enum_values = _Indexes()
            column.set_values = _SET_LABELS
            column.character_set_name = _NO_CODEC
            if signs:
                column.unsigned = signs[index]
            elif meta is not None and index < len(meta.columns):
                column.unsigned = meta.columns[index].unsigned

    def _rows_of(self, event: Any, file: str, end: int) -> TheirEvent:
        table = f"{event.schema}.{event.table}"
        kind = _ROW_EVENTS[type(event)]
        meta = self._images.find(event.schema, event.table, _ANYWHERE)
        if meta is not None and not is_readable(meta):
            return TheirEvent(file, end, table, kind, problem="unreadable")
        try:
            rows = [
                (_image(row, "before_"), _image(row, "after_")) for row in event.rows
            ]
        except _NOT_UNDERSTOOD as error:
            return TheirEvent(file, end, table, kind, problem=_problem(error))
        if kind is EventType.INSERT:
            rows = [(after, before) for before, after in rows]
        return TheirEvent(file, end, table, kind, rows)


def _end_of(event: Any) -> int:
    end: int = event.packet.log_pos
    if not end:
        raise SourceError(_NO_POSITIONS)
    return end


def _problem(error: Exception) -> str:
    _log.info("mysql-replication does not understand an event: %r", error)
    return "not understood"


def _image(row: dict[str, Any], which: str) -> Image:
    """Return the values of an image; inserts and deletes have them as `before`."""
    if which + "values" not in row:
        which = "" if which == "before_" else "missing"
    reasons = row.get(which + "none_sources", {})
    return {
        int(name): value
        for name, value in row.get(which + "values", {}).items()
        if reasons.get(name) != COLS_BITMAP
    }
