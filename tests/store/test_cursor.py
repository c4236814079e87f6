"""Cursors with filters, compared with a plain list that is filtered the simple way."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import pytest
from fix_blocks import ALTER, BEGIN, END, OTHER, QUERY, ROWS, numbers_of
from fix_store import StoreUnderTest

from canal_server.config.schema import BatchMode
from canal_server.model.positions import EntryPosition
from canal_server.store import event_store
from canal_server.store.cursor import Cursor

if TYPE_CHECKING:
    from canal_server.model.batch import Batch
    from canal_server.store.ring import Ring

CLIENT = 1001

LogEntry = tuple[int, int, int, int, int]  # number, kind, table id, event type, time


@pytest.fixture
def t():
    """Return a store of 16 slots."""
    return StoreUnderTest(buffer_size=16)


def got(t, count: int = 99, client: int = CLIENT) -> list[int]:
    """Get without waiting and ack at once; returns the numbers of the entries."""
    batch = t.store.get(client, count, 0)
    if batch is None:
        return []
    t.store.ack(client, batch.last_sequence)
    return numbers_of(batch.slices)


def test_only_selected_tables_come(t):
    """A filter passes rows of its tables, with their BEGIN and END."""
    t.store.subscribe(CLIENT, t.wanting("a"), None)
    t.entries.add(BEGIN)
    t.entries.add(ROWS, table_ordinal=t.table_ordinal("b"))
    t.entries.add(ROWS, table_ordinal=t.table_ordinal("a"))
    t.entries.add(END)
    t.put()
    assert got(t) == [0, 2, 3]


def test_entries_without_a_table_pass(t):
    """Table id 0 passes every filter."""
    t.store.subscribe(CLIENT, t.wanting(), None)
    t.entries.add(OTHER, event_type=QUERY)
    t.put()
    assert got(t) == [0]


def test_the_filter_is_asked_once_per_table(t):
    """New tables are asked about when they appear, others never again."""
    asked = []

    def table_filter(names) -> bool:
        asked.append(names)
        return True

    first, second = t.table_ordinal("a"), t.table_ordinal("b")
    t.store.subscribe(CLIENT, table_filter, None)
    t.entries.transaction(rows=3, table_ordinal=first)
    t.entries.transaction(rows=3, table_ordinal=second)
    t.put()
    assert len(got(t)) == 10
    third = t.table_ordinal("c")
    t.entries.transaction(rows=3, table_ordinal=third)
    t.put()
    assert len(got(t)) == 5
    assert asked == [(("s", "a"),), (("s", "b"),), (("s", "c"),)]


def test_an_unknown_subject_is_a_mistake(t):
    """A record with an unknown table id is not mistaken for another one."""
    t.store.subscribe(CLIENT, t.wanting("a"), None)
    t.entries.add(ROWS, table_ordinal=99)
    t.put()
    with pytest.raises(IndexError, match="table id 99 is not among the 1 from 1 on"):
        got(t)


def test_empty_transactions_are_thinned_per_cursor(t):
    """Of transactions without passing rows one in more than five seconds passes."""
    t.store.subscribe(CLIENT, t.wanting(), None)
    table_ordinal = t.table_ordinal("b")
    passed = []
    for step in (0, 1, 5, 6, 7):
        t.entries.time = 1_000_000 + step
        t.entries.transaction(rows=1, table_ordinal=table_ordinal)
        t.put()
        passed.append(len(got(t)))
    assert passed == [2, 0, 0, 2, 0]


def test_begin_waits_for_a_selected_row(t):
    """A BEGIN is not delivered before its transaction is known to pass."""
    t.store.subscribe(CLIENT, t.wanting("a"), None)
    t.entries.add(BEGIN)
    t.entries.add(ROWS, table_ordinal=t.table_ordinal("b"))
    t.put()
    assert got(t) == []
    t.entries.add(ROWS, table_ordinal=t.table_ordinal("a"))
    t.put()
    assert got(t) == [0, 2]
    t.entries.add(END)
    t.put()
    assert got(t) == [3]


def test_the_end_of_delivered_rows_always_comes(t):
    """The END passes even in the second in which an empty one passed."""
    t.store.subscribe(CLIENT, t.wanting("a"), None)
    t.entries.transaction(rows=0)
    t.put()
    assert got(t) == [0, 1]
    t.entries.transaction(rows=1, table_ordinal=t.table_ordinal("a"))
    t.put()
    assert got(t, 1) == [2]
    assert got(t) == [3, 4]


def test_a_transaction_without_begin(t):
    """MariaDB's transactions have no BEGIN: their rows and END pass nevertheless."""
    t.store.subscribe(CLIENT, t.wanting("a"), None)
    t.entries.transaction(rows=0)
    t.entries.transaction(rows=1, begin=False, table_ordinal=t.table_ordinal("a"))
    t.entries.transaction(rows=1, begin=False, table_ordinal=t.table_ordinal("b"))
    t.put()
    assert got(t) == [0, 1, 2, 3]


