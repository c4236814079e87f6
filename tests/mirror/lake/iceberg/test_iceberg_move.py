"""An Iceberg table gets another folder and name: the same table, with its history."""

from __future__ import annotations

import itertools
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")
pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")

from fix_lake import (
    COPY,
    LakeRows,
    copied_rows,
    in_order,
    lake_rows,
    lake_table,
    write_copy,
)
from fix_mounts import mounted
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    BadRequestError,
    ForbiddenError,
    RESTError,
    ServerError,
    TableAlreadyExistsError,
    UnauthorizedError,
)
from pyiceberg.io import load_file_io
from pyiceberg.manifest import clear_manifest_cache
from pyiceberg.table import StaticTable
from requests import HTTPError, Response
from small_disk import read_only

from canal_server.errors import ConnectionLost, LakeError
from canal_server.mirror.lake.iceberg import iceberg_move
from canal_server.mirror.lake.iceberg.iceberg import IcebergLakeTable
from canal_server.mirror.lake.lake_storage import Folder, open_folder
from canal_server.mirror.lake.lake_table import NOWHERE, lake_schema
from canal_server.mirror.lake.steps import AddColumn, DropColumn, RenameColumn
from canal_server.mirror.settings.mirror_settings import LakeSettings
from canal_server.mirror.settings.table_values import LakePartition
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from pyiceberg.table import Table

    from canal_server.mirror.lake.steps import Step

COLUMNS = [("id", "int"), ("n", "int"), ("v", "varchar(20)")]
PLAIN = lake_table(COLUMNS, ("id",), form="iceberg")
PARTED = replace(PLAIN, partitions=(LakePartition("bucket", "n", 3),))


class KilledError(BaseException):
    """The process ends here."""


class Scene:
    """A table with a history, and the name that it gets."""

    def __init__(
        self, path: Path, rng: random.Random, *, in_catalog: bool, parted: bool
    ) -> None:
        self.path = path
        self.copy_id = COPY
        uri = f"sqlite:///{path / 'catalog.db'}"
        self.options = {"type": "sql", "uri": uri} if in_catalog else {}
        table = PARTED if parted else PLAIN
        self.tables = [replace(table, target=f"shop/{name}") for name in ("old", "new")]
        self.folders = (self.folder("old"), self.folder("new"))
        rows = LakeRows(table, rng)
        rows.random_changes(60)
        lake = self.lake(0)
        files = write_copy(path / "shop" / "old", copied_rows(rows))
        lake.publish(COPY, lake_schema(table), files, rows.seq + 1, {"a": "b"})
        for _ in range(4):
            changes = rows.as_changes(rows.random_changes(9))
            lake.apply(COPY, changes, rows.seq + 1, {"a": "b"})
        steps: list[Step] = [RenameColumn("v", "w"), AddColumn("x", "int", "", "7")]
        lake.evolve(COPY, steps, rows.seq + 2, {"a": "b"})
        if not parted:
            lake.evolve(COPY, [DropColumn("n")], rows.seq + 3, {"a": "b"})
        self.history = self.versions_of(self.readers(0))

    def folder(self, name: str) -> Folder:
        """Return a folder of the lake."""
        return open_folder(LakeSettings(path=str(self.path)), f"shop/{name}")

    def lake(self, number: int) -> IcebergLakeTable:
        """Open the old or the new table as a mirror does."""
        table = self.tables[number]
        return IcebergLakeTable(
            f"{self.path}/{table.target}", table, self.options
        )  # fmt: skip

    def move(self, copy_id: str = "") -> bool:
        """Move the table."""
        copy_id = copy_id or self.copy_id
        return self.lake(0).move(self.lake(1), copy_id, self.folders)

    def readers(self, number: int) -> Table:
        """Open the old or the new table as other readers do."""
        target = self.tables[number].target
        if self.options:
            catalog = load_catalog("default", **self.options)
            return catalog.load_table(target.replace("/", "."))
        return StaticTable.from_metadata(f"{self.path}/{target}")

    @staticmethod
    def versions_of(table: Table) -> Any:
        """Return all that a table has: its id, and the rows of each snapshot."""
        return (
            table.metadata.table_uuid,
            [
                (
                    each.snapshot_id,
                    in_order(
                        table.scan(snapshot_id=each.snapshot_id).to_arrow().to_pylist()
                    ),
                )
                for each in table.snapshots()
            ],
            table.metadata.properties,
            [each.snapshot_id for each in table.history()],
        )

    def check(self) -> None:
        """Check that the table has its new name, and what it had, and goes on."""
        assert self.versions_of(self.readers(1)) == self.history
        assert not (self.path / "shop" / "old").exists()
        assert not self.lake(0).exists()
        lake = self.lake(1)
        upto = lake.applied(self.copy_id)
        further = 1 if lake_rows(lake) else 0  # the history may end with no rows
        lake.empty(self.copy_id, upto + 1, 0, {})
        assert lake_rows(lake) == []
        assert len(self.readers(1).snapshots()) == len(self.history[1]) + further


