"""Tables of a lake in S3, on a real server that fails: nothing is lost or doubled."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from fix_interop import SWITCH
from fix_lake import COPY, filled, in_order, lake_rows, lake_table
from fix_mounts import mounted
from fix_random import longer
from fix_s3 import SECRET, staged
from small_disk import full, read_only
from support_paths import program

from canal_server.errors import LakeError
from canal_server.mirror.lake.delta.delta import DeltaLakeTable
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.state.lake_tables import UnusableTableError, lake_schema

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fix_lake import LakeRows
    from fix_s3 import S3Process

    from canal_server.mirror.settings.mirror_settings import LakeSettings

    OwnS3 = Callable[[Path], S3Process]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(0),
    pytest.mark.skipif(SWITCH not in os.environ, reason=f"{SWITCH}=1 runs it"),
]

TABLE = lake_table([("id", "int"), ("v", "varchar(20)")], ("id",))
# Of a request, so that a store that does not answer is noticed at once.
FAST = {"max_retries": "1", "retry_timeout": "4s", "timeout": "2s"}
WAIT_S = 300.0


class Scene:
    """A table in a store, and what it has to have."""

    def __init__(self, lake: LakeSettings, rng: random.Random) -> None:
        self.lake = lake
        self.rows: LakeRows = filled(TABLE, rng)
        self.at = self.rows.seq + 1
        files = staged(lake, self.rows)
        self.table().publish(COPY, lake_schema(TABLE), files, self.at, {})

    def table(self) -> DeltaLakeTable:
        """Open the table as a mirror that was just started."""
        path = f"{self.lake.path}/{TABLE.target}"
        return DeltaLakeTable(path, TABLE, self.lake.storage_options)

    def changes(self, count: int = 30) -> pa.Table:
        """Return further changes of rows; the expected rows have them."""
        found = self.rows.as_changes(self.rows.random_changes(count))
        self.at = self.rows.seq + 1
        return found

    def fail(self, changes: pa.Table, table: DeltaLakeTable) -> str:
        """Apply changes, which fails; returns the error, which is not of the table."""
        with pytest.raises(LakeError) as caught:
            table.apply(COPY, changes, self.at, {})
        self.is_of_store(caught.value)
        return str(caught.value)

    def is_of_store(self, error: LakeError) -> None:
        """Check that an error is not of the table alone, and has no secret."""
        print(error)
        assert not isinstance(error, UnusableTableError)
        assert SECRET not in str(error)

    def repeat(self, changes: pa.Table, table: DeltaLakeTable) -> None:
        """Apply the same changes again, as the mirror repeats a batch, and check."""
        table.apply(COPY, changes, self.at, {})
        self.check()

    def check(self) -> None:
        """Check that each row is there once, at the position of the changes."""
        table = self.table()
        assert table.applied(COPY) == self.at
        assert in_order(lake_rows(table)) == in_order(self.rows.rows.values())


def test_a_full_bucket(own_s3: OwnS3, rng: random.Random, tmp_path: Path) -> None:
    """A batch fails as a whole, and is applied when the store can write again."""
    with mounted(tmp_path / "disk", "size=4m") as disk:
        server = own_s3(disk)
        scene = Scene(server.store.lake("full", **FAST), rng)
        table = scene.table()
        for failing in (full, read_only):
            before, applied = lake_rows(scene.table()), scene.table().applied(COPY)
            changes = scene.changes()
            with failing(disk):
                text = scene.fail(changes, table)
                assert "cannot apply changes to the lake's table shop/orders" in text
                assert "the store fails: check whether it is full" in text
                assert in_order(lake_rows(scene.table())) == in_order(before)
                assert scene.table().applied(COPY) == applied
            scene.repeat(changes, table)
        server.kill()


def test_lost_rights(own_s3: OwnS3, rng: random.Random, tmp_path: Path) -> None:
    """A key that is not valid is named; with a valid one, the batch is applied."""
    server = own_s3(tmp_path / "objects")
    scene = Scene(server.store.lake("rights", **FAST), rng)
    table, changes = scene.table(), scene.changes()
    server.kill()
    server.start("another secret")
    text = scene.fail(changes, table)
    assert "the store does not accept the key: check aws_access_key_id" in text
    server.kill()
    server.start()
    scene.repeat(changes, table)


def test_a_slow_store(own_s3: OwnS3, rng: random.Random, tmp_path: Path) -> None:
    """What it does after the mirror has given up is not done again."""
    server = own_s3(tmp_path / "objects")
    scene = Scene(server.store.lake("slow", **FAST), rng)
    table, changes = scene.table(), scene.changes()
    server.pause()
    text = scene.fail(changes, table)
    assert "the store cannot be reached: check endpoint_url" in text
    server.resume()
    scene.repeat(changes, table)
    for _ in range(longer(3)):
        changes = scene.changes()
        with paused(server, rng.random() / 4):
            try:
                table.apply(COPY, changes, scene.at, {})
            except LakeError as error:
                scene.is_of_store(error)
        scene.repeat(changes, table)


@contextmanager
def paused(server: S3Process, after_s: float) -> Iterator[None]:
    """Pause a server some time after the start of what is done here, for a while."""
    script = "sleep $1; kill -STOP $2; sleep 4; kill -CONT $2"
    words = ["sh", "-c", script, "sh", f"{after_s:.3f}", str(server.pid)]
    with subprocess.Popen(words) as popen:
        yield
        popen.wait()


def test_a_store_that_is_killed(
    own_s3: OwnS3, rng: random.Random, tmp_path: Path
) -> None:
    """Whatever it was doing, a repeated batch is there once."""
    server = own_s3(tmp_path / "objects")
    scene = Scene(server.store.lake("killed", **FAST), rng)
    for _ in range(longer(3)):
        changes, table = scene.changes(100), scene.table()
        script = "sleep $1; kill -KILL $2"
        words = ["sh", "-c", script, "sh", f"{rng.random() / 4:.3f}", str(server.pid)]
        with subprocess.Popen(words) as popen:
            try:
                table.apply(COPY, changes, scene.at, {})
            except LakeError as error:
                scene.is_of_store(error)
            popen.wait()
        server.kill()
        server.start()
        scene.repeat(changes, table)
        table.compact()
        scene.check()


def test_a_writer_that_is_killed(
    own_s3: OwnS3, rng: random.Random, tmp_path: Path
) -> None:
    """A process that is killed at any moment resumes, and each change is there once.

    Parts of uploads that it left do not hinder the next one.
    """
    server = own_s3(tmp_path / "objects")
    scene = Scene(server.store.lake("writer"), rng)
    changes = scene.changes(300)
    path = f"{scene.lake.path}/{TABLE.target}"
    options = dict(scene.lake.storage_options)
    (tmp_path / "store.json").write_text(json.dumps([path, options]))
    (tmp_path / "table.pickle").write_bytes(pickle.dumps(TABLE))
    with pa.ipc.new_file(str(tmp_path / "changes.arrow"), changes.schema) as file:
        file.write_table(changes)
    words = [sys.executable, str(program("lake_writer.py")), str(tmp_path), "20"]
    for _ in range(longer(3)):
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for _ in range(rng.randrange(1, 4)):
                process.stdout.readline()
            try:
                process.wait(rng.random() / 5)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
    assert subprocess.run(words, check=False, timeout=WAIT_S).returncode == 0
    scene.check()
    folder = open_folder(scene.lake, TABLE.target)
    assert scene.table().vacuum(0) > 0
    assert folder.names()
    scene.check()
