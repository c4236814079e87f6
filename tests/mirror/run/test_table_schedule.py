"""Which tables are synced, in which order, and which must not share a folder."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fix_table_schedule import (
    DEEP,
    TEXT,
    A,
    B,
    C,
    D,
    Scene,
    created,
    make_scene,
)

from canal_server.errors import LakeError
from canal_server.mirror.follow.leaving import (
    CopyNeededError,
    TableDroppedError,
)
from canal_server.mirror.settings.settings_file import read
from canal_server.mirror.state.lake_tables import UnusableTableError
from canal_server.mirror.state.state import Phase, TableState
from canal_server.model.columns_known import ColumnMeta

TWO = "tables {} and {} both use folder both: include {{schema}} and {{table}} in to"


def test_a_folder_that_belongs_to_another_table(scene: Scene) -> None:
    """A new table does not replace the copy of one that goes to the same folder."""
    for name in (B, DEEP, C):
        scene.schedule.on_statement(created(name))
    assert scene.started() == [C]
    assert scene.phases() == {
        A: (Phase.FOLLOWING, ""),
        B: (Phase.STOPPED, TWO.format("a.t", "b.t")),
        DEEP: (Phase.STOPPED, TWO.format("a.t", "a.deep")),
        C: (Phase.WAITING, ""),
    }


def test_a_table_that_has_its_folder_gets_a_new_copy(scene: Scene) -> None:
    """A stopped table does not block it; once that is dropped, it gets the folder."""
    scene.schedule.on_statement(created(B))
    assert scene.started() == []
    scene.request(A)
    assert scene.started() == [A]

    scene.ends(A, replace(scene.stored(A), phase=Phase.FOLLOWING))
    assert scene.started() == []
    scene.schedule.on_leave(A, TableDroppedError("the source has no such table"))
    scene.request(B)
    assert scene.started() == [B]
    # What is being copied there has no state of it yet.
    scene.schedule.on_statement(created(A))
    assert scene.started() == []
    assert scene.phases()[A] == (Phase.STOPPED, TWO.format("b.t", "a.t"))


def test_a_table_that_the_lake_does_not_take(scene: Scene) -> None:
    """It is tried three times, then stopped; for what a store says, for ever."""

    def sync(kind: type[LakeError]) -> tuple[Phase, str]:
        """Fail once; returns how the table is stored then."""
        scene.now_s += 60
        assert scene.started() == [C]
        scene.ends(C, error=kind("cannot publish"))
        assert scene.started() == []
        return scene.stored(C).phase, scene.stored(C).message

    copying = TableState(C, "c", Phase.COPYING, "c1")
    scene.given(copying)
    waits = (Phase.COPYING, "cannot publish")
    assert [sync(UnusableTableError) for _ in range(2)] == [waits, waits]
    phase, message = sync(UnusableTableError)
    assert phase is Phase.STOPPED
    assert message.startswith(f"cannot publish; `canal-server mirror copy {C}` makes a")
    scene.given(copying)
    for kind in (UnusableTableError, LakeError, UnusableTableError):
        assert [sync(kind) for _ in range(2)] == [waits] * 2  # not in a row
    assert [sync(LakeError) for _ in range(4)] == [waits] * 4


def leaves(scene: Scene) -> float:
    """Let a.t leave the stream; returns the seconds until its copy starts."""
    scene.schedule.on_leave(A, CopyNeededError("its key is another one"))
    left = scene.now_s
    for _ in range(200):
        if A in scene.started():
            break
        scene.now_s += 30
    paused_s = scene.now_s - left
    scene.ends(A, replace(scene.stored(A), phase=Phase.FOLLOWING))
    assert scene.started() == []
    return paused_s


def test_a_table_that_leaves_again_and_again(scene: Scene) -> None:
    """Its copies start after growing pauses, which are shown; calm resets them."""
    pauses = [leaves(scene) for _ in range(11)]
    assert pauses == [0, 0, 0, 60, 120, 240, 480, 960, 1920, 3600, 3600]
    message = scene.stored(A).message
    assert "11 times in a row, so it waits for 60 min" in message
    scene.now_s += 3600  # it follows
    assert [leaves(scene) for _ in range(4)] == [0, 0, 0, 60]


def test_a_pause_concerns_one_table(scene: Scene) -> None:
    """It holds no other table up, survives a restart, and ends at once on request."""
    for _ in range(3):
        leaves(scene)
    scene.schedule.on_leave(A, CopyNeededError("its key is another one"))
    scene.schedule.on_statement(created(C))
    assert scene.started() == [C]

    scene.restart()
    assert scene.started() == [C]
    scene.request(A)
    assert scene.started() == [A]


@pytest.mark.parametrize("drift", ["copy", "stop"])
def test_a_table_that_leaves_as_soon_as_it_has_joined(tmp_path, drift) -> None:
    """The state of its copy is stored, though it has not been collected yet.

    It later shows whether a column was hidden, and who owns the folder.
    """
    settings = read(TEXT, str(tmp_path / "m.yml"), {})
    rules = tuple(replace(each, drift=drift) for each in settings.tables)
    for scene in make_scene(replace(settings, tables=rules)):
        scene.schedule.on_statement(created(C))
        scene.started()
        joined = TableState(
            C, "a/c", Phase.FOLLOWING, "c1", columns=(ColumnMeta("id", "int", None),),
            hidden=("mail",), copies=1,
        )  # fmt: skip
        scene.store.write(joined)
        scene.schedule.on_leave(C, CopyNeededError("its key is another one"))
        stored = scene.stored(C)
        assert stored in scene.schedule.known()
        assert stored.phase is (Phase.WAITING if drift == "copy" else Phase.STOPPED)
        assert (stored.copy_id, stored.columns) == (joined.copy_id, joined.columns)
        assert (stored.hidden, stored.copies) == (("mail",), 1)


def test_a_fault_that_meets_one_copy(scene: Scene, caplog) -> None:
    """That table stops, with one traceback in the log; the mirror continues."""
    scene.schedule.on_statement(created(C))
    scene.schedule.on_statement(created(D))
    assert scene.started() == [C, D]
    scene.ends(C, error=ZeroDivisionError("of rows"))
    assert scene.started() == []
    message = (
        "internal error: ZeroDivisionError; please report it, with the "
        "traceback in the log; `canal-server mirror copy a.c` makes a new copy"
    )
    assert scene.stored(C).phase is Phase.STOPPED
    assert scene.stored(C).message == message
    (record,) = [each for each in caplog.records if message in each.getMessage()]
    assert isinstance(record.exc_info[1], ZeroDivisionError)
    assert scene.stored(D).phase is Phase.WAITING


def test_a_machine_at_its_end_ends_the_mirror(scene: Scene) -> None:
    """No table is stopped for what would meet each of them."""
    scene.schedule.on_statement(created(C))
    assert scene.started() == [C]
    scene.ends(C, error=MemoryError())
    with pytest.raises(MemoryError):
        scene.started()
    assert scene.stored(C).phase is Phase.WAITING


def test_what_cannot_be_stored_is_found_again(scene: Scene, monkeypatch) -> None:
    """A recreated table is not forgotten where the lake is full."""
    scene.schedule.on_leave(A, TableDroppedError("the source has no such table"))
    scene.schedule.check_recreated()
    assert scene.stored(A).phase is Phase.DROPPED
    scene.dropped.present.add(A)

    def full(_state: TableState) -> TableState:
        raise LakeError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(scene.store, "write", full)
        with pytest.raises(LakeError):
            scene.schedule.check_recreated()
    scene.schedule.check_recreated()
    assert scene.phases() == {A: (Phase.WAITING, "the table was recreated")}


def test_tables_at_work_are_shown_as_what_they_are(scene: Scene) -> None:
    """A table that is being copied does not wait, one that has no thread yet does."""
    scene.schedule.on_statement(created(C))
    scene.schedule.on_statement(created(D))
    assert scene.started() == [C, D]
    scene.pool.running[C].set_running_or_notify_cancel()
    scene.store.write(scene.stored(C).moved(Phase.COPYING))
    assert scene.schedule.current().phases() == {
        Phase.FOLLOWING: 1, Phase.COPYING: 1, Phase.WAITING: 1,
    }  # fmt: skip
