"""Tables that get another one's rows: from the lake, after any interruption."""

from __future__ import annotations

import importlib
import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from canal_server.client.range_client import RangePosition
from canal_server.errors import SourceError
from canal_server.mirror.follow.micro_batches import ChangeStream, note_of
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.run import replacements, table_sync
from canal_server.mirror.run.progress import Progress
from canal_server.mirror.run.table_sync import TableSync
from canal_server.mirror.settings.selected_tables import mirror_table, signature
from canal_server.mirror.settings.settings_file import read
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.lake_tables import lake_schema, open_table
from canal_server.mirror.state.state import Origin, Phase, States, TableState
from canal_server.mirror.state.table_shape import Partition, Partitions
from canal_server.model.columns_known import ColumnMeta
from canal_server.runtime.lifecycle import Stop
from canal_server.spark.options.offsets import version_of

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """name: shop
canal: {{destination: example}}
source: {{host: db, user: canal}}
lake: {{path: lake{}}}
tables: [{{match: '.*', drift: {}}}]
"""
T, GHO, U = (TableName("shop", name) for name in ("t", "_t_gho", "u"))
COLUMNS = (ColumnMeta("id", "int", is_key=True), ColumnMeta("n", "int"))
AFTER = RangePosition(1, "binlog.000007", 900)  # the RENAME
SEQ = version_of(AFTER) - 80


class NoChanges:
    """A reader of one table's changes, which has none."""

    def __init__(self, *_: object, **__: object) -> None:
        """Take what a reader takes."""

    def latest(self) -> RangePosition:
        """Return where the server has come to."""
        return AFTER

    def read(self, *_: object) -> int:
        """Read nothing."""
        return 0

    def statements(self, *_: object) -> tuple[()]:
        """Find nothing."""
        return ()

    def close(self) -> None:
        """End, which takes nothing."""


class Scene:
    """A mirror whose tables are in a lake, and a source that is not there."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        drift: str,
        text: str = TEXT,
        kind: str = "delta",
    ) -> None:
        self.catalog = (
            {"type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}"}
            if kind == "catalog"
            else {}
        )
        made = {
            "delta": "",
            "iceberg": ", format: iceberg",
            "catalog": f", format: iceberg, catalog: {json.dumps(self.catalog)}",
        }
        text = text.format(made[kind], drift)
        self.kind = kind
        self.settings = read(text, str(folder / "m.yml"), {})
        self.folder = folder / "lake"
        self.store = States(open_folder(self.settings.lake, self.settings.folder))
        self.stream = ChangeStream(
            "example", 1, parts_max=1, on_statement=nothing, on_leave=nothing,
            on_batch=nothing,
        )  # fmt: skip
        self.missing: set[TableName] = set()  # which the source no longer has
        self.sync = self.sync_with(self.store)
        monkeypatch.setattr(table_sync, "CatchUp", NoChanges)
        monkeypatch.setattr(table_sync, "start_position", self._unreachable)
        monkeypatch.setattr(table_sync, "columns_at", self._columns_at)

    def sync_with(self, store: States) -> TableSync:
        """Return a mirror's work on tables, over a store of states."""
        return TableSync(
            self.settings,
            None,
            store,
            self.stream,
            progress=Progress(io.StringIO()),
            stop=Stop(),
            is_mariadb=False,
        )

    def killed_sync(self, writes: int) -> TableSync:
        """Return the same, killed instead of a write after so many of them."""
        store = KilledStates(open_folder(self.settings.lake, self.settings.folder))
        store.left = writes
        return self.sync_with(store)

    def _unreachable(self, *_: object, **__: object) -> Any:
        raise SourceError("the source is not read")

    def _columns_at(self, _channel: object, name: TableName, at: object) -> Any:
        return () if at is None and name in self.missing else COLUMNS

    def table(self, name: TableName, phase: Phase, **rows: int) -> TableState:
        """Have a table in the lake with these values of n by id, as `_1=5`."""
        table = mirror_table(name, COLUMNS, self.settings)
        lake = open_table(self.settings, table)
        copy_id = f"copy{name.table}"
        schema = lake_schema(table)
        at = RangePosition(1, "binlog.000007", 100)
        note = note_of(at, "example")
        lake.publish(copy_id, schema, [], version_of(at), note)
        changes = pa.table(
            {
                "id": pa.array([int(each[1:]) for each in rows], pa.int32()),
                "n": pa.array(list(rows.values()), pa.int32()),
                "_change_type": ["insert"] * len(rows),
                "_seq": pa.array([version_of(at)] * len(rows), pa.int64()),
                "_row": pa.array(range(len(rows)), pa.int32()),
                "_commit_timestamp": pa.nulls(len(rows), pa.timestamp("us", tz="UTC")),
            }
        )
        lake.apply(copy_id, changes, version_of(at) + 1, note)
        return self.store.write(
            TableState(
                name, table.target, phase, copy_id, position=at, columns=COLUMNS,
                plan=signature(name, self.settings), rows=len(rows),
            )
        )  # fmt: skip

    def rows(self, name: TableName) -> dict[int, int]:
        """Return the values of n in a table of the lake, by id, as readers see them."""
        if self.kind == "delta":
            found = self._delta(name).to_pyarrow_table()
        else:
            found = self._iceberg(name).scan().to_arrow()
        return {row["id"]: row["n"] for row in found.to_pylist()}

    def id_of(self, name: TableName) -> str:
        """Return the identity of a table of the lake."""
        if self.kind == "delta":
            return str(self._delta(name).metadata().id)
        return str(self._iceberg(name).metadata.table_uuid)

    def versions_of(self, name: TableName) -> int:
        """Return how many versions of a table can be read."""
        if self.kind == "delta":
            return int(self._delta(name).version()) + 1
        return len(self._iceberg(name).metadata.snapshots)

    def _delta(self, name: TableName) -> DeltaTable:
        return DeltaTable(str(self.folder / name.schema / name.table))

    def _iceberg(self, name: TableName) -> Any:
        if self.catalog:
            catalogs = importlib.import_module("pyiceberg.catalog")
            return catalogs.load_catalog("default", **self.catalog).load_table(name)
        static = importlib.import_module("pyiceberg.table").StaticTable
        return static.from_metadata(str(self.folder / name.schema / name.table))

    def stored(self, name: TableName) -> TableState:
        """Return what the lake says of a table."""
        state = self.store.read(name)
        assert state is not None
        return state