def test_a_ddl_stands_for_itself(t):
    """A DDL passes by its tables and does not make the next empty END pass."""
    t.store.subscribe(CLIENT, t.wanting("a"), None)
    t.entries.transaction(rows=0)
    t.entries.add(OTHER, event_type=ALTER, table_ordinal=t.table_ordinal("a"))
    t.entries.add(END)
    t.entries.add(OTHER, event_type=ALTER, table_ordinal=t.table_ordinal("b"))
    t.put()
    assert got(t) == [0, 1, 2]


def test_rejected_entries_do_not_hold_the_ring(t):
    """A client whose filter passes little frees the ring without asking."""
    t.store.subscribe(CLIENT, t.wanting("a"), None)
    t.entries.transaction(rows=0)
    t.put()
    got(t)
    for _ in range(20):
        t.entries.transaction(rows=8, table_ordinal=t.table_ordinal("b"))
        assert t.try_put()
    assert got(t) == []


def test_a_huge_unwanted_transaction_passes_through(t):
    """Neither its rows nor its BEGIN hold the ring, although its END is far away."""
    t.store.subscribe(CLIENT, t.wanting("a"), None)
    t.entries.add(BEGIN)
    for _ in range(10):
        for _ in range(16):
            t.entries.add(ROWS, table_ordinal=t.table_ordinal("b"))
        assert t.put()
    assert got(t) == []


def test_a_begin_that_left_the_ring_comes_with_its_first_row(t):
    """The BEGIN of a transaction longer than the ring precedes its first row."""
    t.store.subscribe(CLIENT, t.wanting("a"), None)
    t.entries.add(BEGIN)
    for _ in range(40):
        t.entries.add(ROWS, table_ordinal=t.table_ordinal("b"))
    expected = t.entries.add(ROWS, table_ordinal=t.table_ordinal("a"))
    end = t.entries.add(END)
    assert t.put()

    batch = t.store.get(CLIENT, 1, 0)
    assert numbers_of(batch.slices) == [0, expected]
    assert batch.start.position == 0
    assert (batch.count, batch.ack) == (2, batch.start)
    t.store.rollback(CLIENT)
    assert got(t) == [0, expected, end]


def test_a_rollback_repeats_the_same_choice(t):
    """Entries that passed pass again, though an empty transaction just did."""
    t.store.subscribe(CLIENT, t.wanting("a"), None)
    for _ in range(2):
        t.entries.transaction(rows=1, table_ordinal=t.table_ordinal("b"))
    t.entries.transaction(rows=1, table_ordinal=t.table_ordinal("a"))
    t.put()
    first = numbers_of(t.store.get(CLIENT, 99, 0).slices)
    t.store.rollback(CLIENT)
    assert first == [0, 2, 6, 7, 8]
    assert got(t) == first


def test_an_open_batch_keeps_rejected_entries_after_it(t):
    """While a batch is unacked nothing after it counts as acked."""
    t.store.subscribe(CLIENT, t.wanting("a"), None)
    t.entries.transaction(rows=1, table_ordinal=t.table_ordinal("a"))
    t.put()
    batch = t.store.get(CLIENT, 9, 0)
    for _ in range(13):
        t.entries.add(ROWS, table_ordinal=t.table_ordinal("b"))
    assert t.try_put()
    t.entries.add(ROWS, table_ordinal=t.table_ordinal("b"))
    assert not t.try_put()
    t.store.ack(CLIENT, batch.last_sequence)
    t.entries.add(ROWS, table_ordinal=t.table_ordinal("b"))
    assert t.try_put()


def test_another_filter_is_evaluated_again(t):
    """After a new subscription unacked entries are judged by the new filter."""
    t.store.subscribe(CLIENT, t.wanting("a"), None)
    t.entries.add(BEGIN)
    t.entries.add(ROWS, table_ordinal=t.table_ordinal("a"))
    t.entries.add(ROWS, table_ordinal=t.table_ordinal("b"))
    t.entries.add(END)
    t.put()
    t.store.get(CLIENT, 99, 0)
    t.store.subscribe(CLIENT, t.wanting("b"), None)
    t.store.rollback(CLIENT)
    assert numbers_of(t.store.get(CLIENT, 99, 0).slices) == [0, 2, 3]
    t.store.subscribe(CLIENT, None, None)
    t.store.rollback(CLIENT)
    assert got(t) == [0, 1, 2, 3]


