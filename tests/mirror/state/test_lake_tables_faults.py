"""What a lake's table goes through: kills, other writers, readers, full disks."""

from __future__ import annotations

import importlib.util
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from fix_lake import (
    COPY,
    LakeRows,
    copied_rows,
    filled,
    in_order,
    kept,
    lake_rows,
    lake_table,
    opened,
    published,
    write_copy,
)
from fix_random import longer
from support_paths import program

from canal_server.errors import LakeError
from canal_server.mirror.lake.lake_errors import lake_error
from canal_server.mirror.state.lake_tables import (
    NOWHERE,
    Applied,
    LakeTable,
    UnusableTableError,
    lake_schema,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path


COLUMNS = [("id", "int"), ("v", "varchar(20)")]
PLAIN = lake_table(COLUMNS, ("id",))
WRITER = program("lake_writer.py")
WAIT_S = 60


def copied(folder: Path, rows: LakeRows) -> LakeTable:
    """Publish what is expected as a copy, in whatever form the table has."""
    lake = opened(folder, rows.table)
    files = write_copy(folder, copied_rows(rows))
    lake.publish(COPY, lake_schema(rows.table), files, rows.seq + 1, {})
    return lake


def put(rows: LakeRows, kind: str, count: int, value: str) -> pa.Table:
    """Make one change of each of the first keys."""
    changes = [rows.change(kind, {"id": n, "v": value}) for n in range(count)]
    return rows.as_changes(changes)


ICEBERG = pytest.param(
    "iceberg",
    marks=pytest.mark.skipif(
        importlib.util.find_spec("pyiceberg") is None,
        reason="the extra `iceberg` is not installed",
    ),
)


@pytest.mark.parametrize("form", ["delta", ICEBERG, "parquet"])
def test_killed(tmp_path: Path, rng: random.Random, form: str) -> None:
    """A writer that is killed at any moment resumes, and each change is there once."""
    table = replace(PLAIN, form=form)
    rows = filled(table, rng)
    at = rows.seq + 1
    copied(tmp_path / "lake", rows)
    changes = rows.as_changes(rows.random_changes(300))
    (tmp_path / "table.pickle").write_bytes(pickle.dumps(table))
    with pa.ipc.new_file(str(tmp_path / "changes.arrow"), changes.schema) as file:
        file.write_table(changes)

    for _ in range(longer(2)):
        with writer(tmp_path) as process:
            assert process.stdout is not None
            for _ in range(rng.randrange(3)):
                process.stdout.readline()
            try:
                process.wait(rng.random() / 10)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
    with writer(tmp_path) as process:
        assert process.wait(WAIT_S) == 0

    lake = opened(tmp_path / "lake", table)
    assert lake.applied(COPY) == rows.seq + 1
    found = [row for batch in lake.scan() for row in batch.to_pylist()]
    if not table.is_log:
        assert in_order(found) == in_order(rows.rows.values())
    else:
        logged = [row["_seq"] for row in found if row["_seq"] >= at]
        assert sorted(logged) == changes["_seq"].to_pylist()


@contextmanager
def writer(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that writes; it has ended at the end."""
    command = [sys.executable, str(WRITER), str(folder), "20"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def test_reader_beside(tmp_path: Path, rng: random.Random, form: str) -> None:
    """A reader sees all rows as one batch left them, whatever is done meanwhile."""
    table = kept(PLAIN, form)
    rows = LakeRows(table, rng)
    lake = published(tmp_path, rows)
    lake.apply(COPY, put(rows, "insert", 50, "0"), rows.seq + 1, {})
    seen: list[int] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            found = lake_rows(opened(tmp_path, table))
            assert len(found) == 50
            (value,) = {row["v"] for row in found}
            seen.append(int(value))

    with ThreadPoolExecutor(1) as reader:
        reading = reader.submit(read)
        try:
            for number in range(1, 12):
                changes = put(rows, "update_postimage", 50, str(number))
                lake.apply(COPY, changes, rows.seq + 1, {})
                if number % 4 == 0:
                    lake.compact()
                    lake.vacuum(1)
        finally:
            done.set()
        reading.result(WAIT_S)
    assert seen == sorted(seen)


@pytest.mark.parametrize("key", [("id",), ()])
def test_two_writers(
    tmp_path: Path, rng: random.Random, key: tuple[str, ...], form: str
) -> None:
    """Two that write the same changes, as after a fail-over, write them once."""
    table = lake_table(COLUMNS, key, form=form)
    rows = LakeRows(table, rng)
    copied(tmp_path, rows)
    batches = [(put(rows, "insert", 3 * n, "x"), rows.seq + 1) for n in range(5)]

    def write(_: int) -> list[Applied]:
        lake = opened(tmp_path, table)
        return [lake.apply(COPY, changes, upto, {}) for changes, upto in batches]

    with ThreadPoolExecutor(2) as writers:
        both = list(writers.map(write, range(2), timeout=WAIT_S))
    found = lake_rows(opened(tmp_path, table))
    assert len(found) == (12 if key else sum(len(c) for c, _ in batches))
    for first, second in zip(*both, strict=True):
        assert Applied() in (first, second)


@pytest.mark.parametrize("form", ["delta", ICEBERG, "parquet", "json"])
def test_full_disk(tmp_path: Path, rng: random.Random, form: str) -> None:
    """A full disk is an error; nothing is applied, and later everything."""
    table = replace(PLAIN, form=form)
    rows = LakeRows(table, rng)
    lake = copied(tmp_path, rows)
    text = "".join(rng.choices("abcdefgh", k=20_000))
    changes = put(rows, "insert", 5, text)
    with (
        files_of_at_most(4_096),
        pytest.raises(
            LakeError, match=r"cannot .* shop/orders .*(large|os error 27|errno 27)"
        ) as caught,
    ):
        lake.apply(COPY, changes, rows.seq + 1, {})
    assert caught.type is LakeError  # of the store, so of all tables
    assert lake.applied(COPY) == 1_001
    assert [batch for batch in lake.scan() if batch.num_rows] == []
    assert lake.apply(COPY, changes, rows.seq + 1, {}) == Applied(5, 0)
    assert sum(batch.num_rows for batch in lake.scan()) == 5


@contextmanager
def files_of_at_most(count: int) -> Iterator[None]:
    """Let this process write no file with more bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("form", ["delta", ICEBERG, "parquet"])
def test_a_lake_that_went_away(tmp_path: Path, rng: random.Random, form: str) -> None:
    """Changes for a table whose folder was deleted are refused; none is created."""
    rows = filled(replace(PLAIN, form=form), rng)
    folder = tmp_path / "lake"
    lake = copied(folder, rows)
    changes = rows.as_changes(rows.random_changes(5))
    shutil.rmtree(folder)
    with pytest.raises(LakeError, match="shop/orders"):
        lake.apply(COPY, changes, rows.seq + 1, {})
    assert not folder.exists()
    assert lake.applied(COPY) == NOWHERE
    assert not lake.exists()


def lose_files(folder: Path) -> None:
    """Delete the files with rows; the log still names them."""
    for file in folder.rglob("*.parquet"):
        file.unlink()


def shorten_files(folder: Path) -> None:
    """Leave nothing in files, as a machine may that lost its power."""
    for file in folder.rglob("*.parquet"):
        file.write_bytes(b"")


def spoil_files(folder: Path) -> None:
    """Have files be no Parquet."""
    for file in folder.rglob("*.parquet"):
        file.write_bytes(file.read_bytes()[:-4] + b"XXXX")


def want_more(folder: Path) -> None:
    """Have the table need a feature that there is not yet."""
    newest = max(folder.rglob("_delta_log/*.json"))
    text = (
        '{"protocol":{"minReaderVersion":3,"minWriterVersion":7,'
        '"readerFeatures":["fancy"],"writerFeatures":["fancy"]}}'
    )
    newest.with_stem(f"{int(newest.stem) + 1:020}").write_text(text)


def spoil_log(folder: Path) -> None:
    """Have the newest commit be no commit."""
    newest = max(folder.rglob("_delta_log/*.json"))
    newest.with_stem(f"{int(newest.stem) + 1:020}").write_text("{bad")


def constrain(folder: Path) -> None:
    """Make the table reject new rows, as a reader might."""
    (log,) = folder.rglob("_delta_log")
    DeltaTable(log.parent).alter.add_constraint({"few": "id < 500"})


def append_only(folder: Path) -> None:
    """Make the table reject changes of existing rows."""
    (log,) = folder.rglob("_delta_log")
    DeltaTable(log.parent).alter.set_table_properties({"delta.appendOnly": "true"})


def spoil_metadata(folder: Path) -> None:
    """Have the newest metadata file be none."""
    newest = max(folder.rglob("*.metadata.json"))
    newest.with_name(
        f"v{int(newest.name.split('.')[0][1:]) + 1}.metadata.json"
    ).write_text("{bad")


def lose_manifests(folder: Path) -> None:
    """Delete what names the files with rows."""
    for file in folder.rglob("*.avro"):
        file.unlink()


def spoil_manifests(folder: Path) -> None:
    """Have what names the files with rows be nothing."""
    for file in folder.rglob("*.avro"):
        file.write_bytes(b"none")


def spoil_state(folder: Path) -> None:
    """Have the state of a log be no state."""
    for file in folder.rglob("_log.json"):
        file.write_text("{bad")


@pytest.mark.parametrize(
    ("form", "damage", "expected"),
    [
        ("delta", lose_files, "not found"),
        ("delta", shorten_files, "range was invalid"),
        ("delta", spoil_files, "Corrupt footer"),
        ("delta", want_more, "Unsupported"),
        ("delta", spoil_log, "[Jj]son"),
        ("delta", constrain, "Invalid data found: 1 rows failed validation check.$"),
        ("delta", append_only, "append-only"),
        ("iceberg", lose_files, "[Nn]o such file"),
        ("iceberg", shorten_files, "file size is 0 bytes"),
        ("iceberg", spoil_files, "Parquet magic bytes not found"),
        ("iceberg", spoil_metadata, "Invalid JSON"),
        ("iceberg", lose_manifests, "[Nn]o such file"),
        ("iceberg", spoil_manifests, "avro is damaged"),
        ("json", spoil_state, "is damaged"),
    ],
)
def test_a_table_that_is_damaged(
    tmp_path: Path,
    rng: random.Random,
    form: str,
    damage: Callable[[Path], None],
    expected: str,
) -> None:
    """The error says in one line that the table is the cause, not the store.

    That holds for the same object, and for one that opens the table again.
    """
    if form == "iceberg":
        reason = "the extra `iceberg` is not installed"
        pytest.importorskip("pyiceberg", reason=reason)
    rows = LakeRows(replace(PLAIN, form=form), rng)
    lake = copied(tmp_path, rows)
    lake.apply(COPY, put(rows, "insert", 3, "x"), rows.seq + 1, {})
    damage(tmp_path)
    changes = [
        rows.change("insert", {"id": 700, "v": "secret"}),
        rows.change("insert", {"id": 1, "v": "y"}),
    ]
    for each in (lake, opened(tmp_path, rows.table)):
        with pytest.raises(
            UnusableTableError, match=rf"cannot .* shop/orders .*{expected}"
        ) as caught:
            each.apply(COPY, rows.as_changes(changes), rows.seq + 1, {})
        text = str(caught.value)
        assert "\n" not in text
        assert "secret" not in text


@pytest.mark.parametrize(
    "text",
    [
        (
            "Parquet error: Object Store error: Generic S3 error: Error performing GET "
            "http://a/b: 503 Service Unavailable"
        ),
        (
            "Object Store error: The operation lacked the necessary privileges to "
            "complete for path shop/t/a.parquet: 403 Forbidden"
        ),
        (
            "Object Store error: The operation did not use valid authentication "
            "credentials: 401 Unauthorized"
        ),
        "Object at location shop/t not found: <Code>NoSuchBucket</Code>",
        (
            "Failed to parse parquet: External: Generic LocalFileSystem error: Unable "
            "to copy data to file: No space left on device (os error 28)"
        ),
        "Failed to commit transaction: 15",
        "Generic DeltaTable error: Resources exhausted: no memory",
    ],
)
def test_what_a_store_says(text: str) -> None:
    """It does not stop a single table, and neither does an unknown error."""
    assert type(lake_error("cannot read", DeltaError(text))) is LakeError
