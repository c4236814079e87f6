"""The format of `payload = arrow`: rows for Spark, and the Arrow streams in them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from canal_server.arrow.arrow_batches import typed_schema
from canal_server.arrow.arrow_columns import requested_column
from canal_server.errors import ConfigError
from canal_server.model.columns_known import ColumnMeta
from canal_server.model.entry import EventType
from canal_server.spark.options.offsets import offset_to_json, version_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canal_server.client.range_client import RangeColumn
    from canal_server.spark.options.source_options import TableName
    from canal_server.spark.reading.range_tasks import Range

COMPRESSION: Final = "lz4"

ROWS: Final = "rows"  # kinds
STATEMENT: Final = "statement"
PART: Final = "part"
PROBLEM: Final = "problem"

XA_ROWS: Final = "XAROWS"  # event type: a table has rows of an XA transaction
_ROUTERS_XA_ROWS: Final = 1000  # the value of the router (entry_wire.pxd)

_TEXT = pa.string()
_SCHEMA: Final = pa.schema(
    [
        ("destination", _TEXT),
        ("db", _TEXT),
        ("table", _TEXT),
        ("kind", _TEXT),
        ("rows", pa.int32()),
        ("arrow", pa.binary()),
        ("sql", _TEXT),
        ("event_type", _TEXT),
        ("is_ddl", pa.bool_()),
        ("columns", _TEXT),
        ("_commit_version", pa.int64()),
        ("_commit_timestamp", pa.timestamp("us", tz="UTC")),
        ("_seq", pa.int64()),
        ("_row", pa.int32()),
        ("journal", _TEXT),
        ("position", pa.int64()),
        ("start", _TEXT),
        ("end", _TEXT),
    ]
)
# Columns of a run that are not part of the table.
_ADDED: Final = frozenset(typed_schema([]).names)


def part_batch(part: Range) -> pa.RecordBatch:
    """Return the row that describes which part of a batch a task has."""
    start, end = (
        json.dumps(offset_to_json({part.destination: position}))
        for position in (part.start, part.end)
    )
    row = {
        "destination": part.destination,
        "kind": PART,
        "_seq": version_of(part.start),
        "_row": 0,
        "journal": part.start.journal,
        "position": part.start.position,
        "start": start,
        "end": end,
    }
    return batch_of([row])


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Return rows for Spark; missing columns are NULL."""
    return pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)


def packed_schema(name: TableName, columns: Sequence[RangeColumn]) -> pa.Schema:
    """Return the schema of a run: that of a typed stream, with MySQL types.

    Raises DecodeError for an unknown type, ConfigError for a column with the name of an
    added one.
    """
    reserved = {column.name.lower() for column in columns} & _ADDED
    if reserved:
        problem = (
            f"table {name} has a column {', '.join(sorted(reserved))}, a name that the "
            "source adds: it cannot be read with payload = arrow"
        )
        raise ConfigError([problem])
    updates = "postimage" if any(column.key for column in columns) else "both"
    typed = typed_schema(
        [requested_column(meta_of(column)) for column in columns], updates=updates
    )
    fields = list(typed)
    for i, column in enumerate(columns):
        fields[i] = fields[i].with_metadata(
            {
                "mysql_type": column.mysql_type,
                "charset": column.charset,
                "key": "1" if column.key else "0",
            }
        )
    metadata = {"schema": name.schema, "table": name.table, "updates": updates}
    return pa.schema(fields, metadata)


def packed_bytes(batch: pa.RecordBatch) -> bytes:
    """Return a batch as an IPC stream."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=COMPRESSION)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def columns_as_json(columns: Sequence[RangeColumn]) -> str:
    """Return the columns of a table as JSON."""
    return json.dumps(
        [
            {
                "name": column.name,
                "mysql_type": column.mysql_type,
                "charset": column.charset,
                "key": column.key,
            }
            for column in columns
        ],
        ensure_ascii=False,
    )


def event_name(event_type: int) -> str:
    """Return the name of an event type, or its number if it is unknown."""
    if event_type == _ROUTERS_XA_ROWS:
        return XA_ROWS
    try:
        return EventType(event_type).name
    except ValueError:
        return str(event_type)


def meta_of(column: RangeColumn) -> ColumnMeta:
    """Return the column metadata of a RangeColumn."""
    return ColumnMeta(column.name, column.mysql_type, column.charset or None)
