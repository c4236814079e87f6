"""Reads a chunk of a table straight into record batches, as executors do.

The values equal those that the stream delivers for the same rows: the server sends them
as text in the columns' own character sets, and the stream's code converts them.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from canal_server.arrow.arrow_batches import typed_schema
from canal_server.arrow.select_rows import ResultColumns
from canal_server.core.byte_buffer import Feed
from canal_server.decoder.text.charset_text import charset
from canal_server.errors import DecodeError
from canal_server.mirror.rows.chunks import quoted, table_in_sql
from canal_server.mysql.result_stream import ResultStream
from canal_server.mysql.server_errors import error_of_packet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Protocol

    from canal_server.arrow.select_rows import Field
    from canal_server.mirror.settings.table_values import MirrorColumn, MirrorTable
    from canal_server.mysql.source_settings import Access
    from canal_server.runtime.lifecycle import Stop

    class Picked(Protocol):
        """Selects rows, as a chunk does."""

        @property
        def clauses(self) -> str:
            """Return the clauses after the table's name in a SELECT."""


BATCH_ROWS: Final = 65_536
BATCH_BYTES: Final = 32 << 20
RECEIVE_BYTES: Final = 256 * 1024  # per read
WRITE_TIMEOUT_S: Final = 600  # how long the server waits until rows are received

SETTINGS: Final = (
    "SET SESSION character_set_results = NULL, time_zone = '+00:00', sql_mode = ''",
    "SET SESSION sql_select_limit = DEFAULT, sql_big_selects = 1",
    f"SET SESSION net_write_timeout = {WRITE_TIMEOUT_S}",
    # A statement sees a single moment, independent of the server's default.
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
)
UNLIMITED: Final = {  # by is_mariadb
    False: "SET SESSION max_execution_time = 0",
    True: "SET SESSION max_statement_time = 0",
}

_BASE: Final = re.compile(r"\s*([a-z0-9_]+)", re.IGNORECASE)


def read_chunk(  # what is read, and how fast
    access: Access,
    table: MirrorTable,
    chunk: Picked,
    *,
    batch_rows: int = BATCH_ROWS,
    rows_per_s: int = 0,
    stop: Stop | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield a chunk's rows as of one moment, with the columns' source names.

    The connection is open during the iteration. `rows_per_s`: 0 for no limit.
    Raises SourceError, DecodeError, and ConfigError for a column whose name the stream
    uses itself.
    """
    with ResultStream(access, stop) as stream:
        open_stream(stream)
        yield from read_rows(
            stream, table, chunk, batch_rows=batch_rows, rows_per_s=rows_per_s
        )


def open_stream(stream: ResultStream) -> None:
    """Connect, with the session settings that `read_rows` needs. Raises SourceError."""
    stream.open(SETTINGS)
    stream.query(UNLIMITED[stream.is_mariadb])


def read_rows(
    stream: ResultStream,
    table: MirrorTable,
    chunk: Picked,
    *,
    batch_rows: int = BATCH_ROWS,
    rows_per_s: int = 0,
) -> Iterator[pa.RecordBatch]:
    """Yield the same over an open connection, which cannot be used afterwards."""
    if rows_per_s:
        batch_rows = min(batch_rows, rows_per_s)  # so a pause is at most a second
    schema = chunk_schema(table)
    columns = ResultColumns(
        [_field(column) for column in table.columns],
        rows_max=batch_rows,
        bytes_max=BATCH_BYTES,
    )
    pace = _Pace(rows_per_s)
    stream.ask(select_of(table, chunk))
    for fetched in _answers(stream, table, columns):
        batch = pa.RecordBatch.from_arrays(
            [
                _array(kind, part)
                for kind, part in zip(schema.types, fetched, strict=True)
            ],
            schema=schema,
        )
        yield batch
        stream.pause(pace.after(batch.num_rows))


def chunk_schema(table: MirrorTable) -> pa.Schema:
    """Return the schema of a chunk's batches: the stream's, without its own columns."""
    requested = typed_schema([column.requested for column in table.columns])
    return pa.schema([requested.field(i) for i in range(len(table.columns))])


def select_of(table: MirrorTable, chunk: Picked) -> str:
    """Return the SELECT of a chunk."""
    columns = ", ".join(_expression(column) for column in table.columns)
    return f"SELECT {columns} FROM {table_in_sql(table.source)}{chunk.clauses}"  # noqa: S608  # quoted


def _answers(
    stream: ResultStream, table: MirrorTable, columns: ResultColumns
) -> Iterator[list[Any]]:
    """Yield the columns of each batch."""
    feed = Feed(RECEIVE_BYTES)
    done = False
    while not done:
        try:
            needed = columns.read(feed)
        except DecodeError as error:
            raise DecodeError(f"table {table.source}: {error}") from error
        if columns.refusal is not None:
            access = stream.access
            raise error_of_packet(
                columns.refusal,
                address=str(access.address),
                user=access.credentials.user,
            )
        done = columns.done
        if columns.full or (done and columns.rows):
            yield columns.take()
        elif not done:
            with feed.space(max(needed, RECEIVE_BYTES // 4)) as space:
                count = stream.receive_into(space)
            feed.filled(count)


# --- columns ----------------------------------------------------------------------


def _expression(column: MirrorColumn) -> str:
    """Return an expression whose text has the full value of a column."""
    name, form = quoted(column.name), _form(column)
    if form == "labels":
        return f"CAST({name} AS UNSIGNED)"
    if form == "floating":
        # As text, a FLOAT shows six digits, or only those of its type; as a product it
        # is a DOUBLE with all digits, and zero keeps its sign.
        return f"{name} * 1e0"
    return name


def _field(column: MirrorColumn) -> Field:
    requested, form = column.requested, _form(column)
    texts = charset(column.charset) if form == "text" and column.charset else None
    return (
        requested.name,
        requested.kind,
        requested.precision,
        requested.scale,
        form,
        column.mysql_type,
        texts,
    )


def _form(column: MirrorColumn) -> str:
    """Return the form of the column's values in a result; see `select_rows`."""
    found = _BASE.match(column.mysql_type)
    base = found[1].lower() if found else ""
    kind = column.requested.kind
    by_kind = {"float": "floating", "double": "floating", "bits": "bits"}
    if kind in by_kind:
        return by_kind[kind]
    if kind == "binary":
        return "bytes"
    if kind != "text":
        return "plain"
    if base == "json":
        return "json"
    return "labels" if base in ("enum", "set") else "text"


def _array(
    kind: pa.DataType, fetched: tuple[int, int, tuple[Any, Any, Any]]
) -> pa.Array:
    length, nulls, (validity, offsets, values) = fetched
    buffers = [None if validity is None else pa.py_buffer(validity)]
    buffers += [pa.py_buffer(part) for part in (offsets, values) if part is not None]
    return pa.Array.from_buffers(kind, length, buffers, nulls)


class _Pace:
    """Computes pauses that keep to a limit of rows per second."""

    def __init__(self, rows_per_s: int) -> None:
        self._rows_per_s = rows_per_s
        self._next_at = time.monotonic()

    def after(self, rows: int) -> float:
        """Return how many seconds to wait after receiving `rows` rows."""
        if not self._rows_per_s:
            return 0.0
        now = time.monotonic()
        # A slow phase does not allow a burst later.
        self._next_at = max(self._next_at, now - 1.0) + rows / self._rows_per_s
        return self._next_at - now
