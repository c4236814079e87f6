"""Changes of a table as the source of Spark packs them, made by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from canal_server.client.range_client import RangeColumn
from canal_server.mirror.settings.table_values import TableName
from canal_server.spark.columns.spark_schema import TypedColumn
from canal_server.spark.packed.packed_form import packed_bytes, packed_schema
from canal_server.spark.packed.packed_rows import ROWS, STATEMENT, Packed

NAME = TableName("shop", "t")
ID = ("id", "int", "", True)
A = ("a", "varchar(20)", "utf8mb4", False)
B = ("b", "int", "", False)


def rows(seq: int, *values: Any, columns: Any = (ID, A)) -> Packed:
    """Return a run of rows: each (change, values…), of one event each."""
    names = [RangeColumn(c[0], c[1], c[3], True, c[2]) for c in columns]
    shown = [
        {
            **dict(zip([c[0] for c in columns], row, strict=True)),
            "_change_type": change,
            "_commit_version": seq + 9,
            "_commit_timestamp": datetime(2026, 1, 1, tzinfo=UTC),
            "_seq": seq + number,
            "_row": 0,
            "_position": f"f:{seq}",
        }
        for number, (change, *row) in enumerate(values)
    ]
    schema = packed_schema(NAME, names)
    batch = pa.RecordBatch.from_pylist(shown, schema=schema)
    return Packed(
        kind=ROWS, destination="d", table=NAME, seq=seq, row=0, count=len(values),
        arrow=pa.py_buffer(packed_bytes(batch)), journal="f", position=seq,
    )  # fmt: skip


def statement(
    seq: int,
    sql: str,
    columns: Any = (ID, A),
    event_type: str = "ALTER",
    *,
    is_ddl: bool = True,
    table: TableName = NAME,
) -> Packed:
    """Return a statement, and the columns after it."""
    return Packed(
        kind=STATEMENT, destination="d", table=table, seq=seq, row=0, sql=sql,
        event_type=event_type, is_ddl=is_ddl, journal="f", position=seq,
        columns=tuple(TypedColumn(*each) for each in columns),
        committed=datetime(2026, 1, 1, tzinfo=UTC),
    )  # fmt: skip
