"""Which table gets another one's rows, as of RENAME, and what becomes of the rest."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from fix_table_schedule import (
    TEXT,
    A,
    B,
    C,
    D,
    Scene,
    created,
    make_scene,
)

from canal_server.client.range_client import RangePosition
from canal_server.mirror.follow.leaving import (
    TableDroppedError,
    TableReplacedError,
    TableStoppedError,
    origin_at,
)
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.settings.settings_file import read
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.state import Origin, Phase, TableState
from canal_server.model.entry import EventType
from canal_server.model.versions import version
from canal_server.spark.columns.spark_schema import TypedColumn
from canal_server.spark.packed.packed_rows import STATEMENT, Packed

if TYPE_CHECKING:
    from pathlib import Path


SHADOW = TableName("a", "_c_gho")
NEWER = TableName("a", "c_newer")
OLD = TableName("a", "_c_old")


def unreachable(_item: Packed) -> TableState | None:
    """Stand for what must not be done."""
    raise AssertionError("it would replace rows that are needed")


def test_folders_that_readers_know_stay(scene: Scene) -> None:
    """A table with such a name that was mirrored for readers is not removed."""
    lake = open_folder(scene.settings.lake)
    lake.write("a/_c_gho/part.parquet", b"rows")
    scene.given(TableState(SHADOW, "a/_c_gho", Phase.DROPPED, "c2"))
    scene.reached = 1 << 60
    assert scene.started() == []
    assert lake.below("a/_c_gho").names() == ["part.parquet"]


def test_a_shadow_waits_for_the_batch_that_ended_it(scene: Scene) -> None:
    """The same batch may tell later which table gets its rows."""
    folder = f"{scene.settings.folder}/migrations/a/_c_gho"
    item = renames((SHADOW, C), of=C)
    scene.given(TableState(SHADOW, folder, Phase.DROPPED, "c2", ended=item.seq))
    assert scene.started() == []
    assert scene.store.read(SHADOW) is not None
    scene.reached = item.seq
    assert scene.started() == []
    assert scene.store.read(SHADOW) is None


def test_a_table_that_only_looks_like_a_shadow(scene: Scene) -> None:
    """Without the table of its name, it is one like any other, as long as it exists."""
    scene.schedule.on_statement(created(SHADOW))
    assert scene.started() == [SHADOW]
    assert not scene.settings.is_shadow(SHADOW)
    assert scene.stored(SHADOW).target == "a/!5Fc_gho"
    scene.ends(SHADOW, replace(scene.stored(SHADOW), phase=Phase.FOLLOWING))
    scene.schedule.on_statement(created(C))
    scene.schedule.on_statement(created(SHADOW))  # is read once more
    assert not scene.settings.is_shadow(SHADOW)
    scene.started()
    scene.schedule.on_leave(SHADOW, TableDroppedError("dropped", 1))
    scene.schedule.on_statement(created(SHADOW))
    assert scene.settings.is_shadow(SHADOW)
    renamed = replace(renames((C, OLD), of=OLD), event_type=EventType.RENAME.name)
    scene.schedule.on_statement(renamed)
    assert scene.store.read(OLD) is None


def test_a_name_that_only_looks_like_that_of_a_shadow(scene: Scene) -> None:
    """A table that gets such a name stays where its readers find it."""
    scene.given(TableState(NEWER, "a/c_newer", Phase.FOLLOWING, "c1"))
    item = renames((NEWER, SHADOW), of=SHADOW)
    scene.schedule.on_statement(item)
    assert not scene.settings.is_shadow(SHADOW)
    assert scene.stored(SHADOW).target == "a/!5Fc_gho"


def renames(*pairs: tuple[TableName, TableName], of: TableName) -> Packed:
    """Return a statement that renames tables, as the stream has it for one of them."""
    texts = ", ".join(f"{old} TO {new}" for old, new in pairs)
    return Packed(
        kind=STATEMENT, destination="example", table=of, seq=version(1, "b.000001", 4),
        row=0, is_ddl=True, sql=f"RENAME TABLE {texts}", journal="b.000001",
        version=version(1, "b.000001", 90),
        columns=(TypedColumn("id", "int", "", True),),
    )  # fmt: skip


def replaced(item: Packed, source: TableName) -> TableReplacedError:
    """Return why a table leaves the stream whose name another one got."""
    position = RangePosition(1, "b.000001", 90)
    return TableReplacedError("got its name", Origin(source, item.seq, position))


def test_a_schema_change(scene: Scene) -> None:
    """The table waits until the rows are there; what was used for it is removed."""
    folder = f"{scene.settings.folder}/migrations/a/_c_gho"
    scene.given(
        TableState(C, "a/c", Phase.FOLLOWING, "c1"),
        TableState(SHADOW, folder, Phase.FOLLOWING, "c2"),
    )
    lake = open_folder(scene.settings.lake)
    lake.write(f"{folder}/part.parquet", b"rows")
    item = renames((C, TableName("a", "_c_del")), (SHADOW, C), of=C)
    scene.schedule.on_leave(C, replaced(item, SHADOW))
    assert scene.started() == []
    scene.schedule.on_leave(SHADOW, TableDroppedError("renamed", item.seq))
    assert scene.started() == [C]
    scene.reached = item.seq
    assert scene.started() == []
    assert scene.store.read(SHADOW) is not None
    # The next one begins while its rows are still needed.
    scene.schedule.follow_new = unreachable
    scene.schedule.on_statement(created(SHADOW))
    assert scene.phases()[SHADOW][0] is Phase.WAITING
    scene.schedule.on_leave(SHADOW, TableDroppedError("dropped", item.seq))

    scene.ends(C, replace(scene.stored(C), phase=Phase.FOLLOWING, origin=None))
    assert scene.started() == []
    assert scene.store.read(SHADOW) is None
    assert lake.below(folder).names() == []
    # The next schema change begins with an empty table.
    taken: list[str] = []

    def follow_new(item: Packed) -> TableState | None:
        taken.append(item.sql)
        return TableState(item.table, folder, Phase.FOLLOWING) if taken[1:] else None

    scene.schedule.follow_new = follow_new
    for name in (SHADOW, B):
        scene.schedule.on_statement(created(name))
    assert scene.phases()[SHADOW][0] is Phase.WAITING
    scene.given(TableState(C, "a/c", Phase.FOLLOWING, "c1"))
    scene.schedule.follow_new = follow_new
    scene.schedule.on_statement(created(SHADOW))
    assert [state.phase for state in scene.schedule.known()] == [Phase.FOLLOWING] * 2
    assert taken == [f"CREATE TABLE {SHADOW} (id INT)"] * 2


@pytest.mark.parametrize("drift", ["copy", "stop"])
def test_rows_that_the_lake_will_not_have(tmp_path: Path, drift: str) -> None:
    """A table that is copied now ends nowhere: the rule of the table decides."""
    text = TEXT.replace("{match: .*}", f"{{match: .*, drift: {drift}}}")
    settings = read(text, str(tmp_path / "m.yml"), {})
    for scene in make_scene(settings):
        scene.given(
            TableState(C, "a/c", Phase.FOLLOWING, "c1"),
            TableState(SHADOW, "x", Phase.COPYING, "c2"),
        )
        item = renames((SHADOW, C), of=C)
        scene.schedule.on_leave(C, replaced(item, SHADOW))
        state = scene.stored(C)
        wanted = Phase.WAITING if drift == "copy" else Phase.STOPPED
        assert (state.phase, state.origin) == (wanted, None)


def test_a_table_that_has_just_begun_to_follow(scene: Scene) -> None:
    """Its rows are in the lake, even if the end of its copy is not collected yet."""
    scene.given(
        TableState(C, "a/c", Phase.FOLLOWING, "c1"), TableState(D, "b/d", Phase.WAITING)
    )
    assert scene.started() == [D]
    scene.store.write(TableState(D, "b/d", Phase.FOLLOWING, "c2"))
    scene.schedule.on_leave(C, replaced(renames((D, C), of=C), D))
    origin = scene.stored(C).origin
    assert origin is not None
    assert origin.source == D


def test_a_table_with_a_new_name(scene: Scene) -> None:
    """It is moved after a moment, as the old name may be used again."""
    scene.given(TableState(C, "a/c", Phase.FOLLOWING, "c1"))
    item = renames((C, NEWER), of=NEWER)
    scene.schedule.on_statement(item)
    scene.schedule.on_leave(C, TableDroppedError("renamed", item.seq))
    assert scene.started() == []
    scene.now_s += 5
    assert scene.started() == [NEWER]
    assert scene.stored(NEWER).origin == Origin(
        C, item.seq, RangePosition(1, "b.000001", 90)
    )


@pytest.mark.parametrize("is_followed", [True, False])
def test_the_end_of_a_name(scene: Scene, caplog, is_followed) -> None:
    """A copy is nobody's only if no other table continues it under its own name."""
    scene.given(TableState(C, "a/c", Phase.FOLLOWING, "c1"))
    item = renames((C, NEWER), of=NEWER)
    scene.schedule.on_leave(C, TableDroppedError("renamed", item.seq))
    assert scene.started() == []  # the statement has not come to the other table
    scene.schedule.on_statement(item)
    scene.reached = item.seq
    scene.now_s += 5
    assert scene.started() == [NEWER]
    assert "dropped" not in caplog.text
    state = replace(scene.stored(NEWER), phase=Phase.CATCHING_UP, origin=None)
    scene.ends(NEWER, replace(state, copy_id="c1" if is_followed else "c2"))
    scene.started()
    assert (scene.store.read(C) is None) is is_followed
    assert (f"{C}: dropped: renamed" in caplog.text) is not is_followed


