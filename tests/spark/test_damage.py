"""Damaged entries: whatever the bytes say, there are valid rows or a DecodeError.

Those of one table become batches of Arrow, those of many tables are packed. Memory is
the matter: CANAL_SANITIZE=1 builds with a sanitizer, under which these run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from damaged_entries import damaged_body, in_rounds
from fix_random import longer

from canal_server.arrow.arrow_columns import RequestedColumn, requested_column
from canal_server.client.range_client import RangeColumn, RangeTable
from canal_server.errors import DecodeError

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from canal_server.arrow.arrow_batches import generic_batches, typed_batches  # noqa: E402

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from damaged_entries import Recorded

    from canal_server.arrow.arrow_batches import Batches
    from canal_server.spark.options.source_options import TableName


def make_batches(rng: random.Random, tables: dict[Any, Any]) -> Batches:
    """Return batches of any kind, typed often with kinds that do not fit."""
    limits: dict[str, Any] = {
        "rows_max": rng.choice([1, 10, 1000]),
        "bytes_max": 1 << 20,
        "part": rng.choice([(0, 1), (0, 1), (1, 2)]),
    }
    if rng.random() < 0.4:
        return generic_batches("x", payload=rng.choice(["map", "json"]), **limits)
    (schema, table), columns = rng.choice(list(tables.items()))
    expected = [requested_column(column) for column in columns.values()]
    if rng.random() < 0.3:
        kinds = [column.kind for column in expected]
        rng.shuffle(kinds)
        expected = [
            RequestedColumn(column.name, kind, 12, 3)
            for column, kind in zip(expected, kinds, strict=True)
        ]
    missing = (
        [c.name for c in expected if rng.random() < 0.3] if rng.random() < 0.5 else ()
    )
    return typed_batches(
        schema, table, expected, missing=missing,
        updates=rng.choice(["postimage", "both", "envelope"]),
        split_keys=rng.random() < 0.5,
        zero_dates=rng.choice(["null", "error"]),
        zone=rng.choice(["UTC", "Asia/Kolkata"]),
        **limits,
    )  # fmt: skip


def read_table(rng: random.Random, recorded: Recorded) -> int:
    """Read damaged entries as one table; returns rows, which are valid."""
    entries, tables = recorded
    batches = make_batches(rng, tables)
    rows = 0
    exact = bytearray(damaged_body(rng, entries))  # at the end of its memory
    if rng.random() < 0.1:  # seldom, as ends elsewhere are refused then
        batches.expect(5, 1000)
    for batch in batches.feed(exact):
        batch.validate(full=True)
        rows += batch.num_rows
    batches.finish(9, 2000, "7")
    rest = batches.rest()
    if rest is not None:
        rest.validate(full=True)
        rows += rest.num_rows
    return rows


class Reported:
    """What the server says of tables: at times what is not so."""

    def __init__(self, rng: random.Random, tables: dict[Any, Any]) -> None:
        self._rng = rng
        self._tables = tables

    def __call__(self, name: TableName, position: object) -> RangeTable:
        """Return the columns of a table."""
        del position
        rng, columns = self._rng, [*self._tables.get(tuple(name), {}).values()]
        if not columns or rng.random() < 0.05:
            return RangeTable()
        if rng.random() < 0.2:
            del columns[rng.randrange(len(columns))]
        kinds = [(each.mysql_type, each.charset or "") for each in columns]
        if rng.random() < 0.2:
            rng.shuffle(kinds)
        return RangeTable(
            found=True,
            columns=tuple(
                RangeColumn(each.name, text, each.is_key, charset=charset)
                for each, (text, charset) in zip(columns, kinds, strict=True)
            ),
            zone="UTC",
        )


def read_packed(rng: random.Random, recorded: Recorded) -> int:
    """Read damaged entries of many tables; returns rows, which are valid."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from canal_server.spark.packed.packed_rows import unpack  # noqa: PLC0415
    from canal_server.spark.packed.packing import (  # noqa: PLC0415
        Limits,
        PackedBatches,
    )

    entries, tables = recorded
    shown, body = Reported(rng, tables), damaged_body(rng, entries)
    limits = Limits(
        rows=rng.choice([1, 10, 1000]),
        run_bytes=rng.choice([500, 1 << 20]),
        all_bytes=rng.choice([2000, 1 << 20]),
        tables=rng.choice([1, 2, 100]),
    )
    batches = PackedBatches("x", shown, epoch=rng.choice([0, 3]), limits=limits)
    if rng.random() < 0.1:  # seldom, as ends elsewhere are refused then
        batches.expect(5, 1000)
    found = [*batches.feed(bytearray(body))]  # at the end of its memory
    batches.finish(9, 2000, "7")
    rest = batches.rest()
    found += [] if rest is None else [rest]
    rows = 0
    for batch in found:
        batch.validate(full=True)
        for each in unpack(pa.Table.from_batches([batch])):
            if each.data is not None:
                each.data.validate(full=True)
                assert each.data.num_rows == each.count
                rows += each.count
    return rows


@pytest.mark.timeout(longer(120), method="thread")  # ends also a hang in compiled code
@pytest.mark.parametrize(("read", "rounds"), [(read_table, 1000), (read_packed, 600)])
def test_damaged(
    rng: random.Random,
    tmp_path_factory: pytest.TempPathFactory,
    read: Callable[[random.Random, Recorded], int],
    rounds: int,
) -> None:
    """Damaged entries give valid rows or DecodeError, whatever the tables are."""
    rows = errors = 0

    def read_one(own: random.Random, recorded: Recorded) -> None:
        nonlocal rows, errors
        try:
            rows += read(own, recorded)
        except DecodeError:
            errors += 1

    rounds = longer(rounds)
    in_rounds(rng, rounds, tmp_path_factory, read_one)
    print(f"{rounds} rounds: {rows} rows, {errors} errors")
    assert rows > rounds // 10
    assert errors > rounds // 10
