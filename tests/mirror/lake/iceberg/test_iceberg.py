"""Iceberg tables: their files, ids of columns, manifests and commits that fail."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")

import pyarrow as pa
import pyarrow.parquet as pq
from fix_lake import (
    COPY,
    LakeRows,
    copied_rows,
    data_files,
    iceberg_metadata,
    in_order,
    lake_rows,
    lake_table,
    opened,
    published,
    write_copy,
)
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import StaticTable

from canal_server.errors import LakeError
from canal_server.mirror.lake.conditions import Where, Within
from canal_server.mirror.lake.iceberg import iceberg_catalog, iceberg_commit
from canal_server.mirror.lake.iceberg.iceberg import IcebergLakeTable
from canal_server.mirror.lake.iceberg.iceberg_columns import planned, schema_of
from canal_server.mirror.lake.steps import (
    AddColumn,
    DropColumn,
    RenameColumn,
    WidenColumn,
)
from canal_server.mirror.settings.table_values import MirrorColumn
from canal_server.mirror.state.lake_tables import (
    Applied,
    UnusableTableError,
    lake_schema,
)

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from canal_server.mirror.lake.steps import Step
    from canal_server.mirror.settings.table_values import MirrorTable

COLUMNS = [("id", "int"), ("n", "smallint"), ("v", "varchar(20)")]
PLAIN = lake_table(COLUMNS, ("id",), form="iceberg")


class KilledError(BaseException):
    """The process ends here."""


def series(rng: random.Random, count: int) -> LakeRows:
    """Return rows with the ids from 0 on."""
    rows = LakeRows(PLAIN, rng)
    for number in range(count):
        rows.put("insert", {"id": number, "n": 1, "v": f"v{number}"})
    return rows


def names_of(folder: Path) -> list[str]:
    """Return the names of the columns in a table's metadata."""
    return StaticTable.from_metadata(str(folder)).schema().column_names


def with_column(table: MirrorTable, name: str) -> MirrorTable:
    """Return a table with an INT in addition."""
    column = MirrorColumn(name, "int", "utf8mb4", is_key=False, target=name)
    return replace(table, columns=(*table.columns, column))


def written(path: Path) -> dict[str, int]:
    """Return the ids of a Parquet file's columns."""
    schema = pq.read_schema(path)
    return {f.name: int(f.metadata[b"PARQUET:field_id"]) for f in schema}


def test_only_files_with_a_change_are_written_again(
    tmp_path: Path, rng: random.Random
) -> None:
    """A file whose bounds have the key, but whose rows have not, stays as well."""
    rows = series(rng, 60)  # four files
    rows.rows.pop((20,))
    lake = published(tmp_path, rows)
    before = data_files(tmp_path, "iceberg")
    changes = [rows.put("update_postimage", {"id": 40, "n": 2, "v": "b"})]
    changes.append(rows.change("delete", {"id": 20, "n": 1, "v": "v20"}))
    done = lake.apply(COPY, rows.as_changes(changes), rows.seq + 1, {})
    assert done == Applied(1, 0)
    assert len(before - data_files(tmp_path, "iceberg")) == 1
    assert in_order(lake_rows(lake)) == in_order(rows.rows.values())


def test_a_file_of_a_copy_that_has_the_ids_stays(
    tmp_path: Path, rng: random.Random
) -> None:
    """As a copy writes it; others are written again with them."""
    rows = series(rng, 20)
    lake = opened(tmp_path, PLAIN)
    table = copied_rows(rows).cast(lake.file_schema(lake_schema(PLAIN)))
    files = write_copy(tmp_path, table)
    lake.publish(COPY, lake_schema(PLAIN), files, rows.seq + 1, {})
    names = {file.path.rpartition("/")[2] for file in files}
    assert data_files(tmp_path, "iceberg") == names
    ids = written(tmp_path / files[0].path)
    assert list(ids.values()) == list(range(1, 7))
    assert in_order(lake_rows(lake)) == in_order(rows.rows.values())


