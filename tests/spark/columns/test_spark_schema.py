"""The schemas: which type each column of MySQL has in Spark."""

from __future__ import annotations

import pytest

from canal_server.client.range_client import RangeColumn
from canal_server.errors import ConfigError, TableMetaError
from canal_server.spark.options.source_options import read_options

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from canal_server.arrow import arrow_batches
from canal_server.spark.columns.spark_schema import (
    generic_schema,
    requested_columns,
    spark_type,
    typed_columns,
    typed_schema,
    zone_of,
)

COLUMNS = (
    RangeColumn("id", "bigint(20) unsigned", key=True),
    RangeColumn("At", "timestamp(3)", nullable=True),
    RangeColumn("kind", "enum('a','b')"),
)
ORDER = ("_commit_version", "_commit_timestamp", "_seq", "_row")


def options_of(**options):
    """Return the options of a typed read."""
    return read_options({"destination": "example", "table": "shop.orders"} | options)


@pytest.mark.parametrize(
    ("mysql", "type_there"),
    [
        ("tinyint(1)", "tinyint"),
        ("tinyint(3) unsigned", "smallint"),
        ("smallint", "smallint"),
        ("SMALLINT UNSIGNED", "int"),
        ("mediumint(8) unsigned", "int"),
        ("int(11)", "int"),
        ("int(10) unsigned zerofill", "bigint"),
        ("int(5) zerofill", "bigint"),
        ("bigint(20)", "bigint"),
        ("bigint(20) unsigned", "decimal(20,0)"),
        ("decimal(10,2)", "decimal(10,2)"),
        ("decimal(10, 2) unsigned", "decimal(10,2)"),
        ("decimal(5)", "decimal(5,0)"),
        ("decimal", "decimal(10,0)"),
        ("numeric(38,30)", "decimal(38,30)"),
        ("decimal(39,0)", "string"),
        ("decimal(65,30)", "string"),
        ("float", "float"),
        ("double(10,3)", "double"),
        ("date", "date"),
        ("datetime", "timestamp_ntz"),
        ("datetime(6)", "timestamp_ntz"),
        ("timestamp(6)", "timestamp"),
        ("time(3)", "string"),
        ("year(4)", "int"),
        ("bit(1)", "bigint"),
        ("bit(64)", "bigint"),
        ("char(36)", "string"),
        ("varchar(255)", "string"),
        ("longtext", "string"),
        ("enum('int','date')", "string"),
        ("set('a','b')", "string"),
        ("binary(16)", "binary"),
        ("varbinary(255)", "binary"),
        ("mediumblob", "binary"),
        ("geometry", "binary"),
        ("vector(3)", "binary"),
        ("json", "string"),
        ("uuid", "string"),
        ("inet6", "string"),
    ],
)
def test_types(mysql, type_there) -> None:
    """A type of MySQL or MariaDB has one type in Spark that holds all its values."""
    assert spark_type(mysql).simpleString() == type_there


def test_the_generic_schema_never_changes() -> None:
    """Its columns are those in docs/reference/spark.md."""
    assert generic_schema("map").simpleString() == (
        "struct<destination:string,db:string,table:string,op:string,"
        "pk:map<string,string>,before:map<string,string>,after:map<string,string>,"
        "updated:array<string>,mysql_types:map<string,string>,is_ddl:boolean,"
        "sql:string,_commit_version:bigint,_commit_timestamp:timestamp,_seq:bigint,"
        "_row:int,journal:string,position:bigint,gtid:string,server_id:bigint,"
        "xid:string>"
    )
    assert generic_schema("json")["before"].dataType.simpleString() == "string"


def test_a_typed_schema_has_the_columns_of_the_table() -> None:
    """Then come those of each change."""
    schema = typed_schema(options_of(), COLUMNS, "UTC")
    assert schema.fieldNames() == [
        "id",
        "At",
        "kind",
        "_change_type",
        *ORDER,
        "_position",
    ]


def test_an_envelope_has_both_images() -> None:
    """The columns stand in two structs, so that no name of theirs can clash."""
    columns = (*COLUMNS, RangeColumn("_seq", "int(11)"))
    schema = typed_schema(options_of(updates="envelope"), columns, "UTC")
    assert schema.fieldNames()[:2] == ["before", "after"]
    assert schema["before"].dataType == schema["after"].dataType
    assert [column.name for column in typed_columns(schema)][-1] == "_seq"


@pytest.mark.parametrize("updates", ["postimage", "both", "envelope"])
def test_a_schema_that_spark_passed_on_keeps_the_types_of_mysql(updates) -> None:
    """Spark gives readers the schema again, as JSON; nothing is lost on the way."""
    made = typed_schema(options_of(updates=updates), COLUMNS, "Europe/Berlin")
    schema = StructType.fromJson(made.jsonValue())
    shown = [(c.name, c.mysql_type, c.is_key) for c in typed_columns(schema)]
    assert shown == [(c.name, c.mysql_type, c.key) for c in COLUMNS]
    assert zone_of(schema) == "Europe/Berlin"


def test_a_table_without_timestamps_has_no_zone() -> None:
    """So its schema is the same whatever zone the server is in."""
    assert zone_of(typed_schema(options_of(), COLUMNS[:1], "Asia/Tokyo")) == ""


def test_a_schema_of_others_is_refused() -> None:
    """With `.schema(…)` the types of MySQL are not known."""
    with pytest.raises(ConfigError, match=r"remove \.schema"):
        typed_columns(StructType([StructField("id", LongType())]))


def test_columns_are_chosen_by_name() -> None:
    """In the order of the option, in any case; one that is not there is named."""
    schema = typed_schema(options_of(columns="KIND,id"), COLUMNS, "")
    assert schema.fieldNames()[:2] == ["kind", "id"]
    with pytest.raises(ConfigError, match=r"no column x; it has id, At, kind"):
        typed_schema(options_of(columns="id,x"), COLUMNS, "")


def test_a_column_named_as_one_of_ours_is_refused() -> None:
    """Two columns of one name would be ambiguous; the error has two ways out."""
    columns = (*COLUMNS, RangeColumn("_SEQ", "int(11)"))
    with pytest.raises(TableMetaError, match=r"_SEQ.*option columns.*envelope"):
        typed_schema(options_of(), columns, "")
    assert typed_schema(options_of(columns="id"), columns, "")


@pytest.mark.parametrize("payload", ["map", "json"])
def test_batches_have_the_generic_schema(payload) -> None:
    """Spark refuses batches whose schema is not exactly its own in Arrow's words."""
    ours = arrow_batches.generic_schema(json=payload == "json")
    assert to_arrow_schema(generic_schema(payload), timezone="UTC").equals(ours)


@pytest.mark.parametrize("updates", ["postimage", "both", "envelope"])
def test_batches_have_the_typed_schema(updates) -> None:
    """The same, for a table with a column of each kind."""
    types = "tinyint smallint int bigint bit(9) float double date datetime timestamp"
    types += " decimal(9,2) decimal(50,2) text blob"
    columns = [
        RangeColumn(f"c{number}", mysql) for number, mysql in enumerate(types.split())
    ]
    schema = typed_schema(options_of(updates=updates), columns, "UTC")
    ours = arrow_batches.typed_schema(
        requested_columns(typed_columns(schema)), updates=updates
    )
    assert to_arrow_schema(schema, timezone="UTC").equals(ours)
