"""Empty transactions in the sink: which BEGIN, END and heartbeat entries pass."""

from __future__ import annotations

import pytest
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

from canal_server.pipeline.empty_transactions import EmptyTransactionFilter


class Thinned:
    """A thinner and entries for it."""

    def __init__(self, *, thin_markers: bool = False) -> None:
        self.entries = Entries()
        self.thinner = EmptyTransactionFilter(thin_markers=thin_markers)

    def passed(self) -> list[int]:
        """Thin what was added; returns the numbers of what passed."""
        return numbers_in(self.thinner.thin(self.entries.take()))

    def swallow_empties(self) -> None:
        """Let one empty transaction pass, so that the next ones do not."""
        self.entries.transaction(rows=0)
        assert len(self.passed()) == 2


@pytest.fixture
def thin():
    """Thin as the sink does by default."""
    return Thinned()


def test_transactions_with_rows_pass(thin):
    """They pass whole, and neighbours make one span."""
    for _ in range(4):
        thin.entries.transaction(rows=2)
    spans = thin.thinner.thin(thin.entries.take())
    assert numbers_in(spans) == list(range(16))
    assert len(spans) == 1


def test_empty_transactions_pass_every_five_seconds(thin):
    """The first one passes, then the first that is more than five seconds away."""
    passed = []
    for second in (0, 0, 4, 5, 6, 11, 12, 5):
        thin.entries.time = 1_000_000 + second
        thin.entries.transaction(rows=0)
        passed.append(len(thin.passed()))
    assert passed == [2, 0, 0, 0, 2, 0, 2, 2]


def test_every_8193th_empty_transaction_passes(thin):
    """However fast they come, one passes after 8192 were swallowed."""
    thin.swallow_empties()
    for _ in range(8192):
        thin.entries.transaction(rows=0)
    assert thin.passed() == []
    last = thin.entries.transaction(rows=0)
    assert thin.passed() == last
    thin.entries.transaction(rows=0)
    assert thin.passed() == []


def test_an_end_alone_is_empty(thin):
    """Without a BEGIN, as MariaDB has it, the rule is the same."""
    thin.swallow_empties()
    thin.entries.add(END)
    assert thin.passed() == []
    thin.entries.transaction(rows=1, begin=False)
    assert thin.passed() == [3, 4]


def test_heartbeats_are_dropped(thin):
    """They say that the source lives, which is no news for clients."""
    thin.entries.add(HEARTBEAT)
    assert thin.passed() == []


@pytest.mark.parametrize("event_type", [ALTER, QUERY])
def test_a_single_entry_passes(thin, event_type):
    """A DDL and a statement pass without BEGIN and END."""
    thin.entries.add(OTHER, event_type=event_type)
    assert thin.passed() == [0]


def test_an_end_after_a_ddl_may_be_empty(thin):
    """A DDL is complete in itself; it does not fill the transaction after it."""
    thin.swallow_empties()
    ddl = thin.entries.add(OTHER, event_type=ALTER)
    thin.entries.add(END)
    assert thin.passed() == [ddl]


def test_a_ddl_inside_a_transaction_counts_as_row(thin):
    """Between BEGIN and END everything is part of the transaction."""
    thin.swallow_empties()
    begin = thin.entries.add(BEGIN)
    ddl = thin.entries.add(OTHER, event_type=ALTER)
    end = thin.entries.add(END)
    assert thin.passed() == [begin, ddl, end]


def test_the_end_of_delivered_rows_passes_in_a_later_part(thin):
    """An END in a later call ends the transaction whose rows passed before."""
    thin.swallow_empties()
    numbers = thin.entries.transaction(rows=2)
    spans = thin.entries.take()
    [(block, first, stop)] = spans
    thinner = thin.thinner
    assert numbers_in(thinner.thin([(block, first, stop - 1)])) == numbers[:-1]
    assert numbers_in(thinner.thin([(block, stop - 1, stop)])) == numbers[-1:]


def test_a_begin_is_held_back_until_a_row_comes(thin):
    """The BEGIN of a part without rows comes just before the first row."""
    thin.swallow_empties()
    thin.entries.add(BEGIN)
    assert thin.passed() == []
    thin.entries.add(ROWS)
    assert thin.passed() == [2, 3]
    thin.entries.add(END)
    assert thin.passed() == [4]


def test_a_begin_without_end_is_dropped(thin):
    """A BEGIN that another one follows had nothing in it."""
    thin.entries.add(BEGIN)
    second = thin.entries.transaction(rows=1)
    assert thin.passed() == second


