"""Comparing two sides in Spark: sums, keys that differ, and what changed meanwhile."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from fix_random import longer

pytest.importorskip("pyspark", reason="the extra `mirror` is not installed")
import pyarrow as pa
from pyspark import cloudpickle

from canal_server.mirror.verify.verify_compare import (
    at_position,
    compare,
    last_changes,
)
from canal_server.mirror.verify.verify_rows import HASHED, SHOWN, Hashed, RowForm, Shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.string())])
KEYED = RowForm(("id", "value"), ("id",), SCHEMA)
KEYLESS = RowForm(("id", "value"), (), SCHEMA)
TYPES = "k1 long, k2 long, h long, n int, share int, seq long, row int"


@dataclass(frozen=True)
class Shares:
    """Rows by their share."""

    rows: tuple[tuple[tuple[int, str | None], ...], ...]

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a share, a few in a batch."""
        rows = self.rows[number]
        for begin in range(0, len(rows), 3):
            ids, values = zip(*rows[begin : begin + 3], strict=True)
            columns = [pa.array(ids, pa.int64()), pa.array(values, pa.string())]
            yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def shares(rows: Mapping[int, str | None] | list[Any], count: int = 3) -> Shares:
    """Deal rows out to shares."""
    pairs = rows if isinstance(rows, list) else list(rows.items())
    return Shares(tuple(tuple(pairs[number::count]) for number in range(count)))


def hashed(spark, rows: Shares, form: RowForm = KEYED):
    """Return the frame of a side."""
    task = partial(list_of, Hashed(rows, form))
    return spark.range(0, len(rows.rows), 1, 2).mapInArrow(task, TYPES)


def list_of(task, batches):
    """Run a task in an executor, which finds the classes of this file by value."""
    return task(batches)


def changes(spark, *rows: tuple[int, str | None, int, int]):
    """Return the frame of changes: id, value, n, seq."""
    found = []
    for number, (key, value, sign, seq) in enumerate(rows):
        (batch,) = Shares((((key, value),),))(0)
        first, second, of_row = (each[0].as_py() for each in KEYED.hashes(batch))
        found.append((first, second, of_row, sign, -1, seq, number))
    return spark.createDataFrame(found, TYPES)


@pytest.fixture(autouse=True)
def _found_by_executors(spark) -> Iterator[None]:
    """Have what this file defines travel by value: executors cannot import it."""
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


def test_equal(spark) -> None:
    """Equal rows are equal, however they are dealt out and ordered."""
    rows: dict[int, str | None] = {n: f"value {n}" for n in range(500)}
    rows[7] = None
    other = dict(reversed(rows.items()))
    found = compare(hashed(spark, shares(rows, 3)), hashed(spark, shares(other, 5)), 10)
    assert found.source == found.copy
    assert found.source.rows == 500
    assert (found.differing, found.first) == (0, ())


def test_differences(spark, rng) -> None:
    """Missing, extra, doubled and changed rows are all reported."""
    for _ in range(longer(1)):
        rows = {number: f"value {number}" for number in range(300)}
        copy: list[tuple[int, str | None]] = list(rows.items())
        dropped, other, nulled, twice = rng.sample(range(300), 4)
        copy[other] = (other, "another")
        copy[nulled] = (nulled, None)
        copy += [(1000, "too much"), copy[twice]]
        copy = [pair for pair in copy if pair[0] != dropped]
        rng.shuffle(copy)
        found = compare(hashed(spark, shares(rows)), hashed(spark, shares(copy)), 10)
        assert found.differing == len(found.first) == 5
        assert found.is_all
        assert found.source.rows == 300
        assert found.copy.rows == 301
        expected = {dropped: (1, 0), other: (1, 1), nulled: (1, 1), 1000: (0, 1)}
        expected[twice] = (1, 2)
        assert {
            key_of(each.k1, [*rows, 1000]): each.rows for each in found.first
        } == expected
        for each in found.first:
            assert (each.source is None, each.copy is None) == tuple(
                not rows for rows in each.rows
            )


def key_of(k1: int, keys: Iterable[int]) -> int:
    """Return the key that has a hash."""
    found: dict[int, int] = {
        KEYED.hashes(batch)[0][0].as_py(): key
        for key in keys
        for batch in Shares((((key, ""),),))(0)
    }
    return found[k1]


def test_without_a_key(spark) -> None:
    """Rows that are alike are counted."""
    rows = [(1, "a"), (1, "a"), (1, "a"), (2, None), (2, None)]
    same = compare(
        hashed(spark, shares(rows), KEYLESS),
        hashed(spark, shares(rows[::-1], 2), KEYLESS),
        10,
    )
    assert (same.source, same.differing) == (same.copy, 0)
    other = [(1, "a"), (1, "a"), (2, None), (2, None), (2, None)]
    found = compare(
        hashed(spark, shares(rows), KEYLESS), hashed(spark, shares(other), KEYLESS), 10
    )
    assert sorted(each.rows for each in found.first) == [(2, 3), (3, 2)]


def test_changes_bring_the_source_to_the_copys_position(spark) -> None:
    """Changed keys are as of the copy's position; keys changed later are left out."""
    source = {1: "old", 2: "half", 3: "deleted", 4: "same", 6: "later"}
    copy = {1: "new", 2: "new", 4: "same", 5: "inserted", 6: "before"}
    meanwhile = changes(
        spark,
        (1, "older", 1, 10),
        (1, "new", 1, 20),
        (2, "new", 1, 15),
        (3, "deleted", -1, 16),
        (5, "gone", -1, 17),
        (5, "inserted", 1, 18),
        (6, "before", 1, 20),
        (6, "later", 1, 100),  # not in the copy yet: the right value is unknown
        (7, "later", 1, 101),
    )
    copy[2] = "half"  # it missed a change, which is detected
    sides = hashed(spark, shares(source)), hashed(spark, shares(copy))
    found = compare(*at_position(*sides, last_changes(meanwhile).persist(), 100), 10)
    assert (found.source.rows, found.copy.rows) == (4, 4)
    (difference,) = found.first
    assert key_of(difference.k1, copy) == 2
    assert difference.source is not None
    assert difference.source.share == -1  # it is found among the changes


def test_values_of_rows(spark) -> None:
    """The rows of some keys are read again, as texts."""
    rows = shares({1: "one", 2: None, 3: "three"})
    keys = KEYED.hashes(next(Shares((((2, ""), (3, "")),))(0)))[0].to_pylist()
    task = partial(list_of, Shown(rows, KEYED, frozenset(keys)))
    frame = spark.range(0, 3, 1, 2).mapInArrow(
        task, "k1 long, k2 long, h long, texts array<string>"
    )
    found = {row["k1"]: row["texts"] for row in frame.collect()}
    assert found == {keys[0]: ["2", "NULL"], keys[1]: ["3", "'three'"]}
    assert HASHED.names[:3] == SHOWN.names[:3]
