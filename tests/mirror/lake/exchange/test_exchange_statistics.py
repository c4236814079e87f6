"""Rows that a table gets by EXCHANGE are found by their values."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")

import fix_lake
from deltalake import DeltaTable
from fix_lake import COPY, LakeRows, lake_table, published

from canal_server.mirror.lake.conditions import Among, Interval
from canal_server.mirror.lake.exchange.given_rows import ExchangeTable, ReceivedRows
from canal_server.mirror.lake.file_stats import FileStats

if TYPE_CHECKING:
    import random
    from pathlib import Path

TABLE = lake_table([("id", "bigint unsigned"), ("v", "varchar(20)")], ("id",))
LARGE = [2**63 + 5, 2**63 + 9, 2**64 - 1]


def statistics_of(part: pa.Table) -> str:
    """Return the statistics of a copied file, as copies write them."""
    found = FileStats(part.schema, ["id"])
    for batch in part.to_batches():
        found.add(batch)
    return str(found.to_json())


def test_numbers_beyond_64_bits(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query for them does not skip their files, as their statistics would be wrong.

    Delta's statistics are those of 64-bit numbers, in every engine.
    """
    monkeypatch.setattr(fix_lake, "statistics", statistics_of)
    tables = []
    for name, ids in (("parts", [1, 2, 12, 13]), ("other", LARGE)):
        rows = LakeRows(TABLE, rng)
        for number in ids:
            rows.put("insert", {"id": Decimal(number), "v": str(number)})
        tables.append(published(tmp_path / name, rows))
    parts, other = tables
    assert isinstance(parts, ExchangeTable)
    assert isinstance(other, ExchangeTable)
    schema = parts.arrow_schema()
    assert schema is not None
    kind = schema.field("id").type
    where = Among("id", kind, (Interval(Decimal(10), None),))
    given = other.given(COPY, None, 10_000)
    assert given is not None
    assert parts.exchange(COPY, ReceivedRows(given, 1000, where), {}) == len(LARGE)
    lake = DeltaTable(str(tmp_path / "parts")).to_pyarrow_dataset()
    least = pa.scalar(Decimal(2**63 + 1)).cast(kind)
    found = lake.to_table(filter=ds.field("id") >= least)
    assert sorted(int(each) for each in found["id"].to_pylist()) == LARGE
    assert lake.count_rows() == len(LARGE) + 2
