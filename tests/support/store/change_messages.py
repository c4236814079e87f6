"""Messages of a client with any changes, without a server.

::

    message(1, insert({"id": 1, "name": "a"}), update({"id": 1, …}, {"id": 1, …}))

The key is the column `id`, unless `key` names others. Each message is a transaction.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from canal_server.client import Message
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
from canal_server.protocol.protobuf import encode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEMA, TABLE = "shop", "orders"
Row = dict[str, Any]
# The MySQL types of values, unless a test names another one.
TYPES = {int: "int", str: "varchar(100)", Decimal: "decimal(10,2)", bytes: "blob",
         float: "double"}  # fmt: skip
SQL_TYPES = {"blob": 2004}


class Maker:
    """Makes entries of one table, at positions that grow."""

    def __init__(
        self,
        table: str = TABLE,
        key: Sequence[str] = ("id",),
        types: Mapping[str, str] | None = None,
        *,
        sql_types: Mapping[str, int] | None = None,
        position: int = 100,
    ) -> None:
        self.table = table
        self.key = key
        self.types = types or {}
        self.sql_types = sql_types
        self.position = position

    def insert(self, after: Row) -> Entry:
        """Return an entry that inserts a row."""
        return self._rows(EventType.INSERT, RowData(after_columns=self._columns(after)))

    def update(self, before: Row, after: Row) -> Entry:
        """Return an entry that updates a row."""
        row = RowData(self._columns(before), self._columns(after))
        return self._rows(EventType.UPDATE, row)

    def delete(self, before: Row) -> Entry:
        """Return an entry that deletes a row."""
        row = RowData(before_columns=self._columns(before))
        return self._rows(EventType.DELETE, row)

    def statement(self, sql: str, event: EventType = EventType.ALTER) -> Entry:
        """Return an entry of a statement on the table."""
        change = RowChange(event_type=event, is_ddl=True, sql=sql)
        return self._entry(EntryType.ROWDATA, encode(change), event)

    def message(self, message_id: int, *entries: Entry) -> Message:
        """Return a message of one transaction."""
        begin = self._entry(EntryType.TRANSACTIONBEGIN, encode(TransactionBegin()))
        end = self._entry(EntryType.TRANSACTIONEND, encode(TransactionEnd()))
        return Message.of_entries(message_id, (begin, *entries, end))

    def inserts(self, message_id: int, *numbers: int) -> Message:
        """Return a message that inserts rows with these ids."""
        return self.message(
            message_id, *(self.insert({"id": number}) for number in numbers)
        )

    def _rows(self, event: EventType, row: RowData) -> Entry:
        change = RowChange(event_type=event, row_datas=(row,))
        return self._entry(EntryType.ROWDATA, encode(change), event)

    def _columns(self, values: Row) -> tuple[Column, ...]:
        return tuple(self._column(name, value) for name, value in values.items())

    def _column(self, name: str, value: Any) -> Column:
        mysql_type = self.types.get(name) or TYPES.get(type(value), "varchar(100)")
        text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
        return Column(
            name=name,
            is_key=name in self.key,
            updated=True,
            is_null=value is None,
            value="" if value is None else text,
            mysql_type=mysql_type,
            sql_type=self._sql_type(name, mysql_type),
        )

    def _sql_type(self, name: str, mysql_type: str) -> int:
        if self.sql_types is not None:
            return self.sql_types.get(name, 0)
        return SQL_TYPES.get(mysql_type, 0)

    def _entry(
        self, kind: EntryType, content: bytes, event: EventType = EventType.QUERY
    ) -> Entry:
        self.position += 10
        header = Header(
            version=1,
            logfile_name="binlog.000001",
            logfile_offset=self.position,
            event_length=10,
            execute_time=1_700_000_000_000,
            schema_name=SCHEMA,
            table_name=self.table if kind == EntryType.ROWDATA else "",
            event_type=event,
        )
        return Entry(header=header, entry_type=kind, store_value=content)


def changes_of(message: Message) -> list[Any]:
    """Return the changes of a message."""
    return list(message.changes())
