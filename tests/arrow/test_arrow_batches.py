"""Recorded binlogs as record batches, against a slow and obvious reading of them."""

from __future__ import annotations

import itertools
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from arrow_truth import GenericTruth, NoValueError, TypedTruth, body_of, generic_rows
from fix_random import longer
from golden_form import DATA, decode_fields, entries_of, load_workload

from canal_server.arrow.arrow_columns import requested_column
from canal_server.decoder.text.time_zone import read_zone
from canal_server.errors import DecodeError

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from canal_server.arrow.arrow_batches import generic_batches, typed_batches  # noqa: E402

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from canal_server.arrow.arrow_batches import Batches, Statement

WORKLOADS: tuple[str, ...] = (
    "ev_compressed_mixed", "ev_dml", "ev_gtid", "ev_image", "ev_partial_json",
    "ev_rotate", "ev_rows_query", "ev_statement", "ev_txn", "maria_events",
    "maria_types", "names_odd", "types_charset", "types_geometry", "types_json",
    "types_num", "types_str", "types_time",
)  # fmt: skip


if longer(1) > 1:  # all recordings, in longer runs
    WORKLOADS = tuple(sorted(path.name.partition(".")[0] for path in DATA.iterdir()))


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Decode in UTC, as ranged reads do."""
    monkeypatch.setenv("TZ", "UTC0")
    read_zone()
    yield
    monkeypatch.undo()
    read_zone()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Give a workload's entries, as fields of Messages; decoded once."""

    @cache
    def decoded(name: str) -> bytes:
        return decode_fields(load_workload(name), tmp_path_factory.mktemp(name))

    return decoded


def fed(batches: Batches, data: bytes, rng: random.Random | None = None) -> list[Any]:
    """Feed entries, at random in pieces; returns the batches, each of them valid."""
    pieces = [data]
    if rng is not None:
        entries = [body_of([entry]) for entry in entries_of(data)]
        cuts = sorted(rng.sample(range(len(entries) + 1), min(5, len(entries))))
        bounds = itertools.pairwise([0, *cuts, len(entries)])
        pieces = [b"".join(entries[first:stop]) for first, stop in bounds]
    found = [batch for piece in pieces for batch in batches.feed(piece)]
    rest = batches.rest()
    found += [] if rest is None else [rest]
    for batch in found:
        batch.validate(full=True)
        assert batch.schema == batches.schema
    return found


def check_generic(data: bytes, rng: random.Random, *, json: bool) -> int:
    """Compare generic batches with the oracle; returns the number of rows."""
    expected = GenericTruth(epoch=3, json=json).read(entries_of(data))
    batches = generic_batches(
        "example", payload="json" if json else "map", epoch=3, rows_max=100
    )
    found = fed(batches, data, rng)
    rows = [row for batch in found for row in generic_rows(batch, json_payload=json)]
    for got, right in zip(rows, expected, strict=True):
        assert got == right
    assert all(batch.num_rows >= 100 for batch in found[:-1])
    return len(rows)


@pytest.mark.parametrize("json", [False, True])
@pytest.mark.parametrize("name", WORKLOADS)
def test_generic(name: str, json: bool, recorded: Any, rng: random.Random) -> None:
    """Generic rows of a recording are what reading its entries one by one gives."""
    assert check_generic(recorded(name), rng, json=json) > 0


def check_typed(
    name: str, data: bytes, rng: random.Random, updates: str, *, split_keys: bool
) -> int:
    """Compare typed batches of each table with the oracle; returns rows compared."""
    count = 0
    for (schema, table), columns in load_workload(name).last_columns().items():
        if rng.random() < 0.2:
            continue
        requested = tuple(requested_column(column) for column in columns.values())
        truth = TypedTruth(
            schema=schema, table=table, columns=requested, updates=updates,
            split_keys=split_keys,
        )  # fmt: skip
        statements: list[Statement] = []
        batches = typed_batches(
            schema, table, requested, updates=updates, split_keys=split_keys,
            on_statement=statements.append, rows_max=50,
        )  # fmt: skip
        try:
            right = truth.read(entries_of(data))
        except (NoValueError, ValueError, ArithmeticError, UnicodeEncodeError):
            # A partial image, or a column of another type before some DDL.
            with pytest.raises(DecodeError):
                fed(batches, data, rng)
            continue
        rows = [row for batch in fed(batches, data, rng) for row in batch.to_pylist()]
        for row in right:
            row.pop("xid")
        for got, expected in zip(rows, right, strict=True):
            assert got == expected
        assert [tuple(statement) for statement in statements] == truth.statements
        count += len(rows)
    return count


@pytest.mark.parametrize("name", WORKLOADS)
def test_typed(name: str, recorded: Any, rng: random.Random) -> None:
    """Typed rows of each table of a recording are what its texts stand for."""
    updates = rng.choice(["postimage", "both", "envelope"])
    split = rng.random() < 0.5
    print(updates, "split" if split else "")
    count = check_typed(name, recorded(name), rng, updates, split_keys=split)
    print(count, "rows")
