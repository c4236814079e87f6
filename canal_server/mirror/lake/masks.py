"""Turns rows of the source into rows of the lake: selects, renames, converts, masks.

A masked value never leaves this module; its replacement does not reveal it, except for
what `truncate` keeps. Leaves out which columns have which masks (`selected_tables`).
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from canal_server.arrow.arrow_batches import typed_schema
from canal_server.arrow.arrow_columns import RequestedColumn
from canal_server.errors import DecodeError, TableMetaError
from canal_server.mirror.lake.value_forms import LakePart, converted, parts_of
from canal_server.mirror.settings.selected_tables import OWN_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from canal_server.mirror.settings.table_values import (
        Mask,
        MirrorColumn,
        MirrorTable,
    )

_Rows = TypeVar("_Rows", pa.RecordBatch, pa.Table)

HASH_TYPE: Final = ("char(64)", "ascii")  # MySQL's type of a hash


def apply(rows: _Rows, table: MirrorTable) -> _Rows:
    """Return rows of the lake: columns in the table's order, then extra ones.

    Columns that the mirror adds (`_seq`, …) stay unchanged, after the table's; all
    others are dropped. Raises TableMetaError for a column that is missing or has
    another type.
    """
    names: list[str] = rows.schema.names
    indexes = {name.lower(): index for index, name in reversed([*enumerate(names)])}
    arrays: list[Any] = []
    fields: list[pa.Field] = []
    for column in table.columns:
        index = indexes.get(column.name.lower(), -1)
        if index < 0:
            raise TableMetaError(
                f"table {table.source}: rows lack column {column.name}, which "
                f"the mirror has; they have {', '.join(names)[:300]}"
            )
        array = rows.column(index)
        expected = source_type(column)
        if array.type != expected:
            raise TableMetaError(
                f"table {table.source}: column {column.name} has type {array.type}, "
                f"but {column.mysql_type} requires {expected}"
            )
        if column.mask is None:
            arrays += _converted(array, column, table)
        else:
            arrays.append(masked(array, column.mask))
        for name in column.targets:
            fields.append(pa.field(name, arrays[len(fields)].type))
    known = {column.name.lower() for column in table.columns}
    for index, field in enumerate(rows.schema):
        # A column of the table that is left out may have such a name, too.
        is_source = b"mysql_type" in (field.metadata or {})
        if field.name in OWN_COLUMNS and field.name not in known and not is_source:
            arrays.append(rows.column(index))
            fields.append(field)
    return type(rows).from_arrays(arrays, schema=pa.schema(fields))


def masked(values: Any, mask: Mask | None) -> Any:
    """Apply a mask to an array or a chunked array."""
    return values if mask is None else _KINDS[mask.kind](values, mask)


def source_type(column: MirrorColumn) -> pa.DataType:
    """Return Arrow's type of a column of the source."""
    return _arrow_type(column.requested)


def _converted(values: Any, column: MirrorColumn, table: MirrorTable) -> Iterable[Any]:
    try:
        return converted(values, column.form)
    except DecodeError as error:
        raise TableMetaError(
            f"table {table.source}: column {column.name}: {error}"
        ) from error


def lake_columns(table: MirrorTable) -> list[RequestedColumn]:
    """Return the columns of the lake, with their names there."""
    return [part.requested for column in table.columns for part in lake_parts(column)]


def lake_parts(column: MirrorColumn) -> tuple[LakePart, ...]:
    """Return the lake's columns for a column."""
    if column.mask is not None and column.mask.kind == "hash":
        return (LakePart(column.target, *HASH_TYPE),)
    return parts_of(column)


def lake_schema(table: MirrorTable) -> pa.Schema:
    """Return the schema of the lake's table, without the mirror's columns."""
    return pa.schema(
        [(column.name, _arrow_type(column)) for column in lake_columns(table)]
    )


@lru_cache(maxsize=10_000)
def _arrow_type(column: RequestedColumn) -> pa.DataType:
    unnamed = RequestedColumn("value", column.kind, column.precision, column.scale)
    return typed_schema([unnamed]).field(0).type


def _hash(values: Any, mask: Mask) -> Any:
    """Return SHA-256 of salt and value, in hex.

    Each distinct value is hashed once, as most columns repeat values.
    """
    if isinstance(values, pa.ChunkedArray):
        chunks = [_hash(chunk, mask) for chunk in values.chunks]
        return pa.chunked_array(chunks, type=pa.string())
    encoded = _as_bytes(values).dictionary_encode()
    start = hashlib.sha256(mask.salt.encode())
    hashes = []
    for value in encoded.dictionary.to_pylist():
        digest = start.copy()
        digest.update(value)
        hashes.append(digest.hexdigest())
    return pa.array(hashes, pa.string()).take(encoded.indices)


def _as_bytes(values: pa.Array) -> pa.Array:
    """Return values as the bytes of their texts, independent of their type."""
    kind = values.type
    if pa.types.is_binary(kind):
        return values
    if pa.types.is_timestamp(kind):
        values = values.cast(pa.timestamp("us"))  # in UTC, without a zone
    return values.cast(pa.string()).cast(pa.binary())


def _truncate(values: Any, mask: Mask) -> Any:
    if pa.types.is_binary(values.type):
        return pc.binary_slice(values, 0, mask.length)
    return pc.utf8_slice_codeunits(values, 0, mask.length)


def _null(values: Any, _mask: Mask) -> Any:
    if isinstance(values, pa.ChunkedArray):
        chunks = [pa.nulls(len(chunk), values.type) for chunk in values.chunks]
        return pa.chunked_array(chunks, type=values.type)
    return pa.nulls(len(values), values.type)


_KINDS: Final[dict[str, Callable[[Any, Mask], Any]]] = {
    "hash": _hash,
    "truncate": _truncate,
    "null": _null,
}
