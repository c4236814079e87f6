"""`partition_by` of a rule: what it may say, and what fits a table."""

from __future__ import annotations

import pytest

from canal_server.errors import ConfigError
from canal_server.mirror.settings.lake_partitions import PartitionExpression
from canal_server.mirror.settings.selected_tables import mirror_table, signature
from canal_server.mirror.settings.settings_file import read
from canal_server.mirror.settings.table_values import LakePartition, TableName
from canal_server.model.columns_known import ColumnMeta

HEAD = """name: shop
canal: {destination: example}
source: {host: db, user: canal}
lake: {path: /lake}
tables:
  - match: s.*
"""
NAME = TableName("s", "t")
COLUMNS = [
    ColumnMeta("id", "bigint unsigned", None, is_key=True, nullable=False),
    ColumnMeta("Region", "varchar(9)", "utf8mb4"),
    ColumnMeta("at", "datetime(3)", None),
    ColumnMeta("f", "double", None),
    ColumnMeta("at_day", "date", None),
    ColumnMeta("a b", "int", None),
]


def settings_of(*keys: str):
    """Return settings whose rule has these keys, too."""
    return read(HEAD + "".join(f"    {key}\n" for key in keys), "m.yml", {})


@pytest.mark.parametrize(
    "text",
    ["[region, month(AT), bucket(16, id)]", '"region, MONTH(AT), bucket(16,id)"',
     '[region, "month( AT )", "bucket( 16 , id )"]'],
)  # fmt: skip
def test_what_a_rule_says(text: str) -> None:
    """Columns and functions of them, as a text or a list, however YAML splits it."""
    settings = settings_of(f"partition_by: {text}")
    assert settings.tables[0].partition_by == (
        PartitionExpression("", "region"),
        PartitionExpression("month", "AT"),
        PartitionExpression("bucket", "id", 16),
    )
    table = mirror_table(NAME, COLUMNS, settings)
    assert table.partitions == (
        LakePartition("part", "Region"),
        LakePartition("month", "at"),
        LakePartition("bucket", "id", 16),
    )
    assert [each.name for each in table.partitions] == [
        "Region_part", "at_month", "id_bucket",
    ]  # fmt: skip


def test_names_of_the_lake() -> None:
    """A column is named as in the source; its partition as the lake names it."""
    rule = ["partition_by: [day(at), region]", "rename: {at: made, region: land}"]
    table = mirror_table(NAME, COLUMNS, settings_of(*rule, "format: iceberg"))
    assert [each.name for each in table.partitions] == ["made_day", "land"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("hour(at)", r"hour\(at\): write a column, year"),
        ("[id, 'bucket(id, 16)']", r"bucket\(id, 16\): write a column, year"),
        ("bucket(1, id)", r"bucket\(1, id\): write 2 to 1,024 buckets"),
        ("bucket(9999, id)", "write 2 to 1,024 buckets"),
        ("[a, b, c, d, e]", "at most 4 columns"),
        ('"a,,b"', "an empty item: write a column"),
    ],
)
def test_what_no_rule_can_say(text: str, problem: str) -> None:
    """A mistake in the file is reported at its line."""
    with pytest.raises(ConfigError, match=problem):
        settings_of(f"partition_by: {text}")


def test_logs_of_changes_are_by_date() -> None:
    """They have no other partitions."""
    with pytest.raises(ConfigError, match="has no effect with format: parquet"):
        settings_of("format: parquet", "partition_by: region")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "month(none)",
            "month(none): it has no column none in the lake, but id, Region, ",
        ),
        ("month(region)", "column Region is not a DATE, DATETIME or TIMESTAMP"),
        ("f", "column f is double: only whole numbers, texts and dates"),
        ("at", r"write day(at), month(at) or year(at)"),
        ("bucket(4, at)", r"write day(at)"),
        ("bucket(4, f)", "column f is double"),
        ("day(at)", "its partitions are named at_day, as a column is: use rename"),
        ("[region, region]", "Region_part is there twice"),
        ('"a b"', "the names of folders contain a b"),
    ],
)
def test_what_does_not_fit_a_table(text: str, problem: str) -> None:
    """The table is named, with what to do."""
    with pytest.raises(ConfigError) as caught:
        mirror_table(NAME, COLUMNS, settings_of(f"partition_by: {text}"))
    assert any(problem in each for each in caught.value.problems)
    assert all("table s.t: partition_by: " in each for each in caught.value.problems)


def test_left_out_and_masked() -> None:
    """A column that the lake lacks cannot be used; a hash can."""
    for rule in ("without: [region]", "masks: {region: drop}"):
        with pytest.raises(ConfigError, match="no column region in the lake"):
            mirror_table(NAME, COLUMNS, settings_of("partition_by: region", rule))
    masked = settings_of("partition_by: year(at)", "masks: {at: null}")
    with pytest.raises(ConfigError, match="is not a DATE"):
        mirror_table(NAME, COLUMNS, masked)
    keys = ["partition_by: 'bucket(4, f)'", "masks: {f: hash}", "drift: stop"]
    text = HEAD.replace("tables:", f"mask_salt: {'x' * 32}\ntables:")
    hashed = read(text + "".join(f"    {key}\n" for key in keys), "m.yml", {})
    assert mirror_table(NAME, COLUMNS, hashed).partitions


def test_a_changed_rule_is_copied_again() -> None:
    """A table with other partitions needs another copy; others do not."""
    plain, other, same = (
        signature(NAME, settings_of(*keys))
        for keys in ([], ["partition_by: region"], ["partition_by: [ region ]"])
    )
    assert plain != other
    assert other == same
