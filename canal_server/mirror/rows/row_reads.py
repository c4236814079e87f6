"""Reads single rows of a table from the source again, by their keys.

Leaves out which rows, and how they are written to the lake (`reread`).
"""

# ruff: noqa: S608  # names are quoted, values are literals that are made here

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from canal_server.arrow.arrow_columns import requested_column
from canal_server.errors import CanalError, DecodeError, SourceError
from canal_server.mirror.rows.chunk_read import (
    chunk_schema,
    open_stream,
    read_rows,
)
from canal_server.mirror.rows.chunks import quoted, table_in_sql
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.result_stream import ResultStream
from canal_server.mysql.server_columns import TableColumns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from canal_server.mirror.settings.table_values import MirrorColumn, MirrorTable
    from canal_server.model.columns_known import ColumnMeta
    from canal_server.mysql.source_settings import Access
    from canal_server.runtime.lifecycle import Stop

ROWS_AT_ONCE: Final = 500  # per SELECT
_NO_TABLE: Final = 1146
_BY_LABELS: Final = ("enum", "set")


class OtherColumnsError(CanalError):
    """The source's table has other columns than the table in the stream."""


@dataclass(frozen=True, slots=True)
class _Picked:
    """Rows selected by values of their columns, used like a chunk."""

    clauses: str


def read_by(
    access: Access,
    table: MirrorTable,
    names: Sequence[str],
    values: pa.Table,
    stop: Stop,
) -> pa.Table:
    """Return the current rows whose columns have one of these values.

    `values` has the columns `names` of the source. No statement can change the table
    during the read. Raises OtherColumnsError if one did before, later than the stream;
    SourceError, and DecodeError.
    """
    schema = chunk_schema(table)
    found: list[pa.RecordBatch] = []
    with ExitStack() as stack:
        control = stack.enter_context(ControlConnection(access, stop))
        control.query("START TRANSACTION")
        # From here to the end of the transaction, the table's columns cannot change.
        try:
            control.query(f"SELECT 1 FROM {table_in_sql(table.source)} LIMIT 0")
        except SourceError as error:
            if error.errno != _NO_TABLE:
                raise
            raise OtherColumnsError(f"table {table.source} was dropped") from error
        _check_columns(control, table)
        for where in _conditions(names, values):
            with ResultStream(access, stop) as stream:
                open_stream(stream)
                found += read_rows(stream, table, _Picked(where))
    return pa.Table.from_batches(found, schema)


def _check_columns(control: ControlConnection, table: MirrorTable) -> None:
    meta = TableColumns(control).fetch(*table.source)
    there = {} if meta is None else {each.name: each for each in meta.columns}
    for column in table.columns:
        now = there.get(column.name)
        if now is None or not _is_read_alike(column, now):
            raise OtherColumnsError(
                f"table {table.source}: column {column.name} differs from the one at "
                "the stream's position"
            )


def _is_read_alike(column: MirrorColumn, now: ColumnMeta) -> bool:
    base = now.mysql_type.partition("(")[0].strip().lower()
    if base in _BY_LABELS and now.mysql_type != column.mysql_type:
        return False
    try:
        return column.requested == requested_column(now)
    except DecodeError:
        return False


def _conditions(names: Sequence[str], values: pa.Table) -> Iterator[str]:
    columns = [quoted(name) for name in names]
    rows = list(zip(*(values[name].to_pylist() for name in names), strict=True))
    for first in range(0, len(rows), ROWS_AT_ONCE):
        part = rows[first : first + ROWS_AT_ONCE]
        if len(columns) == 1:
            literals = ", ".join(literal(row[0]) for row in part)
            yield f" WHERE {columns[0]} IN ({literals})"
            continue
        # MariaDB does not use a key for a list of rows, `(a, b) IN (…)`.
        ways = (
            " AND ".join(
                f"{column} = {literal(value)}"
                for column, value in zip(columns, row, strict=True)
            )
            for row in part
        )
        yield f" WHERE {' OR '.join(f'({way})' for way in ways)}"


def literal(value: Any) -> str:
    """Return a value of the stream as a SQL literal; the session's time zone is UTC."""
    if isinstance(value, str):
        # The server converts it to the column's character set.
        return f"_utf8mb4 X'{value.encode().hex()}'" if value else "''"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'" if value else "''"
    if isinstance(value, float):
        text = repr(value)
        return text if "e" in text else f"{text}e0"
    if isinstance(value, datetime):
        return f"'{value.replace(tzinfo=None).isoformat(' ')}'"
    if hasattr(value, "isoformat"):
        return f"'{value.isoformat()}'"
    return str(value)  # an integer, a decimal
