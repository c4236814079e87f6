"""The rows of `payload = arrow` for the driver that collects them.

::

    for each in unpack(frame.toArrow()):
        if each.kind == "rows":
            apply(each.table, each.data)

`packing` creates them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from canal_server.model.entry import EventType
from canal_server.spark.columns.spark_schema import TypedColumn
from canal_server.spark.options.offsets import offset_from_json
from canal_server.spark.options.source_options import TableName
from canal_server.spark.packed.packed_form import (
    PART,
    PROBLEM,
    ROWS,
    STATEMENT,
    XA_ROWS,
)
from canal_server.spark.reading.ddl_statements import may_concern

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from canal_server.client.range_client import RangePosition

__all__ = ["PART", "PROBLEM", "ROWS", "STATEMENT", "XA_ROWS", "Packed", "unpack"]

_OF_XA = (EventType.XACOMMIT.name, EventType.XAROLLBACK.name)  # these have no table


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A run of rows of a table, a statement, a problem, or the part of a task.

    `seq` and `row` are those of the first row, `version` and `committed` of the last.
    `columns` are those of the table: of the rows, or after the statement. `sql` is the
    text of the statement or of the problem. `start` and `end` belong to a part.
    """

    kind: str
    destination: str
    table: TableName
    seq: int
    row: int
    count: int = 0
    version: int = 0
    committed: datetime | None = None
    journal: str = ""
    position: int = 0
    sql: str = ""
    event_type: str = ""
    is_ddl: bool = False
    columns: tuple[TypedColumn, ...] = ()
    start: Mapping[str, RangePosition] = field(default_factory=dict)
    end: Mapping[str, RangePosition] = field(default_factory=dict)
    arrow: pa.Buffer | None = field(default=None, repr=False, compare=False)

    @property
    def data(self) -> pa.Table | None:
        """Return the rows, decoded with each call; None if there are none."""
        if self.arrow is None:
            return None
        with pa.ipc.open_stream(self.arrow) as reader:
            return reader.read_all()

    def concerns(self, table: TableName) -> bool:
        """Return whether this may affect a table; false only if it does not.

        A statement without a table affects those in its text; one that drops a schema
        (ERASE) affects all tables of it.
        """
        if self.table.table or self.kind != STATEMENT:
            return self.table == table
        if self.event_type == EventType.ERASE.name:
            return self.table.schema == table.schema
        if self.event_type in _OF_XA:
            return False
        return may_concern(self.sql, table)

    @property
    def order(self) -> tuple[int, int]:
        """The order of rows and statements of one table."""
        return self.seq, self.row


def unpack(rows: pa.Table | Iterable[Any]) -> list[Packed]:
    """Return the rows of a frame, as an Arrow table or Spark rows, in order."""
    if isinstance(rows, pa.Table):
        found = [
            _of_arrow(batch, i)
            for batch in rows.to_batches()
            for i in range(len(batch))
        ]
    else:
        found = [_packed(row.asDict(), row["arrow"]) for row in rows]
    return sorted(found, key=lambda each: (each.destination, *each.order))


def _of_arrow(batch: pa.RecordBatch, i: int) -> Packed:
    row = {
        name: batch[name][i].as_py() for name in batch.schema.names if name != "arrow"
    }
    return _packed(row, batch["arrow"][i].as_buffer())


def _packed(row: Mapping[str, Any], arrow: Any) -> Packed:
    committed = row["_commit_timestamp"]  # Spark rows contain local time
    return Packed(
        kind=row["kind"],
        destination=row["destination"],
        table=TableName(row["db"] or "", row["table"] or ""),
        seq=row["_seq"],
        row=row["_row"],
        count=row["rows"] or 0,
        version=row["_commit_version"] or 0,
        committed=None if committed is None else committed.astimezone(UTC),
        journal=row["journal"] or "",
        position=row["position"] or 0,
        sql=row["sql"] or "",
        event_type=row["event_type"] or "",
        is_ddl=bool(row["is_ddl"]),
        columns=_columns(row["columns"]),
        start=_positions(row["start"]),
        end=_positions(row["end"]),
        arrow=None if arrow is None else pa.py_buffer(arrow),
    )


def _columns(text: str | None) -> tuple[TypedColumn, ...]:
    return tuple(
        TypedColumn(each["name"], each["mysql_type"], each["charset"], each["key"])
        for each in json.loads(text or "[]")
    )


def _positions(text: str | None) -> Mapping[str, RangePosition]:
    return offset_from_json(json.loads(text)) if text else {}