def again(pair: tuple[TableName, TableName], *, of: TableName) -> Packed:
    """Return a later statement that renames a table."""
    item = renames(pair, of=of)
    at = version(1, "b.000001", 200)
    return replace(item, seq=at, version=version(1, "b.000001", 290))


@pytest.mark.parametrize("while_stopped", [True, False])
def test_a_name_for_a_moment(scene: Scene, caplog, while_stopped) -> None:
    """A table that is renamed twice has its second name at the end.

    It is followed under the first one, as its rows may have changed meanwhile.
    """
    scene.given(TableState(C, "a/c", Phase.FOLLOWING, "c1"))
    if while_stopped:
        scene.store.write(TableState(NEWER, "x", Phase.WAITING))
        scene.restart(missing=(C,), end=version(1, "b.000001", 300))
    one, two = renames((C, D), of=D), again((D, NEWER), of=NEWER)
    scene.schedule.on_leave(C, TableDroppedError("renamed", one.seq))
    scene.schedule.on_statement(one)
    if while_stopped:  # the second statement is in another batch
        scene.reached = one.seq
        scene.schedule.check_missing(scene.stream)
        scene.now_s += 5
        assert scene.started() == [D]
    scene.schedule.on_statement(replace(two, table=D, columns=()))
    scene.schedule.on_statement(two)
    scene.reached = two.seq
    scene.schedule.check_missing(scene.stream)
    scene.now_s += 5
    assert scene.started() == ([] if while_stopped else [D])

    moved = replace(scene.stored(D), copy_id="c1", origin=None)
    scene.ends(D, replace(moved, phase=Phase.DROPPED, ended=two.seq))
    assert scene.started() == [NEWER]
    origin = scene.stored(NEWER).origin
    assert origin is not None
    assert (origin.source, origin.seq) == (D, two.seq)
    moved = replace(scene.stored(NEWER), copy_id="c1", origin=None)
    scene.ends(NEWER, replace(moved, phase=Phase.FOLLOWING))
    scene.started()
    assert list(scene.store.read_all()) == [NEWER]
    assert "dropped:" not in caplog.text


