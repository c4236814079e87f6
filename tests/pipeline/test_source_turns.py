"""Where a stream may be cut between transactions, and of what time they are."""

from __future__ import annotations

from fix_blocks import (
    ALTER,
    BEGIN,
    END,
    HEARTBEAT,
    OTHER,
    QUERY,
    ROWS,
    Entries,
    numbers_in,
)

from canal_server.pipeline.source_turns import (
    cut,
    first_time,
    is_open_after,
    last_time,
)

FLAG_OPEN = 2


def entries_of(*kinds: int | tuple[int, int], records_per_block: int = 2) -> Entries:
    """Return entries of these kinds, or of (kind, seconds); else each a second later.

    Few to a block, so that transactions lie in several.
    """
    entries = Entries(records_per_block=records_per_block)
    for at, kind in enumerate(kinds):
        kind, second = kind if isinstance(kind, tuple) else (kind, at)  # noqa: PLW2901
        entries.add(kind, time=second)
    return entries


def cut_numbers(entries: Entries, limit: int | None) -> tuple[list[int], list[int]]:
    """Return the numbers of the entries on both sides of the cut."""
    head, tail = cut(entries.take(), limit)
    return numbers_in(head), numbers_in(tail)


def test_first_time():
    """It is that of the end of the first transaction, not of its beginning."""
    assert first_time(entries_of(BEGIN, ROWS, END, BEGIN, END).take()) == 2
    assert first_time(entries_of(ROWS, ROWS, END).take()) == 2
    assert first_time(entries_of(OTHER, BEGIN, END).take()) == 0
    assert first_time(entries_of(HEARTBEAT, BEGIN, ROWS, END).take()) == 3


def test_first_time_without_an_end():
    """Without its end, the last that is there of a transaction counts."""
    assert first_time(entries_of(BEGIN, ROWS, ROWS).take()) == 2
    assert first_time(entries_of(BEGIN, ROWS, BEGIN, END).take()) == 1
    assert first_time([]) == 0


def test_cut_between_transactions():
    """What is not younger than the limit goes; a transaction is never cut."""
    transaction = (BEGIN, ROWS, END)
    for limit, count in ((0, 3), (2, 3), (4, 3), (5, 6), (7, 6), (8, 9), (99, 9)):
        head, tail = cut_numbers(entries_of(*transaction * 3), limit)
        assert head == list(range(count))
        assert tail == list(range(count, 9))


def test_no_limit():
    """Without a limit nothing is cut off."""
    assert cut_numbers(entries_of(BEGIN, END, BEGIN), None) == ([0, 1, 2], [])


def test_first_transaction_goes_whatever_its_time():
    """Whoever has the turn gets on by one transaction."""
    assert cut_numbers(entries_of((BEGIN, 9), (END, 9)), 1) == ([0, 1], [])


def test_statements_are_units():
    """A statement outside of transactions may be cut off; inside, it may not."""
    assert cut_numbers(entries_of(OTHER, OTHER, OTHER), 1) == ([0, 1], [2])
    entries = Entries()
    entries.add(BEGIN, time=0)
    entries.add(OTHER, time=1, event_type=QUERY, flags=FLAG_OPEN)
    entries.add(END, time=2)
    entries.add(OTHER, time=3, event_type=ALTER)
    assert cut_numbers(entries, 0) == ([0, 1, 2], [3])


def test_parts():
    """The rest of a transaction goes first; one without its end counts by its last."""
    assert cut_numbers(entries_of(ROWS, END, BEGIN, ROWS), 2) == ([0, 1], [2, 3])
    assert cut_numbers(entries_of(ROWS, END, BEGIN, ROWS), 3) == ([0, 1, 2, 3], [])
    # The first one has no end.
    assert cut_numbers(entries_of(BEGIN, ROWS, BEGIN, END), 0) == ([0, 1], [2, 3])


def test_open_after():
    """After BEGIN, rows and statements inside, the transaction continues."""
    for kinds, is_open in (
        ((BEGIN,), True),
        ((BEGIN, ROWS), True),
        ((ROWS, END), False),
        ((OTHER,), False),
        ((END, HEARTBEAT), False),
        ((ROWS, HEARTBEAT), True),
        ((HEARTBEAT,), False),
        ((), False),
    ):
        assert is_open_after(entries_of(*kinds).take()) is is_open
    entries = Entries()
    entries.add(OTHER, flags=FLAG_OPEN)
    assert is_open_after(entries.take())


def test_last_time():
    """The last record counts, but no heartbeat, which may have none."""
    assert last_time(entries_of((BEGIN, 3), (END, 4), (HEARTBEAT, 0)).take()) == 4
    assert last_time(entries_of((BEGIN, 3), (ROWS, 7)).take()) == 7
    assert last_time(entries_of((HEARTBEAT, 9)).take()) == 0
    assert last_time([]) == 0