def test_columns_keep_their_ids(tmp_path: Path, rng: random.Random) -> None:
    """Through renames and wider types, without a new file; new columns get others."""
    lake = published(tmp_path, series(rng, 20))
    before = data_files(tmp_path, "iceberg")
    ids = [field["id"] for field in iceberg_metadata(tmp_path)["schemas"][0]["fields"]]
    steps: list[Step] = [
        RenameColumn("v", "w"),
        WidenColumn("n", "bigint", ""),
        AddColumn("v", "int", ""),
    ]
    lake.evolve(COPY, steps, 90_000, {})
    metadata = iceberg_metadata(tmp_path)
    schema = metadata["schemas"][-1]
    assert schema["schema-id"] == metadata["current-schema-id"]
    found = {field["name"]: field["id"] for field in schema["fields"]}
    assert found == dict(
        zip(["id", "n", "w", "_seq", "_row", "_committed_at"], ids, strict=True)
    ) | {"v": max(ids) + 1}
    assert [field["name"] for field in schema["fields"]][2:4] == ["w", "v"]
    assert data_files(tmp_path, "iceberg") == before
    first = next(row for row in lake_rows(lake) if row["id"] == 3)
    assert (first["n"], first["w"], first["v"]) == (1, "v3", None)


def test_the_mark_of_earlier_versions_stays(tmp_path: Path, rng: random.Random) -> None:
    """A table that has `_deleted` itself keeps it through changes and copies."""
    rows = LakeRows(replace(PLAIN, deletes="soft"), rng)
    for number in range(20):
        rows.put("insert", {"id": number, "n": 1, "v": "a"})
    lake = published(tmp_path, rows)
    assert names_of(tmp_path)[-1] == "_is_deleted"
    catalog = iceberg_catalog.open_catalog(str(tmp_path), {})
    earlier = catalog.load_table(iceberg_catalog.identifier_of(PLAIN.target))
    with earlier.update_schema() as update:
        update.update_column("_is_deleted", doc="")
        update.rename_column("_is_deleted", "_deleted")
    assert names_of(tmp_path)[-1] == "_deleted"
    lake.apply(COPY, rows.as_changes(rows.random_changes(9)), rows.seq + 1, {})
    lake.evolve(COPY, [AddColumn("x", "int", "")], rows.seq + 2, {})
    rows = LakeRows(with_column(rows.table, "x"), rng, rows.seq + 2)
    for number in range(5):
        rows.put("insert", {"id": number, "n": 2, "v": "b", "x": 1})
    lake.apply(COPY, rows.as_changes([]), rows.seq + 1, {})
    again = published(tmp_path, rows, "copy-2")
    assert sorted(r["id"] for r in lake_rows(again) if not r["_deleted"]) == [*range(5)]
    assert any(row["_deleted"] for row in lake_rows(again))  # only what differed
    rows = LakeRows(with_column(rows.table, "y"), rng, rows.seq + 2)
    replaced = published(tmp_path, rows, "copy-3")
    assert lake_rows(replaced) == []  # all files
    replaced.empty("copy-3", rows.seq + 9, 0, {})
    assert replaced.readers_names() == names_of(tmp_path)
    assert names_of(tmp_path)[-1] == "_deleted"


def test_a_column_with_the_name_of_the_mark(tmp_path: Path, rng: random.Random) -> None:
    """A column `_is_deleted` of the source is one like others."""
    table = lake_table([("id", "int"), ("_is_deleted", "int")], ("id",), form="iceberg")
    rows = LakeRows(table, rng)
    rows.random_changes(20)
    lake = published(tmp_path, rows)
    lake.apply(COPY, rows.as_changes(rows.random_changes(9)), rows.seq + 1, {})
    assert in_order(lake_rows(lake)) == in_order(rows.rows.values())
    assert lake.readers_names() == names_of(tmp_path)


def test_a_name_that_comes_back(tmp_path: Path, rng: random.Random) -> None:
    """A new column has none of the values of a dropped one of the same name."""
    lake = published(tmp_path, series(rng, 5))
    lake.evolve(COPY, [DropColumn("v")], 90_000, {})
    lake.evolve(COPY, [AddColumn("v", "varchar(20)", "utf8mb4")], 90_001, {})
    assert {row["v"] for row in lake_rows(lake)} == {None}


def test_small_integers(tmp_path: Path, rng: random.Random) -> None:
    """They are 32 bits wide in Iceberg, and of their own width for the mirror."""
    lake = published(tmp_path, series(rng, 3))
    schema = lake.arrow_schema()
    assert schema is not None
    assert schema.field("n").type == pa.int16()
    field = iceberg_metadata(tmp_path)["schemas"][0]["fields"][1]
    assert (field["type"], field["doc"]) == ("int", "16-bit integer")


