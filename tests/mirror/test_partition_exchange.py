"""Partitions that are exchanged with tables, in a whole mirror: without a copy."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from schema_changes import run

if TYPE_CHECKING:
    from fix_mirror_process import MirrorProcess

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(0)]

RANGES = "(PARTITION one VALUES LESS THAN (1000), PARTITION two VALUES LESS THAN (2000)"
ROWS = (
    "WITH RECURSIVE s AS (SELECT {0} i UNION ALL SELECT i + 1 FROM s WHERE i < {1}) "
    "SELECT i, CONCAT('{2} ', i) FROM s"
)


def knows_partitions(mirror: MirrorProcess) -> bool:
    """Check whether the mirror knows the bounds of each partition; ends a batch."""
    run(mirror, "UPDATE p SET a = REVERSE(a) WHERE id = 1500")
    return mirror.knows_partitions("p")


def test_exchanged(mirror: Any, form: str) -> None:
    """Both tables get the rows of the other one, also after a kill, and nobody copies.

    A table that breaks the partition's condition, which the server was asked not to
    check, is copied, and so is the partitioned one.
    """
    mirror.settings["lake"] |= {"format": form}
    run(
        mirror,
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(100))",
        "CREATE TABLE p LIKE t",
        f"ALTER TABLE p PARTITION BY RANGE (id) {RANGES})",
        f"INSERT INTO t {ROWS.format(1, 400, 'of t')}",
        f"INSERT INTO p {ROWS.format(500, 900, 'of p')}",
        f"INSERT INTO p {ROWS.format(1500, 1900, 'stays')}",
    )
    mirror.start()
    mirror.agree(t=("id",), p=("id",))
    mirror.wait_for(lambda: knows_partitions(mirror), "the partitions")
    exchange = "ALTER TABLE p EXCHANGE PARTITION one WITH TABLE t"
    run(
        mirror,
        "INSERT INTO t VALUES (401, 'just before')",
        exchange,
        "UPDATE t SET a = 'then' WHERE id < 600",
        "DELETE FROM p WHERE id < 50",
    )
    mirror.agree(t=("id",), p=("id",))
    mirror.kill()
    run(mirror, exchange, "UPDATE t SET a = 'later' WHERE id % 7 = 0", exchange)
    run(mirror, "INSERT INTO p VALUES (2, 'of p')")
    mirror.start(wait=False)
    mirror.agree(t=("id",), p=("id",))
    assert mirror.state("t")["copies"] == 1
    assert mirror.state("p")["copies"] == 1
    if mirror.source.can("CONVERT TABLE … TO PARTITION"):
        run(
            mirror,
            "UPDATE t SET id = id + 2000",
            "ALTER TABLE p CONVERT TABLE t TO PARTITION three VALUES LESS THAN (4000)",
        )
        mirror.wait_for(lambda: mirror.phase_of("t")[0] == "dropped", "the drop of t")
        mirror.agree(p=("id",))
        assert mirror.state("p")["copies"] == 1
        run(mirror, "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(100))")
        mirror.agree(t=("id",), p=("id",))
    done = mirror.command("verify", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = [each["outcome"] for each in json.loads(done.stdout)["tables"]]
    assert outcomes == ["equal", "equal"]
    if mirror.source.can("EXCHANGE PARTITION … WITHOUT VALIDATION"):
        run(mirror, "INSERT INTO t VALUES (3000, 'does not belong')")
        run(mirror, f"{exchange} WITHOUT VALIDATION")
        mirror.agree(t=("id",), p=("id",))
        mirror.wait_for(lambda: mirror.state("p")["copies"] == 2, "a copy")
        assert mirror.process is not None
        log = "".join(mirror.process.log)
        assert "has rows that do not belong into partition one" in log
    mirror.stop()


@pytest.mark.parametrize("name", ["t", "p"])
def test_only_one_table_is_mirrored(mirror: Any, name: str) -> None:
    """The statement is noticed for it, and it is copied again.

    No rule matches the other one.
    """
    (rule,) = mirror.settings["tables"]
    rule["match"] = rf"{mirror.pipeline.schema}\.{name}"
    run(
        mirror,
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(100))",
        "CREATE TABLE p LIKE t",
        f"ALTER TABLE p PARTITION BY RANGE (id) {RANGES})",
        "INSERT INTO t VALUES (1, 'of t')",
        "INSERT INTO p VALUES (500, 'of p'), (1500, 'stays')",
    )
    mirror.start()
    mirror.agree(**{name: ("id",)})
    run(
        mirror,
        "ALTER TABLE p EXCHANGE PARTITION one WITH TABLE t",
        f"UPDATE {name} SET a = 'then'",
    )
    mirror.agree(**{name: ("id",)})
    mirror.wait_for(lambda: mirror.state(name)["copies"] == 2, "a copy")
    mirror.stop()


def test_a_partitioned_table_that_is_excluded(mirror: Any) -> None:
    """The statement is noticed for the other table, which is copied again."""
    (rule,) = mirror.settings["tables"]
    rule["exclude"] = rf"{mirror.pipeline.schema}\.p"
    run(
        mirror,
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(100))",
        "CREATE TABLE p LIKE t",
        f"ALTER TABLE p PARTITION BY RANGE (id) {RANGES})",
        "INSERT INTO t VALUES (1, 'of t')",
        "INSERT INTO p VALUES (500, 'of p'), (1500, 'stays')",
    )
    mirror.start()
    mirror.agree(t=("id",))
    run(
        mirror,
        "ALTER TABLE p EXCHANGE PARTITION one WITH TABLE t",
        "UPDATE t SET a = 'then'",
    )
    mirror.agree(t=("id",))
    mirror.wait_for(lambda: mirror.state("t")["copies"] == 2, "a copy")
    mirror.stop()
    assert mirror.state("p") == {}
