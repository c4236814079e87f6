"""The mirror as a whole: a database, canal-server, Spark, a lake."""

from __future__ import annotations

import pytest
from fix_mirror_process import NAME
from fix_random import LONGER

# Slow: one is held up when its first chunk is seen, and before its last one is read.
COPIES = {"connections": 4, "chunk_rows": 100, "rows_per_second": 200}
SERIES = (
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 600) "
    "SELECT n, CONCAT('row ', n) FROM r"
)

pytestmark = [pytest.mark.slow, pytest.mark.spark]


def test_copied_and_followed(mirror) -> None:
    """Earlier rows, changes since, a restart in between, and new tables.

    While one of them is copied, by as many tasks as cores or more, changes of the
    others keep arriving: the copy is held up until they have arrived.

    Each start needs half a minute for its Spark; everyday tests restart the mirror of a
    MySQL and hold up a copy, the mirror of a MariaDB keeps running.
    """
    schema = mirror.pipeline.schema
    is_whole = mirror.source.flavour == "mysql" or LONGER > 1
    mirror.source.execute(
        f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, a VARCHAR(20), b DATETIME(3))",
        f"INSERT INTO {schema}.t VALUES (1, 'a', '2026-01-01 10:00:00.5')",
        f"INSERT INTO {schema}.t VALUES (2, NULL, NULL)",
    )
    mirror.settings["copy"] = COPIES
    mirror.start()
    mirror.agree(t=("id",))
    mirror.source.execute(
        f"INSERT INTO {schema}.t VALUES (3, 'c', NULL)",
        f"UPDATE {schema}.t SET a = 'x' WHERE id = 2",
        f"UPDATE {schema}.t SET id = 7 WHERE id = 1",
        f"ALTER TABLE {schema}.t ADD COLUMN c INT NOT NULL DEFAULT 5",
        f"INSERT INTO {schema}.t VALUES (4, 'd', NULL, 6)",
    )
    mirror.agree(t=("id",))
    if is_whole:
        mirror.kill()
    mirror.source.execute(
        f"DELETE FROM {schema}.t WHERE id = 3",
        f"CREATE TABLE {schema}.u (a VARCHAR(5), b INT, PRIMARY KEY (b, a))",
        f"INSERT INTO {schema}.u VALUES ('a', 1), ('b', 1)",
    )
    if is_whole:
        mirror.start()
    mirror.agree(t=("id",), u=("b", "a"))
    if is_whole:
        feed_while_copying(mirror)
    mirror.source.execute(
        f"TRUNCATE {schema}.u", f"RENAME TABLE {schema}.t TO {schema}.v"
    )
    mirror.agree(u=("b", "a"), v=("id",))
    # Spark's word for a source that is registered in addition to the one it has found.
    assert not [line for line in mirror.process.log if "registered data source" in line]
    # Spark outlives a signal to all processes, and ends without a word.
    assert not [line for line in mirror.stop_group() if line and " INFO " not in line]


def feed_while_copying(mirror) -> None:
    """Change a table while a larger one is copied, and hold that up meanwhile."""
    schema = mirror.pipeline.schema
    mirror.source.execute(
        f"CREATE TABLE {schema}.big (id INT PRIMARY KEY, v VARCHAR(20))",
        f"INSERT INTO {schema}.big {SERIES}",
    )
    copies = mirror.path / "_mirror" / NAME / "copies"
    mirror.wait_for(lambda: any(copies.rglob("chunk-*")), "a chunk")
    with mirror.source.connect(database=schema) as connection:
        connection.cursor().execute("LOCK TABLES big WRITE")
        assert mirror.phase_of("big")[0] == "copying"
        for number in range(100, 103):
            mirror.source.execute(
                f"INSERT INTO {schema}.t VALUES ({number}, '', NULL, 1)"
            )
            mirror.agree(t=("id",))
        assert mirror.phase_of("big")[0] == "copying"
        assert not mirror.lake("big", "id")
        connection.cursor().execute("UNLOCK TABLES")
    mirror.agree(big=("id",), t=("id",))
