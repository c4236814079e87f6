"""The data source: `spark.readStream.format("canal")` begins here."""

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
        """Return the schema: of all tables, or of the one that option `table` names.

        Called before anybody knows whether this is a stream, so only what is needed
        here is checked here. That of a table of the catalog keeps its options.
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
        """Return a reader of what lies between two places."""
        from canal_server.spark.batch_reader import CanalBatchReader  # noqa: PLC0415
        from canal_server.spark.catalog_tables import parted  # noqa: PLC0415
        from canal_server.spark.columns.spark_schema import check_given  # noqa: PLC0415

        schema, given = parted(schema, self.options)
        options = read_options(given, streaming=False)
        check_given(options, schema)
        return CanalBatchReader(options, schema)

    def streamReader(self, schema: StructType) -> CanalStreamReader:  # noqa: N802
        """Return a reader that goes on for ever."""
        from canal_server.spark.catalog_tables import parted  # noqa: PLC0415
        from canal_server.spark.columns.spark_schema import check_given  # noqa: PLC0415
        from canal_server.spark.stream_reader import CanalStreamReader  # noqa: PLC0415

        schema, given = parted(schema, self.options)
        options = read_options(given, streaming=True)
        check_given(options, schema)
        return CanalStreamReader(options, schema)


def _schema_of_table(options: SourceOptions) -> StructType:
    """Ask the servers for the columns, which all destinations must have alike.

    Raises ConfigError when there is no such table, or one that does not fit.
    """
    found = [(name, _table_of(options, name)) for name in options.destinations]
    first, schema = found[0]
    for name, other in found[1:]:
        if other != schema:
            problem = (
                f"table {options.table} is not the same in destinations {first} "
                f"({schema.simpleString()[:500]}) and {name} "
                f"({other.simpleString()[:500]}), or the servers are in different "
                "zones; read them as streams of their own"
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
            "write it as MySQL does, upper and lower case may matter"
        )
        raise ConfigError([problem])
    zone = options.time_zone or table.zone
    if not zone and any(is_timestamp(column.mysql_type) for column in table.columns):
        problem = (
            f"table {name} has TIMESTAMP columns, and the server does not tell in "
            "which zone it writes them; set option timeZone to the server's zone, "
            "Europe/Berlin for instance"
        )
        raise ConfigError([problem])
    return typed_schema(options, table.columns, zone)