def test_versions(tmp_path: Path, rng: random.Random) -> None:
    """Rows and columns are read as of a snapshot; its files in parallel."""
    rows = series(rng, 40)
    lake = published(tmp_path, rows)
    version, before = lake.version(), in_order(lake_rows(lake))
    lake.evolve(COPY, [RenameColumn("v", "w")], 90_000, {})
    lake.empty(COPY, 90_001, 0, {})
    assert lake_rows(lake) == []
    assert in_order(lake_rows(lake, version=version)) == before
    files = lake.version_files(version)
    found = [
        row
        for number in range(len(files))
        for batch in files.batches(number)
        for row in batch.to_pylist()
    ]
    assert in_order(found) == before
    with pytest.raises(UnusableTableError, match="no snapshot 5"):
        lake_rows(lake, version=5)


def test_conditions(tmp_path: Path, rng: random.Random) -> None:
    """Rows are chosen by ranges of values."""
    lake = published(tmp_path, series(rng, 60))
    where = Where((Within("id", 14, 16), Within("n", 1, 1)))
    batches = list(lake.scan(["v"], where))
    assert [batch.schema.names for batch in batches] == [["v"]] * 2
    found = [text for batch in batches for text in batch["v"].to_pylist()]
    assert sorted(found) == ["v14", "v15", "v16"]


def test_manifests_stay_few(tmp_path: Path, rng: random.Random) -> None:
    """However many commits add files, and each names what is there."""
    rows = series(rng, 10)
    lake = published(tmp_path, rows)
    for number in range(100, 150):
        changes = [rows.put("insert", {"id": number, "n": 1, "v": "a"})]
        lake.apply(COPY, rows.as_changes(changes), rows.seq + 1, {})
    snapshot = StaticTable.from_metadata(str(tmp_path)).current_snapshot()
    assert snapshot is not None
    table = StaticTable.from_metadata(str(tmp_path))
    assert len(snapshot.manifests(table.io)) <= iceberg_commit.MANIFESTS_MAX
    assert in_order(lake_rows(lake)) == in_order(rows.rows.values())
    assert snapshot.summary is not None
    assert snapshot.summary["total-records"] == str(len(rows.rows))
    assert snapshot.summary["total-data-files"] == str(
        len(data_files(tmp_path, "iceberg"))
    )


def test_metadata_files_stay_few(tmp_path: Path, rng: random.Random) -> None:
    """Old ones are deleted by the commits that follow."""
    lake = published(tmp_path, series(rng, 3))
    nothing = LakeRows(PLAIN, rng).as_changes([])
    for number in range(40):
        lake.apply(COPY, nothing, 50_000 + number, {})
    assert len(list((tmp_path / "metadata").glob("*.metadata.json"))) <= 22
    assert len(iceberg_metadata(tmp_path)["snapshots"]) == 1