@pytest.fixture(params=[False, True], ids=["folder", "catalog"])
def in_catalog(request: pytest.FixtureRequest) -> bool:
    """Say where the newest version is recorded."""
    return bool(request.param)


@pytest.mark.parametrize("parted", [False, True])
def test_another_name(
    tmp_path: Path, rng: random.Random, in_catalog: bool, parted: bool
) -> None:
    """Its id and each of its snapshots, as readers see them, are those from before."""
    scene = Scene(tmp_path, rng, in_catalog=in_catalog, parted=parted)
    assert scene.move()
    assert scene.move()  # it is done
    scene.check()


@pytest.mark.parametrize("step", ["link", "register", "remove"])
def test_killed_on_the_way(
    tmp_path: Path,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    in_catalog: bool,
    step: str,
) -> None:
    """Readers always find the table under one of the names; a repetition ends it."""
    scene = Scene(tmp_path, rng, in_catalog=in_catalog, parted=False)
    count = 0

    def killed(*_: object) -> None:
        nonlocal count
        count += 1
        if step != "link" or count == 3:
            raise KilledError

    with monkeypatch.context() as patch:
        if step == "register":
            patch.setattr(iceberg_move, step, killed)
        elif step == "link":
            link = Folder.link

            def linking(folder: Folder, *args: Any) -> None:
                killed()
                link(folder, *args)

            patch.setattr(Folder, step, linking)
        else:
            patch.setattr(Folder, step, killed)
        with pytest.raises(KilledError):
            scene.move()
    found = 1 if step == "remove" else 0
    assert scene.versions_of(scene.readers(found)) == scene.history
    assert not scene.lake(1 - found).exists()
    assert scene.move()
    scene.check()


def test_killed_while_the_old_one_is_removed(
    tmp_path: Path,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    in_catalog: bool,
) -> None:
    """After any number of deleted files, the rest is the old table, or none."""
    lake, kept = tmp_path / "lake", tmp_path / "kept"
    lake.mkdir()
    scene = Scene(lake, rng, in_catalog=in_catalog, parted=False)
    with monkeypatch.context() as patch:
        patch.setattr(Folder, "delete", raising(KilledError()))
        patch.setattr(Folder, "remove", raising(KilledError()))
        with pytest.raises(KilledError):
            scene.move()
    shutil.copytree(lake, kept)
    count = 0
    for left in itertools.count():
        with monkeypatch.context() as patch:
            killed_after(left, rng, patch)
            try:
                scene.move()
                break
            except KilledError:
                count += 1
        upto = scene.lake(1).applied(scene.copy_id)
        assert upto != NOWHERE
        assert scene.lake(0).applied(scene.copy_id) in (NOWHERE, upto)
        assert scene.move()
        assert not scene.folders[0].below_names()
        shutil.rmtree(lake)
        shutil.copytree(kept, lake)
    assert count > 20
    scene.check()