def nothing(*_: Any) -> None:
    """Stand where nothing is called."""


@pytest.fixture(params=["delta", "iceberg", "catalog"])
def kind(request: pytest.FixtureRequest) -> str:
    """Give each format, Iceberg also with a catalog."""
    if request.param != "delta":
        pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")
    if request.param == "catalog":
        pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")
    return str(request.param)


@pytest.fixture(params=["copy", "stop"])
def scene(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> Scene:
    """Give a mirror that copies a table again, or stops it, if nothing else helps."""
    return Scene(tmp_path, monkeypatch, request.param, kind=kind)


def exchanged(scene: Scene, *, ended: int = SEQ) -> TableState:
    """Return a table that has got the name of another one, which ended somewhere."""
    state = scene.table(T, Phase.FOLLOWING, _1=1, _2=2)
    other = scene.table(GHO, Phase.DROPPED, _1=1, _3=3)
    scene.store.write(replace(other, ended=ended))
    origin = Origin(GHO, SEQ, AFTER)
    return scene.store.write(replace(state, phase=Phase.WAITING, origin=origin))


def test_rows_of_the_lake(scene: Scene) -> None:
    """The table keeps its identity, and the source is not read."""
    state = exchanged(scene)
    before = scene.id_of(T)
    scene.sync.sync(state)
    assert scene.rows(T) == {1: 1, 3: 3}
    assert scene.id_of(T) == before
    found = scene.stored(T)
    assert (found.phase, found.origin, found.ended) == (Phase.FOLLOWING, None, 0)
    assert found.position == AFTER
    assert scene.stream.tables == [T]
    follower = scene.stream.follower(T)
    assert follower is not None
    assert follower.applied == version_of(AFTER)


@pytest.mark.parametrize("ended", [0, SEQ - 1, SEQ + 1])
def test_rows_of_another_moment(scene: Scene, ended: int) -> None:
    """They are not used: the rule decides what happens instead."""
    state = exchanged(scene, ended=ended)
    if scene.settings.tables[0].drift == "copy":
        with pytest.raises(SourceError, match="the source is not read"):
            scene.sync.sync(state)
        assert scene.stored(T).origin is None
    else:
        scene.sync.sync(state)
        assert scene.stored(T).phase is Phase.STOPPED
    assert scene.rows(T) == {1: 1, 2: 2}
    assert "the lake does not have the rows of that table" in scene.stored(T).message


class KilledStates(States):
    """A store whose process is killed instead of one of its writes."""

    left = 0

    def write(self, state: TableState) -> TableState:
        """Write, or be killed."""
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return super().write(state)


@pytest.mark.parametrize("writes", range(4))
def test_killed_while_rows_are_exchanged(scene: Scene, writes: int) -> None:
    """After any of its steps, the next start comes to the same end."""
    state = exchanged(scene)
    with pytest.raises(KeyboardInterrupt):
        scene.killed_sync(writes).sync(state)
    assert scene.stream.tables == []
    scene.sync.sync(scene.stored(T))
    assert scene.rows(T) == {1: 1, 3: 3}
    assert scene.stored(T).phase is Phase.FOLLOWING
    assert len(list((scene.folder / "shop" / "t").rglob("*.parquet"))) <= 4


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_new_name(scene: Scene, is_killed: bool) -> None:
    """A table that only has another name is moved, with its identity; or once more."""
    other = scene.table(U, Phase.DROPPED, _7=7)
    scene.store.write(replace(other, ended=SEQ))
    scene.missing.add(U)
    before, versions = scene.id_of(U), scene.versions_of(U)
    state = TableState(T, "shop/t", Phase.WAITING, origin=Origin(U, SEQ, AFTER))
    if is_killed:
        with pytest.raises(KeyboardInterrupt):
            scene.killed_sync(0).sync(state)
        assert not (scene.folder / "shop" / "u").exists()
    scene.sync.sync(state)
    assert (scene.id_of(T), scene.rows(T)) == (before, {7: 7})
    assert scene.versions_of(T) == versions
    assert not (scene.folder / "shop" / "u").exists()
    assert scene.stored(T).phase is Phase.FOLLOWING


def test_a_name_that_is_used_again(scene: Scene) -> None:
    """The table with the old name keeps its place; the new one gets the rows."""
    other = scene.table(U, Phase.WAITING, _7=7)
    scene.store.write(replace(other, ended=SEQ))
    before = scene.id_of(U)
    origin = Origin(U, SEQ, AFTER)
    scene.sync.sync(TableState(T, "shop/t", Phase.WAITING, origin=origin))
    assert (scene.rows(T), scene.rows(U)) == ({7: 7}, {7: 7})
    assert scene.id_of(U) == before != scene.id_of(T)


@pytest.mark.parametrize("drift", ["copy", "stop"])
def test_files_of_another_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drift: str
) -> None:
    """Rows in a folder of its own are not taken: the rule decides what happens."""
    pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")
    pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")
    scene = Scene(tmp_path, monkeypatch, drift, kind="catalog")
    other = scene.table(U, Phase.DROPPED, _7=7)
    scene.store.write(replace(other, ended=SEQ))
    catalogs = importlib.import_module("pyiceberg.catalog")
    table = catalogs.load_catalog("default", **scene.catalog).load_table(U)
    with table.transaction() as transaction:
        transaction.set_properties({"write.data.path": str(tmp_path / "elsewhere")})
    table.append(table.scan().to_arrow())
    origin = Origin(U, SEQ, AFTER)
    state = TableState(T, "shop/t", Phase.WAITING, origin=origin)
    if drift == "copy":
        with pytest.raises(SourceError, match="the source is not read"):
            scene.sync.sync(state)
        assert scene.stored(T).origin is None
    else:
        scene.sync.sync(state)
        assert scene.stored(T).phase is Phase.STOPPED
    assert "the lake does not have the rows of that table" in scene.stored(T).message


