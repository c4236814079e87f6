"""What a mirror counts from the events of its stages."""

from __future__ import annotations

import logging

import pytest

from canal_server.messages.mirror import mirror_run_messages, mirror_table_messages
from canal_server.mirror.copy.copying import CopyProgress
from canal_server.mirror.follow.micro_batches import BatchReport
from canal_server.mirror.report.mirror_counts import (
    SECONDS_BOUNDS,
    MessageCounter,
    MirrorCounts,
)
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.run_history import Batch, Status

A = TableName("shop", "a")
B = TableName("shop", "b")


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    """Give a clock."""
    return Clock()


@pytest.fixture
def counts(clock) -> MirrorCounts:
    """Give counts by that clock."""
    return MirrorCounts(clock)


def test_batches(counts, clock) -> None:
    """Rows, times and durations are summed; a batch without changes is a batch, too."""
    first = BatchReport(1, None, rows=3, received=5, seconds=0.3, newest_ms=990_000)
    first.written, first.newest = {A: 3}, {A: 990_000, B: 980_000}
    counts.batch(first)
    clock.now_s = 1_001.0
    counts.batch(BatchReport(2, None, seconds=100.0))
    second = BatchReport(3, None, rows=1, received=1, seconds=0.1, newest_ms=1_000_500)
    second.written, second.newest = {A: 1}, {A: 1_000_500}
    counts.batch(second)

    found = counts.read()
    assert (found.batches, found.received_rows) == (3, 6)
    assert found.batch_s == pytest.approx(100.4)
    assert sum(found.batch_numbers) == 3
    assert found.batch_numbers[SECONDS_BOUNDS.index(0.5)] == 1
    assert found.batch_numbers[0] == found.batch_numbers[-1] == 1
    assert (found.delay_ms, found.newest_ms) == (500, 1_000_500)
    table = found.tables[A]
    assert (table.stream_rows, table.newest_ms) == (4, 1_000_500)
    assert table.written_ms == 1_001_000
    assert (found.tables[B].stream_rows, found.tables[B].newest_ms) == (0, 980_000)


def test_lag(counts, clock) -> None:
    """It counts from the newest change, or from when there was nothing more."""
    assert counts.read().lag_s(clock()) is None
    counts.batch(BatchReport(1, None, newest_ms=990_000))
    assert counts.read().lag_s(clock()) == 10
    clock.now_s = 1_050.0
    counts.idle()
    clock.now_s = 1_060.0
    assert counts.read().lag_s(clock()) == 10
    clock.now_s = 1_040.0  # a clock that was set back
    assert counts.read().lag_s(clock()) == 0


def test_lag_after_a_restart(counts, clock) -> None:
    """It counts from what the earlier process had stored."""
    counts.resume(None)
    counts.resume(Status("shop", "here", 1, 0, 0))
    assert counts.read().lag_s(clock()) is None
    last = Batch(at_ms=900_000, delay_ms=1_000)
    counts.resume(Status("shop", "here", 1, 0, 950_000, last=last))
    assert counts.read().lag_s(clock()) == 101
    counts.resume(Status("shop", "here", 1, 0, 950_000, last=last, caught_up=True))
    assert counts.read().lag_s(clock()) == 50


def test_failures_of_the_stream(counts, clock) -> None:
    """The first failure of a row of them is shown until a batch or an idle poll."""
    counts.started()
    counts.failed()
    clock.now_s += 10
    counts.failed()
    counts.started()
    found = counts.read()
    assert (found.starts, found.failures) == (2, 2)
    assert found.failing_since_ms == 1_000_000
    counts.idle()
    assert counts.read().failing_since_ms == 0
    counts.failed()
    counts.batch(BatchReport(1, None))
    assert counts.read().failing_since_ms == 0
    assert counts.read().failures == 3


def test_copies(counts) -> None:
    """Rows are counted from where this process began, of one copy after another."""
    counts.copying(A, CopyProgress(10, 4, 400, 9), 1_000)
    counts.copying(A, CopyProgress(10, 6, 600, 9), 1_000)
    copy = counts.read().copies[A]
    assert (copy.rows, copy.rows_expected, copy.chunks_done) == (600, 1_000, 6)
    assert counts.read().tables[A].copied_rows == 200
    counts.copying(A, CopyProgress(10, 0, 0, 0), 1_000)  # again, as its columns changed
    counts.copying(A, CopyProgress(10, 1, 100, 0), 1_000)
    counts.copied(A)
    counts.copied(A)
    assert not counts.read().copies
    assert counts.read().tables[A].copied_rows == 300


def test_messages_of_the_log(counts) -> None:
    """Named warnings and errors are counted with their table, others are not."""
    logger = logging.getLogger("canal_server.of_this_test")
    logger.propagate = False
    logger.addHandler(MessageCounter(counts))
    for _ in range(2):
        mirror_table_messages.MIRROR_TABLE_STOPPED.log(logger, A, "no key")
    mirror_run_messages.MIRROR_LAKE_FAILED.log(logger, "shop.a", 3.0)
    logger.warning("of a library")
    assert counts.read().messages == {
        ("error", "mirror-table-stopped", "shop.a"): 2,
        ("warning", "mirror-lake-failed", ""): 1,
    }
