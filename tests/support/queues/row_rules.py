"""What is sent for a row with keys and tombstones, in plain Python."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from java_hashes import java_hash, partition_of

from canal_server.protocol.entry_messages import (
    Column,
    Entry,
    EntryType,
    EventType,
    Header,
    RowChange,
    RowData,
    TransactionEnd,
)
from canal_server.protocol.protobuf import encode, varint

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROWS = (EventType.INSERT, EventType.UPDATE, EventType.DELETE)


class Row(NamedTuple):
    """A row of an entry, with its columns by name."""

    entry: Entry  # with this row alone
    kind: EventType
    before: dict[str, Column]
    after: dict[str, Column]

    def image(self, *, old: bool) -> dict[str, Column]:
        """Return the row as it was or is, with the other image where that has gaps."""
        first, second = (self.before, self.after) if old else (self.after, self.before)
        return second | first

    @property
    def is_deleted(self) -> bool:
        """Return whether the row was deleted."""
        return self.kind is EventType.DELETE

    def key(self, *, old: bool) -> dict[str, Column]:
        """Return the columns of the primary key."""
        columns = sorted(self.image(old=old).values(), key=lambda each: each.index)
        return {each.name: each for each in columns if each.is_key}

    def texts(self, *, old: bool) -> dict[str, Any]:
        """Return the key with its texts."""
        return {
            name: None if column.is_null else column.value
            for name, column in self.key(old=old).items()
        }

    @property
    def moved(self) -> bool:
        """Return whether the key has changed."""
        return self.kind is EventType.UPDATE and (
            self.texts(old=False) != self.texts(old=True)
        )

    def partition(self, how: str, count: int, *, old: bool) -> int:
        """Return where the row goes; `how`: one, table or key."""
        if how == "one":
            return 0
        if how == "table":
            return partition_of(java_hash(self.entry.header.table_name), count)
        hashed = java_hash(self.entry.header.schema_name)
        for text in self.texts(old=old).values():
            hashed ^= java_hash(text or "")
        return partition_of(hashed, count)


def rows_of(entry: Entry) -> Iterator[Row]:
    """Yield the rows of an entry."""
    if entry.entry_type is not EntryType.ROWDATA:
        return
    change = entry.row_change()
    kind = EventType(change.event_type or EventType.UPDATE)
    if kind not in ROWS or change.is_ddl:
        return
    for each in change.row_datas:
        alone = replace(change, row_datas=(each,))
        yield Row(
            replace(entry, store_value=encode(alone)),
            kind,
            _by_name(each, old=True),
            _by_name(each, old=False),
        )


def _by_name(row: RowData, *, old: bool) -> dict[str, Column]:
    return {c.name: c for c in (row.before_columns if old else row.after_columns)}


def body_of(*entries: Entry) -> bytes:
    """Return a body of Messages."""
    made = map(encode, entries)
    return b"".join(b"\x12" + varint(len(each)) + each for each in made)


def with_texts(entry: Entry) -> Entry:
    """Return an entry whose columns are all of one type, VARCHAR."""
    change = entry.row_change()

    def of_texts(columns: tuple[Column, ...]) -> tuple[Column, ...]:
        return tuple(
            replace(each, sql_type=12, mysql_type="varchar(2)") for each in columns
        )

    rows = tuple(
        RowData(
            before_columns=of_texts(each.before_columns),
            after_columns=of_texts(each.after_columns),
        )
        for each in change.row_datas
    )
    return replace(entry, store_value=encode(replace(change, row_datas=rows)))


def table_entry(columns: Mapping[str, tuple[str, str | None]], **header: Any) -> Entry:
    """Return an entry that inserts a row, of types and texts; the first is the key."""
    row = RowData(
        after_columns=tuple(
            Column(
                index=at,
                name=name,
                mysql_type=mysql_type,
                is_key=at == 0,
                is_null=text is None,
                value=text or "",
                updated=True,
            )
            for at, (name, (mysql_type, text)) in enumerate(columns.items())
        )
    )
    change = RowChange(event_type=EventType.INSERT, is_ddl=False, row_datas=(row,))
    named: dict[str, Any] = {
        "version": 1,
        "logfile_name": "binlog.000001",
        "logfile_offset": 4711,
        "execute_time": 1_700_000_000_000,
        "schema_name": "shop",
        "table_name": "orders",
        "event_type": EventType.INSERT,
    }
    return Entry(
        header=Header(**(named | header)),
        entry_type=EntryType.ROWDATA,
        store_value=encode(change),
    )


def end_entry(xid: str) -> Entry:
    """Return the end of a transaction."""
    return Entry(
        header=Header(version=1, logfile_name="binlog.000001", logfile_offset=4711),
        entry_type=EntryType.TRANSACTIONEND,
        store_value=encode(TransactionEnd(transaction_id=xid)),
    )
