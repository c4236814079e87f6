"""Counting what comes again by time."""

from __future__ import annotations

import pytest
from fix_blocks import BEGIN, END, ROWS, Entries

from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.source.pump.redelivery import Redelivery, redelivery_of
from canal_server.source.read.start_position import StartPosition

STORED = LogPosition(
    LogIdentity("db", 3306), EntryPosition("bin.000007", 4, 101_000, 1)
)


def entries_at(*times: int) -> Entries:
    """Return a transaction with two rows for each time."""
    entries = Entries()
    for time in times:
        entries.add(BEGIN, time=time)
        entries.add(ROWS, time=time, rows=2)
        entries.add(END, time=time)
    return entries


def overlap_before(caplog: pytest.LogCaptureFixture) -> Redelivery:
    """Return what counts from 60 seconds before the stored position on."""
    overlap = redelivery_of(
        "shop", StartPosition("f.1", 4, None, timestamp_ms=41_000), STORED
    )
    assert overlap is not None
    assert "60 s before db:3306/bin.000007:4" in caplog.text
    return overlap


def test_counts_up_to_the_last_position(caplog: pytest.LogCaptureFixture) -> None:
    """What is not younger is counted, and logged after something much younger."""
    overlap = overlap_before(caplog)
    overlap.take(entries_at(90, 101).take())
    assert not overlap.ended
    overlap.take(entries_at(101, 162, 99).take())
    overlap.take(entries_at(99).take())
    assert (overlap.transactions, overlap.rows, overlap.ended) == (4, 8, True)
    (line,) = [each for each in caplog.messages if "at most" in each]
    assert "4 transactions with 8 rows were delivered again" in line


def test_times_out_of_order(caplog: pytest.LogCaptureFixture) -> None:
    """One that is a little younger does not end the count: older ones may follow."""
    overlap = overlap_before(caplog)
    overlap.take(entries_at(100, 102, 101, 161, 100).take())
    assert (overlap.transactions, overlap.rows, overlap.ended) == (3, 6, False)


def test_a_transaction_in_two_chunks(caplog: pytest.LogCaptureFixture) -> None:
    """Its rows count with its end, whose time is that of the commit."""
    overlap = overlap_before(caplog)
    for end_s, rows in ((101, 5), (102, 5)):
        entries = Entries()
        entries.add(BEGIN, time=95)
        entries.add(ROWS, time=95, rows=4)
        overlap.take(entries.take())
        entries.add(ROWS, time=95, rows=1)
        entries.add(END, time=end_s)
        overlap.take(entries.take())
        assert (overlap.transactions, overlap.rows) == (1, rows)


@pytest.mark.parametrize(
    ("position", "stored"),
    [
        (StartPosition("f.1", 4, None), STORED),
        (StartPosition("f.1", 4, None, timestamp_ms=1), None),
        (
            StartPosition("f.1", 4, None, timestamp_ms=1),
            LogPosition(STORED.identity, EntryPosition("f.1", 4)),
        ),
    ],
    ids=["not by time", "a first start", "a position without a time"],
)
def test_where_nothing_comes_again(
    position: StartPosition, stored: LogPosition | None
) -> None:
    """Other starts have no overlap."""
    assert redelivery_of("shop", position, stored) is None
