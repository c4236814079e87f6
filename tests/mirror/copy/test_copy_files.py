"""Chunks become files in the table's folder, and manifests that say so."""

from __future__ import annotations

import json
import resource
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from fix_mirror import table_on
from fix_source_access import access_of

from canal_server.errors import LakeError, SourceError

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")

import pyarrow.parquet as pq  # noqa: E402
from deltalake import DeltaTable, Schema  # noqa: E402
from deltalake.transaction import AddAction, create_table_with_add_actions  # noqa: E402

from canal_server.mirror.copy.copy_files import (  # noqa: E402
    CopyTask,
    copy_chunk,
    copy_schema,
    is_whole,
    sizes_of,
    write_files,
)
from canal_server.mirror.lake.lake_storage import open_folder  # noqa: E402
from canal_server.mirror.rows.chunk_read import read_chunk  # noqa: E402
from canal_server.mirror.rows.chunks import Chunk  # noqa: E402
from canal_server.mirror.settings.mirror_settings import LakeSettings  # noqa: E402
from canal_server.mirror.settings.table_values import Mask  # noqa: E402
from canal_server.mirror.state.manifests import ChunkManifest, CopyPlan  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

    from servers import Server

    from canal_server.mirror.settings.table_values import MirrorTable

SEQ = 4711
ALL = Chunk(7)
COLUMNS = """id INT PRIMARY KEY, `odd, "name" €` VARCHAR(200), big BIGINT UNSIGNED,
    amount DECIMAL(12,2), at DATETIME(6), seen TIMESTAMP(3) NULL, day DATE, f FLOAT,
    b VARBINARY(9), email VARCHAR(50)"""
ROWS = """(1, 'a', 18446744073709551615, -1.25, '0999-01-01 00:00:00.000001',
      '2024-01-01 00:00:00.123', '9999-12-31', 0.5, X'00', 'me@here'),
    (2, REPEAT('\U0001f600', 100), 0, 999, '2024-06-01 12:00:00', NULL, NULL, -0.0,
      NULL, NULL),
    (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'me@here')"""


def task_of(
    tmp_path: Path, server: Server, table: MirrorTable, **more: Any
) -> CopyTask:
    """Return what an executor gets."""
    lake = open_folder(LakeSettings(path=str(tmp_path / "lake")))
    return CopyTask(
        access=access_of(server), table=table, copy_id="c-1", seq=SEQ,
        folder=lake.below(table.target), manifests=lake.below("_mirror/m/copies/c-1"),
        **more,
    )  # fmt: skip


@pytest.fixture
def table(source_server: Server, database: str) -> MirrorTable:
    """Give a table of three rows."""
    source_server.execute(
        "SET SESSION time_zone = '+00:00'", f"CREATE TABLE {database}.t ({COLUMNS})",
        f"INSERT INTO {database}.t VALUES {ROWS}",
    )  # fmt: skip
    return table_on(source_server, database, "t", target="shop/orders of mine")


def published(tmp_path: Path, task: CopyTask, manifest: ChunkManifest) -> DeltaTable:
    """Return a Delta table of a chunk's files."""
    path = tmp_path / "lake" / task.table.target
    create_table_with_add_actions(
        str(path),
        Schema.from_arrow(copy_schema(task.table)),
        [AddAction(f.path, f.size, {}, 0, True, f.stats) for f in manifest.files],
    )
    return DeltaTable(str(path))


def test_published(source_server: Server, table: MirrorTable, tmp_path: Path) -> None:
    """The files are a Delta table with the rows, and what it has besides."""
    began = datetime.now(UTC)
    task = task_of(tmp_path, source_server, table)
    manifest = copy_chunk(task, ALL)
    assert ChunkManifest.read(task.manifests, ALL.number) == manifest
    assert (manifest.chunk, manifest.rows, len(manifest.files)) == (7, 3, 1)
    delta = published(tmp_path, task, manifest)
    rows = delta.to_pyarrow_table().sort_by("id").to_pylist()
    assert [row["id"] for row in rows] == [1, 2, 3]
    assert rows[0]['odd, "name" €'] == "a"
    assert rows[0]["at"] == datetime(999, 1, 1, 0, 0, 0, 1)  # noqa: DTZ001
    assert {(row["_seq"], row["_row"]) for row in rows} == {(SEQ, 0)}
    assert all(began <= row["_committed_at"] <= datetime.now(UTC) for row in rows)
    assert "_deleted" not in rows[0]


def test_statistics(source_server: Server, table: MirrorTable, tmp_path: Path) -> None:
    """The log's least and greatest values leave no row out, and are there."""
    task = task_of(tmp_path, source_server, table)
    delta = published(tmp_path, task, copy_chunk(task, ALL))
    shown = pa.table(delta.get_add_actions(flatten=True)).to_pylist()[0]
    assert (shown["num_records"], shown["min.id"], shown["max.id"]) == (3, 1, 3)
    assert shown["null_count.big"] == 1
    assert "min.b" not in shown or shown["min.b"] is None
    # Beyond 64 bits readers differ: there are no statistics.
    assert shown.get("max.big") is None
    assert shown["min.at"] <= datetime(999, 1, 1, 0, 0, 0, 1)  # noqa: DTZ001
    assert shown['max.odd, "name" €'] > "\U0001f600" * 32
    data = delta.to_pyarrow_dataset()
    for name in ("at", "seen", "day", "amount", 'odd, "name" €', "f"):
        for value in data.to_table().column(name).to_pylist():
            if value is not None:
                kept = data.to_table(filter=pa.dataset.field(name) == value)
                assert kept.num_rows == 1, (name, value)


