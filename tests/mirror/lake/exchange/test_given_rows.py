"""Rows that a table of the lake gives to another one, in either format."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from fix_lake import (
    COPY,
    in_order,
    kept,
    lake_rows,
    lake_table,
    opened,
    published,
    versions,
)
from fix_lake import LakeRows as Rows

from canal_server.errors import LakeError
from canal_server.mirror.lake.conditions import Among, Interval
from canal_server.mirror.lake.exchange import given_rows
from canal_server.mirror.lake.exchange.given_rows import (
    ExchangeTable,
    ReceivedRows,
    in_batches,
)
from canal_server.mirror.lake.keyless import row_hashes
from canal_server.mirror.lake.lake_table import HASH, ROW, SEQ, TIME, lake_schema

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

PLAIN = lake_table([("id", "int"), ("v", "varchar(20)")], ("id",))
UPTO = 5_000  # position number after the statement
AT = datetime(2026, 11, 2, 10, 30, tzinfo=UTC)
AT_MS = int(AT.timestamp()) * 1000
BELOW_10 = Among("id", pa.int32(), (Interval(None, 10),))


@dataclass
class Given:
    """Some rows, as a table of the lake gives them."""

    parts: list[pa.Table]
    upto: int = UPTO

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows."""
        yield from self.parts

    def has_others(self, where: Among) -> bool:
        """Find none."""
        del where
        return False


def part(*ids: int, **columns: Any) -> pa.Table:
    """Return rows with what the lake adds to them."""
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "v": [f"v{each}" for each in ids],
            SEQ.name: pa.array([1] * len(ids), SEQ.type),
            ROW.name: pa.array([9] * len(ids), ROW.type),
            TIME.name: pa.array([None] * len(ids), TIME.type),
            **columns,
        }
    )


# --- rows on their way ----------------------------------------------------------------


def test_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables are written together, in their order, and none is left out."""
    monkeypatch.setattr(given_rows, "BATCH_ROWS", 5)
    parts = [part(*range(first, first + 2)) for first in range(0, 14, 2)]
    found = list(in_batches(parts))
    assert [len(each) for each in found] == [6, 6, 2]
    assert pa.concat_tables(found)["id"].to_pylist() == list(range(14))
    assert list(in_batches([])) == []


def test_what_the_statement_changes() -> None:
    """It is the last change of each row: its place, its time, and a number of its own.

    The columns are those of the table that gets the rows, in its order.
    """
    given = Given([part(7, 8), part(3)])
    schema = lake_schema(PLAIN)
    found = list(ReceivedRows(given, AT_MS).as_changed(schema))
    assert [each.schema for each in found] == [schema, schema]
    assert pa.concat_tables(found).to_pylist() == [
        {"id": i, "v": f"v{i}", "_seq": UPTO - 1, "_row": n, "_committed_at": AT}
        for n, i in enumerate((7, 8, 3))
    ]


def test_a_statement_without_a_time() -> None:
    """The time of its rows is unknown, too, not that of 1970."""
    (found,) = ReceivedRows(Given([part(1)]), 0).as_changed(lake_schema(PLAIN))
    assert found[TIME.name].to_pylist() == [None]


def test_hashes_of_rows_without_a_key() -> None:
    """They are those of the new table's columns, which may be in another order."""
    table = replace(PLAIN, key=(), columns=PLAIN.columns[::-1])
    schema = lake_schema(table)
    given = part(1, 2, **{HASH.name: pa.array([5, 6], HASH.type)})
    (found,) = ReceivedRows(Given([given]), AT_MS).as_changed(schema)
    assert found.column_names[:2] == ["v", "id"]
    assert found[HASH.name].to_pylist() == row_hashes(found).to_pylist()
    assert not {5, 6} & set(found[HASH.name].to_pylist())


# --- tables of the lake ---------------------------------------------------------------


class Pair:
    """Two tables of a lake, the first one with ids below and above 10."""

    def __init__(self, folder: Path, form: str, rng: random.Random) -> None:
        self.folder = folder
        self.rows = {}
        for name, ids in (("p", (1, 2, 11, 12)), ("t", (3, 4, 5))):
            rows = Rows(replace(kept(PLAIN, form), target=name), rng)
            for each in ids:
                rows.put("insert", {"id": each, "v": f"{name}{each}"})
            published(folder / name, rows)
            self.rows[name] = rows

    def __getitem__(self, name: str) -> ExchangeTable:
        """Return a table as another process opens it."""
        found = opened(self.folder / name, self.rows[name].table)
        assert isinstance(found, ExchangeTable)
        return found

    def values(self, name: str) -> dict[int, str]:
        """Return the rows of a table by their ids."""
        return {row["id"]: row["v"] for row in lake_rows(self[name])}

    def versions(self, name: str) -> int:
        """Return how often a table was changed."""
        return versions(self.folder / name, self.rows[name].table.form)


