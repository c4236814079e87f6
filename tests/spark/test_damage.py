"""Damaged entries: whatever the bytes say, there are valid batches or a DecodeError.

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

from canal_server.arrow.arrow_columns import WantedColumn, wanted_column
from canal_server.errors import DecodeError

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from canal_server.arrow.arrow_batches import generic_batches, typed_batches  # noqa: E402

if TYPE_CHECKING:
    from canal_server.arrow.arrow_batches import Batches


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
    wanted = [wanted_column(column) for column in columns.values()]
    if rng.random() < 0.3:
        kinds = [column.kind for column in wanted]
        rng.shuffle(kinds)
        wanted = [
            WantedColumn(column.name, kind, 12, 3)
            for column, kind in zip(wanted, kinds, strict=True)
        ]
    missing = (
        [c.name for c in wanted if rng.random() < 0.3] if rng.random() < 0.5 else ()
    )
    return typed_batches(
        schema, table, wanted, missing=missing,
        updates=rng.choice(["postimage", "both", "envelope"]),
        split_keys=rng.random() < 0.5,
        zero_dates=rng.choice(["null", "error"]),
        zone=rng.choice(["UTC", "Asia/Kolkata"]),
        **limits,
    )  # fmt: skip


def read(rng: random.Random, batches: Batches, body: bytes) -> int:
    """Feed bytes that may end the reading; returns rows, which are valid."""
    rows = 0
    exact = bytearray(body)  # at the end of its memory
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


@pytest.mark.timeout(longer(120), method="thread")  # ends also a hang in compiled code
def test_damaged(rng: random.Random, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Damaged entries give valid batches or DecodeError."""

    @cache
    def recorded(name: str) -> tuple[list[bytes], dict[Any, Any]]:
        workload = load_workload(name)
        data = decode_fields(workload, tmp_path_factory.mktemp(name))
        return list(raw_entries_of(data)), workload.last_columns()

    rows = errors = 0
    rounds = longer(1000)
    for number in range(rounds):
        seed = rng.getrandbits(64)
        own = random.Random(seed)
        name = own.choice(WORKLOADS)
        entries, tables = recorded(name)
        try:
            rows += read(own, make_batches(own, tables), damaged_body(own, entries))
        except DecodeError:
            errors += 1
        except BaseException as error:
            error.add_note(f"round {number}: {name}, seed {seed}")
            raise
    print(f"{rounds} rounds: {rows} rows, {errors} errors")
    assert rows > rounds // 10
    assert errors > rounds // 10
