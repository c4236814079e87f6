"""Partitions that real servers exchange with tables, as canal-server delivers that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")

from fix_lake import table_rows
from fix_random import longer
from followed_tables import FollowedTables

from canal_server.mirror.settings.mirror_settings import TableRule

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from fix_pipeline import Pipeline
    from servers import Server

P_ROWS = "INSERT INTO p VALUES ({0}, 'of p'), ({0} + 1500, 'stays')"
EXCHANGE = "ALTER TABLE p EXCHANGE PARTITION one WITH TABLE t"


@pytest.fixture
def mirrored(
    source_server: Server,
    database: str,
    make_pipeline: Callable[..., Pipeline],
    tmp_path: Path,
    form: str,
) -> Any:
    """Give a partitioned table and another one, both empty and followed."""
    source_server.execute(
        f"USE {database}",
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(100))",
        "CREATE TABLE p LIKE t",
        "ALTER TABLE p PARTITION BY RANGE (id) (PARTITION one VALUES LESS THAN (1000),"
        " PARTITION two VALUES LESS THAN (3000))",
    )
    pipeline = make_pipeline(source_server, database)
    pipeline.start()
    rule = TableRule(match=".*", form=form)
    found = FollowedTables(pipeline, tmp_path, ("p", "t"), rule)
    yield found
    found.close()


def test_exchanged(mirrored: FollowedTables, rng: random.Random) -> None:
    """Both tables equal the source after each batch, whatever is killed in between."""
    source, schema = mirrored.pipeline.source, mirrored.pipeline.schema
    for round_ in range(longer(4)):
        first = 10 * round_
        statements = [
            P_ROWS.format(first + 1),
            f"INSERT INTO t VALUES ({first + 2}, 'of t'), ({first + 3}, 'of t')",
            f"UPDATE t SET a = CONCAT(a, '!') WHERE id % 3 = {round_ % 3}",
            EXCHANGE,
            f"UPDATE p SET a = 'then' WHERE id % 2 = {round_ % 2}",
            f"DELETE FROM t WHERE id % 7 = {round_ % 7}",
        ]
        if rng.random() < 0.5:
            statements += [EXCHANGE, f"DELETE FROM p WHERE id = {first + 2}"]
        source.execute(f"USE {schema}", *statements)
        mirrored.follow(killed=rng.choice(("", "p", "t")), method="exchange")
        mirrored.check()


def test_a_table_that_becomes_a_partition(mirrored: FollowedTables, form: str) -> None:
    """MariaDB's CONVERT: its rows are those of the partition, and it is dropped."""
    source, schema = mirrored.pipeline.source, mirrored.pipeline.schema
    if source.flavour != "mariadb":
        pytest.skip("MySQL has no such statement")
    source.execute(
        f"USE {schema}",
        P_ROWS.format(1),
        "INSERT INTO t VALUES (3001, 'of t'), (3002, 'of t')",
        "ALTER TABLE p CONVERT TABLE t TO PARTITION three VALUES LESS THAN (4000)",
        "UPDATE p SET a = 'then' WHERE id = 3002",
    )
    mirrored.follow()
    assert [name for name, _ in mirrored.left] == ["t"]
    rows = table_rows(mirrored.path("p"), form)
    assert sorted((row["id"], row["a"]) for row in rows) == [
        (1, "of p"), (1501, "stays"), (3001, "of t"), (3002, "then"),
    ]  # fmt: skip