def killed_after(left: int, rng: random.Random, patch: pytest.MonkeyPatch) -> None:
    """Have folders delete one file after another, until so many are deleted."""
    lives = iter(range(left))

    def unlink(path: Path) -> None:
        if next(lives, None) is None:
            raise KilledError
        path.unlink(missing_ok=True)

    def delete(folder: Folder, name: str) -> None:
        unlink(Path(f"{folder}/{name}"))

    def remove(folder: Folder) -> None:
        root = Path(str(folder))
        paths = [each for each in root.rglob("*") if each.is_file()]
        rng.shuffle(paths)  # as Arrow deletes them in any order
        for each in paths:
            unlink(each)
        shutil.rmtree(root, ignore_errors=True)

    patch.setattr(Folder, "delete", delete)
    patch.setattr(Folder, "remove", remove)


def test_what_stays_where_it_is(
    tmp_path: Path, rng: random.Random, in_catalog: bool
) -> None:
    """Another copy, and a table whose new name is taken, are not moved."""
    scene = Scene(tmp_path, rng, in_catalog=in_catalog, parted=False)
    assert not scene.move("another")
    files = write_copy(tmp_path / "shop" / "new", copied_rows(LakeRows(PLAIN, rng)))
    lake = scene.lake(1)
    lake.publish("taken", lake_schema(PLAIN), files, 5, {})
    assert not scene.move()
    assert scene.versions_of(scene.readers(0)) == scene.history
    assert lake.applied("taken") == 5


def test_a_table_that_no_catalog_has(tmp_path: Path, rng: random.Random) -> None:
    """A catalog's table is not moved to the mirror's own folder, as for shadows."""
    scene = Scene(tmp_path, rng, in_catalog=True, parted=False)
    own = IcebergLakeTable(str(tmp_path / "shop" / "new"), scene.tables[1])
    assert not scene.lake(0).move(own, COPY, scene.folders)
    assert scene.versions_of(scene.readers(0)) == scene.history
    assert not (tmp_path / "shop" / "new").exists()


