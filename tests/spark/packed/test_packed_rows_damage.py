"""Damaged entries of many tables: valid rows, problems, or a DecodeError.

Memory is the matter: CANAL_SANITIZE=1 builds with a sanitizer, under which these run.
"""

from __future__ import annotations

import random
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from damaged_entries import WORKLOADS, damaged_body
from fix_random import longer
from golden_form import decode_fields, load_workload, raw_entries_of

from canal_server.client.range_client import RangeColumn, RangeTable
from canal_server.errors import DecodeError

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("pyspark", reason="pyspark is not installed")

from canal_server.spark.packed.packed_rows import unpack  # noqa: E402
from canal_server.spark.packed.packing import Limits, PackedBatches  # noqa: E402

if TYPE_CHECKING:
    from canal_server.spark.options.source_options import TableName


class Told:
    """What the server says of tables: at times what is not so."""

    def __init__(self, rng: random.Random, tables: dict[Any, Any]) -> None:
        self._rng = rng
        self._tables = tables

    def __call__(self, name: TableName, place: object) -> RangeTable:
        """Return the columns of a table."""
        del place
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


def read(rng: random.Random, told: Told, body: bytes) -> int:
    """Feed bytes; returns the number of received rows, all of which are valid."""
    limits = Limits(
        rows=rng.choice([1, 10, 1000]),
        run_bytes=rng.choice([500, 1 << 20]),
        all_bytes=rng.choice([2000, 1 << 20]),
        tables=rng.choice([1, 2, 100]),
    )
    batches = PackedBatches("x", told, epoch=rng.choice([0, 3]), limits=limits)
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
def test_damaged(rng: random.Random, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Damaged entries give valid runs or DecodeError, for any table definition."""

    @cache
    def recorded(name: str) -> tuple[list[bytes], dict[Any, Any]]:
        workload = load_workload(name)
        data = decode_fields(workload, tmp_path_factory.mktemp(name))
        return list(raw_entries_of(data)), workload.last_columns()

    rows = errors = 0
    rounds = longer(600)
    for number in range(rounds):
        seed = rng.getrandbits(64)
        own = random.Random(seed)
        name = own.choice(WORKLOADS)
        entries, tables = recorded(name)
        try:
            rows += read(own, Told(own, tables), damaged_body(own, entries))
        except DecodeError:
            errors += 1
        except BaseException as error:
            error.add_note(f"round {number}: {name}, seed {seed}")
            raise
    print(f"{rounds} rounds: {rows} rows, {errors} errors")
    assert rows > rounds // 10
    assert errors > rounds // 10
