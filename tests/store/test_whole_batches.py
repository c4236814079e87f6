"""Batches that end with a transaction, as whoever commits whole ones asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fix_blocks import ALTER, BEGIN, OTHER, QUERY, ROWS, numbers_of
from fix_store import StoreUnderTest

if TYPE_CHECKING:
    import random

CLIENT = 1001


def got(batch) -> list[int]:
    """Return the numbers of a batch's entries."""
    return numbers_of(batch.slices)


def test_batches_of_whole_transactions():
    """A batch ends with a transaction, unless it has only a part of one."""
    t = StoreUnderTest()
    t.store.subscribe(CLIENT, None, None)
    t.entries.transaction(rows=1)  # entries 0 to 2
    t.entries.transaction(rows=2)  # 3 to 6
    t.entries.add(OTHER, event_type=ALTER)  # 7
    t.entries.transaction(rows=9)  # 8 to 18
    t.entries.add(OTHER, event_type=QUERY)  # 19
    t.put()
    found = []
    while (batch := t.store.get(CLIENT, 6, 0, whole=True)) is not None:
        found.append((got(batch), batch.is_open))
    assert found == [
        ([0, 1, 2], False),
        ([3, 4, 5, 6, 7], False),
        ([8, 9, 10, 11, 12, 13], True),
        ([14, 15, 16, 17, 18, 19], False),
    ]


@pytest.mark.parametrize("count", [6, 7])
def test_an_end_beyond_the_limit(count: int):
    """It comes with its transaction, which is whole then, and counts no further."""
    t = StoreUnderTest()
    t.store.subscribe(CLIENT, None, None)
    t.entries.transaction(rows=5)  # entries 0 to 6
    t.entries.transaction(rows=5)  # 7 to 13
    t.entries.transaction(rows=6)  # 14 to 21
    t.put()
    found = []
    while (batch := t.store.get(CLIENT, count, 0, whole=True)) is not None:
        found.append((got(batch), batch.is_open))
    assert found[:2] == [
        ([0, 1, 2, 3, 4, 5, 6], False),
        ([7, 8, 9, 10, 11, 12, 13], False),
    ]
    # Beyond the limit, there is one row besides the END.
    assert found[2][1] == (count == 6)
    assert [each for numbers, _ in found for each in numbers] == list(range(22))


def test_random_batches_of_whole_transactions(rng: random.Random):
    """Nothing is left out, whatever the sizes are, and no batch ends in its middle."""
    t = StoreUnderTest(buffer_size=1024)
    t.store.subscribe(CLIENT, None, None)
    ends, count = set(), 0
    for _ in range(40):
        rows = rng.choice([1, 1, 2, 5, 30])
        t.entries.transaction(rows=rows)
        count += rows + 2
        ends.add(count - 1)
    t.put()
    seen: list[int] = []
    while (batch := t.store.get(CLIENT, rng.randint(1, 40), 0, whole=True)) is not None:
        numbers = got(batch)
        seen += numbers
        assert batch.is_open == (numbers[-1] not in ends)
        if batch.is_open:
            assert not ends.intersection(numbers), "it could have ended earlier"
        else:
            assert batch.ack == batch.end
    assert seen == list(range(count))


def shape(t: StoreUnderTest) -> tuple[bool, bool, bool]:
    """Return whether the next batch is open, begins anew, and is broken."""
    batch = t.store.get(CLIENT, 9, 0, whole=True)
    assert batch is not None
    return batch.is_open, batch.begins_anew, batch.is_broken


def test_a_transaction_that_was_not_ended():
    """A batch says so when another one begins in its middle, or right before it."""
    t = StoreUnderTest()
    t.store.subscribe(CLIENT, None, None)
    for kind in (BEGIN, ROWS):
        t.entries.add(kind)
    t.put()
    assert shape(t) == (True, True, False)
    t.entries.add(ROWS)
    t.put()
    assert shape(t) == (True, False, False)
    t.entries.add(ROWS)
    t.entries.transaction(rows=1)
    t.put()
    assert shape(t) == (False, False, True)


def test_a_transaction_that_goes_on_in_another_file():
    """None does: it was replaced, though it has no begin, as on MariaDB."""
    t = StoreUnderTest()
    t.store.subscribe(CLIENT, None, None)
    t.entries.add(ROWS)
    t.entries.rotate("bin.000002", 2)
    t.entries.transaction(rows=1, begin=False)
    t.put()
    assert shape(t) == (False, False, True)
    t.entries.transaction(rows=1, begin=False)
    t.entries.rotate("bin.000003", 3)
    t.entries.transaction(rows=1, begin=False)
    t.put()
    assert not shape(t)[2]