def test_a_name_that_was_used_again(scene: Scene) -> None:
    """Rows that went to another table and back are exchanged in this order."""
    scene.given(TableState(C, "a/c", Phase.FOLLOWING, "c1"))
    there, back = renames((C, D), of=D), again((D, C), of=C)
    scene.schedule.on_leave(C, TableDroppedError("renamed", there.seq))
    for item in there, back:
        scene.schedule.on_statement(item)
    scene.now_s += 5
    assert scene.started() == [D]
    scene.ends(D, replace(scene.stored(D), phase=Phase.DROPPED, ended=back.seq))
    assert scene.started() == [C]


def test_a_stopped_table_that_is_dropped(scene: Scene) -> None:
    """Nothing is left to decide then: the next schema change uses its name again."""
    folder = f"{scene.settings.folder}/migrations/a/_c_gho"
    scene.given(
        TableState(A, "both", Phase.STOPPED, "c1"),
        TableState(C, "a/c", Phase.STOPPED, "c2"),
        TableState(D, "b/d", Phase.STOPPED, "c4"),
        TableState(SHADOW, folder, Phase.STOPPED, "c3"),
    )

    def statement(name: TableName, sql: str) -> Packed:
        return replace(created(name), sql=sql, columns=())

    for item in (
        statement(SHADOW, "DROP TABLE _c_gho"),
        statement(C, "DROP TEMPORARY TABLE c"),
        statement(C, "GRANT SELECT ON c TO somebody"),
        replace(
            statement(TableName("b", ""), "DROP DATABASE b"),
            event_type=EventType.ERASE.name,
        ),
    ):
        scene.schedule.on_statement(item)
    phases = {name: phase for name, (phase, _) in scene.phases().items()}
    assert phases == {
        A: Phase.STOPPED,
        C: Phase.STOPPED,
        D: Phase.DROPPED,
        SHADOW: Phase.DROPPED,
    }
    scene.reached = 1
    scene.started()
    assert scene.store.read(SHADOW) is None


def test_a_stopped_table_that_is_renamed(scene: Scene) -> None:
    """It has old rows, which the table with its new name must not get."""
    scene.given(
        TableState(C, "a/c", Phase.FOLLOWING, "c1"),
        TableState(D, "b/d", Phase.STOPPED, "c2"),
    )
    item = renames((D, C), of=C)
    scene.schedule.on_statement(replace(item, table=D, columns=()))
    assert scene.stored(D).phase is Phase.DROPPED
    scene.schedule.on_leave(C, replaced(item, D))
    assert scene.stored(C).origin is None  # so it is copied
    scene.schedule.on_statement(renames((D, NEWER), of=NEWER))
    assert scene.stored(NEWER).origin is None


