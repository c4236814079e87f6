"""Statements that make tables of the lake known to engines of SQL, in their dialects.

Leaves out which tables there are (`lake_statements`), and running the statements.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

_PLAIN: Final = re.compile(r"[A-Za-z0-9_]+")
_S3: Final = "s3://"
# DuckDB's secrets for a store, by the scheme of its locations.
_SECRETS: Final = {
    _S3: "s3, PROVIDER credential_chain",
    "gs://": "gcs, KEY_ID '…', SECRET '…'",
    "abfss://": "azure, CONNECTION_STRING '…'",
}


@dataclass(frozen=True, slots=True)
class LakeEntry:
    """A table of the lake, and the names that an engine is to use for it.

    `catalog_table` is its name in the catalog of Iceberg tables; empty: there is none.
    `names` are those of the columns for readers, in the same order.
    `endpoint` is the URL of the object store; empty: that of Amazon.
    """

    mirror: str
    source: str  # schema.table
    schema: str
    name: str
    form: str  # delta, iceberg, parquet or json
    location: str  # an absolute path, or a URL
    columns: pa.Schema
    names: tuple[str, ...]
    catalog_table: tuple[str, ...] = ()
    endpoint: str = ""


class CannotReadError(Exception):
    """An engine has no statement for a table; the text says what to do."""


class Dialect:
    """The statements of an engine. Subclasses say what differs."""

    title = ""  # the engine's name
    quote = '"'
    has_escapes = False  # backslashes in texts
    only_plain_names = False  # letters and digits of ASCII, and underscores
    catalog = ""  # of tables and views, unless another one is given

    def __init__(self, catalog: str = "") -> None:
        """Set the engine's name of the catalog."""
        self._given = catalog
        self._catalog = catalog or self.catalog

    def identifier(self, name: str) -> str:
        """Return a name in quotes."""
        return f"{self.quote}{name.replace(self.quote, self.quote * 2)}{self.quote}"

    def text(self, value: str) -> str:
        """Return a literal."""
        if self.has_escapes:
            value = value.replace("\\", "\\\\").replace("'", "\\'")
        else:
            value = value.replace("'", "''")
        return f"'{value}'"

    def allowed(self, name: str) -> str:
        """Return a name without the characters that the engine refuses."""
        if not self.only_plain_names or _PLAIN.fullmatch(name):
            return name
        return re.sub(r"[^A-Za-z0-9_]", "_", name)

    def called(self, *parts: str) -> str:
        """Return the name of a schema, table or view in statements."""
        names = [self._catalog, *parts] if self._catalog else list(parts)
        return ".".join(map(self.identifier, names))

    def preparation(self, entries: list[LakeEntry]) -> list[str]:  # noqa: ARG002  # of some engines
        """Return the statements that are needed once before the others."""
        return []

    def create_schema(self, schema: str) -> str:
        """Return the statement for a schema of the engine."""
        return f"CREATE SCHEMA IF NOT EXISTS {self.called(schema)};"

    def create_table(self, entry: LakeEntry) -> str:
        """Return the statement for a table; empty: it is in the engine's catalog.

        Raises CannotReadError.
        """
        raise NotImplementedError

    def name_of(self, entry: LakeEntry) -> str:
        """Return how other statements name a table. Raises CannotReadError."""
        if not entry.catalog_table:
            return self.called(entry.schema, entry.name)
        if not self._given:
            raise CannotReadError(
                f"is in the Iceberg catalog as {'.'.join(entry.catalog_table)}: "
                f"--catalog says by which name {self.title} has that catalog"
            )
        return ".".join(map(self.identifier, (self._given, *entry.catalog_table)))

    def create_view(self, schema: str, name: str, query: str) -> str:
        """Return the statement for a view."""
        return f"CREATE OR REPLACE VIEW {self.called(schema, name)} AS\n{query};"


class DuckDb(Dialect):
    """DuckDB: views of its functions that read tables."""

    title = "DuckDB"

    def called(self, *parts: str) -> str:
        """Return a name in the current database."""
        return ".".join(map(self.identifier, parts))

    def preparation(self, entries: list[LakeEntry]) -> list[str]:
        """Load extensions; the user has to provide the credentials of a store."""
        found = {entry.form for entry in entries if not entry.catalog_table}
        lines = [
            f"INSTALL {name};\nLOAD {name};"
            for name in ("delta", "iceberg")
            if name in found
        ]
        schemes = {
            scheme
            for entry in entries
            for scheme in _SECRETS
            if entry.location.startswith(scheme)
        }
        lines += [
            f"-- before: CREATE SECRET (TYPE {_SECRETS[scheme]});"
            for scheme in sorted(schemes)
        ]
        return lines

    def create_table(self, entry: LakeEntry) -> str:
        """Return a view of a table's folder."""
        if entry.catalog_table:
            return ""
        read = {
            "delta": "delta_scan({})",
            "iceberg": "iceberg_scan({})",
            "parquet": "read_parquet({}, union_by_name = true)",
            "json": "read_json({}, union_by_name = true, sample_size = -1)",
        }[entry.form].format(self.text(_files(entry)))
        query = f"SELECT * FROM {read}"  # noqa: S608  # it is in quotes
        return self.create_view(entry.schema, entry.name, query).replace("\n", " ")


