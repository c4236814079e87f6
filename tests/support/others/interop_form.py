"""What the tests of `interop` write and read: rows, entries as its programs print."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

from canal_server.client import EntryType

if TYPE_CHECKING:
    from collections.abc import Callable

    from fix_interop import Kind
    from fix_pipeline import Pipeline

    from canal_server.client import Entry, EventType
    from canal_server.protocol.entry_messages import Column

Json = dict[str, Any]  # an object of JSON
OWN_CLIENT_ID = 1002  # that of our own client; the others are 1001


def column_json(column: Column) -> Json:
    """Return a column as the drivers report it."""
    return {
        "index": column.index,
        "sqlType": column.sql_type,
        "name": column.name,
        "key": column.is_key,
        "updated": column.updated,
        "null": bool(column.is_null),
        "value": column.value,
        "length": column.length,
        "mysqlType": column.mysql_type,
    }


def content_json(entry: Entry, kind: Kind) -> Json:
    """Return what the stored value of an entry says, as the drivers report it."""
    if entry.entry_type == EntryType.TRANSACTIONBEGIN:
        begin = entry.transaction_begin()
        return {"threadId": begin.thread_id, "transactionId": begin.transaction_id}
    if entry.entry_type == EntryType.TRANSACTIONEND:
        end = entry.transaction_end()
        return {"transactionId": end.transaction_id, "time": end.execute_time}
    change = entry.row_change()
    return {
        "tableId": change.table_id,
        "event": event_name(change.event_type, kind),
        "ddl": bool(change.is_ddl),
        "sql": change.sql,
        "schema": change.ddl_schema_name,
        "rows": [
            {
                "before": [column_json(column) for column in row.before_columns],
                "after": [column_json(column) for column in row.after_columns],
            }
            for row in change.row_datas
        ],
    }


def event_name(event: EventType | int | None, kind: Kind) -> str:
    """Return what a client calls a type of event; a missing one depends on it."""
    return kind.no_event if event is None else name_of(event)


def name_of(value: IntEnum | int | None) -> str:
    """Return the name of a number that must have one."""
    assert isinstance(value, IntEnum)
    return value.name


def entry_json(entry: Entry, kind: Kind) -> Json:
    """Return an entry as the drivers report it."""
    header = entry.header
    return {
        "type": name_of(entry.entry_type),
        "version": header.version,
        "file": header.logfile_name,
        "offset": header.logfile_offset,
        "serverId": header.server_id,
        "encoding": header.serveren_code,
        "time": header.execute_time,
        "source": name_of(header.source_type),
        "schema": header.schema_name,
        "table": header.table_name,
        "length": header.event_length,
        "event": event_name(header.event_type, kind),
        "props": {pair.key: pair.value for pair in header.props},
        "content": content_json(entry, kind),
    }


def make_table(daemon: Pipeline, name: str = "item") -> str:
    """Make a table with one column; returns its name with its schema."""
    daemon.source.execute(f"CREATE TABLE {daemon.schema}.{name} (id INT PRIMARY KEY)")
    return f"{daemon.schema}.{name}"


def insert(daemon: Pipeline, table: str, *ids: int) -> None:
    """Write one transaction for each id."""
    daemon.source.execute(*(f"INSERT INTO {table} VALUES ({each})" for each in ids))


def wait_until_stored(daemon: Pipeline, count: int) -> None:
    """Wait until the server has so many rows since its start, for one get to take."""
    daemon.wait_for_status(lambda status: status["rows"] >= count)


def ids_of(entries: list[Json]) -> list[int]:
    """Return the ids of inserted rows, in their order."""
    return [
        int(row["after"][0]["value"])
        for entry in entries
        if entry["type"] == "ROWDATA"
        for row in entry["content"]["rows"]
    ]


def ends_with(last: int) -> Callable[[list[Json]], bool]:
    """Return a condition: the entries' last row has this id."""
    return lambda entries: ids_of(entries)[-1:] == [last]
