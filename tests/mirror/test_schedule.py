"""Which tables are synced, and which must not share a folder."""

from __future__ import annotations

import io
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import Any

import pytest

from canal_server.errors import LakeError
from canal_server.mirror.follow.follower import CopyNeededError
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.run.pauses import is_due, paused
from canal_server.mirror.run.progress import Progress
from canal_server.mirror.run.run import Mirror, _ended
from canal_server.mirror.settings.settings_file import read
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.lake_tables import UnusableTableError
from canal_server.mirror.state.state import Phase, States, TableState
from canal_server.model.columns_known import ColumnMeta
from canal_server.runtime.lifecycle import Stop
from canal_server.spark.columns.spark_schema import TypedColumn
from canal_server.spark.packed.packed_rows import STATEMENT, Packed

TEXT = """name: shop
canal: {destination: example}
source: {host: db, user: canal}
lake: {path: lake}
tables: [{match: '.*\\.t', to: both}, {match: '.*\\.deep', to: both/deep}, {match: .*}]
"""
A, B, C = TableName("a", "t"), TableName("b", "t"), TableName("a", "c")
DEEP = TableName("a", "deep")
TWO = "tables a.t and {} both use folder both: include {{schema}} and {{table}} in to"


class Bringing:
    """A fake of the threads: records which tables were started."""

    def __init__(self) -> None:
        self.begun: list[TableName] = []

    def submit(self, do, state: TableState) -> Future[None]:
        """Run it at once, as if it were still running."""
        do(state)
        return Future()  # which is not done

    def sync(self, state: TableState) -> None:
        """Note it."""
        self.begun.append(state.source)


@pytest.fixture
def mirror(tmp_path):
    """Give a mirror that was not started, of which table a.t follows."""
    settings = read(TEXT, str(tmp_path / "m.yml"), {})
    made = Mirror(settings, Progress(io.StringIO()), Stop())
    made._states[A] = TableState(A, "both", Phase.FOLLOWING, "c1")
    return made


def created(name: TableName) -> Packed:
    """Return a statement that makes a table."""
    return Packed(
        kind=STATEMENT, destination="example", table=name, seq=1, row=0, is_ddl=True,
        sql=f"CREATE TABLE {name}", columns=(TypedColumn("id", "int", "", True),),
    )  # fmt: skip


def phases(mirror: Mirror) -> dict[TableName, tuple[Phase, str]]:
    """Return what becomes of tables, as it is stored."""
    stored = States(open_folder(mirror._settings.lake, "_mirror/shop")).read_all()
    return {
        name: (state.phase, state.message.partition(";")[0])
        for name, state in stored.items()
    }


def test_a_folder_that_belongs_to_another_table(mirror) -> None:
    """A new table does not replace the copy of one that goes to the same folder."""
    bringing = Bringing()
    for name in (B, DEEP, C):
        mirror._other_statement(created(name))
    mirror._schedule(bringing, bringing)
    assert bringing.begun == [C]
    assert phases(mirror) == {
        B: (Phase.STOPPED, TWO.format("b.t")),
        DEEP: (Phase.STOPPED, TWO.format("a.deep")),
        C: (Phase.WAITING, ""),
    }


def test_a_table_that_has_its_folder_gets_a_new_copy(mirror) -> None:
    """A stopped table does not block it; once that is dropped, it gets the folder."""
    bringing = Bringing()
    mirror._other_statement(created(B))
    mirror._schedule(bringing, bringing)
    mirror._copy_again(mirror._states[A], "")
    mirror._schedule(bringing, bringing)
    assert bringing.begun == [A]

    del mirror._at_work[A]
    mirror._states[A] = mirror._states[A].moved(Phase.DROPPED)
    mirror._copy_again(mirror._states[B], "")
    mirror._schedule(bringing, bringing)
    assert bringing.begun == [A, B]
    # What is being copied there has no state of it yet.
    mirror._copy_again(mirror._states[A], "")
    mirror._schedule(bringing, bringing)
    assert phases(mirror)[A] == (
        Phase.STOPPED,
        "tables b.t and a.t both use folder both: include {schema} and {table} in to",
    )


