"""The data source: the entry point of `spark.readStream.format("canal")`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from canal_server.errors import ConfigError
from canal_server.spark.options.source_options import read_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from canal_server.spark.batch_reader import CanalBatchReader
    from canal_server.spark.options.source_options import SourceOptions
    from canal_server.spark.stream_reader import CanalStreamReader


class CanalDataSource(DataSource):
    """Changes of MySQL and MariaDB from a canal-server."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "canal"

    def schema(self) -> StructType:
        """Return the schema: of all tables, or of the one in option `table`.

        Spark calls it before it is known whether this is a stream, so only the options
        needed here are checked. The schema of a catalog table stores its options.
        """
        from canal_server.spark.catalog_tables import (  # noqa: PLC0415
            options_of_new,
            with_kept,
        )
        from canal_server.spark.columns.spark_schema import schema_of_all  # noqa: PLC0415  # types

        of_new = options_of_new(self.options)
        options = read_options(self.options if of_new is None else of_new)
        if options.table is None:
            found = schema_of_all(options.payload)
        else:
            found = _schema_of_table(options)
        return found if of_new is None else with_kept(found, of_new)

    def reader(self, schema: StructType) -> CanalBatchReader:
        """Return a reader of the changes between two positions."""
        from canal_server.spark.batch_reader import CanalBatchReader  # noqa: PLC0415
        from canal_server.spark.catalog_tables import parted  # noqa: PLC0415
        from canal_server.spark.columns.spark_schema import check_given  # noqa: PLC0415

        schema, given = parted(schema, self.options)
        options = read_options(given, streaming=False)
        check_given(options, schema)
        return CanalBatchReader(options, schema)

    def streamReader(self, schema: StructType) -> CanalStreamReader:  # noqa: N802
        """Return a reader of a stream."""
        from canal_server.spark.catalog_tables import parted  # noqa: PLC0415
        from canal_server.spark.columns.spark_schema import check_given  # noqa: PLC0415
        from canal_server.spark.stream_reader import CanalStreamReader  # noqa: PLC0415

        schema, given = parted(schema, self.options)
        options = read_options(given, streaming=True)
        check_given(options, schema)
        return CanalStreamReader(options, schema)


def _schema_of_table(options: SourceOptions) -> StructType:
    """Ask the servers for the columns, which must be equal in all destinations.

    Raises ConfigError if the table does not exist, or has unsupported columns.
    """
    found = [(name, _table_of(options, name)) for name in options.destinations]
    first, schema = found[0]
    for name, other in found[1:]:
        if other != schema:
            problem = (
                f"table {options.table} differs between destinations {first} "
                f"({schema.simpleString()[:500]}) and {name} "
                f"({other.simpleString()[:500]}), or the servers are in different "
                "time zones; read them as separate streams"
            )
            raise ConfigError([problem])
    return schema


def _table_of(options: SourceOptions, destination: str) -> StructType:
    """Return the schema of the table in one destination."""
    from canal_server.spark.columns.spark_schema import is_timestamp, typed_schema  # noqa: PLC0415
    from canal_server.spark.options.servers import Channel  # noqa: PLC0415

    name = options.table
    assert name is not None
    channel = Channel(options, destination)
    try:
        table = channel.call(lambda c: c.schema(destination, name.schema, name.table))
    finally:
        channel.close()
    if not table.found:
        problem = (
            f"option table: destination {destination} has no table {name}; "
            "use the spelling of MySQL, as upper and lower case may matter"
        )
        raise ConfigError([problem])
    zone = options.time_zone or table.zone
    if not zone and any(is_timestamp(column.mysql_type) for column in table.columns):
        problem = (
            f"table {name} has TIMESTAMP columns, but the server does not report their "
            "time zone; set option timeZone to the zone of the server, such as "
            "Europe/Berlin"
        )
        raise ConfigError([problem])
    return typed_schema(options, table.columns, zone)
