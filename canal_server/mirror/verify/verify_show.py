"""The first rows that differ, with their values, which are read a second time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from canal_server.mirror.verify.verify_changes import SHARE, ShownChanges
from canal_server.mirror.verify.verify_report import Cell, RowDifference
from canal_server.mirror.verify.verify_rows import SHOWN_TYPES, Shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from canal_server.mirror.settings.table_values import MirrorTable
    from canal_server.mirror.verify.verify_compare import Difference, RowOrigin
    from canal_server.mirror.verify.verify_rows import Reader, RowForm

    Texts = dict[
        tuple[int, int, int], list[str]
    ]  # by both hashes of the key, the row's

ONLY: Final = {
    (True, False): "is in the source only",
    (False, True): "is in the copy only",
    (True, True): "differs",
}


@dataclass(frozen=True)
class _Some:
    """Reads some shares of a reader, by their index among them."""

    read: Reader
    shares: tuple[int, ...]

    def __call__(self, index: int) -> Iterator[pa.RecordBatch]:
        return self.read(self.shares[index])


@dataclass(frozen=True)
class Rows:
    """Reads rows a second time, from both sides and from the changes."""

    spark: SparkSession
    table: MirrorTable
    form: RowForm
    source: Reader
    copy: Reader
    changes: DataFrame

    def differences(self, found: Sequence[Difference]) -> tuple[RowDifference, ...]:
        """Return differences with the values of their rows."""
        source = self._texts(self.source, [each.source for each in found], found)
        copy = self._texts(self.copy, [each.copy for each in found], found)
        changed = [
            each
            for each in found
            if SHARE in {origin.share for origin in (each.source, each.copy) if origin}
        ]
        if changed:
            # Rows with equal hashes are equal, no matter where they were read.
            texts = self._changed(changed)
            source, copy = texts | source, texts | copy
        return tuple(_described(each, source, copy, self.form) for each in found)

    def _texts(
        self,
        read: Reader,
        origins: Sequence[RowOrigin | None],
        found: Sequence[Difference],
    ) -> Texts:
        """Read the rows of one side."""
        shares = {
            origin.share for origin in origins if origin and origin.share != SHARE
        }
        if not shares:
            return {}
        requested = frozenset(each.k1 for each in found)
        task = Shown(_Some(read, tuple(sorted(shares))), self.form, requested)
        frame = self.spark.range(0, len(shares), 1, min(len(shares), 2))
        return _collected(frame, task)

    def _changed(self, found: Sequence[Difference]) -> Texts:
        requested = frozenset(each.k1 for each in found)
        return _collected(self.changes, ShownChanges(self.table, self.form, requested))


def _collected(frame: DataFrame, task: Any) -> Texts:
    rows = frame.mapInArrow(task, SHOWN_TYPES).dropDuplicates(["k1", "k2", "h"])
    return {(row["k1"], row["k2"], row["h"]): row["texts"] for row in rows.collect()}


def _described(
    found: Difference, source: Texts, copy: Texts, form: RowForm
) -> RowDifference:
    texts = [
        rows.get((found.k1, found.k2, origin.hash)) if origin else None
        for rows, origin in ((source, found.source), (copy, found.copy))
    ]
    known = next((each for each in texts if each), None)
    what = ONLY[found.rows[0] > 0, found.rows[1] > 0]
    if max(found.rows) > 1:
        what = f"is {found.rows[0]} times in the source, {found.rows[1]} in the copy"
    if known is None:
        # The source has changed since and no longer shows the row.
        return RowDifference(f"key with hash {found.k1:016x}", f"{what}; it changed")
    key = form.key or form.names
    values = dict(zip(form.names, known, strict=True))
    name = ", ".join(f"{column}={values[column]}" for column in key)
    return RowDifference(name, what, tuple(_cells(form, *texts)))


def _cells(
    form: RowForm, source: list[str] | None, copy: list[str] | None
) -> Iterator[Cell]:
    """Yield the columns that differ, where both rows are known."""
    if source is None or copy is None:
        return
    for column, left, right in zip(form.names, source, copy, strict=True):
        if left != right:
            yield Cell(column, left, right)