@pytest.mark.parametrize("tables", [("a", "b"), None])
def test_another_filter_keeps_a_begin_that_left_the_ring(t, tables):
    """A BEGIN that is carried still precedes the first row by the new filter."""
    t.store.subscribe(CLIENT, t.wanting("a"), None)
    t.entries.add(BEGIN)
    for _ in range(40):
        t.entries.add(ROWS, table_ordinal=t.table_ordinal("b"))
    assert t.put()
    t.store.subscribe(CLIENT, t.wanting(*tables) if tables else None, None)
    t.entries.add(END)
    assert t.put()
    numbers = got(t)
    assert numbers[0] == 0
    assert numbers[-1] == 41
    assert numbers[1:-1] == list(range(41 - len(numbers[1:-1]), 41))


def test_many_small_runs_make_few_slices():
    """Adjacent passing entries are joined, and the number of slices is bounded."""
    t = StoreUnderTest(buffer_size=16384)
    t.store.subscribe(CLIENT, t.wanting("a"), None)
    for _ in range(4000):
        t.entries.add(ROWS, table_ordinal=t.table_ordinal("a"))
        t.entries.add(ROWS, table_ordinal=t.table_ordinal("b"))
    t.put()
    batch = t.get(CLIENT, 4000)
    assert len(batch.slices) == 1
    assert numbers_of(batch.slices) == list(range(0, 8000, 2))


def test_the_last_sequence_covers_rejected_entries(t):
    """The ack of a batch frees what was rejected after it, too."""
    t.store.subscribe(CLIENT, t.wanting("a"), None)
    t.entries.add(ROWS, table_ordinal=t.table_ordinal("a"))
    for _ in range(5):
        t.entries.add(ROWS, table_ordinal=t.table_ordinal("b"))
    t.put()
    batch = t.store.get(CLIENT, 1, 0)
    assert (batch.first_sequence, batch.last_sequence) == (0, 5)
    t.store.ack(CLIENT, 5)
    assert t.store.counts().ack_sequence == 5


# -- the model ------------------------------------------------------------------------


def selected_of(entries: list[LogEntry], tables: set[int] | None) -> list[int]:
    """Return the numbers of (number, kind, table id, event type, time) that pass."""
    if tables is None:
        return [number for number, *_ in entries]
    expected: list[int] = []
    held: LogEntry | None = None  # the BEGIN without a row so far
    inside = False  # between BEGIN and END
    has_rows = True  # a first END belongs to rows delivered before
    last_empty, swallowed = 0, 0
    for entry in entries:
        number, kind, table_ordinal, event_type, time = entry
        if kind == BEGIN:
            held, inside, has_rows = entry, True, False
        elif kind == END:
            passes = has_rows
            if not passes:
                begin_time = held[4] if held else time
                swallowed += abs(begin_time - last_empty) <= 5
                if abs(begin_time - last_empty) > 5 or swallowed > 8192:
                    last_empty, swallowed, passes = begin_time, 0, True
            if passes:
                expected += [held[0], number] if held else [number]
            held, inside, has_rows = None, False, False
        elif table_ordinal == 0 or table_ordinal in tables:
            expected += [held[0], number] if held else [number]
            held = None
            has_rows = has_rows or inside or kind == ROWS or event_type == QUERY
    return expected


class ModelClient:
    """What one client must see: the passing entries from its first sequence on."""

    def __init__(self, client_id: int, tables: set[int] | None, first: int) -> None:
        self.client_id = client_id
        self.tables = tables
        self.first = first
        self.open: deque[tuple[Batch, int]] = deque()  # with what was got in each
        self.got = 0  # of the passing entries
        self.acked = 0

    def check(self, log: list[LogEntry], numbers: list[int]) -> None:
        """Compare a batch with the next entries of this client."""
        expected = selected_of(log[self.first :], self.tables)
        assert numbers == expected[self.got : self.got + len(numbers)]


