"""Statistics of Delta tables: they exclude no matching row."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from fix_lake import (
    COPY,
    LakeRows,
    filled,
    in_order,
    lake_rows,
    lake_table,
    published,
    random_table,
)
from fix_random import longer

from canal_server.mirror.lake.conditions import Where, Within
from canal_server.mirror.lake.delta import delta_properties as properties
from canal_server.mirror.lake.steps import DropColumn, RenameColumn, WidenColumn
from canal_server.mirror.settings.table_values import CopiedFile
from canal_server.mirror.state.lake_tables import lake_schema

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from canal_server.mirror.lake.steps import Step

MAX = 2**63 - 1
CUT = timedelta(milliseconds=1)
WIDE = lake_table([("id", "bigint unsigned"), ("n", "bigint unsigned")], ("id",))


def stated_wrong(path: Path) -> list[tuple[str, Any, Any]]:
    """Return the columns with values outside a file's statistics in the log."""
    actions = pa.table(DeltaTable(str(path)).get_add_actions(flatten=True)).to_pylist()
    wrong = []
    for action in actions:
        rows = pq.read_table(path / action["path"])
        for name in rows.column_names:
            values = [value for value in rows[name].to_pylist() if value is not None]
            for side, sign in (("min", 1), ("max", -1)):
                with_statistics = action.get(f"{side}.{name}")
                if with_statistics is None or not values:
                    continue
                true = min(values) if side == "min" else max(values)
                if side == "max" and hasattr(true, "hour"):
                    with_statistics += CUT
                if isinstance(true, Decimal) and true.as_tuple().exponent:
                    with_statistics, true = float(with_statistics), float(true)
                if (true < with_statistics) if sign > 0 else (true > with_statistics):
                    wrong.append((name, with_statistics, true))
    return wrong


@pytest.mark.parametrize("round_", range(longer(4)))
def test_statistics_are_right(tmp_path: Path, rng: random.Random, round_: int) -> None:
    """Whatever the values are, no statistics are narrower than them."""
    rows = filled(random_table(rng), rng)
    print([(c.target, c.mysql_type, c.is_key) for c in rows.table.columns])
    lake = published(tmp_path, rows)
    for _ in range(3):
        changes = rows.as_changes(rows.random_changes(rng.choice([1, 20])))
        lake.apply(COPY, changes, rows.seq + 1, {})
        assert stated_wrong(tmp_path) == []
    lake.compact()
    assert stated_wrong(tmp_path) == []
    assert in_order(lake_rows(lake)) == in_order(rows.rows.values())


def test_large_keys(tmp_path: Path, rng: random.Random) -> None:
    """A key has statistics until the first number of more than 64 bits."""
    rows = LakeRows(WIDE, rng)
    lake = published(tmp_path, rows)

    def put(number: int, value: int) -> None:
        row = {"id": Decimal(number), "n": Decimal(value)}
        changes = rows.as_changes([rows.change("insert", row)])
        lake.apply(COPY, changes, rows.seq + 1, {})

    put(5, 2**64 - 1)
    assert "id" in (properties.statistics_columns(_configuration(tmp_path)) or [])
    for value in (1, 2):
        put(2**64 - 1, value)
        put(MAX + 2, value)
        put(5, value)
    assert "id" not in (properties.statistics_columns(_configuration(tmp_path)) or [])
    found = sorted((int(row["id"]), int(row["n"])) for row in lake_rows(lake))
    assert found == [(5, 2), (MAX + 2, 2), (2**64 - 1, 2)]
    for number, value in found:
        exact = Decimal(number)
        where = Where((Within("id", exact, exact),))
        (row,) = (r for batch in lake.scan(where=where) for r in batch.to_pylist())
        assert (row["id"], row["n"]) == (number, value)


def test_columns_change(tmp_path: Path, rng: random.Random) -> None:
    """Columns have statistics by the names and types that they get."""
    columns = [("id", "int"), ("a b", "int"), ("c`d", "decimal(5,2)"), ("e", "int")]
    lake = published(tmp_path, filled(lake_table(columns, ("id",)), rng))
    steps: list[Step] = [
        RenameColumn("a b", "a, b"),
        WidenColumn("c`d", "decimal(30,2)", ""),
        DropColumn("e"),
    ]
    lake.evolve(COPY, steps, 99_999, {})
    actions = pa.table(DeltaTable(str(tmp_path)).get_add_actions(flatten=True))
    with_statistics = {
        name[4:] for name in actions.column_names if name.startswith("min.")
    }
    assert with_statistics == {"id", "a, b", "_seq", "_committed_at"}


def test_a_key_gets_another_name(tmp_path: Path, rng: random.Random) -> None:
    """It keeps its statistics, also one of numbers that may have more than 64 bits."""
    rows = LakeRows(WIDE, rng)
    lake = published(tmp_path, rows)
    lake.evolve(COPY, [RenameColumn("id", "no"), RenameColumn("no", "ID")], 99_999, {})
    now = properties.statistics_columns(_configuration(tmp_path)) or []
    assert "ID" in now
    assert "n" not in now


def test_copies(tmp_path: Path) -> None:
    """A key has statistics if all files of a copy have 64-bit numbers."""
    schema = lake_schema(WIDE)

    def chosen(*greatest: int | None) -> list[str] | None:
        files = [_file({} if n is None else {"id": n}) for n in greatest]
        made = properties.of_copy(schema, ["id"], files, change_feed=False)
        return properties.statistics_columns(made)

    assert chosen() == ["id", "_seq", "_committed_at"]
    assert chosen(5, MAX - 1) == ["id", "_seq", "_committed_at"]
    assert chosen(5, MAX) == ["_seq", "_committed_at"]
    assert chosen(5, None) == ["_seq", "_committed_at"]
    text = json.dumps({"numRecords": 1, "minValues": {"id": 0.1, "n": 5}})
    kept = json.loads(properties.statistics(text, ["id"]))
    assert kept["minValues"] == {"id": 0.1}


def _configuration(path: Path) -> dict[str, str]:
    return dict(DeltaTable(str(path)).metadata().configuration)


def _file(ends: dict[str, int]) -> CopiedFile:
    with_statistics = {
        "numRecords": 1,
        "minValues": ends,
        "maxValues": ends,
        "nullCount": {},
    }
    return CopiedFile("x", 1, 1, json.dumps(with_statistics))