class Named(dict[TableName, TableState]):
    """States by name; `with_phase` gives one to each."""

    @classmethod
    def of(cls, *states: TableState) -> Self:
        """Return these states."""
        return cls({state.source: state for state in states})


def test_which_table_waits_for_which() -> None:
    """Rows are taken when a table has ended, before it gets others; never in a ring."""
    t, gho, u = (
        TableState(name, name.table, Phase.WAITING) for name in (T, GHO, U)
    )  # fmt: skip
    t = replace(t, origin=Origin(GHO, SEQ, AFTER))
    u = replace(u, origin=Origin(T, SEQ, AFTER))

    def blocked(*states: TableState, reached: int = 0) -> list[TableName]:
        every = Named.of(*states)
        return [
            each.source
            for each in states
            if each.phase is Phase.WAITING
            and replacements.is_blocked(each, every, reached)
        ]

    going_on = replace(gho, phase=Phase.FOLLOWING)
    ended = replace(gho, phase=Phase.DROPPED)
    assert blocked(t, going_on) == [T]
    assert blocked(t, going_on, reached=SEQ) == [T]
    # It is another one by now, or was copied after the statement.
    assert blocked(t, going_on, reached=SEQ + 1) == []
    assert blocked(t, replace(going_on, copied_at=SEQ + 1)) == []
    catching_up = replace(gho, phase=Phase.CATCHING_UP, position=AFTER)
    assert blocked(t, catching_up) == []
    before = RangePosition(1, "binlog.000007", 100)
    assert blocked(t, replace(catching_up, position=before), reached=SEQ + 1) == [T]
    assert blocked(t, ended) == []
    assert blocked(t, ended, u) == [T]
    assert blocked(t, ended, replace(u, phase=Phase.COPYING)) == [T]
    assert blocked(t, ended, replace(u, phase=Phase.STOPPED)) == []
    each_other = replace(gho, origin=Origin(T, SEQ, AFTER))
    assert blocked(t, each_other) == []
    of_three = replace(gho, origin=Origin(U, SEQ, AFTER))
    assert blocked(t, of_three, u) == []