class Scenario:
    """Random calls on a store, each checked against the model."""

    def __init__(self, rng, cursors: dict[int, Cursor]) -> None:
        self.rng = rng
        self.cursors = cursors
        self.mode = rng.choice(list(BatchMode))
        self.isolation = rng.random() < 0.3
        self.t = StoreUnderTest(
            buffer_size=rng.choice([4, 16, 64]),
            batch_mode=self.mode,
            memunit=200,
            ddl_isolation=self.isolation,
        )
        self.log: list[LogEntry] = []
        self.clients: list[ModelClient] = []
        self.inside = False

    def subscribe(self, client_id: int) -> None:
        """Add a client, with a filter or without."""
        rng, t = self.rng, self.t
        tables = rng.choice([None, [], ["a"], ["a", "c"]])
        table_filter = None if tables is None else t.wanting(*tables)
        expected = (
            None if tables is None else {t.table_ordinal(table) for table in tables}
        )
        first, after = t.store.counts().ack_sequence + 1, None
        if self.log and rng.random() < 0.5:
            acked, kind, *_ = rng.choice(self.log)
            after = EntryPosition("bin.000001", acked * 100)
            skipped = [n for n, *_ in self.log if n < acked + (kind != BEGIN)]
            first = max(first, len(skipped))
        t.store.subscribe(client_id, table_filter, after)
        self.clients.append(ModelClient(client_id, expected, first))

    def put(self) -> None:
        """Offer some entries; they count only when there was room."""
        entries, rng, t = self.t.entries, self.rng, self.t
        added = []
        inside = self.inside
        for _ in range(rng.randrange(1, min(12, t.config.buffer_size) + 1)):
            entries.time += rng.choice([0, 0, 0, 1, 4])
            if inside:
                kind = rng.choices([ROWS, END, OTHER], [8, 2, 1])[0]
            else:
                kind = rng.choices([BEGIN, ROWS, END, OTHER], [8, 1, 1, 1])[0]
            inside = (inside or kind == BEGIN) and kind != END
            table_ordinal, event_type = 0, 0
            if kind in (ROWS, OTHER):
                event_type = 1 if kind == ROWS else rng.choice([QUERY, ALTER])
                table_ordinal = t.table_ordinal(rng.choice("abbbbbc"))
            number = entries.add(
                kind,
                table_ordinal=table_ordinal,
                event_type=event_type,
                size=rng.choice([60, 120]),
            )
            added.append((number, kind, table_ordinal, event_type, entries.time))
        if t.try_put():
            self.log += added
            self.inside = inside

    def get(self, client: ModelClient) -> bool:
        """Get a batch and compare it; false when there was none."""
        count = self.rng.randrange(1, 20)
        batch = self.t.store.get(client.client_id, count, 0)
        if batch is None:
            return False
        numbers = numbers_of(batch.slices)
        client.check(self.log, numbers)
        assert len(numbers) == batch.count
        by_number = {entry[0]: entry for entry in self.log}
        entries = [by_number[number] for number in numbers]
        if self.mode == BatchMode.ITEMSIZE:
            # A carried BEGIN comes with its row.
            carried = entries[0][1] == BEGIN and batch.count == count + 1
            assert batch.count <= count + carried
        if self.isolation and any(entry[3] == ALTER for entry in entries):
            assert len(entries) == 1 or [e[1] for e in entries] == [BEGIN, OTHER]
        self.check_positions(batch, entries)
        client.got += len(numbers)
        client.open.append((batch, client.got))
        return True

    def check_positions(self, batch, entries: list[LogEntry]) -> None:
        """Compare the positions of a batch with those of its entries."""
        resumable = [e for e in entries if e[1] in (BEGIN, END) or e[3] == ALTER]
        assert batch.start.position == entries[0][0] * 100
        assert batch.end.position == entries[-1][0] * 100
        expected = resumable[-1][0] * 100 if resumable else None
        assert (batch.ack.position if batch.ack else None) == expected

    def ack(self, client: ModelClient) -> None:
        """Ack the oldest open batch."""
        if client.open:
            batch, got = client.open.popleft()
            self.t.store.ack(client.client_id, batch.last_sequence)
            client.acked = got

    def rollback(self, client: ModelClient) -> None:
        """Roll all open batches back."""
        self.t.store.rollback(client.client_id)
        client.open.clear()
        client.got = client.acked

    def drain(self) -> None:
        """Every client gets and acks everything."""
        for client in self.clients:
            self.rollback(client)
            while self.get(client):
                self.ack(client)
            expected = selected_of(self.log[client.first :], client.tables)
            assert client.acked == len(expected)
            cursor = self.cursors[client.client_id]
            assert (cursor.available, cursor.available_bytes) == (0, 0)


def test_random_calls_match_the_model(rng, monkeypatch):
    """After any calls each client gets its entries, in order, nothing twice."""
    cursors: dict[int, Cursor] = {}

    def noted(ring: Ring, client_id: int, *rest: Any) -> Cursor:
        cursors[client_id] = Cursor(ring, client_id, *rest)
        return cursors[client_id]

    monkeypatch.setattr(event_store, "Cursor", noted)
    for _ in range(30):
        s = Scenario(rng, cursors)
        s.subscribe(1)
        for step in range(300):
            client = rng.choice(s.clients)
            call = rng.choices(
                [s.put, s.get, s.ack, s.rollback, s.subscribe], [40, 30, 25, 2, 1]
            )[0]
            if call == s.put:
                s.put()
            elif call == s.subscribe:
                if len(s.clients) < 4:
                    s.subscribe(100 + step)
            else:
                call(client)
        s.drain()
        for _ in range(20):
            s.put()
            s.drain()
        assert s.t.held() <= len(s.log)
        s.t.store.close()
        assert s.t.held_bytes() == 0
