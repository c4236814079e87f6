"""Entries of a client become transactions, wherever batches are cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from soak.checker import Follower, Violation
from soak.ledger import ID, TX, Ledger, N, State
from soak.reader import EntryReader

from canal_server.client import Entry, EntryType, EventType
from canal_server.protocol.entry_messages import Column, Header, RowChange, RowData
from canal_server.protocol.protobuf import encode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = 6


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """Give a ledger with two transactions of six rows."""
    made = Ledger(tmp_path / "values")
    for tx in range(2):
        changes = [
            [made.change("shop.t", "INSERT", {}, values(tx, n))] for n in range(ROWS)
        ]
        made.settle(made.note_rows(changes), State.DONE)
    yield made
    made.close()


@pytest.fixture
def follower(ledger: Ledger) -> Follower:
    """Give a follower of it."""
    return Follower(ledger, "x", lambda _: True, statements=True)


@pytest.fixture
def reader(follower: Follower) -> EntryReader:
    """Give a reader of a source whose transactions have a BEGIN."""
    return EntryReader(follower, begins=True)


def values(tx: int, number: int) -> dict[str, str | None]:
    """Return a row."""
    return {ID: str(number), TX: str(tx), N: "1"}


def entries(tx: int) -> list[Entry]:
    """Return a transaction as a client gets it."""
    begin, end = (
        Entry(header=Header(gtid=f"g:{tx}"), entry_type=kind, store_value=b"")
        for kind in (EntryType.TRANSACTIONBEGIN, EntryType.TRANSACTIONEND)
    )
    return [begin, *(inserted(tx, n) for n in range(ROWS)), end]


def inserted(tx: int, number: int) -> Entry:
    """Return the entry of a row."""
    columns = tuple(
        Column(name=name, value=value, is_null=False)
        for name, value in values(tx, number).items()
        if value is not None
    )
    change = RowChange(
        event_type=EventType.INSERT, row_datas=(RowData(after_columns=columns),)
    )
    header = Header(
        schema_name="shop",
        table_name="t",
        event_type=EventType.INSERT,
        gtid=f"g:{tx}",
    )
    return Entry(
        header=header, entry_type=EntryType.ROWDATA, store_value=encode(change)
    )


@pytest.mark.parametrize("size", range(1, 2 * ROWS + 5))
def test_cut_anywhere(reader, follower, size):
    """However long batches are, each transaction is one."""
    stream = entries(0) + entries(1)
    for begin in range(0, len(stream), size):
        reader.take(stream[begin : begin + size])
        reader.acked()
    assert follower.order == [0, 1]


@pytest.mark.parametrize("count", range(ROWS + 2))
def test_continued_amid_what_was_acked(reader, follower, count):
    """A stream may go on amid a transaction of which a part was acked."""
    stream = entries(0) + entries(1)
    reader.take(stream[:count])
    reader.acked()
    reader.take(stream[count : count + ROWS])
    reader.resume()
    reader.take(stream[count:])
    assert follower.order == [0, 1]


def test_restarted_whole(reader, follower):
    """A stream may begin a transaction again of which a part was acked."""
    reader.take(entries(0)[:4])
    reader.acked()
    reader.resume()
    reader.take(entries(0) + entries(1))
    assert follower.order == [0, 1]


def test_rows_lost_amid(reader):
    """A part that was not acked may not be left out after a resume."""
    stream = entries(0)
    reader.take(stream[:2])
    reader.acked()
    reader.take(stream[2:4])
    reader.resume()
    with pytest.raises(Violation):
        reader.take(stream[4:])


def test_a_part_of_another_transaction(reader, follower):
    """The END of another transaction does not complete the part that was acked."""
    reader.take(entries(0)[:-1])
    reader.acked()
    reader.resume()
    reader.take([entries(1)[-1]])
    assert follower.order == []


def test_an_end_that_is_lost(reader):
    """Rows of two transactions that run into one another are found out."""
    reader.take(entries(0)[:-1])
    with pytest.raises(Violation, match="a BEGIN amid rows"):
        reader.take(entries(1))
