"""Entries of small transactions on one table, as a server sends them."""

from __future__ import annotations

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
)
from canal_server.protocol.protobuf import encode, varint

SCHEMA, TABLE = "shop", "orders"


def transaction(first: int, rows: int, *, begins: bool = True) -> list[bytes]:
    """Return a transaction that inserts rows with the ids from `first` on.

    It has a begin (not on MariaDB), an entry a row, and an end.
    """
    found = [_entry(first, EntryType.TRANSACTIONBEGIN, encode(TransactionBegin()))]
    found += [row(first + i) for i in range(rows)]
    found.append(_entry(first, EntryType.TRANSACTIONEND, encode(TransactionEnd())))
    return found if begins else found[1:]


def row(number: int, table: str = TABLE) -> bytes:
    """Return an entry that inserts one row."""
    column = Column(
        name="id",
        is_key=True,
        updated=True,
        is_null=False,
        value=str(number),
        mysql_type="int",
    )
    change = RowChange(
        event_type=EventType.INSERT, row_datas=(RowData(after_columns=(column,)),)
    )
    return _entry(number, EntryType.ROWDATA, encode(change), EventType.INSERT, table)


def columns_of(*columns: tuple[str, int, str | None]) -> bytes:
    """Return a body with one inserted row of the columns c0, c1 and so on.

    Each is given by its type in MySQL, the number of its type in JDBC, and its text.
    """
    after = tuple(
        Column(
            name=f"c{number}",
            index=number,
            sql_type=sql_type,
            mysql_type=mysql_type,
            is_null=text is None,
            value=text or "",
        )
        for number, (mysql_type, sql_type, text) in enumerate(columns)
    )
    change = RowChange(
        event_type=EventType.INSERT, row_datas=(RowData(after_columns=after),)
    )
    raw = _entry(1, EntryType.ROWDATA, encode(change), EventType.INSERT)
    return b"\x12" + varint(len(raw)) + raw


def statement(number: int, sql: str) -> bytes:
    """Return an entry of a statement that is a transaction of its own."""
    change = RowChange(event_type=EventType.ALTER, is_ddl=True, sql=sql)
    return _entry(number, EntryType.ROWDATA, encode(change), EventType.ALTER)


def _entry(
    number: int,
    kind: EntryType,
    content: bytes,
    event: EventType = EventType.QUERY,
    table: str = TABLE,
) -> bytes:
    header = Header(
        version=1,
        logfile_name="binlog.000001",
        logfile_offset=number,
        execute_time=1_700_000_000_000 + number,
        schema_name=SCHEMA,
        table_name=table,
        event_type=event,
    )
    return encode(Entry(header=header, entry_type=kind, store_value=content))
