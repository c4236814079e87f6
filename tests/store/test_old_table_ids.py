"""Numbers of tables that no entry in the store has any more are forgotten."""

from __future__ import annotations

from fix_blocks import BEGIN, END, ROWS, numbers_of
from fix_store import StoreUnderTest

CLIENT, OTHER_CLIENT = 1001, 1002
NAMES_MAX = 8


def selects(names) -> bool:
    """Return whether a table's number is even."""
    return not names or int(names[0][1]) % 2 == 0


def transaction_of(t, table: int) -> list[int]:
    """Put a transaction with a row of a table; returns what a client gets."""
    numbers = t.entries.transaction(rows=1, table_ordinal=t.table_ordinal(str(table)))
    t.put()
    return numbers if table % 2 == 0 else []


def get_all(t, client: int) -> list[int]:
    """Get and ack everything; returns the numbers of the entries."""
    batch = t.store.get(client, 999, 0)
    if batch is None:
        return []
    t.store.ack(client, batch.last_sequence)
    return numbers_of(batch.slices)


def test_names_stay_bounded() -> None:
    """However many tables are used, few names are kept, and none is mistaken."""
    t = StoreUnderTest(names_max=NAMES_MAX)
    t.store.subscribe(CLIENT, selects, None)
    for table in range(500):
        # Far apart, so that no empty transaction is left out.
        t.entries.time += 10
        expected = transaction_of(t, table)
        got = get_all(t, CLIENT)
        assert got[: len(expected)] == expected
        assert len(got) == len(expected) or not expected
        assert len(t.table_ids) <= 2 * NAMES_MAX + 2
    assert t.table_ids.epoch > 500 // (2 * NAMES_MAX)


def test_names_of_entries_in_the_ring_stay() -> None:
    """Unacked entries are judged correctly, however many names followed.

    Even for a client that subscribes later, and with another filter.
    """
    t = StoreUnderTest(names_max=NAMES_MAX)
    t.store.subscribe(CLIENT, selects, None)
    numbers = {}
    for table in range(3 * NAMES_MAX - 4):
        t.entries.time += 10
        numbers[table] = t.entries.transaction(
            rows=1, table_ordinal=t.table_ordinal(str(table))
        )
        t.put()
    assert t.table_ids.ageing
    t.store.subscribe(OTHER_CLIENT, lambda names: not selects(names), None)
    rows = {table: each[1] for table, each in numbers.items()}
    assert {rows[table] for table in rows if table % 2} <= {*get_all(t, OTHER_CLIENT)}
    t.store.subscribe(CLIENT, lambda names: names == ((("s", "3"),)), None)
    assert {*rows.values()} & {*get_all(t, CLIENT)} == {rows[3]}


def test_rows_of_a_statement_that_an_epoch_cut() -> None:
    """A row may have an old number after new ones: until then its name is kept."""
    t = StoreUnderTest(names_max=2)
    t.store.subscribe(CLIENT, selects, None)
    first, _ = t.table_ordinal("2"), t.table_ordinal("4")
    t.entries.add(BEGIN)
    t.entries.add(ROWS, table_ordinal=t.table_ordinal("6"))
    assert t.table_ids.ageing
    t.put()
    assert get_all(t, CLIENT) == [0, 1]
    late = t.entries.add(ROWS, table_ordinal=first)
    t.put()
    assert get_all(t, CLIENT) == [late]
    end = t.entries.add(END)
    t.put()
    assert t.table_ids.ageing
    assert get_all(t, CLIENT) == [end]
    t.entries.transaction(rows=1, table_ordinal=t.table_ordinal("6"))
    t.put()
    assert not t.table_ids.ageing


def test_random_tables(rng) -> None:
    """Two clients that get occasionally miss nothing and get nothing of others."""
    t = StoreUnderTest(names_max=NAMES_MAX, buffer_size=256)
    t.store.subscribe(CLIENT, selects, None)
    t.store.subscribe(OTHER_CLIENT, lambda names: not selects(names), None)
    due: dict[int, list[int]] = {CLIENT: [], OTHER_CLIENT: []}
    got: dict[int, list[int]] = {CLIENT: [], OTHER_CLIENT: []}
    rows: set[int] = set()
    for _ in range(2000):
        table = rng.randrange(40)
        _, row, _ = t.entries.transaction(
            rows=1, table_ordinal=t.table_ordinal(str(table))
        )
        rows.add(row)
        due[OTHER_CLIENT if table % 2 else CLIENT].append(row)
        # Room is made before it is needed: no other client would get.
        for client, table_filter in due.items():
            if rng.random() < 0.1 or len(table_filter) - len(got[client]) > 20:
                t.put()
                got[client] += [each for each in get_all(t, client) if each in rows]
    t.put()
    for client in due:
        got[client] += [each for each in get_all(t, client) if each in rows]
    assert got == due
    assert t.table_ids.epoch > 2