def test_a_table_that_the_lake_does_not_take(mirror) -> None:
    """It is tried three times, then stopped; for what a store says, for ever."""
    error: Exception = UnusableTableError("cannot publish")

    def sync() -> tuple[Phase, str]:
        tried: Future[None] = Future()
        tried.set_exception(error)
        mirror._at_work[C] = tried
        mirror._collect()
        return mirror._states[C].phase, mirror._states[C].message

    mirror._states[C] = TableState(C, "c", Phase.COPYING, "c1")
    waits = (Phase.COPYING, "cannot publish")
    assert [sync() for _ in range(2)] == [waits, waits]
    phase, told = sync()
    assert phase is Phase.STOPPED
    assert told.startswith(f"cannot publish; `canal-server mirror copy {C}` makes a")
    assert phases(mirror)[C] == (Phase.STOPPED, "cannot publish")
    mirror._states[C] = TableState(C, "c", Phase.COPYING, "c1")
    mirror._store.write(mirror._states[C])
    for kind in (UnusableTableError, LakeError, UnusableTableError):
        error = kind("cannot publish")
        assert [sync() for _ in range(2)] == [waits] * 2  # not in a row
    error = LakeError("cannot publish")
    assert [sync() for _ in range(4)] == [waits] * 4


def test_a_table_that_leaves_again_and_again(mirror) -> None:
    """Its copies start after growing pauses, which hold no other table up.

    Pauses are shown, survive a restart, and end at once on request.
    """
    bringing, now = Bringing(), [1e9]
    mirror._clock = lambda: now[0]

    def leave() -> float:
        """Make it leave the stream; returns the seconds until it is started."""
        mirror._states[A] = replace(mirror._states[A], phase=Phase.FOLLOWING)
        mirror._table_left(A, CopyNeededError("its key is another one"))
        left, bringing.begun = now[0], []
        for _ in range(200):
            mirror._schedule(bringing, bringing)
            if bringing.begun:
                break
            now[0] += 30
        mirror._at_work.clear()
        return now[0] - left

    assert [leave() for _ in range(11)] == [
        *(0, 0, 0, 60, 120, 240, 480, 960, 1920, 3600, 3600)
    ]
    assert "10 times in a row, so it waits for 60 min" in _message_of_pause(mirror, 10)
    now[0] += 3600  # it follows
    assert [leave() for _ in range(4)] == [0, 0, 0, 60]

    mirror._states[A] = replace(mirror._states[A], phase=Phase.FOLLOWING)
    mirror._table_left(A, CopyNeededError("its key is another one"))
    mirror._other_statement(created(C))
    bringing.begun = []
    mirror._schedule(bringing, bringing)
    assert bringing.begun == [C]

    clock = mirror._clock
    again: Any = Mirror(mirror._settings, Progress(io.StringIO()), Stop(), clock)
    again._states = again._store.read_all()
    bringing.begun = []
    again._schedule(bringing, bringing)
    assert bringing.begun == [C]

    again._store.request_copy([A])
    again._accept_requests()
    again._schedule(bringing, bringing)
    assert bringing.begun == [C, A]
    again._dropped.close()


def _message_of_pause(mirror: Mirror, times: int) -> str:
    """Return the message of a table that has left `times` times."""
    state = replace(mirror._states[A], leaves=times - 1)
    return paused(state, "its key is another one", mirror._clock()).message


@pytest.mark.parametrize("drift", ["copy", "stop"])
def test_a_table_that_leaves_as_soon_as_it_has_joined(mirror, drift) -> None:
    """The state of its copy is kept, though it has not been collected yet.

    It later shows whether a column was hidden, and who owns the folder.
    """
    rules = [replace(each, drift=drift) for each in mirror._settings.tables]
    mirror._settings = replace(mirror._settings, tables=tuple(rules))
    mirror._other_statement(created(C))
    mirror._schedule(bringing := Bringing(), bringing)
    joined = TableState(
        C, "a/c", Phase.FOLLOWING, "c1", columns=(ColumnMeta("id", "int", None),),
        hidden=("mail",), copies=1,
    )  # fmt: skip
    mirror._store.write(joined)
    mirror._table_left(C, CopyNeededError("its key is another one"))
    stored = mirror._store.read(C)
    assert stored == mirror._states[C]
    assert stored.phase is (Phase.WAITING if drift == "copy" else Phase.STOPPED)
    assert (stored.copy_id, stored.columns) == (joined.copy_id, joined.columns)
    assert (stored.hidden, stored.copies) == (("mail",), 1)


