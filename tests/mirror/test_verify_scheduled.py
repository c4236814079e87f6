"""A running mirror that compares its tables with the source."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")

pytestmark = [pytest.mark.slow, pytest.mark.spark]


def test_a_difference_is_found(make_mirror, mysql_server) -> None:
    """First all are equal; then one has a row that the binlog never had."""
    mirror = make_mirror(mysql_server)
    schema = mirror.pipeline.schema
    mirror.source.execute(
        f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, a VARCHAR(20))",
        f"CREATE TABLE {schema}.u (id INT PRIMARY KEY)",
        f"INSERT INTO {schema}.t VALUES (1, 'a'), (2, NULL)",
    )
    mirror.settings["verify"] = {"every": "5s"}
    mirror.start()
    mirror.wait_for(lambda: outcomes(mirror) == {"t": "equal", "u": "equal"}, "equal")
    mirror.source.execute(
        "SET SESSION sql_log_bin = 0", f"INSERT INTO {schema}.t VALUES (3, 'c')"
    )
    mirror.wait_for(lambda: outcomes(mirror).get("t") == "different", "a difference")
    mirror.source.execute(f"INSERT INTO {schema}.u VALUES (1)")
    mirror.agree(u=("id",))  # it goes on
    shown = mirror.command("status")
    assert f"{schema}.t: 1 or more rows differed " in shown.stdout
    text = f"{schema}.t: its copy differs from the source: 1 row at "
    assert [line for line in mirror.process.log if text in line]
    mirror.stop()


def outcomes(mirror) -> dict[str, str]:
    """Return the outcomes of the last comparisons, as they are kept in the lake."""
    found = [
        json.loads(file.read_text())
        for file in (mirror.path / "_mirror").rglob("verified/*.json")
    ]
    return {each["table"][1]: each["outcome"] for each in found}
