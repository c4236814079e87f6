"""Compares hashes of rows in Spark: what is equal, and the keys of what is not.

Rows have the schema `verify_rows.HASHED`. Both sides are summed up by buckets of keys,
in any order; only buckets that differ are joined. The driver holds one line per bucket
and the rows that are shown, nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812  # its usual name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

BUCKETS: Final = 4096
JOINED_MAX: Final = 256  # buckets that differ and are joined
_KEY: Final = ["k1", "k2"]
_WORD: Final = (1 << 32) - 1
_SUM: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Sums:
    """The number of rows on one side and the sum of their hashes."""

    rows: int = 0
    checksum: int = 0

    def __str__(self) -> str:
        return f"{self.rows:,} rows, checksum {self.checksum:016x}"


@dataclass(frozen=True, slots=True)
class RowOrigin:
    """Where to find a row: its share, or the change that wrote it."""

    share: int
    hash: int


@dataclass(frozen=True, slots=True)
class Difference:
    """A key whose rows differ; None for a side that has no row of it."""

    k1: int
    k2: int
    rows: tuple[int, int]  # in the source, in the copy
    source: RowOrigin | None
    copy: RowOrigin | None


@dataclass(frozen=True, slots=True)
class Compared:
    """A result: `differing` counts keys, and is a lower bound unless `is_all`."""

    source: Sums
    copy: Sums
    differing: int = 0
    is_all: bool = True
    first: tuple[Difference, ...] = ()


def last_changes(changes: DataFrame) -> DataFrame:
    """Return the last change of each key."""
    order = F.struct("seq", "row")
    last = F.max_by(F.struct("h", "n", "share", "seq", "row"), order).alias("last")
    return changes.where("n <> 0").groupBy(*_KEY).agg(last).select(*_KEY, "last.*")


def at_position(
    source: DataFrame, copy: DataFrame, last: DataFrame, position: int
) -> tuple[DataFrame, DataFrame]:
    """Return both sides as they were at the copy's position.

    `last` holds the last changes of keys that may have changed since the read began. A
    key that changed after the position is left out on both sides.
    """
    after = last.where(F.col("seq") >= position)
    added = last.where((F.col("seq") < position) & (F.col("n") == 1))
    source = source.join(last.select(*_KEY), _KEY, "left_anti").select(*source.columns)
    source = source.unionByName(added.select(*source.columns))
    copy = copy.join(after.select(*_KEY), _KEY, "left_anti").select(*copy.columns)
    return source, copy


def compare(source: DataFrame, copy: DataFrame, first: int) -> Compared:
    """Compare two sides; the first `first` differences are listed."""
    buckets = _by_bucket(source), _by_bucket(copy)
    sums = [_total(each) for each in buckets]
    differing = sorted(
        number
        for number in buckets[0].keys() | buckets[1].keys()
        if buckets[0].get(number, Sums()) != buckets[1].get(number, Sums())
    )
    if not differing:
        return Compared(sums[0], sums[1])
    joined = _joined(source, copy, differing[:JOINED_MAX]).persist()
    try:
        count = joined.count()
        rows = joined.orderBy(*_KEY).limit(first).collect()
    finally:
        joined.unpersist()
    return Compared(
        sums[0],
        sums[1],
        count,
        len(differing) <= JOINED_MAX,
        tuple(_difference(row) for row in rows),
    )


def _bucket() -> Any:
    return F.col("k1").bitwiseAND(F.lit(BUCKETS - 1))


def _by_bucket(rows: DataFrame) -> dict[int, Sums]:
    """Return the sums of each bucket that has rows."""
    # Sums of 32-bit halves, as a sum of 64-bit hashes overflows.
    low = F.col("n") * F.col("h").bitwiseAND(F.lit(_WORD))
    high = F.col("n") * F.shiftright("h", 32)
    summed = (
        rows.groupBy(_bucket().alias("bucket"))
        .agg(F.sum("n"), F.sum(low), F.sum(high))
        .collect()
    )
    return {
        bucket: Sums(count, low + (high << 32) & _SUM)
        for bucket, count, low, high in summed
    }


def _total(buckets: Mapping[int, Sums]) -> Sums:
    every = buckets.values()
    rows = sum(each.rows for each in every)
    return Sums(rows, sum(each.checksum for each in every) & _SUM)


def _joined(source: DataFrame, copy: DataFrame, buckets: list[int]) -> DataFrame:
    """Return the keys of some buckets whose rows differ."""
    left, right = (
        side.where(_bucket().isin(buckets))
        .groupBy(*_KEY)
        .agg(F.sum("n").alias("n"), F.max("h").alias("h"), F.max("share").alias("at"))
        .where("n <> 0")
        .alias(name)
        for side, name in ((source, "source"), (copy, "copy"))
    )
    same = F.col("source.n").eqNullSafe(F.col("copy.n"))
    same &= F.col("source.h").eqNullSafe(F.col("copy.h"))
    return (
        left.join(right, _KEY, "full_outer")
        .where(~same)
        .select(
            *_KEY,
            *(
                F.col(f"{side}.{name}").alias(f"{side}_{name}")
                for side in ("source", "copy")
                for name in ("n", "h", "at")
            ),
        )
    )


def _difference(row: Any) -> Difference:
    positions = [
        None
        if row[f"{side}_n"] is None
        else RowOrigin(row[f"{side}_at"], row[f"{side}_h"])
        for side in ("source", "copy")
    ]
    counts = row["source_n"] or 0, row["copy_n"] or 0
    return Difference(row["k1"], row["k2"], counts, positions[0], positions[1])
