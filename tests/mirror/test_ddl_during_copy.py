"""DDL in the middle of copies: the lake equals the source in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fix_random import longer

if TYPE_CHECKING:
    from fix_mirror_process import MirrorProcess

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(0),
    # `test_copy_ddl` has what is in question, without Spark.
    pytest.mark.skipif(longer(1) < 2, reason="CANAL_TEST_LONGER=2 runs it"),
]

SERIES = (
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 990) "
    "SELECT {} FROM r"
)
FOUR = " JOIN (SELECT 1 AS m UNION SELECT 2 UNION SELECT 3 UNION SELECT 4) AS s"
TABLES = {  # with their columns and rows
    "members": (
        "id INT PRIMARY KEY, v ENUM('a','b','c')",
        "n, ELT(1 + n % 2, 'a', 'b')",
    ),
    "texts": (
        "id INT PRIMARY KEY, v VARCHAR(20) CHARACTER SET latin1",
        "n, CONCAT('éü', n)",
    ),
    "sorted": (
        "id VARCHAR(20) COLLATE utf8mb4_general_ci PRIMARY KEY, v INT",
        "CONCAT(ELT(1 + (n + m) % 4, 'a', 'B', 'c', 'D'), n, ' ', m), n",
    ),
}


def test_texts_redefined(mirror: MirrorProcess) -> None:
    """Other labels, another character set, another order of the key: copied again.

    The last one while the mirror is down: the copy is resumed, as no column differs,
    and the statement arrives when it is done.
    """
    schema, execute = mirror.pipeline.schema, mirror.source.execute
    for name, (columns, values) in TABLES.items():
        execute(
            f"CREATE TABLE {schema}.{name} ({columns}) DEFAULT CHARSET utf8mb4",
            f"INSERT INTO {schema}.{name} {SERIES.format(values)}"
            f"{FOUR if name == 'sorted' else ''}",
            f"ANALYZE TABLE {schema}.{name}",
        )
    mirror.settings["copy"] = {
        "connections": 3,
        "tables_at_once": 3,
        "chunk_rows": 100,
        "rows_per_second": 150,
    }
    mirror.start(wait=False)
    mirror.wait_for(lambda: all(chunks_done(mirror, n) > 1 for n in TABLES), "chunks")
    started = {name: mirror.state(name)["copy_id"] for name in TABLES}
    execute(
        f"ALTER TABLE {schema}.members MODIFY v ENUM('a','x','b','c')",
        f"ALTER TABLE {schema}.texts CONVERT TO CHARACTER SET utf8mb4",
    )
    mirror.agree(members=("id",), texts=("id",))
    assert chunks_done(mirror, "sorted")
    mirror.kill()
    execute(
        f"ALTER TABLE {schema}.sorted MODIFY id VARCHAR(20) COLLATE utf8mb4_bin "
        "NOT NULL"
    )
    del mirror.settings["copy"]["rows_per_second"]
    mirror.start()
    mirror.wait_for(lambda: mirror.phase_of("sorted")[0] == "following", "sorted")
    mirror.agree(**dict.fromkeys(TABLES, ("id",)))
    left = {name: mirror.state(name)["copy_id"] for name in TABLES}
    assert not {*left.values()} & {*started.values()}
    mirror.stop()


def chunks_done(mirror: MirrorProcess, table: str) -> int:
    """Return how many chunks of a table's first copy are done; 0 after it."""
    state = mirror.state(table)
    if state.get("phase") != "copying":
        return 0
    return len([*mirror.path.rglob(f"copies/{state['copy_id']}/chunk-*")])
