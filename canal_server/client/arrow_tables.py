"""The rows of messages as columns of Arrow, by table; the engine that feeds Spark.

One pass over a message fills the columns of all its tables. What a table's columns are
is learned from its rows, which carry names and types, and learned again when they
change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from canal_server.arrow.arrow_batches import typed_batches
from canal_server.arrow.arrow_columns import RequestedColumn, exact_column
from canal_server.arrow.table_router import TableRouter
from canal_server.client.batch_bounds import last_time_ms
from canal_server.errors import DecodeError, ProtocolError
from canal_server.model.columns_known import ColumnMeta
from canal_server.protocol.entry_messages import decode_entry

try:
    import pyarrow as pa
except ImportError as error:  # pragma: no cover  # the extra is not installed
    raise ImportError(
        "Arrow needs the package pyarrow: pip install 'canal-server[arrow]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Literal, TypeAlias

    from canal_server.arrow.arrow_batches import Batches
    from canal_server.arrow.table_router import Held
    from canal_server.protocol.entry_messages import Column

    Updates: TypeAlias = Literal["postimage", "both", "envelope"]

_ENTRY_TAG: Final = 0x12
_DIGIT: Final = 0x7F  # of a varint; a byte above it is followed by another
_SQL_BLOB: Final = 2004  # java.sql.Types; of bytes, also in a CHAR or TEXT
_NO_LIMIT: Final = 1 << 62
_TABLES_MAX: Final = 1000  # whose columns are remembered


class ArrowBatch(NamedTuple):
    """Rows of one table, in the order of the binlog."""

    schema: str
    table: str
    batch: pa.RecordBatch


@dataclass(slots=True)
class _Table:
    """The columns of a table, being filled."""

    batches: Batches
    columns: dict[str, str]  # types by name
    casts: dict[str, pa.DataType]


class ArrowReader:
    """Turns bodies of Messages into record batches; for one thread at a time."""

    def __init__(self, *, zone: str = "UTC", updates: Updates = "postimage") -> None:
        """Set the zone of TIMESTAMP texts, and how an update is shown.

        Raises ConfigError for an unknown zone, ValueError for other updates.
        """
        if updates not in {"postimage", "both", "envelope"}:
            raise ValueError(
                f'updates = {updates!r}: expected "postimage", "both" or "envelope"'
            )
        self._zone = zone
        self._updates: Updates = updates
        self._tables: dict[tuple[str, str], _Table] = {}
        self._router = TableRouter(bytes_max=_NO_LIMIT)

    def read(self, body: bytes | memoryview) -> list[ArrowBatch]:
        """Return the rows of a body, a batch for each table and form of its columns.

        Raises ProtocolError for malformed data, and for a value that its column's type
        does not allow.
        """
        found: list[ArrowBatch] = []
        try:
            self._fill(memoryview(body), found)
            self._end_transaction(body)
            for name in self._tables:
                self._take(name, found)
        except BaseException as error:
            # Rows that were filled in must not be mistaken for another message's.
            self._forget_all()
            if isinstance(error, (DecodeError, ValueError)):  # also those of pyarrow
                raise ProtocolError(str(error)) from error
            raise
        if len(self._tables) > _TABLES_MAX:
            self._forget_all()
        return found

    def reset(self) -> None:
        """Forget how many rows the last event had, as it may be read again."""
        self._forget_all()

    def _fill(self, rest: memoryview, found: list[ArrowBatch]) -> None:
        router = self._router
        while rest:
            rest = rest[router.feed(rest) :]
            for refused in router.refused():
                raise DecodeError(
                    f"{refused.schema}.{refused.table}: {refused.problem}",
                    file=refused.journal,
                    position=refused.position,
                )
            router.met()
            router.committed_statements()
            held = router.held()
            if held is not None:
                self._learn(held, rest, found)

    def _learn(self, held: Held, rest: memoryview, found: list[ArrowBatch]) -> None:
        """Learn the columns of a table from the entry where reading paused."""
        name = held.schema, held.table
        columns = _columns_of(rest)
        known = self._tables.get(name)
        if known is not None and _is_part(columns, known.columns):
            # Not all columns are logged: the others are NULL.
            known.batches.typed.compare(None)
            known.batches.typed.set_missing(known.columns)
            return
        if known is not None:
            self._end_transaction(rest)
            self._take(name, found)
        table = self._tables[name] = self._table(name, columns)
        self._router.set_table(*name, table.batches.typed)

    def _table(self, name: tuple[str, str], columns: Sequence[Column]) -> _Table:
        requested = [_requested(column) for column in columns]
        batches = typed_batches(
            *name,
            requested,
            updates=self._updates,
            zone=self._zone,
            rows_max=_NO_LIMIT,
            bytes_max=_NO_LIMIT,
            versions=False,  # of use for Spark only
        )
        types = [(column.mysql_type, column.is_key) for column in columns]
        batches.typed.compare(types)
        casts = {
            each.name: kind for each in requested if (kind := _cast(each)) is not None
        }
        return _Table(batches, {c.name: c.mysql_type for c in columns}, casts)

    def _take(self, name: tuple[str, str], found: list[ArrowBatch]) -> None:
        table = self._tables[name]
        batch = table.batches.rest()
        if batch is None:
            return
        if table.casts:
            names = batch.schema.names
            columns = zip(names, batch.columns, strict=True)
            batch = pa.RecordBatch.from_arrays(
                [_converted(*column, table.casts) for column in columns], names=names
            )
        found.append(ArrowBatch(*name, batch))

    def _end_transaction(self, body: bytes | memoryview) -> None:
        """Give rows of a transaction that continues the time of the last entry."""
        self._router.finish(0, last_time_ms(body))

    def _forget_all(self) -> None:
        self._tables.clear()
        self._router = TableRouter(bytes_max=_NO_LIMIT)


def tables_of(batches: Iterable[ArrowBatch]) -> dict[tuple[str, str], pa.Table]:
    """Return a table for each schema and table of the batches.

    Where its columns changed, the table has the columns of all forms; types that have
    changed become the wider one, else text.
    """
    parts: dict[tuple[str, str], list[pa.RecordBatch]] = {}
    for each in batches:
        parts.setdefault((each.schema, each.table), []).append(each.batch)
    return {name: _joined(found) for name, found in parts.items()}


def _joined(batches: list[pa.RecordBatch]) -> pa.Table:
    tables = [pa.Table.from_batches([each]) for each in batches]
    if all(each.schema.equals(tables[0].schema) for each in tables):
        return pa.concat_tables(tables)
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return pa.concat_tables(
            [_with_texts(each, tables) for each in tables], promote_options="permissive"
        )


def _with_texts(table: pa.Table, others: Sequence[pa.Table]) -> pa.Table:
    """Return a table in which columns of several types are texts."""
    for number, field in enumerate(table.schema):
        kinds = {
            other.schema.field(field.name).type
            for other in others
            if field.name in other.schema.names
        }
        if len(kinds) > 1 and not pa.types.is_struct(field.type):
            text = table.column(number).cast(pa.string(), safe=False)
            table = table.set_column(number, field.name, text)
    return table


def _columns_of(rest: memoryview) -> Sequence[Column]:
    """Return the columns of the first row of the entry at the front of a body."""
    if not rest or rest[0] != _ENTRY_TAG:
        raise DecodeError("malformed entry in a batch")
    at, length, shift = 1, 0, 0
    while rest[at] > _DIGIT:
        length |= (rest[at] & _DIGIT) << shift
        at, shift = at + 1, shift + 7
    length |= rest[at] << shift
    at += 1
    rows = decode_entry(bytes(rest[at : at + length])).row_change().row_datas
    if not rows:
        raise DecodeError("malformed entry in a batch")
    return rows[0].after_columns or rows[0].before_columns


def _is_part(columns: Sequence[Column], known: dict[str, str]) -> bool:
    """Return whether all columns are known, with these types, and some are absent."""
    return len(columns) < len(known) and all(
        known.get(column.name) == column.mysql_type for column in columns
    )


def _requested(column: Column) -> RequestedColumn:
    charset = "binary" if column.sql_type == _SQL_BLOB else None
    try:
        return exact_column(ColumnMeta(column.name, column.mysql_type, charset))
    except DecodeError:
        return RequestedColumn(column.name, "text")  # a type of a later version


def _cast(column: RequestedColumn) -> pa.DataType | None:
    """Return the type of Arrow for what the engine makes for Spark; None: the same."""
    if column.kind == "wide decimal":
        return pa.decimal256(column.precision, column.scale)
    return None


def _converted(name: str, array: pa.Array, casts: dict[str, pa.DataType]) -> pa.Array:
    if pa.types.is_struct(array.type):  # an image of an envelope
        fields = [field.name for field in array.type]
        parts = [_converted(each, array.field(each), casts) for each in fields]
        return pa.StructArray.from_arrays(
            parts, names=fields, mask=array.is_null() if array.null_count else None
        )
    kind = casts.get(name)
    return array if kind is None else array.cast(kind)
