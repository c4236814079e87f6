"""The messages of canal's entry protocol (EntryProtocol.proto), as values.

Names and numbers are those of the protocol. Clients decode batches into these values;
the entries of the server come from the compiled decoder and never pass through here.
"""

# ruff: noqa: RUF009  # the functions that declare fields return dataclass fields

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from canal_server.errors import ProtocolError
from canal_server.model.entry import DDL_TYPES, EntryType, EventType
from canal_server.protocol.protobuf import (
    boolean,
    decode,
    encode,
    enum,
    int32,
    int64,
    message,
    octets,
    repeated_message,
    string,
)


class SourceType(IntEnum):
    """The kind of server that an entry comes from."""

    ORACLE = 1
    MYSQL = 2
    PGSQL = 3


@dataclass(frozen=True, slots=True)
class Pair:
    """A property."""

    key: str = string(1)
    value: str = string(2)


@dataclass(frozen=True, slots=True)
class Header:
    """The origin of an entry, and its table.

    `logfile_offset` is the start of its event in the binlog file and `event_length` the
    size of the event, both in bytes; `execute_time` is in ms since 1970.
    """

    version: int | None = int32(1, explicit=True)
    logfile_name: str = string(2)
    logfile_offset: int = int64(3)
    server_id: int = int64(4)
    serveren_code: str = string(5)
    execute_time: int = int64(6)
    source_type: SourceType | int | None = enum(7, SourceType, explicit=True)
    schema_name: str = string(8)
    table_name: str = string(9)
    event_length: int = int64(10)
    event_type: EventType | int | None = enum(11, EventType, explicit=True)
    props: tuple[Pair, ...] = repeated_message(12, Pair)
    gtid: str = string(13)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of one row; all values are sent as text.

    `sql_type` is a number of java.sql.Types. `length` is never sent.
    """

    index: int = int32(1)
    sql_type: int = int32(2)
    name: str = string(3)
    is_key: bool = boolean(4)
    updated: bool = boolean(5)
    is_null: bool | None = boolean(6, explicit=True)
    props: tuple[Pair, ...] = repeated_message(7, Pair)
    value: str = string(8)
    length: int = int32(9)
    mysql_type: str = string(10)

    @property
    def text(self) -> str | None:
        """The value, None for NULL."""
        return None if self.is_null else self.value


@dataclass(frozen=True, slots=True)
class RowData:
    """One row: before the change, after it, or both."""

    before_columns: tuple[Column, ...] = repeated_message(1, Column)
    after_columns: tuple[Column, ...] = repeated_message(2, Column)
    props: tuple[Pair, ...] = repeated_message(3, Pair)

    @property
    def before(self) -> dict[str, str | None]:
        """The values before the change by column name; empty for an insert."""
        return {column.name: column.text for column in self.before_columns}

    @property
    def after(self) -> dict[str, str | None]:
        """The values after the change by column name; empty for a delete."""
        return {column.name: column.text for column in self.after_columns}


@dataclass(frozen=True, slots=True)
class RowChange:
    """Rows that one event changed in one table, or a statement (`sql`)."""

    table_id: int = int64(1)
    event_type: EventType | int | None = enum(2, EventType, explicit=True)
    is_ddl: bool | None = boolean(10, explicit=True)
    sql: str = string(11)
    row_datas: tuple[RowData, ...] = repeated_message(12, RowData)
    props: tuple[Pair, ...] = repeated_message(13, Pair)
    ddl_schema_name: str = string(14)


@dataclass(frozen=True, slots=True)
class TransactionBegin:
    """The start of a transaction; only the thread id and properties are sent."""

    execute_time: int = int64(1)
    transaction_id: str = string(2)
    props: tuple[Pair, ...] = repeated_message(3, Pair)
    thread_id: int = int64(4)


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """The end of a transaction."""

    execute_time: int = int64(1)
    transaction_id: str = string(2)
    props: tuple[Pair, ...] = repeated_message(3, Pair)


@dataclass(frozen=True, slots=True)
class Entry:
    """One message of a batch; its content is decoded on demand."""

    header: Header = message(1, Header)
    entry_type: EntryType | int | None = enum(2, EntryType, explicit=True)
    store_value: bytes = octets(3)

    def row_change(self) -> RowChange:
        """Decode the content of a ROWDATA entry; ProtocolError for any other."""
        # A missing type means ROWDATA, as it did in the proto2 version.
        if self.entry_type not in (EntryType.ROWDATA, None):
            raise ProtocolError(f"an entry of type {self.entry_type!r} has no rows")
        return decode(RowChange, self.store_value)

    def transaction_begin(self) -> TransactionBegin:
        """Decode the content of a TRANSACTIONBEGIN entry; else ProtocolError."""
        if self.entry_type != EntryType.TRANSACTIONBEGIN:
            raise ProtocolError(
                f"an entry of type {self.entry_type!r} is not a transaction begin"
            )
        return decode(TransactionBegin, self.store_value)

    def transaction_end(self) -> TransactionEnd:
        """Decode the content of a TRANSACTIONEND entry; else ProtocolError."""
        if self.entry_type != EntryType.TRANSACTIONEND:
            raise ProtocolError(
                f"an entry of type {self.entry_type!r} is not a transaction end"
            )
        return decode(TransactionEnd, self.store_value)


def decode_entry(data: bytes) -> Entry:
    """Decode an entry. Raises ProtocolError."""
    return decode(Entry, data)


__all__ = [
    "DDL_TYPES",
    "Column",
    "Entry",
    "EntryType",
    "EventType",
    "Header",
    "Pair",
    "RowChange",
    "RowData",
    "SourceType",
    "TransactionBegin",
    "TransactionEnd",
    "decode_entry",
    "encode",
]
