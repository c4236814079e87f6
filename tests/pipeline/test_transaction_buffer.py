"""The transaction ring buffer, compared with a list that does the same simply."""

from __future__ import annotations

import pytest
from fix_blocks import (
    ALTER,
    BEGIN,
    END,
    FLAG_OPEN,
    HEARTBEAT,
    OTHER,
    QUERY,
    ROWS,
    Entries,
    numbers_in,
)

from canal_server.pipeline.transaction_buffer import TransactionBuffer

MIB = 1 << 20


class Delivered:
    """What a buffer gave to deliver, part by part."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.span_counts: list[int] = []

    def put(self, buffer: TransactionBuffer, spans) -> None:
        """Put spans into a buffer, and deliver what becomes ready."""
        while spans:
            ready, spans = buffer.put(spans)
            if ready:
                self.calls.append(numbers_in(ready))
                self.span_counts.append(len(ready))
            buffer.commit()

    @property
    def numbers(self) -> list[int]:
        """Return the numbers of all entries, in the order of delivery."""
        return [number for call in self.calls for number in call]


@pytest.fixture
def entries():
    """Make entries in blocks of ordinary size."""
    return Entries()


@pytest.fixture
def delivered():
    """Record what is delivered and accept it."""
    return Delivered()


def test_delivers_whole_transactions_in_one_call(entries, delivered):
    """All transactions of a chunk are delivered together, as one span of a block."""
    buffer = TransactionBuffer(64, MIB)
    for _ in range(5):
        entries.transaction(rows=2)
    delivered.put(buffer, entries.take())
    assert delivered.calls == [list(range(20))]
    assert delivered.span_counts == [1]
    assert buffer.pending == 0


def test_keeps_an_open_transaction(entries, delivered):
    """Entries without their END stay until it comes in a later chunk."""
    buffer = TransactionBuffer(64, MIB)
    entries.transaction(rows=1)
    entries.add(BEGIN)
    entries.add(ROWS)
    delivered.put(buffer, entries.take())
    assert delivered.calls == [[0, 1, 2]]
    assert buffer.pending == 2

    entries.add(ROWS)
    entries.add(END)
    delivered.put(buffer, entries.take())
    assert delivered.calls[1:] == [[3, 4, 5, 6]]


def test_begin_delivers_what_has_no_end(entries, delivered):
    """A BEGIN ends whatever is before it."""
    buffer = TransactionBuffer(64, MIB)
    entries.add(ROWS)
    entries.add(BEGIN)
    delivered.put(buffer, entries.take())
    assert delivered.calls == [[0]]
    assert buffer.pending == 1


@pytest.mark.parametrize("kind", [OTHER, HEARTBEAT, END])
def test_single_entries_do_not_wait(entries, delivered, kind):
    """A DDL, a heartbeat and an END are delivered with their chunk."""
    buffer = TransactionBuffer(64, MIB)
    entries.add(ROWS)
    entries.add(kind, event_type=ALTER)
    delivered.put(buffer, entries.take())
    assert delivered.calls == [[0, 1]]


def test_statements_in_a_transaction_wait_with_it(entries, delivered):
    """The text of a statement, which is before its rows, ends no transaction."""
    buffer = TransactionBuffer(64, MIB)
    for _ in range(2):
        entries.add(OTHER, event_type=QUERY, flags=FLAG_OPEN)
        entries.add(ROWS)
    delivered.put(buffer, entries.take())
    assert delivered.calls == []

    entries.add(END)
    delivered.put(buffer, entries.take())
    assert delivered.calls == [[0, 1, 2, 3, 4]]


def test_a_long_transaction_is_delivered_in_parts(entries, delivered):
    """What exceeds the slots is delivered in parts, in order and complete."""
    buffer = TransactionBuffer(8, MIB)
    entries.transaction(rows=20)
    delivered.put(buffer, entries.take())
    assert delivered.numbers == list(range(22))
    assert [len(call) for call in delivered.calls] == [8, 8, 6]


def test_whole_transactions_go_before_parts(entries, delivered):
    """A full ring delivers its whole transactions and keeps the open one whole."""
    buffer = TransactionBuffer(8, MIB)
    entries.transaction(rows=3)
    entries.transaction(rows=4)
    delivered.put(buffer, entries.take())
    assert delivered.calls == [list(range(5)), list(range(5, 11))]


def test_bytes_are_limited(entries, delivered):
    """An open transaction never holds more bytes than the limit."""
    buffer = TransactionBuffer(1024, 1000)
    entries.add(BEGIN, size=100)
    for _ in range(20):
        entries.add(ROWS, size=300)
    delivered.put(buffer, entries.take())
    assert buffer.pending_bytes <= 1000
    assert delivered.numbers == list(range(19))
    assert max(len(call) for call in delivered.calls) <= 4


def test_an_entry_above_the_limit_passes_alone(entries, delivered):
    """A row larger than the limit of bytes is delivered by itself."""
    buffer = TransactionBuffer(8, 500)
    entries.add(BEGIN)
    entries.add(ROWS, size=2000)
    entries.add(END)
    delivered.put(buffer, entries.take())
    assert delivered.calls == [[0], [1], [2]]


def test_what_is_not_committed_is_pending(entries, delivered):
    """Entries stay until the commit; reset drops what could not be delivered."""
    buffer = TransactionBuffer(8, MIB)
    entries.transaction(rows=1)
    ready, rest = buffer.put(entries.take())
    assert (numbers_in(ready), rest) == ([0, 1, 2], [])
    assert buffer.pending == 3
    buffer.reset()
    assert buffer.pending == 0
    assert buffer.pending_bytes == 0

    entries.transaction(rows=1)
    delivered.put(buffer, entries.take())
    assert delivered.numbers == [3, 4, 5]


def test_put_before_the_commit(entries):
    """What is ready has to be committed, or dropped, before more is put."""
    buffer = TransactionBuffer(8, MIB)
    entries.transaction(rows=1)
    buffer.put(entries.take())
    entries.transaction(rows=1)
    with pytest.raises(AssertionError, match="before the commit"):
        buffer.put(entries.take())
    assert buffer.pending == 3


def test_what_does_not_fit_is_returned(entries):
    """A full ring returns the rest of the spans, to be put after the commit."""
    buffer = TransactionBuffer(4, MIB)
    entries.transaction(rows=1)
    entries.transaction(rows=1)
    ready, rest = buffer.put(entries.take())
    assert (numbers_in(ready), numbers_in(rest)) == ([0, 1, 2], [3, 4, 5])
    buffer.commit()
    ready, rest = buffer.put(rest)
    assert (numbers_in(ready), rest) == ([3, 4, 5], [])


def test_whole_transactions_take_no_slots(entries, delivered):
    """They are delivered together, however many slots there are, up to their limit."""
    buffer = TransactionBuffer(4, MIB, 10)
    for _ in range(7):
        entries.transaction(rows=1)
    entries.add(BEGIN)
    delivered.put(buffer, entries.take())
    assert [len(call) for call in delivered.calls] == [9, 9, 3]
    assert delivered.numbers == list(range(21))
    assert buffer.pending == 1


def test_the_end_of_an_open_transaction_and_what_follows(entries, delivered):
    """Both are delivered in one call and as one span, if they are neighbours."""
    buffer = TransactionBuffer(64, MIB)
    entries.add(BEGIN)
    entries.add(ROWS)
    delivered.put(buffer, entries.take())
    entries.add(END)
    entries.transaction(rows=1)
    entries.transaction(rows=2)
    entries.add(BEGIN)
    delivered.put(buffer, entries.take())
    assert delivered.calls == [list(range(10))]
    assert delivered.span_counts == [1]
    assert buffer.pending == 1


def test_blocks_are_let_go(entries, delivered):
    """Neither delivered nor forgotten entries keep their memory."""
    buffer = TransactionBuffer(8, MIB)
    pool = entries.pool
    for _ in range(3):
        entries.add(ROWS, size=60_000)
    buffer.put(entries.take())
    buffer.reset()
    del entries
    buffer.put([])
    assert pool.held <= pool.spare_max
    assert buffer.pending == 0


@pytest.mark.parametrize("size", [0, 3, 1000])
def test_size_is_a_power_of_two(size):
    """Any other size is refused."""
    with pytest.raises(ValueError, match="power of two"):
        TransactionBuffer(size, MIB)


def test_a_span_beyond_its_block_is_refused(entries, delivered):
    """The ring never reads past the records of a block."""
    buffer = TransactionBuffer(8, MIB)
    entries.transaction(rows=1)
    [(block, first, stop)] = entries.take()
    with pytest.raises(IndexError):
        buffer.put([(block, first, stop + 1)])


class Model:
    """The buffer's rules on a plain list, delivering at every occasion."""

    def __init__(self, size: int, bytes_max: int) -> None:
        self.size = size
        self.bytes_max = bytes_max
        self.pending: list[tuple[int, int]] = []
        self.units: list[list[int]] = []

    def put(self, number: int, kind: int, size: int) -> None:
        """Take one entry."""
        if kind == BEGIN:
            self.flush()
        held = sum(size for _, size in self.pending)
        if len(self.pending) == self.size or held + size > self.bytes_max:
            self.flush()
        self.pending.append((number, size))
        if kind not in (BEGIN, ROWS):
            self.flush()

    def flush(self) -> None:
        """Deliver what is pending as one unit."""
        if self.pending:
            self.units.append([number for number, _ in self.pending])
        self.pending = []


