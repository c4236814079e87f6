"""Entries as lines of text for people and as JSON for other programs.

Both omit the begin and end of transactions by default.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from canal_server.model.entry import EntryType, EventType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from canal_server.protocol.entry_messages import Column, Entry, RowChange, RowData

VALUE_CHARACTERS_MAX = 100  # of one value in a line of text
SQL_CHARACTERS_MAX = 1000

# Numbers of java.sql.Types whose values are shown without quotes.
_NUMERIC = frozenset({-7, -6, -5, 2, 3, 4, 5, 6, 7, 8})

_RESET, _BOLD, _DIM = "\x1b[0m", "\x1b[1m", "\x1b[2m"
_COLOURS = {
    EventType.INSERT: "\x1b[32m",  # green
    EventType.UPDATE: "\x1b[33m",  # yellow
    EventType.DELETE: "\x1b[31m",  # red
}
_STATEMENT_COLOUR = "\x1b[36m"  # cyan


def changes(entry: Entry, *, marks: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the content of an entry as JSON objects, one per row.

    Every object has `type`, `schema`, `table`, `time` (ms since 1970), `file` and
    `position`, and `gtid` if there is one. A row has `key` (names of its key columns)
    and, by column name, `before` and `after`, an update also `changed` (names); values
    are strings, None for NULL. A statement has `sql`. With `marks` there are also
    objects of type BEGIN and END.

    Raises ProtocolError if the content cannot be decoded.
    """
    header = entry.header
    common: dict[str, Any] = {
        "schema": header.schema_name,
        "table": header.table_name,
        "time": header.execute_time,
        "file": header.logfile_name,
        "position": header.logfile_offset,
    }
    if header.gtid:
        common["gtid"] = header.gtid
    if entry.entry_type == EntryType.TRANSACTIONBEGIN:
        if marks:
            yield {"type": "BEGIN", **common}
    elif entry.entry_type == EntryType.TRANSACTIONEND:
        if marks:
            transaction = entry.transaction_end().transaction_id
            yield {"type": "END", **common, "transaction": transaction}
    elif entry.entry_type in (EntryType.ROWDATA, None):
        change = entry.row_change()
        common = {"type": _name(change), **common}
        if not change.row_datas:
            yield {**common, "sql": change.sql}
        for row in change.row_datas:
            yield {**common, **_row_object(row)}


def json_line(change: dict[str, Any]) -> str:
    """Return an object of `changes` as one line of JSON."""
    return json.dumps(change, ensure_ascii=False, separators=(",", ":"))


def text_lines(
    entry: Entry, *, colour: bool = False, marks: bool = False
) -> Iterator[str]:
    """Yield lines of text, one per row, statement or mark.

    Times are local, with their zone. Control characters in values are escaped, long
    values are truncated; `colour` adds terminal escape sequences.

    Raises ProtocolError if the content cannot be decoded.
    """
    paint = _Painter(colour)
    seconds = entry.header.execute_time / 1000
    time = datetime.fromtimestamp(seconds, UTC).astimezone()
    start = paint(_DIM, time.isoformat(" ", "seconds"))
    if entry.entry_type == EntryType.TRANSACTIONBEGIN:
        if marks:
            yield f"{start} {paint(_DIM, 'BEGIN')}"
    elif entry.entry_type == EntryType.TRANSACTIONEND:
        if marks:
            yield f"{start} {paint(_DIM, 'END')}"
    elif entry.entry_type in (EntryType.ROWDATA, None):
        change = entry.row_change()
        hue = _COLOURS.get(change.event_type or 0, _STATEMENT_COLOUR)  # type: ignore[call-overload]
        header = entry.header
        names = [header.schema_name, header.table_name]
        about = _printable(".".join(name for name in names if name))
        start = f"{start} {paint(hue, f'{_name(change):<6}')} {paint(_BOLD, about)}"
        if not change.row_datas:
            sql = " ".join(change.sql.split())
            yield f"{start}  {_printable(_cut(sql, SQL_CHARACTERS_MAX))}"
        for row in change.row_datas:
            yield f"{start}  {_row_text(row, paint)}"


class _Painter:
    """Wraps text in escape sequences, or returns it unchanged."""

    def __init__(self, colour: bool) -> None:
        self._colour = colour

    def __call__(self, code: str, text: str) -> str:
        return f"{code}{text}{_RESET}" if self._colour else text


def _name(change: RowChange) -> str:
    kind = change.event_type
    return kind.name if isinstance(kind, EventType) else f"TYPE{kind}"


def _row_object(row: RowData) -> dict[str, Any]:
    columns = row.after_columns or row.before_columns
    found: dict[str, Any] = {
        "key": _names(column for column in columns if column.is_key)
    }
    if row.before_columns:
        found["before"] = row.before
    if row.after_columns:
        found["after"] = row.after
    if row.before_columns and row.after_columns:
        found["changed"] = _names(c for c in row.after_columns if c.updated)
    return found


def _names(columns: Iterator[Column]) -> list[str]:
    return [column.name for column in columns]


def _row_text(row: RowData, paint: _Painter) -> str:
    """Return all columns of a row; of an update, the key and the changes."""
    if not (row.before_columns and row.after_columns):
        return _columns_text(row.after_columns or row.before_columns, paint)
    before = {column.name: column for column in row.before_columns}
    parts = []
    for column in row.after_columns:
        name = _printable(column.name)
        old = before.get(column.name)
        if column.updated:
            value = _value(column)
            if old is not None:  # missing if the server logs only the key
                value = f"{paint(_DIM, _value(old))} → {value}"
            parts.append(f"{name}={value}")
        elif column.is_key:
            parts.append(f"{paint(_BOLD, name)}={_value(column)}")
    return " ".join(parts)


def _columns_text(columns: Sequence[Column], paint: _Painter) -> str:
    parts = []
    for column in columns:
        name = _printable(column.name)
        parts.append(
            f"{paint(_BOLD, name) if column.is_key else name}={_value(column)}"
        )
    return " ".join(parts)


def _value(column: Column) -> str:
    text = column.text
    if text is None:
        return "NULL"
    if column.sql_type in _NUMERIC:
        return _printable(text)
    cut = _cut(text, VALUE_CHARACTERS_MAX)
    return repr(text) if cut is text else f"{text[:VALUE_CHARACTERS_MAX]!r}…"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[:length] + "…"


def _printable(text: str) -> str:
    """Escape control characters, which a terminal could interpret."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1]
        for character in text
    )