def test_damaged_manifests(tmp_path: Path, rng: random.Random) -> None:
    """A table is not moved without files that its damaged metadata no longer shows.

    What memory has after the content of a shortened file does not matter: often it is
    the end of the whole one.
    """
    scene = Scene(tmp_path, rng, in_catalog=False, parted=False)
    snapshot = scene.readers(0).snapshots()[0]
    io = load_file_io()
    manifest = snapshot.manifests(io)[0]
    for path in map(Path, (snapshot.manifest_list, manifest.manifest_path)):
        whole = path.read_bytes()
        header = whole.index(whole[-16:]) + 16  # the marker after it, and each block
        for damaged in (
            whole[:header],
            whole[:-1],
            whole[:header] + bytes(len(whole) - header),
            whole[: header // 2],
        ):
            path.write_bytes(whole)
            clear_manifest_cache()
            assert all(each.fetch_manifest_entry(io) for each in snapshot.manifests(io))
            path.write_bytes(damaged)
            clear_manifest_cache()
            assert not scene.move(), (path, len(damaged))
            assert not (tmp_path / "shop" / "new").exists()
        path.write_bytes(whole)
    clear_manifest_cache()
    assert scene.versions_of(scene.readers(0)) == scene.history
    assert scene.move()
    scene.check()


def test_a_stop(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A move ends between two files, and goes on with the others later."""
    scene = Scene(tmp_path, rng, in_catalog=True, parted=False)
    stop, link, linked = Stop(), Folder.link, list[str]()

    def linking(folder: Folder, source: Folder, name: str, to: str) -> None:
        link(folder, source, name, to)
        linked.append(name)
        if len(linked) == 1:
            stop.request()

    monkeypatch.setattr(Folder, "link", linking)
    with pytest.raises(ConnectionLost, match="interrupted by a stop"):
        scene.lake(0).move(scene.lake(1), COPY, scene.folders, stop)
    assert len(linked) == 1
    assert scene.versions_of(scene.readers(0)) == scene.history
    assert scene.move()
    assert len(linked) == len(set(linked)) > 1
    scene.check()


def test_a_catalog_that_refuses(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table stays, nothing is left, and the caller knows it."""
    scene = Scene(tmp_path, rng, in_catalog=True, parted=False)
    lake = scene.lake(1)
    for refusal in (
        NotImplementedError("501"),
        BadRequestError("400"),
        ForbiddenError("403"),
        TableAlreadyExistsError("409"),
        unprocessable(),
        RuntimeError("An error occurred (AccessDeniedException): no right"),
    ):
        monkeypatch.setattr(lake.versions.catalog, "register_table", raising(refusal))
        assert not scene.lake(0).move(lake, COPY, scene.folders), refusal
        assert not (tmp_path / "shop" / "new").exists(), refusal
    assert scene.versions_of(scene.readers(0)) == scene.history
    assert not lake.exists()


def test_a_catalog_that_is_away(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is made is kept for a repetition, which links no file again."""
    scene = Scene(tmp_path, rng, in_catalog=True, parted=False)
    for error in (ServerError("500"), UnauthorizedError("401")):
        lake = scene.lake(1)
        monkeypatch.setattr(lake.versions.catalog, "register_table", raising(error))
        with pytest.raises(LakeError, match="cannot move the lake's table shop/old"):
            scene.lake(0).move(lake, COPY, scene.folders)
        assert scene.versions_of(scene.readers(0)) == scene.history
    before = scene.folders[1].below_names()
    monkeypatch.setattr(Folder, "link", raising(AssertionError("it is there")))
    assert scene.move()
    after = scene.folders[1].below_names()
    assert set(before) <= set(after)
    scene.check()


def test_an_error_after_the_registration(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog has the table: it is not undone."""
    scene = Scene(tmp_path, rng, in_catalog=True, parted=False)
    lake = scene.lake(1)
    register = lake.versions.catalog.register_table

    def fails(*args: Any) -> None:
        register(*args)
        raise PermissionError("it cannot read what it has registered")

    monkeypatch.setattr(lake.versions.catalog, "register_table", fails)
    assert scene.lake(0).move(lake, COPY, scene.folders)
    scene.check()


def test_a_file_is_missing(
    tmp_path: Path, rng: random.Random, in_catalog: bool
) -> None:
    """If old snapshots have lost a file, the table stays, with its current rows."""
    scene = Scene(tmp_path, rng, in_catalog=in_catalog, parted=False)
    lake = scene.lake(0)
    rows = lake_rows(lake)
    table = scene.readers(0)
    first, *_, last = (files_of(table, each.snapshot_id) for each in table.snapshots())
    Path(min(first - last)).unlink()
    assert not scene.move()
    assert not (tmp_path / "shop" / "new").exists()
    assert lake_rows(scene.lake(0)) == rows
    Path(table.snapshots()[0].manifest_list).unlink()
    assert not scene.move()
    assert not (tmp_path / "shop" / "new").exists()
    assert lake_rows(scene.lake(0)) == rows


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, rng: random.Random, in_catalog: bool
) -> None:
    """The table stays. It is moved when it can be, there by copying its files."""
    scene = Scene(tmp_path, rng, in_catalog=in_catalog, parted=False)
    with mounted(tmp_path / "shop" / "new", "size=16m") as disk:
        with read_only(disk):
            assert not scene.move()
        assert not [*disk.iterdir()]
        assert scene.versions_of(scene.readers(0)) == scene.history
        assert scene.move()
        scene.check()


def files_of(table: Table, snapshot_id: int) -> set[str]:
    """Return the data files of a snapshot."""
    planned = table.scan(snapshot_id=snapshot_id).plan_files()
    return {each.file.file_path for each in planned}


def unprocessable() -> RESTError:
    """Return what pyiceberg raises for a status that it has no class for."""
    response = Response()
    response.status_code = 422
    error = RESTError("422")
    error.__cause__ = HTTPError(response=response)
    return error


def raising(error: BaseException) -> Callable[..., None]:
    """Return a function that fails."""

    def fails(*_: object) -> None:
        raise error

    return fails