def test_reset_forgets_the_open_transaction(thin):
    """After a reconnect neither a held BEGIN nor delivered rows are remembered."""
    thin.swallow_empties()
    thin.entries.add(BEGIN)
    assert thin.passed() == []
    thin.thinner.reset()
    row = thin.entries.add(ROWS)
    assert thin.passed() == [row]
    thin.thinner.reset()
    thin.entries.add(END)
    assert thin.passed() == []


def test_counts(thin):
    """What passed is counted: entries, rows, and transactions by their END."""
    thin.entries.add(HEARTBEAT)
    thin.entries.transaction(rows=2)
    thin.entries.add(ROWS, rows=5)
    thin.entries.add(OTHER, event_type=QUERY, rows=9)
    thin.entries.add(END)
    thin.entries.add(BEGIN)
    thin.passed()
    thinner = thin.thinner
    assert (thinner.entries, thinner.rows, thinner.transactions) == (7, 7, 2)
    assert thinner.last_time == thin.entries.time


def test_a_span_beyond_its_block_is_refused(thin):
    """The thinner never reads past the records of a block."""
    thin.entries.transaction(rows=1)
    [(block, first, stop)] = thin.entries.take()
    with pytest.raises(IndexError):
        thin.thinner.thin([(block, first, stop + 1)])


def test_thinned_markers_pass_every_five_seconds():
    """BEGIN and END of transactions with rows come about every five seconds."""
    thin = Thinned(thin_markers=True)
    passed = []
    for second in (0, 1, 5, 6, 7):
        thin.entries.time = 1_000_000 + second
        thin.entries.transaction(rows=1)
        passed.append(len(thin.passed()))
    assert passed == [3, 1, 1, 3, 1]


def test_the_end_of_a_passed_begin_passes():
    """Markers come in pairs, also when the clock of the source went back."""
    thin = Thinned(thin_markers=True)
    thin.entries.transaction(rows=1)
    assert len(thin.passed()) == 3
    thin.entries.add(BEGIN, time=thin.entries.time + 6)
    thin.entries.add(ROWS)
    thin.entries.add(END)
    assert thin.passed() == [3, 4, 5]


def test_thinned_markers_of_empty_transactions():
    """What the rule of markers lets through the rule of empty ones still decides."""
    thin = Thinned(thin_markers=True)
    thin.entries.transaction(rows=0)
    assert thin.passed() == [0, 1]
    thin.entries.transaction(rows=0)
    assert thin.passed() == []
    thin.entries.time += 6
    thin.entries.transaction(rows=0)
    assert thin.passed() == [4, 5]


def model(units: list[tuple[int, int, int]]) -> list[int]:
    """Thin a whole stream of (number, kind, time), transaction by transaction."""
    passed: list[int] = []
    unit: list[tuple[int, int, int]] = []
    last, swallowed = 0, 0
    for number, kind, time in units:
        if kind == HEARTBEAT:
            continue
        if kind == BEGIN:
            unit = []
        unit.append((number, kind, time))
        has_rows = any(kind in (ROWS, OTHER) for _, kind, _ in unit)
        if kind == END and not has_rows:
            apart = abs(unit[0][2] - last)
            swallowed += apart <= 5
            if apart > 5 or swallowed > 8192:
                last, swallowed = unit[0][2], 0
                passed += [number for number, _, _ in unit]
        elif kind == END:
            passed.append(number)
        elif kind in (ROWS, OTHER):
            passed += [number for number, _, _ in unit if number not in passed]
        if kind == END:
            unit = []
    return passed


def test_random_streams_match_the_model(rng):
    """However a stream is cut into calls, the same entries pass in the same order."""
    for _ in range(100):
        thin = Thinned()
        thin.entries = Entries(records_per_block=rng.choice([1, 5, 1000]))
        stream: list[tuple[int, int, int]] = []
        passed: list[int] = []
        for _ in range(rng.randrange(1, 120)):
            kind = rng.choices([BEGIN, ROWS, END, HEARTBEAT, OTHER], [6, 4, 6, 1, 1])[0]
            thin.entries.time += rng.choice([0, 0, 0, 1, 3])
            number = thin.entries.add(kind, event_type=QUERY if kind == OTHER else 0)
            stream.append((number, kind, thin.entries.time))
            if rng.random() < 0.2:
                passed += thin.passed()
        passed += thin.passed()
        assert passed == model(stream)
