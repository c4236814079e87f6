"""Streams of Spark's own Delta connector continue when a table is copied again.

The connector is of the newest Delta, with the Spark that it is made for: both are
fetched, with CANAL_INTEROP=1.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fix_interop import SWITCH, need, run
from fix_lake import LakeRows, lake_rows, lake_table
from lake_copies import copy_again, rows_of
from support_paths import TESTS

from canal_server.mirror.lake import copy_difference
from canal_server.mirror.lake.delta.delta import DeltaLakeTable
from canal_server.mirror.lake.lake_table import ADDED

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

HERE = TESTS / "interop" / "delta"
SPARK = "pyspark==4.2.1"  # that Delta's connector in the pom is made for
BEFORE = ("delete", "update_preimage")
LEFT_OUT = {*ADDED, "_change_type", "_commit_version", "_commit_timestamp"}
CACHE = Path.home() / ".cache" / "canal-server" / SPARK.replace("==", "-")
COLUMNS = [("id", "int"), ("v", "varchar(20)")]
TABLE = lake_table(COLUMNS, ("id",))
WIDER = lake_table([*COLUMNS, ("more", "bigint")], ("id",))
OTHER = lake_table([("id", "int"), ("v", "int"), ("more", "bigint")], ("id",))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(SWITCH not in os.environ, reason=f"{SWITCH}=1 runs it"),
]


class Streams:
    """The program that reads streams."""

    def __init__(self, popen: subprocess.Popen[str]) -> None:
        self._popen = popen

    def read(self, path: Path, name: str, *, feed: bool) -> dict[str, Any]:
        """Read a stream to the end of its table."""
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        asked = {"path": str(path), "name": name, "feed": feed}
        self._popen.stdin.write(json.dumps(asked) + "\n")
        self._popen.stdin.flush()
        answer: dict[str, Any] = json.loads(self._popen.stdout.readline())
        return answer


@pytest.fixture(scope="module")
def streams(tmp_path_factory) -> Iterator[Streams]:
    """Give the program, in an environment of its own."""
    maven = need("mvn")
    need("java")
    folder = tmp_path_factory.mktemp("delta")
    fetched = run(
        *(maven, "--batch-mode", "--quiet", "--file", str(HERE / "pom.xml")),
        *("dependency:build-classpath", f"-Dmdep.outputFile={folder / 'jars'}"),
        "-Dmdep.pathSeparator=,",
    )
    if fetched.returncode:
        pytest.skip(f"Delta's connector cannot be had: {fetched.stdout[:200]}")
    python = CACHE / "bin" / "python"
    if run(str(python), "-c", "import pyspark").returncode:
        run(sys.executable, "-m", "venv", str(CACHE))
        installed = run(str(python), "-m", "pip", "install", "--quiet", SPARK)
        if installed.returncode:
            pytest.skip(f"{SPARK} cannot be had: {installed.stderr[:200]}")
    jars = (folder / "jars").read_text()
    program = [str(python), str(HERE / "delta_streams.py"), str(folder), jars]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as popen:
        yield Streams(popen)
        popen.kill()


class Reader:
    """Both streams of a table, and the rows that the change feed gives."""

    def __init__(self, streams: Streams, path: Path) -> None:
        self._streams, self._path = streams, path
        self.rows: dict[int, dict[str, Any]] = {}

    def read(self) -> tuple[str, str, int]:
        """Read both; return how they ended, and the changes that the feed had."""
        fed = self._streams.read(self._path, f"{self._path.name}-feed", feed=True)
        # Of a commit, what was before comes first.
        changes = sorted(
            fed["rows"],
            key=lambda row: (row["_commit_version"], row["_change_type"] not in BEFORE),
        )
        for row in changes:
            own = {n: row[n] for n in row if n not in LEFT_OUT}
            if row["_change_type"] in BEFORE:
                del self.rows[own["id"]]
            else:
                self.rows[own["id"]] = own
        plain = self._streams.read(self._path, f"{self._path.name}-plain", feed=False)
        return fed["error"], plain["error"], len(changes)


@pytest.fixture
def reader(streams, tmp_path) -> Reader:
    """Give the readers of a table in `tmp_path`."""
    return Reader(streams, tmp_path)


def by_id(lake: DeltaLakeTable) -> dict[int, dict[str, Any]]:
    """Return the rows of the lake without the mirror's columns."""
    rows = ({n: row[n] for n in row if n not in ADDED} for row in lake_rows(lake))
    return {row["id"]: row for row in rows}


def first_copy(path: Path, rows: LakeRows) -> DeltaLakeTable:
    """Return the lake's table with a copy of the rows."""
    lake = DeltaLakeTable(str(path), rows.table)
    copy_again(path, lake, rows, "copy-1")
    return lake


def test_copies_and_changes(reader, tmp_path: Path, rng: random.Random) -> None:
    """Both streams continue after copies, small and large, and after changes."""
    rows = rows_of(TABLE, rng, ((n, f"v{n}") for n in range(1000)))
    lake = first_copy(tmp_path, rows)
    assert reader.read() == ("", "", 1000)
    rows.put("update_postimage", {"id": 7, "v": "other"})
    copy_again(tmp_path, lake, rows, "copy-2")
    assert reader.read() == ("", "", 2)  # the row before and after
    copy_again(tmp_path, lake, rows, "copy-3")
    assert reader.read() == ("", "", 0)
    lake.apply("copy-3", rows.as_changes(rows.random_changes(50)), rows.seq + 1, {})
    assert reader.read()[:2] == ("", "")
    assert reader.rows == by_id(lake)
    rows.random_changes(50)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copy_difference, "ROWS_MAX", 3)
        copy_again(tmp_path, lake, rows, "copy-4")
    assert reader.read()[:2] == ("", "")
    assert reader.rows == by_id(lake)
    lake.apply("copy-4", rows.as_changes(rows.random_changes(50)), rows.seq + 1, {})
    assert reader.read()[:2] == ("", "")
    assert reader.rows == by_id(lake)


def test_more_columns(reader, tmp_path: Path, rng: random.Random) -> None:
    """Streams that are started again after a copy with additional columns continue."""
    rows = rows_of(TABLE, rng, ((n, f"v{n}") for n in range(20)))
    lake = first_copy(tmp_path, rows)
    assert reader.read() == ("", "", 20)
    rows = rows_of(WIDER, rng, ((n, f"v{n}", n) for n in range(20)))
    copy_again(tmp_path, lake, rows, "copy-2")
    assert reader.read() == ("", "", 40)  # all rows were replaced
    assert reader.rows == by_id(lake)


@pytest.mark.parametrize(
    ("table", "values"),
    [(OTHER, (1, 2, 3)), (TABLE, (1, "v"))],
    ids=["another type", "a column less"],
)
def test_other_columns(reader, tmp_path: Path, rng, table, values) -> None:
    """Another type, or a column less, ends both streams for good, as Delta has it."""
    lake = first_copy(tmp_path, rows_of(WIDER, rng, [(1, "v", 3)]))
    assert reader.read() == ("", "", 1)
    copy_again(tmp_path, lake, rows_of(table, rng, [values]), "copy-2")
    for _ in range(2):
        feed, plain, changes = reader.read()
        assert feed
        assert plain
        assert not changes
