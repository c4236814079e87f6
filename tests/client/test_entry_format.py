"""Entries as text and as JSON."""

from __future__ import annotations

import json
import time

import pytest

from canal_server.client.entry_format import changes, json_line, text_lines
from canal_server.errors import ProtocolError
from canal_server.protocol.entry_messages import (
    Column,
    Entry,
    EntryType,
    EventType,
    Header,
    RowChange,
    RowData,
    TransactionBegin,
    TransactionEnd,
    encode,
)

INTEGER, VARCHAR = 4, 12
WHERE = {
    "schema": "shop", "table": "book", "time": 1700000000000, "file": "b.01",
    "position": 275,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _utc(monkeypatch):
    """Make local time UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def entry_of(content: object, kind: EntryType = EntryType.ROWDATA, **header) -> Entry:
    """Return an entry of shop.book."""
    return Entry(
        Header(
            logfile_name="b.01",
            logfile_offset=275,
            execute_time=1700000000000,
            schema_name="shop",
            table_name="book",
            **header,
        ),
        kind,
        encode(content),
    )


def row(number: int, title: str | None, *, updated: bool = False) -> tuple[Column, ...]:
    """Return the columns of a book."""
    return (
        Column(
            sql_type=INTEGER, name="id", is_key=True, is_null=False, value=str(number)
        ),
        Column(
            sql_type=VARCHAR,
            name="title",
            is_null=title is None,
            value=title or "",
            updated=updated,
        ),
    )


INSERT = entry_of(
    RowChange(
        event_type=EventType.INSERT,
        row_datas=(
            RowData(after_columns=row(1, "Dune")),
            RowData(after_columns=row(2, None)),
        ),
    )
)
UPDATE = entry_of(
    RowChange(
        event_type=EventType.UPDATE,
        row_datas=(RowData(row(1, "Dune"), row(1, "It's", updated=True)),),
    )
)
DELETE = entry_of(
    RowChange(
        event_type=EventType.DELETE,
        row_datas=(RowData(before_columns=row(1, "Dune")),),
    )
)
ALTER = entry_of(
    RowChange(
        event_type=EventType.ALTER, is_ddl=True, sql="ALTER TABLE book\n  ADD n INT"
    )
)
BEGIN = entry_of(TransactionBegin(thread_id=7), EntryType.TRANSACTIONBEGIN)
END = entry_of(TransactionEnd(transaction_id="12"), EntryType.TRANSACTIONEND)


@pytest.mark.parametrize(
    ("entry", "objects"),
    [
        (INSERT, [
            {"type": "INSERT", **WHERE, "key": ["id"],
             "after": {"id": "1", "title": "Dune"}},
            {"type": "INSERT", **WHERE, "key": ["id"],
             "after": {"id": "2", "title": None}},
        ]),
        (UPDATE, [
            {"type": "UPDATE", **WHERE, "key": ["id"],
             "before": {"id": "1", "title": "Dune"},
             "after": {"id": "1", "title": "It's"}, "changed": ["title"]},
        ]),
        (DELETE, [
            {"type": "DELETE", **WHERE, "key": ["id"],
             "before": {"id": "1", "title": "Dune"}},
        ]),
        (ALTER, [
            {"type": "ALTER", **WHERE, "sql": "ALTER TABLE book\n  ADD n INT"},
        ]),
        (BEGIN, []),
        (END, []),
    ],
)  # fmt: skip
def test_changes(entry, objects):
    """Rows and statements become objects; marks of transactions are left out."""
    assert list(changes(entry)) == objects


def test_marks():
    """Begin and end of transactions come when they are asked for."""
    assert list(changes(BEGIN, marks=True)) == [{"type": "BEGIN", **WHERE}]
    assert list(changes(END, marks=True)) == [
        {"type": "END", **WHERE, "transaction": "12"}
    ]
    assert list(text_lines(BEGIN, marks=True)) == ["2023-11-14 22:13:20+00:00 BEGIN"]
    assert list(text_lines(END, marks=True)) == ["2023-11-14 22:13:20+00:00 END"]
    assert list(text_lines(BEGIN)) == list(text_lines(END)) == []


def test_gtid():
    """An entry's GTID stands in the object."""
    entry = entry_of(RowChange(event_type=EventType.QUERY, sql="x"), gtid="u:1-5")
    assert next(changes(entry))["gtid"] == "u:1-5"


def test_json_line():
    """An object is one line, whatever its values hold, and reads back."""
    change = {"sql": "a\nb", "ü": None}
    line = json_line(change)
    assert "\n" not in line
    assert json.loads(line) == change


@pytest.mark.parametrize(
    ("entry", "lines"),
    [
        (INSERT, ["INSERT shop.book  id=1 title='Dune'",
                  "INSERT shop.book  id=2 title=NULL"]),
        (UPDATE, ["""UPDATE shop.book  id=1 title='Dune' → "It's\""""]),
        (DELETE, ["DELETE shop.book  id=1 title='Dune'"]),
        (ALTER, ["ALTER  shop.book  ALTER TABLE book ADD n INT"]),
    ],
)  # fmt: skip
def test_text_lines(entry, lines):
    """Each row and statement is one line that a person can read."""
    assert list(text_lines(entry)) == [
        f"2023-11-14 22:13:20+00:00 {line}" for line in lines
    ]


def test_colour():
    """With colour the same text stands between escape sequences."""
    (line,) = text_lines(DELETE, colour=True)
    assert "\x1b[31mDELETE\x1b[0m" in line
    assert line.count("\x1b[") % 2 == 0
    assert "\x1b" not in next(text_lines(DELETE))


def test_terminal_commands_in_values():
    """Control characters for a terminal are shown, not sent."""
    evil = "\x1b]0;x\x07\x9b2J\u202e"
    columns = (Column(name=evil, sql_type=VARCHAR, value=evil),)
    entries = [
        entry_of(
            RowChange(
                event_type=EventType.INSERT,
                row_datas=(RowData(after_columns=columns),),
            )
        ),
        entry_of(RowChange(event_type=EventType.QUERY, sql=evil)),
        Entry(
            Header(table_name=evil),
            EntryType.ROWDATA,
            encode(RowChange(event_type=EventType.QUERY)),
        ),
    ]
    for entry in entries:
        for line in text_lines(entry):
            assert line.isprintable()
            assert "\\x1b" in line


def test_long_values_are_cut():
    """A long value does not fill the screen."""
    columns = (Column(name="t", sql_type=VARCHAR, value="x" * 10_000),)
    (line,) = text_lines(
        entry_of(
            RowChange(
                event_type=EventType.INSERT,
                row_datas=(RowData(after_columns=columns),),
            )
        )
    )
    assert line.endswith(f"t='{'x' * 100}'…")


def test_update_without_its_old_values():
    """An update of which the server logged the key alone shows the new values."""
    change = RowChange(
        event_type=EventType.UPDATE,
        row_datas=(RowData(row(1, "")[:1], row(1, "Dune", updated=True)[1:]),),
    )
    (line,) = text_lines(entry_of(change))
    assert line.endswith("title='Dune'")


def test_unknown_event_type():
    """An event type of later is shown as its number."""
    assert next(changes(entry_of(RowChange(event_type=77))))["type"] == "TYPE77"


def test_malformed_content():
    """Content that cannot be decoded is an error."""
    entry = Entry(entry_type=EntryType.ROWDATA, store_value=b"\xff")
    for show in (changes, text_lines):
        with pytest.raises(ProtocolError):
            list(show(entry))
