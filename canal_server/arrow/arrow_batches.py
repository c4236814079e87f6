"""Arrow record batches from the memory that the compiled part has filled.

There are two kinds: `generic_batches` for the rows of any table, `typed_batches` for
those of one table in its own types. No data is copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from canal_server.arrow.generic_rows import GenericColumns
from canal_server.arrow.typed_rows import TypedColumns
from canal_server.arrow.zones import zone_steps
from canal_server.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from canal_server.arrow.arrow_columns import RequestedColumn

    Fetched = tuple[int, int, tuple[Any, Any, Any]]  # a column as returned by `take`


ROWS_MAX = 65_536  # of a batch, by default
BYTES_MAX = 32 << 20
ALL = (0, 1)  # rows: part 0 of 1

_TEXT = pa.string()
_TEXTS = pa.map_(pa.string(), pa.string())
_TIME = pa.timestamp("us", tz="UTC")
_VERSION = "_commit_version"
_ORDER = [
    (_VERSION, pa.int64()),
    ("_commit_timestamp", _TIME),
    ("_seq", pa.int64()),
    ("_row", pa.int32()),
]
_TYPES = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "bits": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "wide decimal": _TEXT,
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "datetime": pa.timestamp("us"),
    "timestamp": _TIME,
    "text": _TEXT,
    "binary": pa.binary(),
    "floats": pa.list_(pa.field("element", pa.float32())),
}


class Statement(NamedTuple):
    """A statement among the changes: DDL, or a change logged as a statement."""

    journal: str
    position: int
    end: int  # the offset after it
    schema: str
    table: str
    event_type: int  # EventType
    is_ddl: bool
    sql: str
    default_schema: str  # of unqualified names in it


class Batches:
    """Converts entries to record batches of one schema; for one thread."""

    def __init__(
        self,
        columns: GenericColumns | TypedColumns,
        names: Sequence[str],
        schema: pa.Schema,
        on_statement: Callable[[Statement], None] | None = None,
    ) -> None:
        """Store the columns, and their names in the order of `take`.

        Those that the schema lacks are left out; they are not nested.
        """
        self.schema = schema
        self._columns = columns
        self._on_statement = on_statement
        # For each column of `take`: its number and type; None: it is left out.
        numbers = {name: number for number, name in enumerate(schema.names)}
        self._targets = [
            (numbers[name], schema.field(name).type) if name in numbers else None
            for name in names
        ]

    @property
    def pending(self) -> int:
        """The number of rows that wait for the end of their transaction."""
        return self._columns.pending

    @property
    def typed(self) -> TypedColumns:
        """The columns of one table, for callers that fill several of them."""
        assert isinstance(self._columns, TypedColumns)
        return self._columns

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[pa.RecordBatch]:
        """Process whole entries (a body of Messages); yields each full batch.

        If typed, each statement is passed to `on_statement` before the entries after it
        are read. Raises DecodeError, and whatever `on_statement` raises.
        """
        rest = memoryview(data)
        while rest:
            rest = rest[self._columns.feed(rest) :]
            for fields in self._columns.take_statements():
                if self._on_statement is not None:
                    self._on_statement(Statement(*fields))
            if self._columns.full:
                yield self._batch()

    def expect(self, version: int, time_ms: int, xid: str = "") -> None:
        """Set the commit of the current transaction, or else of the next one.

        For a part of a transaction: otherwise its rows are held until its end.
        """
        self._columns.expect(version, time_ms, xid)

    def finish(self, version: int, time_ms: int, xid: str = "") -> None:
        """Set the commit of the rows whose transaction did not end."""
        self._columns.finish(version, time_ms, xid)

    def set_missing(self, names: Collection[str]) -> None:
        """If typed, set which columns the table lacks from here on."""
        assert isinstance(self._columns, TypedColumns)
        self._columns.set_missing(names)

    def rest(self) -> pa.RecordBatch | None:
        """Return the remaining rows after all entries; None if there are none.

        Raises ValueError if the commit of some is unknown.
        """
        return self._batch() if self._columns.rows else None

    def _batch(self) -> pa.RecordBatch:
        fetched = iter(self._columns.take())
        arrays: list[Any] = [None] * len(self.schema)
        for target in self._targets:
            if target is None:
                next(fetched)
            else:
                number, kind = target
                arrays[number] = _array(kind, fetched)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def generic_schema(*, json: bool = False) -> pa.Schema:
    """Return the schema for the rows of any table."""
    image = _TEXT if json else _TEXTS
    return pa.schema(
        [
            ("destination", _TEXT),
            ("db", _TEXT),
            ("table", _TEXT),
            ("op", _TEXT),
            ("pk", _TEXTS),
            ("before", image),
            ("after", image),
            ("updated", pa.list_(pa.field("element", _TEXT))),
            ("mysql_types", _TEXTS),
            ("is_ddl", pa.bool_()),
            ("sql", _TEXT),
            *_ORDER,
            ("journal", _TEXT),
            ("position", pa.int64()),
            ("gtid", _TEXT),
            ("server_id", pa.int64()),
            ("xid", _TEXT),
        ]
    )


_GENERIC_NAMES = (
    "destination", "db", "table", "op", "pk", "before", "after", "updated",
    "mysql_types", "is_ddl", "sql", "journal", "position", "gtid", "server_id", "xid",
    *(name for name, _ in _ORDER),
)  # fmt: skip


def generic_batches(
    destination: str,
    *,
    payload: str = "map",
    epoch: int = 0,
    part: tuple[int, int] = ALL,
    rows_max: int = ROWS_MAX,
    bytes_max: int = BYTES_MAX,
) -> Batches:
    """Return batches of the rows of any table; `payload` is map or json.

    `part`: number and count of the tasks; rows are selected by the hash of their keys.
    """
    json = {"map": False, "json": True}[payload]
    columns = GenericColumns(
        destination, json=json, epoch=epoch, rows_max=rows_max, bytes_max=bytes_max
    )
    columns.take_part(*part)
    return Batches(columns, _GENERIC_NAMES, generic_schema(json=json))


def typed_schema(
    columns: Sequence[RequestedColumn],
    *,
    updates: str = "postimage",
    versions: bool = True,
) -> pa.Schema:
    """Return the schema for the rows of one table; `versions`: with those of commits.

    Raises ConfigError for a column with the name of an added one.
    """
    fields = [pa.field(column.name, _type_of(column)) for column in columns]
    if updates == "envelope":
        struct = pa.struct(fields)
        fields = [pa.field("before", struct), pa.field("after", struct)]
    kind = "op" if updates == "envelope" else "_change_type"
    order = [each for each in _ORDER if versions or each[0] != _VERSION]
    metadata = [(kind, _TEXT), *order, ("_position", _TEXT)]
    names = {name for name, _ in metadata}
    for field in fields:
        if field.name.lower() in names:
            problem = (
                f"column {field.name} has the name of a column that the source adds: "
                "exclude it with option columns, or set updates = envelope"
            )
            raise ConfigError([problem])
    return pa.schema([*fields, *metadata])


def typed_batches(
    schema: str,
    table: str,
    columns: Sequence[RequestedColumn],
    *,
    updates: str = "postimage",
    split_keys: bool = False,
    zero_dates: str = "null",
    zone: str = "UTC",
    missing: Collection[str] = (),
    on_statement: Callable[[Statement], None] | None = None,
    epoch: int = 0,
    part: tuple[int, int] = ALL,
    rows_max: int = ROWS_MAX,
    bytes_max: int = BYTES_MAX,
    versions: bool = True,
) -> Batches:
    """Return batches of the rows of one table.

    `updates`: postimage, both or envelope. `split_keys`: an update of the primary key
    becomes a delete and an insert. `zero_dates`: null or error. `zone`: the zone of
    TIMESTAMP in entries. `missing`: columns that the table does not have. `part`: as in
    `generic_batches`. `versions`: with a column of the versions of commits.
    """
    arrow_schema = typed_schema(columns, updates=updates, versions=versions)
    compiled = TypedColumns(
        schema,
        table,
        [column.as_field() for column in columns],
        updates=updates,
        split_keys=split_keys,
        zero_is_null={"null": True, "error": False}[zero_dates],
        zone=zone_steps(zone),
        missing=missing,
        epoch=epoch,
        rows_max=rows_max,
        bytes_max=bytes_max,
    )
    compiled.take_part(*part)
    images = ["before", "after"]
    if updates != "envelope":
        images = [column.name for column in columns]
    kind = arrow_schema.names[len(images)]
    names = [*images, kind, "_position", *(name for name, _ in _ORDER)]
    return Batches(compiled, names, arrow_schema, on_statement)


def _type_of(column: RequestedColumn) -> pa.DataType:
    if column.kind == "decimal":
        return pa.decimal128(column.precision, column.scale)
    return _TYPES[column.kind]


def _array(kind: pa.DataType, fetched: Iterator[Fetched]) -> pa.Array:
    """Return an array of the next column, including its child columns."""
    return _nested(kind, fetched) if kind.num_fields else _flat(kind, next(fetched))


def _flat(kind: pa.DataType, fetched: Fetched) -> pa.Array:
    length, nulls, (validity, offsets, values) = fetched
    buffers = [_buffer(validity)]
    if offsets is not None:
        buffers.append(pa.py_buffer(offsets))
    if values is not None:
        buffers.append(pa.py_buffer(values))
    return pa.Array.from_buffers(kind, length, buffers, nulls)


def _nested(kind: pa.DataType, fetched: Iterator[Fetched]) -> pa.Array:
    length, nulls, (validity, offsets, _) = next(fetched)
    buffers = [_buffer(validity)]
    if pa.types.is_map(kind):
        buffers.append(_buffer(offsets))
        children = [_entries(kind, fetched)]
    elif pa.types.is_list(kind):
        buffers.append(_buffer(offsets))
        children = [_array(kind.value_type, fetched)]
    else:
        children = [_array(field.type, fetched) for field in kind]
    return pa.Array.from_buffers(kind, length, buffers, nulls, 0, children)


def _entries(kind: pa.MapType, fetched: Iterator[Fetched]) -> pa.Array:
    """Return the array of the keys and items of a map."""
    keys = _array(kind.key_type, fetched)
    items = _array(kind.item_type, fetched)
    fields = pa.struct([kind.key_field, kind.item_field])
    return pa.Array.from_buffers(fields, len(keys), [None], 0, 0, [keys, items])


def _buffer(memory: Any) -> pa.Buffer | None:
    return None if memory is None else pa.py_buffer(memory)
