"""Entries made by hand, for tests of what becomes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from canal_server.model.entry import EntryType, EventType
from canal_server.protocol.entry_messages import (
    Column,
    Entry,
    Header,
    Pair,
    RowChange,
    RowData,
    TransactionBegin,
    TransactionEnd,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FILE = "binlog.000007"
TIME_MS = 1_700_000_000_000
EVENT_BYTES = 100  # each event's length, by default


def header(offset: int, **fields: Any) -> Header:
    """Return the header of an event that begins at an offset."""
    defaults: dict[str, Any] = {
        "version": 1,
        "logfile_name": FILE,
        "logfile_offset": offset,
        "server_id": 1,
        "serveren_code": "UTF-8",
        "execute_time": TIME_MS,
        "event_length": EVENT_BYTES,
    }
    return Header(**defaults | fields)


def begin(offset: int, **fields: Any) -> Entry:
    """Return a transaction's begin."""
    content = encode(TransactionBegin(thread_id=5))
    return Entry(header(offset, **fields), EntryType.TRANSACTIONBEGIN, content)


def end(offset: int, xid: str = "77", **fields: Any) -> Entry:
    """Return a transaction's end."""
    content = encode(TransactionEnd(transaction_id=xid))
    return Entry(header(offset, **fields), EntryType.TRANSACTIONEND, content)


def columns(
    values: Mapping[str, str | None],
    *,
    types: Mapping[str, str] | None = None,
    sql_types: Mapping[str, int] | None = None,
    key: str = "id",
    updated: Iterable[str] | None = None,
    first: int = 0,
) -> tuple[Column, ...]:
    """Return the columns of an image."""
    return tuple(
        Column(
            index=index,
            sql_type=(sql_types or {}).get(name, 12),
            name=name,
            is_key=name == key,
            updated=updated is None or name in updated,
            is_null=text is None,
            value=text or "",
            mysql_type=(types or {}).get(name, "varchar(20)"),
        )
        for index, (name, text) in enumerate(values.items(), first)
    )


def insert(offset: int, *rows: tuple[Column, ...], **fields: Any) -> Entry:
    """Return an entry of inserted rows."""
    datas = tuple(RowData(after_columns=row) for row in rows)
    return change(offset, EventType.INSERT, datas, **fields)


def delete(offset: int, *rows: tuple[Column, ...], **fields: Any) -> Entry:
    """Return an entry of deleted rows."""
    datas = tuple(RowData(before_columns=row) for row in rows)
    return change(offset, EventType.DELETE, datas, **fields)


def update(
    offset: int, *rows: tuple[tuple[Column, ...], tuple[Column, ...]], **fields: Any
) -> Entry:
    """Return an entry of changed rows: pairs of before and after."""
    datas = tuple(RowData(before_columns=b, after_columns=a) for b, a in rows)
    return change(offset, EventType.UPDATE, datas, **fields)


def change(
    offset: int, kind: EventType, rows: tuple[RowData, ...], **fields: Any
) -> Entry:
    """Return an entry of rows of d.t, unless `fields` name another table."""
    content = RowChange(table_id=9, event_type=kind, is_ddl=False, row_datas=rows)
    names = {"schema_name": "d", "table_name": "t", "event_type": kind}
    return Entry(header(offset, **names | fields), EntryType.ROWDATA, encode(content))


def statement(
    offset: int, kind: EventType, sql: str, *, is_ddl: bool = True, **fields: Any
) -> Entry:
    """Return an entry of a statement on d.t, unless `fields` name another table."""
    content = RowChange(event_type=kind, is_ddl=is_ddl, sql=sql, ddl_schema_name="d")
    names = {"schema_name": "d", "table_name": "t", "event_type": kind}
    return Entry(header(offset, **names | fields), EntryType.ROWDATA, encode(content))


def own_gtid(gtid: str) -> tuple[Pair, ...]:
    """Return the properties that show a transaction's GTID."""
    return (Pair("curtGtid", gtid), Pair("curtGtidSn", "4"))
