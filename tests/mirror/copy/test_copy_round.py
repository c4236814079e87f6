"""A copy's chunks as short tasks: each is copied once, and other jobs get their turn.

Without Spark, which `test_copying` uses.
"""

from __future__ import annotations

import threading
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

import pyarrow as pa

from canal_server.errors import ConnectionLost, LakeError, SourceError
from canal_server.mirror.copy import copy_round
from canal_server.mirror.copy.copy_round import LOT_MAX, CopyRound
from canal_server.mirror.rows.chunks import Chunk
from canal_server.mirror.session.slots import Slots

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S = 60.0
TABLE: Any = SimpleNamespace(source="shop.t")
TRACEBACK = "Traceback (most recent call last):\n  File x\nOSError: the disk is full"
TASK: Any = SimpleNamespace(table=TABLE)


class Context:
    """A fake of Spark that records tags."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    def addJobTag(self, tag: str) -> None:  # noqa: N802  # Spark's names
        """Record a tag."""
        assert tag.startswith("canal-mirror-")

    def setInterruptOnCancel(self, on: bool) -> None:  # noqa: N802
        """Record that tasks are cancelled."""
        assert on

    def cancelJobsWithTag(self, tag: str) -> None:  # noqa: N802
        """Have the tasks end."""
        assert tag.startswith("canal-mirror-")
        self.cancelled.set()


class Round(CopyRound):
    """A round whose jobs are a function: lot -> chunks for which it had no time."""

    def __init__(
        self, chunks: int, job: Callable[[list[Chunk]], list[Chunk]], connections: int
    ) -> None:
        self.context = Context()
        spark = SimpleNamespace(sparkContext=self.context)
        pieces = [Chunk(number) for number in range(chunks)]
        super().__init__(spark, TASK, pieces, connections, Slots(connections))
        self._job = job

    def _copy(self, lot: list[Chunk]) -> list[Chunk]:
        return self._job(lot)


def test_each_chunk_is_done_once() -> None:
    """Whatever tasks have no time for is given to others; lots have their limit."""
    done: Counter[int] = Counter()
    guard = threading.Lock()
    at_work = most = 0

    def job(lot: list[Chunk]) -> list[Chunk]:
        nonlocal at_work, most
        assert 0 < len(lot) <= LOT_MAX
        with guard:
            at_work += 1
            most = max(most, at_work)
            count = 1 + lot[0].number % 3
            done.update(chunk.number for chunk in lot[:count])
            at_work -= 1
        return lot[count:]

    making = Round(500, job, 3)
    making.start()
    assert making.join(PATIENCE_S)
    assert done == Counter(range(500))
    assert most <= 3
    making.raise_failure(TABLE)
    assert not making.broken


def test_the_last_ones_are_shared() -> None:
    """Chunks that are returned at the end go to an idle thread."""
    done: set[int] = set()
    others = threading.Event()
    together = threading.Barrier(2)

    def job(lot: list[Chunk]) -> list[Chunk]:
        numbers = {chunk.number for chunk in lot}
        if numbers == {0, 1}:
            assert others.wait(PATIENCE_S)
            return lot  # no time at all
        if numbers & {0, 1}:
            together.wait(PATIENCE_S)  # each has one
        done.update(numbers)
        if done == {2, 3}:
            others.set()
        return []

    making = Round(4, job, 2)
    making.start()
    assert making.join(2 * PATIENCE_S)
    assert not making.broken
    assert done == {0, 1, 2, 3}


def test_spark_gives_up() -> None:
    """Then no other lot is started, and the reason is known."""
    calls: list[int] = []

    def job(lot: list[Chunk]) -> list[Chunk]:
        calls.append(len(lot))
        raise RuntimeError(f"Job aborted:\n{TRACEBACK}")

    making = Round(1000, job, 2)
    making.start()
    assert making.join(PATIENCE_S)
    assert making.broken == "the disk is full"
    assert 1 <= len(calls) <= 2


def test_ended() -> None:
    """Running tasks are cancelled, and no other is started."""
    started = threading.Event()
    calls: list[int] = []

    def job(lot: list[Chunk]) -> list[Chunk]:
        calls.append(len(lot))
        started.set()
        assert making.context.cancelled.wait(PATIENCE_S)
        raise RuntimeError("cancelled")

    making = Round(100, job, 1)
    making.start()
    assert started.wait(PATIENCE_S)
    assert not making.join(0)
    making.end()
    assert making.join(0)
    assert len(calls) == 1


class Executor:
    """A fake of Spark that runs the task of each job at once."""

    def __init__(self) -> None:
        self.sparkContext = Context()  # Spark's name
        self.jobs: list[list[int]] = []  # the chunks that each has started

    def range(self, *_: int) -> Executor:
        """Give the frame of one row, which is this."""
        return self

    def mapInArrow(self, worker: Any, _schema: str) -> Any:  # noqa: N802
        """Give what runs the task."""

        def collect() -> list[dict[str, Any]]:
            batch = pa.RecordBatch.from_pylist([{"id": 0}])
            rows = [row for each in worker([batch]) for row in each.to_pylist()]
            self.jobs.append([row["chunk"] for row in rows])
            return rows

        return SimpleNamespace(collect=collect)


class Held(Slots):
    """A slot that may be held for a time."""

    hold_s = PATIENCE_S


def ended(executor: Executor, chunks: list[Chunk], slots: Slots) -> CopyRound:
    """Return a round that has ended."""
    made = CopyRound(executor, TASK, chunks, 1, slots)
    made.start()
    assert made.join(PATIENCE_S)
    return made


@pytest.mark.parametrize(
    ("hold_s", "jobs"), [(PATIENCE_S, [[0, 1, 2]]), (0.0, [[0], [1], [2]])]
)
def test_a_task_ends_in_time(
    monkeypatch: pytest.MonkeyPatch, hold_s: float, jobs: list[list[int]]
) -> None:
    """It starts no further chunk after its time, but has copied one."""
    done: list[int] = []
    monkeypatch.setattr(copy_round, "copy_chunk", lambda _, c: done.append(c.number))
    monkeypatch.setattr(Held, "hold_s", hold_s)
    executor = Executor()
    ended(executor, [Chunk(number) for number in range(3)], Held(1)).raise_failure(
        TABLE
    )
    assert executor.jobs == jobs
    assert done == [0, 1, 2]


def test_a_chunk_that_cannot_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the task at once; an error that may pass is tried again first."""
    met = [
        ConnectionLost("gone"),
        SourceError("full", errno=1040),
        LakeError("no disk"),
    ]

    def copy(_task: Any, _chunk: Chunk) -> None:
        raise met.pop(0)

    monkeypatch.setattr(copy_round, "copy_chunk", copy)
    executor = Executor()
    made = ended(executor, [Chunk(7), Chunk(8)], Held(1))
    assert not met
    assert executor.jobs == [[7]]
    with pytest.raises(LakeError, match=r"table shop.t: no disk \(chunk 7\)"):
        made.raise_failure(TABLE)
