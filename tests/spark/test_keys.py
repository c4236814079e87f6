"""Rows dealt out to tasks by the hash of their key: each in one, and in its order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from arrow_entries import begin, columns, delete, end, insert, statement, update
from arrow_truth import body_of, generic_rows
from fix_random import longer

from canal_server.arrow.arrow_columns import RequestedColumn
from canal_server.model.entry import EventType

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from canal_server.arrow.arrow_batches import generic_batches, typed_batches  # noqa: E402

if TYPE_CHECKING:
    import random

    from canal_server.protocol.entry_messages import Entry

GOLDEN = [
    ["0", "4"],
    ["5", "6"],
    ["1", "2", "3", "8", "9", "11"],
    ["7", "10"],
]
COLUMNS = (RequestedColumn("id", "int32"), RequestedColumn("name", "text"))


def generic_parts(
    body: bytes, count: int, **options: Any
) -> list[list[dict[str, Any]]]:
    """Return the rows of each part."""
    parts = []
    for number in range(count):
        batches = generic_batches("example", part=(number, count), **options)
        found = [*batches.feed(body), batches.rest()]
        for batch in filter(None, found):
            batch.validate(full=True)
        parts.append([r for batch in filter(None, found) for r in generic_rows(batch)])
    return parts


def typed_rows(body: bytes, part: tuple[int, int], **options: Any) -> list[Any]:
    """Return the rows of one part of a table."""
    batches = typed_batches("d", "t", COLUMNS, split_keys=True, part=part, **options)
    found = [*batches.feed(body), batches.rest()]
    return [row for batch in filter(None, found) for row in batch.to_pylist()]


def random_changes(rng: random.Random) -> list[Entry]:
    """Return changes of a few keys, some of them of keys themselves."""
    entries: list[Entry] = [begin(1)]
    names: dict[int, str] = {}
    for step in range(longer(200)):
        at = 100 * (step + 1)
        free = rng.choice([key for key in range(40) if key not in names])
        if not names or (len(names) < 30 and rng.random() < 0.4):
            names[free] = f"n{step}"
            row = columns({"id": str(free), "name": names[free]})
            entries.append(insert(at, row))
            continue
        key = rng.choice(list(names))
        old = columns({"id": str(key), "name": names[key]}, updated=())
        if rng.random() < 0.2:
            entries.append(delete(at, old))
            del names[key]
        else:
            del names[key]
            new = free if rng.random() < 0.4 else key
            names[new] = f"n{step}"
            updated = ["id", "name"] if new != key else ["name"]
            row = columns({"id": str(new), "name": names[new]}, updated=updated)
            entries.append(update(at, (old, row)))
    return [*entries, end(1_000_000)]


@pytest.mark.parametrize("updates", ["postimage", "both", "envelope"])
def test_typed_parts(rng: random.Random, updates: str) -> None:
    """Together they are all rows, with the same numbers; a key is in one of them."""
    body = body_of(random_changes(rng))
    whole = typed_rows(body, (0, 1), updates=updates)
    parts = [typed_rows(body, (number, 3), updates=updates) for number in range(3)]
    together = sorted(
        (row for rows in parts for row in rows), key=lambda r: (r["_seq"], r["_row"])
    )
    assert together == whole
    seen: dict[int, int] = {}
    for number, rows in enumerate(parts):
        assert rows == sorted(rows, key=lambda r: (r["_seq"], r["_row"]))
        for row in rows:
            key = (row.get("after") or row.get("before") or row)["id"]
            assert seen.setdefault(key, number) == number
    assert set(seen.values()) == {0, 1, 2}


def test_the_hash_stays_as_it_is() -> None:
    """Tasks of other releases deal out the same rows: these keys go to these parts."""
    body = body_of(
        [begin(1), *(insert(100 + i, columns({"id": str(i)})) for i in range(12)),
         end(900)]
    )  # fmt: skip
    parts = generic_parts(body, 4)
    assert [[dict(row["pk"])["id"] for row in rows] for rows in parts] == GOLDEN


def test_what_has_no_key() -> None:
    """Statements are the first part's, and rows without a key stay together."""
    rows = [insert(200 + i, columns({"v": str(i)}, key="")) for i in range(20)]
    body = body_of(
        [begin(1), *rows, end(900), statement(1000, EventType.ALTER, "ALTER TABLE t")]
    )
    parts = generic_parts(body, 5)
    assert sorted(len(part) for part in parts) in ([0, 0, 0, 0, 21], [0, 0, 0, 1, 20])
    assert [row["op"] for row in parts[0]].count("DDL") == 1


def test_a_part_that_is_none() -> None:
    """Its number is below their count."""
    with pytest.raises(ValueError, match="part 2 of 2"):
        generic_batches("example", part=(2, 2))
