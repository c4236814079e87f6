"""Conditions of partitions, compared with the rows that real servers have in them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from fix_source_access import access_of

from canal_server.mirror.ddl.partition_statements import (
    PartitionChange,
    PartitionStatement,
)
from canal_server.mirror.ddl.partitions import (
    NoConditionError,
    condition_of,
    deleted_rows,
)
from canal_server.mirror.follow.partition_watch import PARTITIONS, partitions_of
from canal_server.mirror.lake.delta.delta import DeltaLakeTable
from canal_server.mirror.lake.lake_table import (
    ROW,
    SEQ,
    STREAM_TIME,
    TIME,
    lake_schema,
)
from canal_server.mirror.settings.mirror_settings import TableRule
from canal_server.mirror.settings.selected_tables import table_by_rule
from canal_server.mirror.settings.table_values import TableName
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.server_columns import TableColumns

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from servers import PrivateServer

    from canal_server.mirror.lake.conditions import Among

ROWS = 300
FIRST = datetime(2024, 11, 1)  # noqa: DTZ001  # a DATETIME
HOUR = timedelta(hours=1)

SPLIT = [  # the type of column c, and what stands after PARTITION BY
    (
        "INT",
        (
            "RANGE (c) (PARTITION a VALUES LESS THAN (-5), PARTITION `b b` VALUES "
            "LESS THAN (40), PARTITION z VALUES LESS THAN MAXVALUE)"
        ),
    ),
    (
        "INT NOT NULL",
        (
            "RANGE (c) (PARTITION a VALUES LESS THAN (0), PARTITION b VALUES "
            "LESS THAN (40 + 1), PARTITION z VALUES LESS THAN (1000))"
        ),
    ),
    (
        "BIGINT UNSIGNED",
        (
            "RANGE (c) (PARTITION a VALUES LESS THAN (5), PARTITION b "
            "VALUES LESS THAN (18446744073709551000), PARTITION z VALUES "
            "LESS THAN MAXVALUE)"
        ),
    ),
    (
        "SMALLINT",
        (
            "RANGE COLUMNS (c) (PARTITION a VALUES LESS THAN (-5), PARTITION b "
            "VALUES LESS THAN (40), PARTITION z VALUES LESS THAN (MAXVALUE))"
        ),
    ),
    (
        "TINYINT",
        (
            "LIST (c) (PARTITION a VALUES IN (1, 2, -3, NULL), PARTITION b VALUES "
            "IN (4, 5), PARTITION z VALUES IN (0, 3, 7))"
        ),
    ),
    (
        "DATE NOT NULL",
        (
            "RANGE (TO_DAYS(c)) (PARTITION a VALUES LESS THAN "
            "(TO_DAYS('2024-12-01')), PARTITION b VALUES LESS THAN "
            "(TO_DAYS('2025-01-01')), "
            "PARTITION z VALUES LESS THAN MAXVALUE)"
        ),
    ),
    (
        "DATETIME(3) NOT NULL",
        (
            "RANGE (TO_DAYS(c)) (PARTITION a VALUES LESS THAN "
            "(TO_DAYS('2024-12-01')), PARTITION b VALUES LESS THAN "
            "(TO_DAYS('2025-01-01')), "
            "PARTITION z VALUES LESS THAN MAXVALUE)"
        ),
    ),
    (
        "DATETIME NOT NULL",
        (
            "RANGE (YEAR(c)) (PARTITION a VALUES LESS THAN (2024), "
            "PARTITION b VALUES LESS THAN (2025), PARTITION z VALUES LESS THAN (2030))"
        ),
    ),
    (
        "DATETIME NOT NULL",
        (
            "RANGE (TO_SECONDS(c)) (PARTITION a VALUES LESS THAN "
            "(TO_SECONDS('2024-12-01 12:30:00')), PARTITION z VALUES "
            "LESS THAN MAXVALUE)"
        ),
    ),
    (
        "TIMESTAMP NOT NULL",
        (
            "RANGE (UNIX_TIMESTAMP(c)) (PARTITION a VALUES LESS THAN "
            "(UNIX_TIMESTAMP('2024-12-01 12:30:00')), PARTITION z VALUES "
            "LESS THAN MAXVALUE)"
        ),
    ),
    (
        "DATE NOT NULL",
        (
            "RANGE COLUMNS (c) (PARTITION a VALUES LESS THAN ('2024-12-01'),"
            " PARTITION b VALUES LESS THAN ('2025-01-01'), PARTITION z "
            "VALUES LESS THAN "
            "(MAXVALUE))"
        ),
    ),
    (
        "DATETIME(6) NOT NULL",
        (
            "RANGE COLUMNS (c) (PARTITION a VALUES LESS THAN "
            "('2024-12-01 00:00:00.5'), PARTITION z VALUES LESS THAN (MAXVALUE))"
        ),
    ),
    (
        "DATE NOT NULL",
        (
            "LIST COLUMNS (c) (PARTITION a VALUES IN ('2024-11-01', "
            "'2024-11-03'), PARTITION z VALUES IN ('2024-11-02'))"
        ),
    ),
]

UNSURE = [  # the type of column c, the partitions, and why
    ("INT", "HASH (c) PARTITIONS 3", "no ranges or lists"),
    ("INT", "RANGE (c * 2) (PARTITION a VALUES LESS THAN MAXVALUE)", "no ranges"),
    ("INT", "RANGE (c DIV 2) (PARTITION a VALUES LESS THAN MAXVALUE)", "no ranges"),
    (
        "DATE",
        (
            "RANGE (MONTH(c)) (PARTITION a VALUES LESS THAN (6), PARTITION b VALUES "
            "LESS THAN MAXVALUE)"
        ),
        "has no known order",
    ),
    ("DATE", "LIST (YEAR(c)) (PARTITION a VALUES IN (2024, 2025))", "a list of year"),
    (
        "VARCHAR(9)",
        (
            "RANGE COLUMNS (c) (PARTITION a VALUES LESS THAN ('m'), PARTITION b "
            "VALUES LESS THAN (MAXVALUE))"
        ),
        "is varchar(9)",
    ),
    (
        "INT",
        (
            "RANGE COLUMNS (c, id) (PARTITION a VALUES LESS THAN (5, 5), PARTITION b "
            "VALUES LESS THAN (MAXVALUE, MAXVALUE))"
        ),
        "no ranges",
    ),
]


def values_of(kind: str, partitions: str, rng: random.Random) -> list[Any]:
    """Return values for the column, which partitions have; also at their bounds."""
    base = kind.split("(", maxsplit=1)[0].split(maxsplit=1)[0]
    if base in ("DATE", "DATETIME", "TIMESTAMP"):
        if partitions.startswith("LIST"):
            return [FIRST + timedelta(days=rng.randrange(3)) for _ in range(ROWS)]
        step = timedelta(days=1) if base == "DATE" else HOUR / 2
        found = [FIRST + rng.randrange(3000) * step for _ in range(ROWS)]
        bound = datetime(2024, 12, 1)  # noqa: DTZ001
        for away in (-1, 0, 1):
            found += [bound + away * HOUR, bound + timedelta(hours=12, minutes=30)]
            found.append(bound + timedelta(seconds=0.5))
        return found
    if partitions.startswith("LIST"):
        return [rng.choice((1, 2, -3, None, 4, 5, 0, 3, 7)) for _ in range(ROWS)]
    least = 0 if "UNSIGNED" in kind else -30
    numbers = [rng.randrange(least, 90) for _ in range(ROWS)]
    if "UNSIGNED" in kind:
        numbers += [2**64 - 1, 2**64 - 617, 2**64 - 616, 2**64 - 615]
    return numbers if "NOT NULL" in kind else [*numbers, None, None]


def create(server: PrivateServer, database: str, kind: str, partitions: str) -> None:
    """Create a partitioned table without a key."""
    sql = f"CREATE TABLE t (id INT NOT NULL, c {kind}) PARTITION BY {partitions}"
    server.execute(f"USE {database}", sql)


class Source:
    """A partitioned table of a real server, and what the mirror makes of it."""

    def __init__(self, server: PrivateServer, database: str) -> None:
        self.name = TableName(database, "t")
        with ControlConnection(access_of(server)) as control:
            meta = TableColumns(control).fetch(database, "t")
            found = partitions_of(control.query(PARTITIONS))
        assert meta is not None
        rule = TableRule(match=".*")
        self.table = table_by_rule(self.name, meta.columns, rule)
        self.partitions = found[self.name]


@pytest.mark.parametrize(("kind", "partitions"), SPLIT)
def test_rows_of_each_partition(  # noqa: PLR0917  # fixtures
    source_server: PrivateServer,
    database: str,
    tmp_path: Path,
    rng: random.Random,
    kind: str,
    partitions: str,
) -> None:
    """The lake finds the same rows by the condition as the server in the partition."""
    create(source_server, database, kind, partitions)
    values = values_of(kind, partitions, rng)
    with source_server.connect(database=database) as link, link.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        rows = list(enumerate(values))
        cursor.executemany("INSERT INTO t VALUES (%s, %s)", rows)
        link.commit()
        source = Source(source_server, database)
        cursor.execute("SELECT id, c FROM t")
        lake_with(tmp_path, source, list(cursor.fetchall()))
        found = 0
        for part in source.partitions.parts:
            quoted = part.name.replace("`", "``")
            cursor.execute(f"SELECT id FROM t PARTITION (`{quoted}`)")
            expected = {number for (number,) in cursor.fetchall()}
            found += len(expected)
            condition = condition_of(source.partitions, [part.name], source.table)
            assert ids(tmp_path, condition.rows) == expected, (part, condition)
        names = [each.name for each in source.partitions.parts]
        condition = condition_of(source.partitions, names, source.table)
        assert ids(tmp_path, condition.rows) == set(range(len(values)))
    assert found == len(values)


@pytest.mark.parametrize(("kind", "partitions", "why"), UNSURE)
def test_partitions_without_a_condition(
    source_server: PrivateServer, database: str, kind: str, partitions: str, why: str
) -> None:
    """Nothing is guessed."""
    create(source_server, database, kind, partitions)
    source = Source(source_server, database)
    name = source.partitions.parts[0].name
    with pytest.raises(NoConditionError) as raised:
        condition_of(source.partitions, [name], source.table)
    assert why in str(raised.value)


@pytest.mark.parametrize("mode", ["", "ALLOW_INVALID_DATES"])
def test_dates_that_do_not_exist(
    source_server: PrivateServer, database: str, tmp_path: Path, mode: str
) -> None:
    """The lake has NULL for them, so it is not certain in which partition they are."""
    kind, partitions = SPLIT[5]
    create(source_server, database, kind, partitions)
    source_server.execute(
        f"SET SESSION sql_mode = '{mode}'",
        f"USE {database}",
        "INSERT INTO t VALUES (1, '2024-12-00'), (2, '2024-12-05')",
    )
    source = Source(source_server, database)
    drop = PartitionStatement(PartitionChange.DROP, ("b",))
    lake = lake_with(tmp_path, source, [(1, None), (2, FIRST.date())])
    with pytest.raises(NoConditionError, match="column c has NULL, or no date"):
        deleted_rows(source.partitions, drop, source.table, lake)
    (tmp_path / "other").mkdir()
    lake = lake_with(tmp_path / "other", source, [(2, FIRST.date())])
    assert deleted_rows(source.partitions, drop, source.table, lake)


def lake_with(folder: Path, source: Source, rows: list[tuple[Any, ...]]) -> Any:
    """Return a table of the lake with these values of id and c."""
    schema = lake_schema(source.table)
    columns = {
        name: pa.array(
            [as_lake(row[n], schema.field(name).type) for row in rows],
            schema.field(name).type,
        )
        for n, name in enumerate(("id", "c"))
    }
    columns["_change_type"] = pa.repeat("insert", len(rows))
    columns[SEQ.name] = pa.repeat(pa.scalar(5, SEQ.type), len(rows))
    columns[ROW.name] = pa.array(range(len(rows)), ROW.type)
    columns[STREAM_TIME] = pa.nulls(len(rows), TIME.type)
    lake = DeltaLakeTable(str(folder / "t"), source.table)
    lake.publish("copy", schema, [], 1, {})
    lake.apply("copy", pa.table(columns), 9, {})
    return lake


def as_lake(value: Any, kind: pa.DataType) -> Any:
    """Return a value of the server as the lake has it."""
    if isinstance(value, datetime) and pa.types.is_timestamp(kind) and kind.tz:
        return value.replace(tzinfo=UTC)
    return value


def ids(folder: Path, rows: Among) -> set[int]:
    """Return the ids of rows that a condition finds, in SQL and in Arrow."""
    delta = DeltaTable(str(folder / "t"))
    reader = pa.RecordBatchReader.from_stream(delta.scan(["id"], rows.sql))
    found = {n for batch in reader for n in batch.column("id").to_pylist()}
    whole = delta.to_pyarrow_table()
    chosen = whole.filter(rows.chosen(whole["c"].combine_chunks()))
    assert set(chosen["id"].to_pylist()) == found
    return found
