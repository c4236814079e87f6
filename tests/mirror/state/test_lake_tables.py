"""The lake's tables: a folder is of one format."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")
pytest.importorskip("yaml", reason="the extra `mirror` is not installed")

from deltalake import DeltaTable
from fix_lake import copied_rows, filled, kept, opened, random_table, write_copy

from canal_server.errors import LakeError
from canal_server.mirror.settings.mirror_settings import TableRule
from canal_server.mirror.settings.selected_tables import target_of
from canal_server.mirror.settings.settings_file import read
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.lake_tables import (
    lake_schema,
    open_table,
    other_format,
)

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
        ("delta", "json", "has a Delta table, but format is json now"),
        ("delta", "parquet", "has a Delta table, but format is parquet now"),
        ("parquet", "delta", "has a log of changes, but format is delta now"),
        ("parquet", "json", ""),  # a log that continues in other files
        ("delta", "delta", ""),
        ("delta", "iceberg", "has a Delta table, but format is iceberg now"),
        ("parquet", "iceberg", "has a log of changes, but format is iceberg now"),
        ("iceberg", "delta", "has an Iceberg table, but format is delta now"),
        ("iceberg", "json", "has an Iceberg table, but format is json now"),
        ("iceberg", "iceberg", ""),
    ],
)
def test_what_a_folder_has(
    rng: random.Random, tmp_path: Path, before: str, now: str, there: str
) -> None:
    """A folder with a table of one format is refused for each other one."""
    if "iceberg" in (before, now):
        reason = "the extra `iceberg` is not installed"
        pytest.importorskip("pyiceberg", reason=reason)
    settings = read(SETTINGS, str(tmp_path / "mirror.yml"), {})
    table = random_table(rng)
    target = kept(table, now)
    assert other_format(settings, target) == ""
    folder = tmp_path / table.target
    rows = filled(kept(table, before), rng)
    lake = opened(folder, rows.table)
    files = write_copy(folder, copied_rows(rows))
    lake.publish("c1", lake_schema(rows.table), files, rows.seq + 1, {"from": "copy"})
    problem = other_format(settings, target)
    assert problem.startswith(f"{folder} {there}") if there else problem == ""


def test_iceberg_without_its_library(
    rng: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table says what to install."""
    settings = read(SETTINGS, str(tmp_path / "mirror.yml"), {})

    def missing(name: str) -> None:
        assert name == "canal_server.mirror.lake.iceberg.iceberg"
        raise ModuleNotFoundError("No module named 'pyiceberg'", name="pyiceberg")

    monkeypatch.setattr("importlib.import_module", missing)
    table = random_table(rng, form="iceberg")
    with pytest.raises(LakeError, match=r"pip install 'canal-server\[iceberg\]'"):
        open_table(settings, table)


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("orders_2024-x.y$", "orders_2024-x.y$"),
        ("Odd name-ü 2024.x", "Odd!20name-!C3!BC!202024.x"),
        ("a%20b", "a!2520b"),
        ("a!20b", "a!2120b"),
        ("../up", "!2E.!2Fup"),
        ("_hidden", "!5Fhidden"),
        ("日本—x", "!E6!97!A5!E6!9C!AC!E2!80!94x"),
        ("it's \"#?*<>|\\", "it!27s!20!22!23!3F!2A!3C!3E!7C!5C"),
    ],
)
def test_a_table_of_any_name(
    rng: random.Random, tmp_path: Path, name: str, folder: str
) -> None:
    """Its copy and its changes are in a folder where every reader finds them."""
    target = target_of(TableName("shop", name), TableRule(match=".*"))
    assert target == f"shop/{folder}"
    rows = filled(replace(random_table(rng), form="delta", target=target), rng)
    path = tmp_path / target
    lake = opened(path, rows.table)
    files = write_copy(path, copied_rows(rows))
    lake.publish("c1", lake_schema(rows.table), files, rows.seq + 1, {})
    changes = rows.as_changes(rows.random_changes(20))
    lake.apply("c1", changes, rows.seq + 1, {})
    assert DeltaTable(str(path)).version() == 1
    found = sum(batch.num_rows for batch in lake.scan())
    assert found == len(DeltaTable(str(path)).to_pyarrow_table())
    assert [each.name for each in path.parent.iterdir()] == [folder]
