"""Statements on partitions: which ones are certain, and what is known after them."""

from __future__ import annotations

import pytest

from canal_server.mirror.ddl.partition_statements import (
    PartitionChange,
    PartitionStatement,
    partition_statement,
)
from canal_server.mirror.ddl.partitions import partitions_after
from canal_server.mirror.follow.partition_watch import partitions_of
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.table_shape import Partition, Partitions

DROP, TRUNCATE, ADD, REDEFINE = (
    PartitionChange.DROP,
    PartitionChange.TRUNCATE,
    PartitionChange.ADD,
    PartitionChange.REDEFINE,
)


@pytest.mark.parametrize(
    ("sql", "change", "names"),
    [
        ("ALTER TABLE t DROP PARTITION p0", DROP, ("p0",)),
        ("alter table `d`.`t` drop partition if exists `p 0`, P1", DROP, ("p 0", "P1")),
        ("/* job */ ALTER TABLE t TRUNCATE PARTITION p0;", TRUNCATE, ("p0",)),
        ("ALTER TABLE t TRUNCATE PARTITION ALL", TRUNCATE, ()),
        (
            (
                "ALTER TABLE t ADD PARTITION (PARTITION p3 VALUES LESS THAN (TO_DAYS("
                "'2026-01-01')) ENGINE = InnoDB, PARTITION p4 VALUES LESS THAN "
                "MAXVALUE)"
            ),
            ADD,
            ("p3", "p4"),
        ),
        ("ALTER TABLE t ADD PARTITION (PARTITION q VALUES IN (1, 2))", ADD, ("q",)),
        ("ALTER TABLE s.T CONVERT PARTITION p0 TO TABLE u", DROP, ("p0",)),
        (
            "ALTER TABLE t CONVERT PARTITION `p 0` TO TABLE a.u WITHOUT VALIDATION",
            DROP,
            ("p 0",),
        ),
        ("ALTER TABLE t ADD PARTITION PARTITIONS 4", REDEFINE, ()),
        (
            "ALTER TABLE t REORGANIZE PARTITION p INTO (PARTITION a VALUES IN (1))",
            REDEFINE,
            (),
        ),
        ("ALTER TABLE t COALESCE PARTITION 2", REDEFINE, ()),
        ("ALTER TABLE t REBUILD PARTITION p0", REDEFINE, ()),
        ("ALTER TABLE t PARTITION BY HASH (id) PARTITIONS 3", REDEFINE, ()),
        ("ALTER TABLE t REMOVE PARTITIONING", REDEFINE, ()),
    ],
)
def test_certain_statements(
    sql: str, change: PartitionChange, names: tuple[str, ...]
) -> None:
    """What they do to partitions is known from the text."""
    assert partition_statement(sql, "t") == PartitionStatement(change, names)


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u",
        "ALTER TABLE t CONVERT PARTITION p TO TABLE u, ADD COLUMN c INT",
        "ALTER TABLE t CONVERT TABLE u TO PARTITION p VALUES LESS THAN (5)",
        "ALTER TABLE u CONVERT PARTITION p TO TABLE t",
        "ALTER TABLE u DROP PARTITION p",
        "ALTER TABLE t DISCARD PARTITION p TABLESPACE",
        "ALTER TABLE t IMPORT PARTITION p TABLESPACE",
        "ALTER TABLE t DROP PARTITION p0, ADD COLUMN c INT",
        "ALTER TABLE t REMOVE PARTITIONING, ENGINE = BLACKHOLE",
        "ALTER IGNORE TABLE t DROP PARTITION p0",
        "ALTER TABLE t DROP PARTITION",
        "ALTER TABLE t ADD COLUMN c INT",
        "ALTER TABLE t ENGINE = InnoDB PARTITION BY KEY (id)",
        "DROP TABLE t",
        "ALTER TABLE t DROP PARTITION 'p0",
        "",
    ],
)
def test_other_statements(sql: str) -> None:
    """They are decided as before."""
    assert partition_statement(sql, "t") is None


def test_what_is_known_afterwards() -> None:
    """New partitions have unknown bounds until they are read; redefined ones all."""
    known = Partitions("RANGE", "id", (Partition("a", "5"), Partition("b", "9")))
    more = partitions_after(known, PartitionStatement(ADD, ("c",)))
    assert more is not None
    assert [each.name for each in more.parts] == ["a", "b", "c"]
    assert (known.are_complete, more.are_complete) == (True, False)
    fewer = partitions_after(known, PartitionStatement(DROP, ("A",)))
    assert fewer is not None
    assert fewer.parts == (Partition("b", "9"),)
    assert partitions_after(known, PartitionStatement(TRUNCATE, ("a",))) == known
    assert partitions_after(known, PartitionStatement(REDEFINE)) is None
    assert Partitions.from_json(known.to_json()) == known


def test_rows_of_the_catalog() -> None:
    """Subpartitions are not partitions of their own."""
    rows = [
        ("s", "t", "RANGE", "`id`", "a", "5"),
        ("s", "t", "RANGE", "`id`", "a", "5"),
        ("s", "t", "RANGE", "`id`", "b", "MAXVALUE"),
        ("s", "u", "HASH", "`id`", "p0", None),
    ]
    parts = (Partition("a", "5"), Partition("b", "MAXVALUE"))
    found = partitions_of(rows)
    assert found[TableName("s", "t")] == Partitions("RANGE", "`id`", parts)
    hashed = found[TableName("s", "u")]
    assert hashed == Partitions("HASH", "`id`", (Partition("p0"),))
    assert hashed.are_complete