@pytest.fixture
def pair(tmp_path: Path, form: str, rng: random.Random) -> Pair:
    """Give two tables of each format."""
    return Pair(tmp_path, form, rng)


def test_rows_of_a_condition(pair: Pair) -> None:
    """They replace all rows of the other table, and only those of the condition.

    Each commit is repeated, as after a kill, and changes nothing then.
    """
    into_t = pair["p"].given(COPY, BELOW_10, UPTO)
    into_p = pair["t"].given(COPY, None, UPTO)
    assert into_t is not None
    assert into_p is not None
    assert not into_p.has_others(BELOW_10)
    done = pair["p"].exchange(COPY, ReceivedRows(into_p, AT_MS, BELOW_10), {"n": "1"})
    assert done == 3
    before = pair.versions("p"), pair.versions("t")
    assert pair["p"].exchange(COPY, ReceivedRows(into_p, AT_MS, BELOW_10), {}) == 0
    assert pair["t"].exchanged(COPY) < UPTO

    # The first table gives them from its version before the statement.
    again = pair["p"].given(COPY, BELOW_10, UPTO)
    assert again is not None
    assert pair["t"].exchange(COPY, ReceivedRows(again, AT_MS), {"n": "1"}) == 2
    assert pair["t"].exchange(COPY, ReceivedRows(again, AT_MS), {}) == 0
    assert (pair.versions("p"), pair.versions("t") - 1) == before
    assert pair.values("t") == {1: "p1", 2: "p2"}
    assert pair.values("p") == {
        3: "t3", 4: "t4", 5: "t5", 11: "p11", 12: "p12",
    }  # fmt: skip
    for name in ("p", "t"):
        assert pair[name].exchanged(COPY) == UPTO
        assert pair[name].position() == (UPTO, {"n": "1"})
    moved = [row for row in lake_rows(pair["t"]) if row["id"] == 2]
    assert (moved[0]["_seq"], moved[0]["_committed_at"]) == (UPTO - 1, AT)


def test_rows_that_are_added(pair: Pair) -> None:
    """They replace none."""
    given = pair["t"].given(COPY, None, UPTO)
    assert given is not None
    received = ReceivedRows(given, AT_MS, adds=True)
    before = pair.values("p")
    assert pair["p"].exchange(COPY, received, {}) == 3
    assert pair.values("p") == before | {3: "t3", 4: "t4", 5: "t5"}


@pytest.mark.parametrize("adds", [False, True])
def test_no_rows(pair: Pair, *, adds: bool) -> None:
    """An empty table leaves nothing of what it replaces; the statement is recorded."""
    pair["t"].empty(COPY, UPTO - 1, AT_MS, {})
    given = pair["t"].given(COPY, None, UPTO)
    assert given is not None
    before = pair.values("p")
    received = ReceivedRows(given, AT_MS, BELOW_10, adds)
    assert pair["p"].exchange(COPY, received, {}) == 0
    assert pair.values("p") == (before if adds else {11: "p11", 12: "p12"})
    assert pair["p"].exchanged(COPY) == UPTO


def test_rows_outside_of_a_condition(pair: Pair) -> None:
    """They are found, also among rows that fulfil another condition."""
    given = pair["p"].given(COPY, None, UPTO)
    assert given is not None
    assert given.has_others(BELOW_10)
    below = pair["p"].given(COPY, BELOW_10, UPTO)
    assert below is not None
    assert not below.has_others(BELOW_10)
    assert below.has_others(replace(BELOW_10, intervals=(Interval(None, 2),)))


def test_a_table_that_was_changed_since(pair: Pair) -> None:
    """It does not give rows that it may not have had before the statement."""
    rows = pair.rows["t"]
    changes = rows.as_changes([rows.put("insert", {"id": 6, "v": "late"})])
    pair["t"].apply(COPY, changes, UPTO + 10, {})
    assert pair["t"].given(COPY, None, UPTO) is None


def test_another_copy(pair: Pair) -> None:
    """Rows are neither taken from it nor given to it."""
    given = pair["t"].given(COPY, None, UPTO)
    assert given is not None
    before = in_order(lake_rows(pair["p"]))
    with pytest.raises(LakeError, match="it is not copy another"):
        pair["p"].exchange("another", ReceivedRows(given, AT_MS), {})
    with pytest.raises(LakeError, match="it is not copy another"):
        pair["t"].given("another", None, UPTO)
    assert in_order(lake_rows(pair["p"])) == before
