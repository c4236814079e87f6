"""The lake's tables: a folder is of one format."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")
pytest.importorskip("yaml", reason="the extra `mirror` is not installed")

from fix_lake import copied_rows, filled, opened, random_table, write_copy

from canal_server.mirror.lake import lake_schema, other_format
from canal_server.mirror.settings_file import read

if TYPE_CHECKING:
    import random
    from pathlib import Path

SETTINGS = """name: shop
canal: {destination: example}
source: {host: db, user: canal}
lake: {path: .}
tables: [{match: .*}]
"""


@pytest.mark.parametrize(
    ("before", "now", "there"),
    [
        ("delta", "json", "has a Delta table, and format is json now"),
        ("delta", "parquet", "has a Delta table, and format is parquet now"),
        ("parquet", "delta", "has a log of changes, and format is delta now"),
        ("parquet", "json", ""),  # a log that goes on in other files
        ("delta", "delta", ""),
    ],
)
def test_what_a_folder_has(
    rng: random.Random, tmp_path: Path, before: str, now: str, there: str
) -> None:
    """A folder with a table is none for a log, nor the other way round."""
    settings = read(SETTINGS, str(tmp_path / "mirror.yml"), {})
    table = random_table(rng)
    target = replace(table, form=now)
    assert other_format(settings, target) == ""
    folder = tmp_path / table.target
    rows = filled(replace(table, form=before), rng)
    lake = opened(folder, rows.table)
    files = write_copy(folder, copied_rows(rows))
    lake.publish("c1", lake_schema(rows.table), files, rows.seq + 1, {"from": "copy"})
    problem = other_format(settings, target)
    assert problem.startswith(f"{folder} {there}") if there else problem == ""