def joins_units(call: list[int], units: list[list[int]]) -> bool:
    """Return whether a call is the next units end to end; takes them off."""
    joined: list[int] = []
    while len(joined) < len(call):
        joined += units.pop(0)
    return joined == call


def test_random_sequences_match_the_model(rng):
    """Calls are always unbroken runs of the units that the simple rules give."""
    for _ in range(60):
        size = rng.choice([1, 2, 4, 16, 64])
        bytes_max = rng.choice([200, 1000, MIB])
        delivered = Delivered()
        buffer = TransactionBuffer(size, bytes_max, rng.choice([None, 3, 30]))
        model = Model(size, bytes_max)
        entries = Entries(records_per_block=rng.choice([1, 7, 1000]))
        for _ in range(rng.randrange(1, 20)):
            for _ in range(rng.randrange(0, 60)):
                kind = rng.choices(
                    [BEGIN, ROWS, END, HEARTBEAT, OTHER], [3, 20, 3, 1, 1]
                )[0]
                entry_size = rng.choice([50, 64, 300])
                model.put(entries.add(kind, size=entry_size), kind, entry_size)
            delivered.put(buffer, entries.take())
            buffer.check()
            if rng.random() < 0.05:
                buffer.reset()
                model.pending = []
        units = list(model.units)
        for call in delivered.calls:
            assert joins_units(call, units), call
        assert units == []
        assert buffer.pending == len(model.pending)