# --- commits that fail ----------------------------------------------------------------


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("what", ["_write_durably", "_appear"])
def test_killed_before_a_commit(
    tmp_path: Path,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    is_first: bool,
) -> None:
    """Readers see nothing of it, and it can be done again."""
    rows = series(rng, 20)
    if not is_first:
        published(tmp_path, rows)
    before = None if is_first else iceberg_metadata(tmp_path)
    change = [rows.put("update_postimage", {"id": 3, "n": 2, "v": "b"})]
    changes = rows.as_changes(change)

    def run() -> None:
        if is_first:
            published(tmp_path, rows)
        else:
            opened(tmp_path, PLAIN).apply(COPY, changes, rows.seq + 1, {})

    def killed(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(iceberg_catalog, what, killed)
        with pytest.raises(KilledError):
            run()
    lake = opened(tmp_path, PLAIN)
    if is_first:
        assert not lake.exists()
    else:
        assert iceberg_metadata(tmp_path) == before
    run()
    assert in_order(lake_rows(lake)) == in_order(rows.rows.values())


def test_killed_after_a_commit(tmp_path: Path, rng: random.Random) -> None:
    """The hint is older, or missing: the next reader of ours finds the newest."""
    rows = series(rng, 20)
    lake = published(tmp_path, rows)
    hint = tmp_path / "metadata" / "version-hint.text"
    for left in ("1", "", None):
        changes = rows.as_changes(rows.random_changes(5))
        done = rows.seq + 1
        lake.apply(COPY, changes, done, {})
        if left is None:
            hint.unlink()
        else:
            hint.write_text(left)
        again = opened(tmp_path, PLAIN)
        assert again.applied(COPY) == done
        assert again.apply(COPY, changes, done, {}) == Applied()
        assert in_order(lake_rows(again)) == in_order(rows.rows.values())


def test_another_writer_is_faster(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes are applied on top of its commit, once; nothing is left over."""
    rows = series(rng, 20)
    lake, other = published(tmp_path, rows), opened(tmp_path, PLAIN)
    changes = rows.as_changes([rows.put("insert", {"id": 50, "n": 1, "v": "a"})])
    appear: Any = iceberg_catalog._appear
    calls: list[int] = []

    def late(*arguments: object) -> None:
        calls.append(1)
        if len(calls) == 1:
            other.apply(COPY, changes, rows.seq + 1, {})
        appear(*arguments)

    monkeypatch.setattr(iceberg_catalog, "_appear", late)
    assert lake.apply(COPY, changes, rows.seq + 1, {}) == Applied()
    assert in_order(lake_rows(lake)) == in_order(rows.rows.values())
    found = {path.name for path in (tmp_path / "data").iterdir()}
    assert found == {
        name for name in data_files(tmp_path, "iceberg") if not name[0].isdigit()
    } | (found & data_files(tmp_path, "iceberg"))


def test_a_file_system_without_links(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metadata files get their name in another way, and none is replaced."""

    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("pathlib.Path.hardlink_to", refused)
    rows = series(rng, 20)
    lake = published(tmp_path, rows)
    stale: Any = opened(tmp_path, PLAIN)
    stale_table = stale.versions.catalog.load_table(("shop", "orders"))
    changes = rows.as_changes(rows.random_changes(5))
    lake.apply(COPY, changes, rows.seq + 1, {})
    assert in_order(lake_rows(lake)) == in_order(rows.rows.values())
    with pytest.raises(CommitFailedException):
        stale.versions.catalog.commit_table(stale_table, (), ())


# --- tables of others -----------------------------------------------------------------


def test_a_table_that_was_moved(tmp_path: Path, rng: random.Random) -> None:
    """Its files name each other by their paths, so it is refused."""
    published(tmp_path / "old", series(rng, 5))
    (tmp_path / "old").rename(tmp_path / "new")
    lake = opened(tmp_path / "new", PLAIN)
    with pytest.raises(UnusableTableError, match=f"it was made in {tmp_path}/old"):
        lake.applied(COPY)


def test_a_missing_file(tmp_path: Path, rng: random.Random) -> None:
    """It is a problem of this table alone, which names the file."""
    lake = published(tmp_path, series(rng, 20))
    (path,) = list((tmp_path / "data").iterdir())[:1]
    path.unlink()
    with pytest.raises(UnusableTableError, match=path.name):
        lake_rows(lake)


def test_broken_metadata(tmp_path: Path, rng: random.Random) -> None:
    """So is a metadata file that is none."""
    published(tmp_path, series(rng, 5))
    (tmp_path / "metadata" / "v1.metadata.json").write_text("{}")
    with pytest.raises(UnusableTableError, match="cannot read the lake's table"):
        opened(tmp_path, PLAIN).applied(COPY)


def test_a_table_of_another_writer(tmp_path: Path) -> None:
    """It exists, and has no position of a mirror."""
    schema = pa.schema([("id", pa.int32())])
    catalog = iceberg_catalog.FolderCatalog(str(tmp_path))

    catalog.create_table_transaction(
        ("shop", "orders"),
        schema_of(planned([], 0, schema)),
        location=str(tmp_path),
        properties={},
    ).commit_transaction()
    lake = opened(tmp_path, PLAIN)
    assert lake.exists()
    assert lake.position() == (-1, {})
    with pytest.raises(LakeError, match="not copy copy-1"):
        lake.apply(COPY, pa.table({}), 5, {})


def test_the_text_of_a_table(tmp_path: Path) -> None:
    """Messages name the table and its folder."""
    lake = IcebergLakeTable(str(tmp_path), PLAIN)
    assert str(lake) == f"the lake's table shop/orders ({tmp_path})"
    assert json.dumps(lake.size()) == "null"