def brought_in(error: Exception) -> Future[None]:
    """Return what a table's thread leaves that ended by an error."""
    ended: Future[None] = Future()
    ended.set_exception(error)
    return ended


def test_a_fault_that_meets_one_copy(mirror, caplog) -> None:
    """That table stops, with one traceback in the log; the mirror continues."""
    mirror._other_statement(created(B))
    mirror._other_statement(created(C))
    mirror._at_work[C] = brought_in(ZeroDivisionError("of rows"))
    mirror._collect()
    told = (
        "internal error: ZeroDivisionError; please report it, with the "
        "traceback in the log; `canal-server mirror copy a.c` makes a new copy"
    )
    assert mirror._store.read(C).phase is Phase.STOPPED
    assert mirror._store.read(C).message == told
    (record,) = [each for each in caplog.records if told in each.getMessage()]
    assert isinstance(record.exc_info[1], ZeroDivisionError)
    assert mirror._states[B].phase is Phase.WAITING


def test_a_machine_at_its_end_ends_the_mirror(mirror) -> None:
    """No table is stopped for what would meet each of them."""
    mirror._other_statement(created(C))
    mirror._at_work[C] = brought_in(MemoryError())
    with pytest.raises(MemoryError):
        mirror._collect()
    assert mirror._store.read(C).phase is Phase.WAITING


def test_a_clock_that_was_set_back() -> None:
    """Nothing waits longer than the longest pause."""
    state = TableState(A, "both", leaves=9, left_at_ms=int(1e12))
    state = paused(state, "so", 1e9)
    assert not is_due(state, 1e9)
    assert not is_due(state, 1e9 + 3599)
    assert is_due(state, 1e9 + 3600)
    assert is_due(state, 1e9 - 10_000)


def test_what_cannot_be_noted_is_looked_at_again(mirror, monkeypatch) -> None:
    """A table that was made again is not forgotten where the lake is full."""
    mirror._states[A] = mirror._states[A].moved(Phase.DROPPED)
    monkeypatch.setattr(mirror._dropped, "_present", lambda: {A})

    def full(_state: TableState) -> TableState:
        raise LakeError("the disk is full")

    def look() -> None:
        mirror._check_recreated()  # asks
        assert mirror._dropped._answer is not None
        wait([mirror._dropped._answer], 60)
        mirror._check_recreated()

    mirror._dropped.add(A)
    with monkeypatch.context() as patch:
        patch.setattr(mirror._store, "write", full)
        with pytest.raises(LakeError):
            look()
    look()
    assert phases(mirror) == {A: (Phase.WAITING, "the table was recreated")}
    mirror._dropped.close()


def test_an_end_that_fails_is_told(caplog) -> None:
    """In one line, and whatever was to be ended after it is."""

    def fail() -> None:
        raise RuntimeError("the JVM is gone\n  at line 1")

    _ended("the stream", fail)
    assert caplog.messages == ["the stream failed during shutdown: the JVM is gone"]


def test_tables_at_work_are_shown_as_what_they_are(mirror) -> None:
    """A table that is being copied does not wait, one that has no thread yet does."""
    bringing = Bringing()
    mirror._other_statement(created(C))
    mirror._other_statement(created(DEEP._replace(schema="b", table="d")))
    mirror._schedule(bringing, bringing)
    mirror._at_work[C].set_running_or_notify_cancel()
    mirror._store.write(mirror._states[C].moved(Phase.COPYING))
    mirror._show()
    shown = mirror._progress._stream()
    assert shown.startswith("tables: 1 following, 1 copying, 1 waiting | ")