def test_masks_and_soft_deletes(
    source_server: Server, table: MirrorTable, tmp_path: Path
) -> None:
    """Masked columns are masked in the files, and soft deletes have their column."""
    columns = tuple(
        replace(column, target="mail", mask=Mask("hash", salt="s"))
        if column.name == "email" else column
        for column in table.columns
    )  # fmt: skip
    masked = replace(table, columns=columns, deletes="soft")
    task = task_of(tmp_path, source_server, masked)
    (file,) = copy_chunk(task, ALL).files
    rows = pq.read_table(tmp_path / "lake" / masked.target / file.path)
    assert rows.schema.equals(copy_schema(masked))
    assert rows["_deleted"].to_pylist() == [False] * 3
    first, second, third = rows["mail"].to_pylist()
    assert first == third != "me@here"
    assert second is None
    assert "me@here" not in file.stats


def test_files_are_limited(
    source_server: Server, table: MirrorTable, tmp_path: Path
) -> None:
    """A file that has grown large enough is followed by another one."""
    task = task_of(tmp_path, source_server, table, file_bytes=1, rows_per_s=1000)
    task = replace(task, rows_per_s=2)  # of two rows a batch at most
    manifest = copy_chunk(task, ALL)
    assert [file.rows for file in manifest.files] == [2, 1]
    assert published(tmp_path, task, manifest).to_pyarrow_table().num_rows == 3


def test_files_of_so_many_rows(
    source_server: Server, table: MirrorTable, tmp_path: Path
) -> None:
    """A file keeps the limit of rows."""
    task = task_of(tmp_path, source_server, table, file_rows=2)
    task = replace(task, rows_per_s=1000)
    batches = [
        batch.slice(n, 1)
        for batch in read_chunk(task.access, table, ALL)
        for n in range(len(batch))
    ]
    assert [file.rows for file in write_files(task, ALL, batches)] == [2, 1]


def test_hidden_until_published(
    source_server: Server, table: MirrorTable, tmp_path: Path
) -> None:
    """A log of changes is a folder that readers list: a copy is in one they skip."""
    task = task_of(tmp_path, source_server, replace(table, form="parquet"))
    manifest = copy_chunk(task, ALL)
    assert task.folder.names() == []
    assert is_whole(manifest, sizes_of(task))
    assert copy_chunk(task, ALL) == manifest
    (file,) = manifest.files
    path = tmp_path / "lake" / table.target / file.path
    assert pq.read_table(path)["id"].to_pylist() == [1, 2, 3]


def test_done_once(source_server: Server, table: MirrorTable, tmp_path: Path) -> None:
    """A chunk whose files are there is not read again; one whose file went is."""
    task = task_of(tmp_path, source_server, table)
    first = copy_chunk(task, ALL)
    assert copy_chunk(task, ALL) == first
    (tmp_path / "lake" / table.target / first.files[0].path).unlink()
    assert not is_whole(first, sizes_of(task))
    second = copy_chunk(task, ALL)
    assert second != first
    assert is_whole(second, sizes_of(task))


def test_broken_off(source_server: Server, table: MirrorTable, tmp_path: Path) -> None:
    """A chunk that cannot be read to its end leaves no file and no manifest."""
    missing = replace(table.columns[0], name="gone")
    task = task_of(
        tmp_path, source_server, replace(table, columns=(*table.columns, missing))
    )
    with pytest.raises(SourceError, match="gone"):
        copy_chunk(task, ALL)
    assert task.folder.names() == []
    assert task.manifests.names() == []


def test_folder_that_cannot_be_written(
    source_server: Server, table: MirrorTable, tmp_path: Path
) -> None:
    """The error for an unwritable lake has its path."""
    (tmp_path / "lake").write_text("a file")
    with pytest.raises(LakeError, match=str(tmp_path / "lake")):
        copy_chunk(task_of(tmp_path, source_server, table), ALL)


def test_full_disk(source_server: Server, table: MirrorTable, tmp_path: Path) -> None:
    """A partly written file is deleted, and the error has its path."""
    task = task_of(tmp_path, source_server, table)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(LakeError, match=r"cannot write .*copy-c-1"):
            copy_chunk(task, ALL)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert task.folder.names() == []
    assert task.manifests.names() == []
    assert copy_chunk(task, ALL).rows == 3


def test_empty_table(source_server: Server, database: str, tmp_path: Path) -> None:
    """A table without rows has a manifest without files."""
    source_server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    task = task_of(tmp_path, source_server, table_on(source_server, database, "t"))
    manifest = copy_chunk(task, Chunk(0))
    assert (manifest.rows, manifest.files) == (0, ())
    assert is_whole(manifest, sizes_of(task))


def test_plans(tmp_path: Path) -> None:
    """A plan is read as written; an invalid one is an error with a remedy."""
    folder = open_folder(LakeSettings(path=str(tmp_path)))
    assert CopyPlan.read(folder) is None
    plan = CopyPlan(SEQ, (("a", "int", "b"),), (Chunk(0, "k", ("a",), (), ("1",)),))
    plan.write(folder)
    assert CopyPlan.read(folder) == plan
    for text in ("[]", "{", json.dumps({"form": 99})):
        folder.write("plan.json", text.encode())
        with pytest.raises(LakeError, match="delete the folder"):
            CopyPlan.read(folder)
