"""The schemas that Spark sees: the generic one, and that of a typed stream.

A typed schema is created once, when a stream is loaded, from the server's definition of
the table. It contains the MySQL type of each column as metadata, so that executors need
not ask again. Values are left to `arrow.arrow_batches`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from canal_server.arrow.arrow_columns import requested_column
from canal_server.errors import ConfigError, TableMetaError
from canal_server.model.columns_known import ColumnMeta
from canal_server.spark.options.source_options import PACKED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from canal_server.arrow.arrow_columns import RequestedColumn
    from canal_server.client.range_client import RangeColumn
    from canal_server.spark.options.source_options import SourceOptions

MYSQL_TYPE: Final = "mysql_type"  # keys of field metadata
CHARSET: Final = "charset"
KEY: Final = "key"
ZONE: Final = "zone"

_DECIMAL: Final = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_TEXTS: Final = MapType(StringType(), StringType())
_TYPES: Final[dict[str, DataType]] = {  # by their names in Spark DDL
    "TINYINT": ByteType(),
    "SMALLINT": ShortType(),
    "INT": IntegerType(),
    "BIGINT": LongType(),
    "FLOAT": FloatType(),
    "DOUBLE": DoubleType(),
    "DATE": DateType(),
    "TIMESTAMP_NTZ": TimestampNTZType(),
    "TIMESTAMP": TimestampType(),
    "STRING": StringType(),
    "BINARY": BinaryType(),
}

# Columns of each row, before or after those of the table.
ORDER_FIELDS: Final = (
    StructField("_commit_version", LongType()),
    StructField("_commit_timestamp", TimestampType()),
    StructField("_seq", LongType()),
    StructField("_row", IntegerType()),
)
CHANGE_TYPE: Final = StructField("_change_type", StringType())
ENVELOPE_TYPE: Final = StructField("op", StringType())
POSITION: Final = StructField("_position", StringType())


class TypedColumn(NamedTuple):
    """One column of a typed stream."""

    name: str
    mysql_type: str
    charset: str
    is_key: bool


def generic_schema(payload: str) -> StructType:
    """Return the schema for all tables: row images as maps, or as JSON texts."""
    image = StringType() if payload == "json" else _TEXTS
    return StructType(
        [
            StructField("destination", StringType()),
            StructField("db", StringType()),
            StructField("table", StringType()),
            StructField("op", StringType()),
            StructField("pk", _TEXTS),
            StructField("before", image),
            StructField("after", image),
            StructField("updated", ArrayType(StringType())),
            StructField("mysql_types", _TEXTS),
            StructField("is_ddl", BooleanType()),
            StructField("sql", StringType()),
            *ORDER_FIELDS,
            StructField("journal", StringType()),
            StructField("position", LongType()),
            StructField("gtid", StringType()),
            StructField("server_id", LongType()),
            StructField("xid", StringType()),
        ]
    )


def packed_schema() -> StructType:
    """Return the schema of packed rows, each with an Arrow stream."""
    return StructType(
        [
            StructField("destination", StringType()),
            StructField("db", StringType()),
            StructField("table", StringType()),
            StructField("kind", StringType()),
            StructField("rows", IntegerType()),
            StructField("arrow", BinaryType()),
            StructField("sql", StringType()),
            StructField("event_type", StringType()),
            StructField("is_ddl", BooleanType()),
            StructField("columns", StringType()),
            *ORDER_FIELDS,
            StructField("journal", StringType()),
            StructField("position", LongType()),
            StructField("start", StringType()),
            StructField("end", StringType()),
        ]
    )


def schema_of_all(payload: str) -> StructType:
    """Return the schema of a stream of all tables."""
    return packed_schema() if payload == PACKED else generic_schema(payload)


def typed_schema(
    options: SourceOptions, columns: Iterable[RangeColumn], zone: str
) -> StructType:
    """Return the schema of the rows of one table.

    Raises ConfigError for an option that does not match the table, TableMetaError for a
    table with a column name that this source adds.
    """
    assert options.table is not None
    requested = _selected(options, tuple(columns))
    fields = [
        StructField(
            column.name,
            spark_type(column.mysql_type, column.charset),
            metadata={
                MYSQL_TYPE: column.mysql_type,
                CHARSET: column.charset,
                KEY: column.key,
                ZONE: zone if is_timestamp(column.mysql_type) else "",
            },
        )
        for column in requested
    ]
    kind = CHANGE_TYPE
    if options.updates == "envelope":
        images = StructType(fields)
        fields = [StructField("before", images), StructField("after", images)]
        kind = ENVELOPE_TYPE
    added = [kind, *ORDER_FIELDS, POSITION]
    ours = {field.name for field in added}
    for field in fields:
        if field.name.lower() in ours:
            raise TableMetaError(
                f"table {options.table} has a column {field.name}, a name that the "
                "source adds; exclude it with option columns, or set updates = "
                "envelope"
            )
    return StructType([*fields, *added])


def check_given(options: SourceOptions, schema: StructType) -> None:
    """Raise ConfigError unless a schema passed by Spark was created by this source."""
    if options.table is None:
        if schema != schema_of_all(options.payload):
            raise _not_ours()
    else:
        typed_columns(schema)


def typed_columns(schema: StructType) -> tuple[TypedColumn, ...]:
    """Return the table columns in a typed schema.

    Raises ConfigError if the schema was not created by `typed_schema`.
    """
    added = len(ORDER_FIELDS) + 2
    fields: Sequence[StructField] = schema.fields[:-added]
    if not fields:
        raise _not_ours()
    if isinstance(fields[0].dataType, StructType):
        fields = fields[0].dataType.fields
    try:
        return tuple(
            TypedColumn(
                field.name,
                field.metadata[MYSQL_TYPE],
                field.metadata[CHARSET],
                bool(field.metadata[KEY]),
            )
            for field in fields
        )
    except KeyError:
        raise _not_ours() from None


def _not_ours() -> ConfigError:
    problem = (
        "the schema does not come from this source; remove .schema(…), select columns "
        "with option columns, and cast after load()"
    )
    return ConfigError([problem])


def zone_of(schema: StructType) -> str:
    """Return the zone of TIMESTAMP columns in entries; empty if unknown."""
    fields = list(schema.fields)
    if fields and isinstance(fields[0].dataType, StructType):
        fields = fields[0].dataType.fields
    zones = (field.metadata.get(ZONE, "") for field in fields)
    return next(filter(None, zones), "")


def requested_columns(columns: Iterable[TypedColumn]) -> list[RequestedColumn]:
    """Return the output columns for the executors."""
    return [
        _requested(column.name, column.mysql_type, column.charset) for column in columns
    ]


def spark_type(mysql_type: str, charset: str = "") -> DataType:
    """Return the Spark type of a column, by the text of its MySQL type.

    Raises DecodeError for an unknown type.
    """
    text = _requested("", mysql_type, charset).spark_type
    found = _DECIMAL.fullmatch(text)
    return DecimalType(int(found[1]), int(found[2])) if found else _TYPES[text]


def is_timestamp(mysql_type: str) -> bool:
    """Return whether values of this type depend on a time zone."""
    return mysql_type.strip().lower().startswith("timestamp")


def _requested(name: str, mysql_type: str, charset: str) -> RequestedColumn:
    return requested_column(ColumnMeta(name, mysql_type, charset or None))


def _selected(
    options: SourceOptions, columns: tuple[RangeColumn, ...]
) -> tuple[RangeColumn, ...]:
    """Return the columns in option `columns`, or all."""
    if not options.columns:
        return columns
    by_name = {column.name.lower(): column for column in columns}
    unknown = [name for name in options.columns if name.lower() not in by_name]
    if unknown:
        raise ConfigError(
            [
                f"option columns: table {options.table} has no column {name}; it has "
                f"{', '.join(column.name for column in columns)[:1000]}"
                for name in unknown
            ]
        )
    return tuple(by_name[name.lower()] for name in options.columns)