def test_rows_that_are_mirrored_in_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """What the rule of a table masks is never taken from one without that mask."""
    masked = r"{{match: 'shop\.t', masks: {{n: 'null'}}, drift: {}}}, {{match: .*}}"
    text = TEXT.replace("{{match: '.*', drift: {}}}", masked)
    scene = Scene(tmp_path, monkeypatch, "stop", text, kind)
    state = scene.table(T, Phase.FOLLOWING, _1=1)
    other = scene.table(U, Phase.DROPPED, _1=5)
    scene.store.write(replace(other, ended=SEQ))
    origin = Origin(U, SEQ, AFTER)
    state = scene.store.write(replace(state, phase=Phase.WAITING, origin=origin))
    scene.missing.add(U)
    scene.sync.sync(state)
    assert scene.stored(T).phase is Phase.STOPPED
    assert 5 not in scene.rows(T).values()


def test_a_renamed_table_forgets_partitions(scene: Scene) -> None:
    """A state of an earlier table of the same name has others."""
    other = scene.table(U, Phase.DROPPED, _7=7)
    scene.store.write(replace(other, ended=SEQ))
    scene.missing.add(U)
    old = Partitions("RANGE", "id", (Partition("p", "5"),))
    state = TableState(
        T, "shop/t", Phase.WAITING, origin=Origin(U, SEQ, AFTER), partitions=old
    )
    scene.sync.sync(state)
    assert scene.stored(T).partitions is None
    assert scene.rows(T) == {7: 7}


def test_a_folder_that_is_in_the_way(scene: Scene) -> None:
    """Files of an abandoned copy there: the rows are taken instead of the folder."""
    other = scene.table(U, Phase.DROPPED, _7=7)
    scene.store.write(replace(other, ended=SEQ))
    scene.missing.add(U)
    folder = scene.folder / "shop" / "t"
    folder.mkdir(parents=True)
    (folder / "copy-x.parquet").write_bytes(b"rest")
    origin = Origin(U, SEQ, AFTER)
    scene.sync.sync(TableState(T, "shop/t", Phase.WAITING, origin=origin))
    assert scene.rows(T) == {7: 7}
