"""What columns of Arrow have to hold, worked out of entries slowly and obviously.

The oracle of the tests of `canal_server.spark`: it reads entries with the Python reader
of the protocol and has no code in common with the compiled way.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from canal_server.model.entry import EntryType, EventType
from canal_server.model.enum_labels import labels_of
from canal_server.model.versions import version
from canal_server.protocol.entry_messages import encode
from canal_server.protocol.protobuf import varint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from canal_server.arrow.arrow_columns import RequestedColumn
    from canal_server.protocol.entry_messages import Column, Entry, RowChange, RowData

Row = dict[str, Any]
DML = (EventType.INSERT, EventType.UPDATE, EventType.DELETE)
WIDE = Context(prec=80)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def body_of(entries: Iterable[Entry]) -> bytes:
    """Return entries as the fields of Messages."""
    return b"".join(
        b"\x12" + varint(len(raw)) + raw for raw in (encode(e) for e in entries)
    )


@dataclass
class Truth:
    """Rows with their order and commits; subclasses say what an entry becomes."""

    epoch: int = 0
    rows: list[Row] = field(default_factory=list)
    statements: list[tuple[Any, ...]] = field(default_factory=list)
    _pending: list[Row] = field(default_factory=list)
    _open: bool = False
    _seq: int = -1
    _number: int = 0

    def read(self, entries: Iterable[Entry]) -> list[Row]:
        """Return the rows that all entries become; those without a commit last."""
        for entry in entries:
            self._take(entry)
        return self.rows + self._pending

    def _take(self, entry: Entry) -> None:
        header = entry.header
        end = header.logfile_offset + header.event_length
        if entry.entry_type == EntryType.TRANSACTIONBEGIN:
            if self._open:
                self._commit(header, header.logfile_offset, None)
            self._open = True
        elif entry.entry_type == EntryType.TRANSACTIONEND:
            xid = entry.transaction_end().transaction_id
            self._commit(header, end, None if xid in ("", "0") else xid)
            self._open = False
        elif entry.entry_type == EntryType.ROWDATA:
            self._take_rowdata(entry, entry.row_change())
            if not self._open:
                self._commit(header, end, None)

    def _take_rowdata(self, entry: Entry, change: RowChange) -> None:
        if change.event_type == EventType.QUERY and not change.is_ddl:
            return
        header = entry.header
        seq = version(self.epoch, header.logfile_name, header.logfile_offset)
        if seq != self._seq:
            self._seq, self._number = seq, 0
        if change.event_type in DML:
            self._open = True
        if change.event_type in DML and not change.sql:
            for row in change.row_datas:
                self.put_change(entry, change, row)
        else:
            self.put_statement(entry, change)

    def _commit(self, header: Any, offset: int, xid: str | None) -> None:
        for row in self._pending:
            row["_commit_version"] = version(self.epoch, header.logfile_name, offset)
            row["_commit_timestamp"] = EPOCH + timedelta(
                milliseconds=header.execute_time
            )
            row["xid"] = xid
        self.rows += self._pending
        self._pending = []

    def add(self, row: Row) -> None:
        """Add a row and number it."""
        self._pending.append(row | {"_seq": self._seq, "_row": self._number})
        self._number += 1

    def skip_number(self) -> None:
        """Leave a number out."""
        self._number += 1

    def put_change(self, entry: Entry, change: RowChange, row: RowData) -> None:
        """Add what one changed row becomes."""
        raise NotImplementedError

    def put_statement(self, entry: Entry, change: RowChange) -> None:
        """Add what a statement becomes."""
        raise NotImplementedError


# --- generic ----------------------------------------------------------------------


@dataclass
class GenericTruth(Truth):
    """Rows of any table, with maps."""

    destination: str = "example"
    json: bool = False

    def put_change(self, entry: Entry, change: RowChange, row: RowData) -> None:
        """Add a row with its images."""
        before, after = row.before_columns, row.after_columns
        is_delete = change.event_type == EventType.DELETE
        is_insert = change.event_type == EventType.INSERT
        known: dict[int, Column] = {}  # the after image has the say, and comes first
        if not is_delete:
            known |= {column.index: column for column in after}
        if not is_insert:
            known |= {
                column.index: column for column in before if column.index not in known
            }
        self.add(
            self._common(entry)
            | {
                "op": EventType(change.event_type or 0).name,
                "pk": [(c.name, c.text) for c in known.values() if c.is_key],
                "before": None if is_insert else self._image(before),
                "after": None if is_delete else self._image(after),
                "updated": [column.name for column in known.values() if column.updated],
                "mysql_types": [(c.name, c.mysql_type) for c in known.values()],
                "is_ddl": bool(change.is_ddl),
                "sql": None,
            }
        )

    def _image(self, columns: tuple[Column, ...]) -> Any:
        if self.json:
            return {column.name: column.text for column in columns}
        return [(column.name, column.text) for column in columns]

    def put_statement(self, entry: Entry, change: RowChange) -> None:
        """Add a row without images."""
        kind = EventType(change.event_type or 0)
        op = "DDL"
        if kind in (*DML, EventType.TRUNCATE, EventType.XACOMMIT, EventType.XAROLLBACK):
            op = kind.name
        common = self._common(entry)
        self.add(
            common
            | {
                "db": common["db"] or change.ddl_schema_name,
                "op": op,
                **dict.fromkeys(("pk", "before", "after", "updated", "mysql_types")),
                "is_ddl": bool(change.is_ddl),
                "sql": change.sql,
            }
        )

    def _common(self, entry: Entry) -> Row:
        header = entry.header
        props = {pair.key: pair.value for pair in header.props}
        return {
            "destination": self.destination,
            "db": header.schema_name,
            "table": header.table_name,
            "journal": header.logfile_name,
            "position": header.logfile_offset,
            "gtid": props.get("curtGtid", header.gtid) or None,
            "server_id": header.server_id,
            "xid": None,
        }


def generic_rows(batch: Any, *, json_payload: bool = False) -> list[Row]:
    """Return a batch as the oracle reports rows."""
    rows: list[Row] = batch.to_pylist()
    for row in rows if json_payload else ():
        for image in ("before", "after"):
            row[image] = None if row[image] is None else json.loads(row[image])
    return rows


# --- typed ------------------------------------------------------------------------


class NoValueError(Exception):
    """A text that is no value of its kind, or an image that lacks a column."""


@dataclass
class TypedTruth(Truth):
    """Rows of one table in its own types."""

    schema: str = ""
    table: str = ""
    columns: tuple[RequestedColumn, ...] = ()
    updates: str = "postimage"
    split_keys: bool = False
    zone: str = "UTC"

    def put_change(self, entry: Entry, change: RowChange, row: RowData) -> None:
        """Add the rows that a change becomes."""
        header = entry.header
        if (header.schema_name, header.table_name) != (self.schema, self.table):
            return
        kind = EventType(change.event_type or 0)
        position = f"{header.logfile_name}:{header.logfile_offset}"
        for how, before, after in self._parts(kind, row):
            if how is None:
                self.skip_number()
                continue
            envelope = self.updates == "envelope"
            values: Row = {"_position": position}
            if envelope:
                values["before"] = self._values(before) if before else None
                values["after"] = self._values(after) if after else None
                values["op"] = "u" if before and after else "d" if before else "c"
            else:
                values |= self._values(before or after)
                values["_change_type"] = how
            self.add(values)

    def _parts(self, kind: EventType, row: RowData) -> Iterator[tuple[Any, ...]]:
        before, after = row.before_columns, row.after_columns
        if kind == EventType.INSERT:
            yield "insert", None, after
        elif kind == EventType.DELETE:
            yield "delete", before, None
        elif self.split_keys and any(c.is_key and c.updated for c in after):
            yield "delete", before, None
            yield "insert", None, after
        elif self.updates == "both":
            yield "update_preimage", before, None
            yield "update_postimage", None, after
        else:
            if self.split_keys:
                yield None, None, None
            first = before if self.updates == "envelope" else None
            yield "update_postimage", first, after

    def _values(self, columns: tuple[Column, ...]) -> Row:
        by_name = {column.name.lower(): column for column in columns}
        values = {}
        for expected in self.columns:
            column = by_name.get(expected.name.lower())
            if column is None:
                raise NoValueError(f"no column {expected.name}")
            values[expected.name] = value_of(column, expected, self.zone)
        return values

    def put_statement(self, entry: Entry, change: RowChange) -> None:
        """Keep the statement."""
        header = entry.header
        self.statements.append(
            (header.logfile_name, header.logfile_offset,
             header.logfile_offset + header.event_length, header.schema_name,
             header.table_name, change.event_type, bool(change.is_ddl), change.sql,
             change.ddl_schema_name)
        )  # fmt: skip


def value_of(  # noqa: C901, PLR0911  # a table of kinds, one line each
    column: Column, request: RequestedColumn, zone: str
) -> Any:
    """Return the value that a column's text stands for."""
    text = column.text
    if text is None:
        return None
    kind = request.kind
    if kind in ("int8", "int16", "int32", "int64"):
        return int(text)
    if kind == "bits":
        return int(text) - (1 << 64 if int(text) >> 63 else 0)
    if kind == "decimal":
        return Decimal(text)
    if kind == "wide decimal":
        last = Decimal(1).scaleb(-request.scale)
        return f"{Decimal(text).quantize(last, context=WIDE):f}"
    if kind == "double":
        return float(text)
    if kind == "float":
        return struct.unpack("<f", struct.pack("<f", float(text)))[0]
    if kind == "date":
        return _or_none(date.fromisoformat, text)
    if kind in ("datetime", "timestamp"):
        moment = _or_none(datetime.fromisoformat, _whole_fraction(text))
        if moment is None or kind == "datetime":
            return moment
        return moment.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    if kind == "binary":
        base, _, size = column.mysql_type.lower().rstrip(")").partition("(")
        # Entries leave out zeros at the end, as the server does in its binlog.
        width = int(size or 1) if base in ("binary", "char") else 0
        return text.encode("latin-1").ljust(width, b"\0")
    return _labels(column, text)


def _whole_fraction(text: str) -> str:
    head, point, fraction = text.partition(".")
    return head + point + (f"{fraction:0<6}" if point else "")


def _or_none(parse: Any, text: str) -> Any:
    try:
        return parse(text)
    except ValueError:
        return None


def _labels(column: Column, text: str) -> str:
    base = column.mysql_type.partition("(")[0].lower()
    if base not in ("enum", "set"):
        return text
    labels = [
        source.decode("utf-8", "replace") if isinstance(source, bytes) else source
        for source in labels_of(column.mysql_type)
    ]
    number = int(text)
    if base == "enum":
        return labels[number - 1] if number else ""
    return ",".join(label for i, label in enumerate(labels) if number >> i & 1)
