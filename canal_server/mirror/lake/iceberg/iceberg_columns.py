"""Columns of an Iceberg table: their ids, and their types in Arrow.

A column of a file is found by its id, which it keeps when it is renamed. Iceberg has no
integers of 8 and 16 bits: these are stored with 32, and the column's comment says how
many the source has. The column that marks deleted rows has another name for readers
than in the mirror and in files, because Iceberg reserves that one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from canal_server.mirror.lake.lake_table import DELETED, UnusableTableError
from canal_server.mirror.settings.table_values import ICEBERG_DELETED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyiceberg.types import IcebergType

FIELD_ID: Final = b"PARQUET:field_id"

_NARROW: Final = {"8-bit integer": pa.int8(), "16-bit integer": pa.int16()}
_COMMENTS: Final = {kind: text for text, kind in _NARROW.items()}
# Distinguishes the column from one of the source with the same name.
_MARK: Final = "whether the row is deleted in the source"
_TYPES: Final[dict[pa.DataType, IcebergType]] = {
    pa.bool_(): BooleanType(),
    pa.int8(): IntegerType(),
    pa.int16(): IntegerType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.date32(): DateType(),
    pa.timestamp("us"): TimestampType(),
    pa.timestamp("us", tz="UTC"): TimestamptzType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
}
_KINDS: Final = {
    kind: arrow for arrow, kind in _TYPES.items() if arrow not in _COMMENTS
}


class Column(NamedTuple):
    """A column of a table, with its id in files."""

    id: int
    name: str
    kind: pa.DataType  # in the mirror
    title: str = ""  # the name for readers, if it differs

    @property
    def shown(self) -> str:
        """The name for readers."""
        return self.title or self.name

    @property
    def stored(self) -> pa.DataType:
        """The type in files."""
        return pa.int32() if self.kind in _COMMENTS else self.kind


def columns_of(schema: Schema) -> list[Column]:
    """Return the columns of a table. UnusableTableError for a type of others."""
    return [_column_of(each) for each in schema.fields]


def planned(columns: Sequence[Column], last_id: int, schema: pa.Schema) -> list[Column]:
    """Return columns for a new schema: those that stay the same keep their ids.

    `last_id` is the greatest id that the table ever used.
    """
    known = {(each.name, each.kind): each for each in columns}
    found = []
    for field in schema:
        column = known.get((field.name, field.type))
        if column is None:
            last_id += 1
            title = ICEBERG_DELETED if field.name == DELETED.name else ""
            column = Column(last_id, field.name, field.type, title)
        found.append(column)
    return found


def schema_of(columns: Iterable[Column], schema_id: int = 0) -> Schema:
    """Return columns as Iceberg describes them."""
    fields = [
        NestedField(
            each.id,
            each.shown,
            _type_of(each.kind),
            required=False,
            doc=_MARK if each.title else _COMMENTS.get(each.kind),
        )
        for each in columns
    ]
    return Schema(*fields, schema_id=schema_id)


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """Return columns as the mirror has them."""
    return pa.schema([(each.name, each.kind) for each in columns])


def file_schema(columns: Iterable[Column]) -> pa.Schema:
    """Return columns as files have them, with their ids."""
    return pa.schema(
        [
            pa.field(each.name, each.stored, metadata={FIELD_ID: str(each.id)})
            for each in columns
        ]
    )


def ids_of(schema: pa.Schema) -> dict[int, str]:
    """Return the names of a file's columns by their ids; those without are left out."""
    return {
        int(field.metadata[FIELD_ID]): field.name
        for field in schema
        if field.metadata and FIELD_ID in field.metadata
    }


def can_become(old: pa.DataType, new: pa.DataType) -> bool:
    """Check whether readers read a column's old files with its new type."""
    if old == new:
        return True
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(old.scale == new.scale and old.precision <= new.precision)
    if pa.types.is_integer(old) and pa.types.is_integer(new):
        return bool(old.bit_width <= new.bit_width)
    return bool(pa.types.is_float32(old) and pa.types.is_float64(new))


def _column_of(field: NestedField) -> Column:
    kind = _kind_of(field)
    # Tables of earlier versions have the mirror's name, and keep it.
    if field.name == ICEBERG_DELETED and field.doc == _MARK:
        return Column(field.field_id, DELETED.name, kind, field.name)
    return Column(field.field_id, field.name, kind)


def _kind_of(field: NestedField) -> pa.DataType:
    kind = field.field_type
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, IntegerType) and field.doc in _NARROW:
        return _NARROW[field.doc]
    if kind not in _KINDS:
        raise UnusableTableError(
            f"column {field.name} has type {kind}, which no mirror writes"
        )
    return _KINDS[kind]


def _type_of(kind: pa.DataType) -> IcebergType:
    if pa.types.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale)
    return _TYPES[kind]
