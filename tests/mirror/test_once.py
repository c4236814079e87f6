"""A mirror that runs once: it ends where the binlog ended, and goes on from there."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")

from deltalake import write_deltalake

pytestmark = [pytest.mark.slow, pytest.mark.spark]


def test_run_again_and_again(make_mirror, mysql_server) -> None:
    """Each run copies what is new and follows to the end; then one has a problem."""
    mirror = make_mirror(mysql_server)
    schema = mirror.pipeline.schema
    mirror.source.execute(
        f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, a VARCHAR(20))",
        f"INSERT INTO {schema}.t VALUES (1, 'a'), (2, NULL)",
    )
    mirror.write_conf()
    once(mirror, 0)
    assert mirror.lake("t", "id") == mirror.truth("t", "id")
    ended = mirror.command("status").stdout
    assert ": not running; stopped " in ended
    assert "\nended: the lake has everything up to " in ended

    mirror.source.execute(
        f"UPDATE {schema}.t SET a = 'x' WHERE id = 2",
        f"ALTER TABLE {schema}.t ADD COLUMN c INT NOT NULL DEFAULT 5",
        f"INSERT INTO {schema}.t VALUES (4, 'd', 6)",
        f"CREATE TABLE {schema}.u (id INT PRIMARY KEY)",
        f"INSERT INTO {schema}.u VALUES (1), (7)",
    )
    once(mirror, 0)
    for table in ("t", "u"):
        assert mirror.lake(table, "id") == mirror.truth(table, "id")
    assert mirror.state("t")["copies"] == 1, "it went on"

    mirror.source.execute(
        f"DROP TABLE {schema}.u",
        f"CREATE TABLE {schema}.u (id INT PRIMARY KEY, b INT)",
        f"INSERT INTO {schema}.u VALUES (2, 2)",
    )
    once(mirror, 0)
    assert mirror.lake("u", "id") == mirror.truth("u", "id"), "dropped and made again"

    folder = mirror.path / schema / "w"
    write_deltalake(str(folder), pa.table({"x": [1]}))
    mirror.source.execute(
        f"DELETE FROM {schema}.t WHERE id = 1",
        f"CREATE TABLE {schema}.w (id INT PRIMARY KEY)",
    )
    text = once(mirror, 1)
    assert f"tables that are stopped: {schema}.w (" in text
    assert mirror.lake("t", "id") == mirror.truth("t", "id")
    status = json.loads(mirror.command("status", "--json").stdout)
    assert status["status"]["message"].startswith("tables that are stopped: ")


def once(mirror, expected: int) -> str:
    """Run it once; returns its log."""
    found = mirror.command("--once")
    assert found.returncode == expected, found.stderr
    return str(found.stderr)