@pytest.fixture
def renamed(scene: Scene) -> Scene:
    """Give a schedule that starts after a table got a new name, not yet in the stream.

    Another table was copied before.
    """
    scene.given(
        TableState(C, "a/c", Phase.FOLLOWING, "c1"),
        TableState(NEWER, "x", Phase.WAITING),
        TableState(D, "b/d", Phase.WAITING, "c2"),
    )
    scene.restart(missing=(C,), end=version(1, "b.000001", 100))
    return scene


def test_a_new_name_while_the_mirror_was_stopped(renamed: Scene) -> None:
    """The new table waits for the stream, and is the old one; others do not wait."""
    assert renamed.started() == [D]
    item = renames((C, NEWER), of=NEWER)
    renamed.schedule.on_statement(item)
    renamed.schedule.on_leave(C, TableDroppedError("renamed", item.seq))
    renamed.schedule.check_missing(renamed.stream)
    renamed.now_s += 5
    assert renamed.started() == [NEWER]
    origin = renamed.stored(NEWER).origin
    assert origin is not None
    assert origin.source == C


def test_a_new_table_beside_one_that_was_dropped(renamed: Scene) -> None:
    """It waits until the batch is stored that ended the other one, and is copied."""
    seq = version(1, "b.000001", 4)
    renamed.schedule.on_statement(replace(created(NEWER), seq=seq - 1))
    renamed.schedule.on_leave(C, TableDroppedError("dropped", seq))
    renamed.schedule.check_missing(renamed.stream)
    assert renamed.started() == [D]
    renamed.reached = seq
    renamed.schedule.check_missing(renamed.stream)
    assert renamed.started() == [NEWER]
    assert renamed.stored(NEWER).origin is None


def test_a_table_that_was_dropped_without_a_statement(renamed: Scene, caplog) -> None:
    """It is dropped when the stream has passed where the binlog ended at the start."""
    follower: Any = SimpleNamespace(table=SimpleNamespace(source=C))
    with renamed.stream.joining:
        renamed.stream.join(follower)
    renamed.reached = version(1, "b.000001", 99)
    renamed.schedule.check_missing(renamed.stream)
    assert renamed.stored(C).phase is Phase.FOLLOWING
    renamed.reached = version(1, "b.000001", 100)
    renamed.schedule.check_missing(renamed.stream)
    why = "the source no longer has this table"
    assert renamed.phases()[C] == (Phase.DROPPED, why)
    assert list(renamed.stream.tables) == []
    assert renamed.started() == [NEWER, D]
    assert why in caplog.text


@pytest.mark.parametrize("how", ["request", "rename", "stop"])
def test_since_when_the_rows_are_old(scene: Scene, how: str) -> None:
    """Whatever ends following the stream: the lake has what it had then."""
    if how == "request":
        scene.request(A)
    elif how == "rename":
        scene.given(
            TableState(A, "both", Phase.FOLLOWING),
            TableState(C, "a/c", Phase.FOLLOWING),
        )
        scene.schedule.on_leave(A, replaced(renames((C, A), of=A), C))
    else:
        scene.schedule.on_leave(A, TableStoppedError("why"))
    left = scene.stored(A)
    assert left.phase is not Phase.FOLLOWING
    assert left.old_since_ms > 0
    assert left.moved(Phase.STOPPED).old_since_ms == left.old_since_ms
    assert left.moved(Phase.FOLLOWING).old_since_ms == 0


def test_a_requested_copy_is_one_of_the_source(scene: Scene) -> None:
    """Whoever asks for a copy does not get what the lake has."""
    scene.given(
        TableState(C, "a/c", Phase.FOLLOWING, "c1"),
        TableState(SHADOW, "x", Phase.FOLLOWING, "c2"),
    )
    scene.schedule.on_leave(C, replaced(renames((SHADOW, C), of=C), SHADOW))
    assert scene.stored(C).origin is not None
    scene.request(C)
    assert scene.stored(C).origin is None
    assert scene.started() == [C]


@pytest.mark.parametrize("end", [0, version(1, "b.000001", 1 << 32)])
def test_a_statement_without_an_exact_position(scene: Scene, end: int) -> None:
    """It is not known where to continue after it, so nothing is taken from the lake."""
    scene.given(
        TableState(C, "a/c", Phase.FOLLOWING, "c1"),
        TableState(SHADOW, "x", Phase.FOLLOWING, "c2"),
    )
    item = replace(renames((SHADOW, C), of=C), version=end)
    origin = origin_at(item, SHADOW)
    assert origin is None
    scene.schedule.on_leave(C, TableReplacedError("got its name", origin))
    assert scene.stored(C).origin is None
    assert scene.started() == [C]
