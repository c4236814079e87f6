"""What is read from the lake for metrics: sizes of tables, results of verify."""

from __future__ import annotations

import os
import time

import pyarrow as pa
import pytest

from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.lake.lake_table import lake_schema
from canal_server.mirror.report.lake_samples import LakeSamples
from canal_server.mirror.report.process_memory import DRIVER, JVM, TASKS, memory_bytes
from canal_server.mirror.settings.selected_tables import mirror_table
from canal_server.mirror.settings.settings_file import read
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.lake_tables import open_table
from canal_server.mirror.state.state import Phase, TableState
from canal_server.mirror.state.verify_results import VerifyResult, VerifyResults
from canal_server.model.columns_known import ColumnMeta
from canal_server.runtime.lifecycle import Stop

TEXT = """name: shop
canal: {destination: example}
source: {host: db, user: canal}
lake: {path: lake}
tables: [{match: shop.log, format: parquet}, {match: .*}]
"""
A, LOG = TableName("shop", "a"), TableName("shop", "log")
ID = ColumnMeta("id", "int", None, is_key=True)


@pytest.fixture
def settings(tmp_path):
    """Give the settings of a mirror of two tables."""
    return read(TEXT, str(tmp_path / "m.yml"), {})


def written(settings, name: TableName, folder: str = "") -> TableState:
    """Write a table with one change into the lake; returns its state."""
    table = mirror_table(name, [ID], settings, folder)
    lake = open_table(settings, table)
    lake.publish("c1", lake_schema(table), [], 10, {})
    at = pa.array([1_700_000_000_000_000], pa.timestamp("us", tz="UTC"))
    changes = pa.table(
        {
            "id": pa.array([7], pa.int32()),
            "_change_type": ["insert"],
            "_seq": pa.array([11], pa.int64()),
            "_row": pa.array([0], pa.int32()),
            "_commit_timestamp": at,
        }
    )
    lake.apply("c1", changes, 12, {})
    return TableState(
        name, table.target, Phase.FOLLOWING, copy_id="c1", columns=(ID,), plan="p"
    )


def test_sizes_and_results(settings) -> None:
    """Files, versions and times of a Delta table, files of a log, and what is left."""
    states = {name: written(settings, name) for name in (A, LOG)}
    folder = open_folder(settings.lake, settings.folder)
    results = VerifyResults(folder)
    results.write(VerifyResult(A, "equal", 5))
    results.write(VerifyResult(A, "different", 6, 3))
    folder.write("verified/damaged.json", b"{")
    samples = LakeSamples(settings, folder, lambda: states, Stop())
    begun_ms = time.time() * 1000
    samples.look()
    found = samples.sizes[A]
    assert (found.files, found.version) == (1, 1)
    assert found.bytes > 100
    assert found.newest_ms == 1_700_000_000_000
    assert begun_ms - 600_000 < found.committed_ms < begun_ms + 1
    log = samples.sizes[LOG]
    assert (log.files, log.version, log.newest_ms) == (1, -1, 0)
    assert log.bytes > 100
    assert samples.verified == {A: VerifyResult(A, "different", 6, 3)}

    written(settings, A)  # again: the same copy has it already
    lake = open_table(settings, mirror_table(A, [ID], settings))
    lake.empty("c1", 20, 1_700_000_001_000, {})
    samples.look()
    assert (samples.sizes[A].files, samples.sizes[A].version) == (0, 2)

    # A table that is not in the lake any more, and one that is copied again.
    del states[LOG]
    states[A] = states[A].moved(Phase.COPYING)
    samples.look()
    assert samples.sizes == {}


def test_a_folder_of_an_earlier_version(settings) -> None:
    """A table is found there, as its state has its folder."""
    name = TableName("shop", "café")
    state = written(settings, name, folder="shop/café")
    assert state.target == "shop/café"
    folder = open_folder(settings.lake, settings.folder)
    samples = LakeSamples(settings, folder, lambda: {name: state}, Stop())
    samples.look()
    assert samples.sizes[name].files == 1


def test_a_table_that_cannot_be_read(settings, tmp_path) -> None:
    """It has no size, and others have theirs."""
    states = {name: written(settings, name) for name in (A, LOG)}
    log = tmp_path / "lake" / states[A].target / "_delta_log"
    for file in log.iterdir():
        file.write_text("damaged")
    folder = open_folder(settings.lake, settings.folder)
    samples = LakeSamples(settings, folder, lambda: states, Stop())
    samples.look()
    assert list(samples.sizes) == [LOG]


def process(root, pid: int, name: str, parent: int, pages: int) -> None:
    """Write the file of a process as the kernel shows it."""
    folder = root / str(pid)
    folder.mkdir()
    fields = ["S", str(parent), *["0"] * 19, str(pages), "0"]
    (folder / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")


@pytest.mark.parametrize("is_submitted", [False, True])
def test_memory(tmp_path, is_submitted) -> None:
    """The JVM is a child or, of spark-submit, the parent; tasks are below it."""
    me, parent = os.getpid(), os.getppid()
    page = os.sysconf("SC_PAGE_SIZE")
    jvm = parent if is_submitted else 4_000_001
    process(tmp_path, me, "canal (server) x", jvm if is_submitted else parent, 10)
    process(tmp_path, jvm, "java", 1 if is_submitted else me, 100)
    process(tmp_path, 4_000_002, "python3", jvm, 1_000)
    process(tmp_path, 4_000_003, "python3", 4_000_002, 2_000)
    process(tmp_path, 4_000_004, "python3", 1, 10_000)
    if not is_submitted:
        process(tmp_path, parent, "bash", 1, 50_000)
    (tmp_path / "self").mkdir()
    assert memory_bytes(tmp_path) == {
        DRIVER: 10 * page, JVM: 100 * page, TASKS: 3_000 * page,
    }  # fmt: skip


def test_memory_of_this_process() -> None:
    """The real kernel shows this process."""
    assert memory_bytes()[DRIVER] > 1 << 20