class Spark(Dialect):
    """Spark with its connectors of Delta."""

    title = "Spark"
    quote = "`"
    has_escapes = True
    only_plain_names = True

    def called(self, *parts: str) -> str:
        """Return a name in Spark's own catalog."""
        return ".".join(map(self.identifier, parts))

    def create_table(self, entry: LakeEntry) -> str:
        """Return a table at a location, or a view of a log."""
        if entry.catalog_table:
            return ""
        location = _hadoop(entry.location)
        if entry.form == "iceberg":
            raise CannotReadError(
                "Spark needs a catalog (lake.catalog) for statements on an Iceberg "
                "table; without one, use spark.read.format('iceberg').load("
                f"{self.text(location)})"
            )
        if entry.form == "delta":
            return (
                f"CREATE TABLE IF NOT EXISTS {self.called(entry.schema, entry.name)} "
                f"USING delta LOCATION {self.text(location)};"
            )
        query = f"SELECT * FROM {entry.form}.{self.identifier(location)}"  # noqa: S608  # it is in quotes
        return self.create_view(entry.schema, entry.name, query).replace("\n", " ")


class Trino(Dialect):
    """Trino with its Delta Lake connector, and a metastore."""

    title = "Trino"
    only_plain_names = True
    catalog = "delta"

    def create_table(self, entry: LakeEntry) -> str:
        """Return the call that registers a table at a location."""
        if entry.catalog_table:
            return ""
        if entry.form == "iceberg":
            raise CannotReadError(
                "Trino reads Iceberg tables only through a catalog: set lake.catalog"
            )
        if entry.form != "delta":
            raise CannotReadError("Trino needs a Hive table, with columns, for a log")
        location = entry.location
        if "://" not in location:
            location = f"local://{location}"
        return (
            f"CALL {self.identifier(self._catalog)}.system.register_table("
            f"schema_name => {self.text(entry.schema)}, "
            f"table_name => {self.text(entry.name)}, "
            f"table_location => {self.text(location)});"
        )


class ClickHouse(Dialect):
    """ClickHouse: its table engines that read Delta and Iceberg."""

    title = "ClickHouse"
    quote = "`"
    has_escapes = True

    def identifier(self, name: str) -> str:
        """Return a name in quotes, which backslashes escape."""
        return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"

    def called(self, *parts: str) -> str:
        """Return a name of a database of the server."""
        return ".".join(map(self.identifier, parts))

    def create_schema(self, schema: str) -> str:
        """Return the statement for a database."""
        return f"CREATE DATABASE IF NOT EXISTS {self.identifier(schema)};"

    def create_table(self, entry: LakeEntry) -> str:
        """Return a table of its format; it replaces one that lacks new columns."""
        if entry.catalog_table:
            return ""
        is_local = "://" not in entry.location
        if not is_local and not entry.location.startswith(_S3):
            raise CannotReadError(
                f"is at {entry.location}: {self.title} has functions of its own for "
                "this store, see its documentation"
            )
        table = self.called(entry.schema, entry.name)
        url = self.text(_https(_files(entry), entry.endpoint))
        if entry.form in ("delta", "iceberg"):
            engine = {"delta": "DeltaLake", "iceberg": "Iceberg"}[entry.form]
            engine += "Local" if is_local else ""
            return f"CREATE OR REPLACE TABLE {table} ENGINE = {engine}({url});"
        form = {"parquet": "Parquet", "json": "JSONEachRow"}[entry.form]
        read = f"{'file' if is_local else 's3'}({url}, {form})"
        query = f"SELECT * FROM {read}"  # noqa: S608  # it is in quotes
        return self.create_view(entry.schema, entry.name, query).replace("\n", " ")


DIALECTS: Final[dict[str, type[Dialect]]] = {
    "duckdb": DuckDb,
    "spark": Spark,
    "trino": Trino,
    "clickhouse": ClickHouse,
}


def _files(entry: LakeEntry) -> str:
    """Return a table's folder, or the files of a log."""
    if entry.form in ("parquet", "json"):
        return f"{entry.location}/date=*/*.{entry.form}"
    return entry.location


def _hadoop(location: str) -> str:
    """Return a location with the scheme of Hadoop's file system for S3."""
    if location.startswith(_S3):
        return f"s3a://{location.removeprefix(_S3)}"
    return location


def _https(location: str, endpoint: str) -> str:
    """Return the URL of a folder or of files in a store that speaks S3."""
    if not (endpoint and location.startswith(_S3)):
        return location
    return f"{endpoint.rstrip('/')}/{location.removeprefix(_S3)}"
