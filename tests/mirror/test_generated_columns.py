"""Generated columns of mirrored tables: rows, and DDL without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from schema_changes import run

if TYPE_CHECKING:
    from fix_mirror_process import MirrorProcess

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(0)]

TABLE = (
    "CREATE TABLE {} (id INT {}, n INT, p DECIMAL(8,2), name VARCHAR(20), at DATETIME "
    "NOT NULL, s INT AS (n + 1) STORED, v VARCHAR(30) AS (CONCAT(name, '-', n)) "
    "VIRTUAL)"
)
FILL = (
    "INSERT INTO {} (id, n, p, name, at) WITH RECURSIVE i AS (SELECT 1 i UNION ALL "
    "SELECT i + 1 FROM i WHERE i < 300) SELECT i, i % 7, i / 100, CONCAT('row ', i), "
    "'2024-02-29 10:00:00' + INTERVAL i DAY FROM i"
)
CHANGES = (
    "UPDATE {} SET n = n + 1, name = CONCAT(name, 'é') WHERE id % 3 = 0",
    "DELETE FROM {} WHERE id % 10 = 4",
    "INSERT INTO {} (id, n, p, name, at) VALUES ({}, NULL, 1.25, 'new', '2024-01-01')",
)
FOLLOWED = (
    "ADD total DECIMAL(12,2) AS (p * n) STORED, ADD month INT AS (MONTH(at)) VIRTUAL",
    (
        "DROP total, DROP month, ADD plain INT NOT NULL DEFAULT 3, "
        "MODIFY v VARCHAR(40) AS (CONCAT(name, '/', COALESCE(n, 0))) VIRTUAL, "
        "MODIFY s BIGINT AS (n * 100) STORED"
    ),
    "MODIFY s BIGINT",  # an ordinary column from now on
    (
        "MODIFY v VARCHAR(50) AS (CONCAT(name, n)) VIRTUAL, "
        "ADD late INT AS (IF(YEAR(at) > 2024, 1, 0)) VIRTUAL AFTER id"
    ),
)


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_generated_columns(mirror: MirrorProcess, form: str) -> None:
    """Stored and virtual columns are copied, changed, added and replaced, with values.

    Statements whose values can be computed make no copy, with a key and without one.
    """
    if form == "iceberg":
        pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")
    mirror.settings["lake"] |= {"format": form}
    tables = {"keyed": ("id",), "bag": ()}
    for table, key in tables.items():
        run(mirror, TABLE.format(table, "PRIMARY KEY" if key else ""))
        run(mirror, FILL.format(table))
    mirror.start()
    mirror.agree(**tables)
    for number, change in enumerate(FOLLOWED):
        for table in tables:
            run(mirror, f"ALTER TABLE {table} {change}")
            run(mirror, *(each.format(table, 1000 + number) for each in CHANGES))
        mirror.agree(**tables)
    copies = {table: mirror.state(table)["copies"] for table in tables}
    assert copies == dict.fromkeys(tables, 1)
    names = [f"{mirror.pipeline.schema}.{table}" for table in tables]
    done = mirror.command("verify", *names)
    assert done.returncode == 0, done.stdout + done.stderr

    # What a server computes in its own way, or may compute again.
    run(mirror, "ALTER TABLE keyed ADD h CHAR(32) AS (MD5(name)) STORED")
    mirror.wait_for(lambda: mirror.state("keyed")["copies"] == 2, "another copy")
    mirror.agree(**tables)
    run(mirror, "ALTER TABLE bag MODIFY p DECIMAL(12,4)")
    mirror.wait_for(lambda: mirror.state("bag")["copies"] == 2, "another copy")
    mirror.agree(**tables)
    assert mirror.process is not None
    log = "".join(mirror.process.log)
    assert "its expression has md5(), which is not computed" in log
    assert "is generated, and may change with column p" in log
    mirror.stop()
