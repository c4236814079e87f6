"""The file of the boundary index: queries, and damage."""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fix_daemon import child_environ

from canal_server.doors.sqlite import Database
from canal_server.source.begin.boundary_index import (
    FORM,
    INDEXED_SOURCES_MAX,
    BoundaryIndex,
    Counted,
    FileKey,
    Mark,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE = FileKey("uuid-1", "binlog.000007", 1_000_000)


def mark(start: int, stop: int, time_s: int = 0, **fields: object) -> Mark:
    """Return a mark of two transactions."""
    made = Mark(start, stop - 1, stop, time_s, time_s, 2, 10)
    return replace(made, **fields)  # type: ignore[arg-type]


MARKS = [
    mark(4, 1000, 100),
    mark(1000, 2000, 200, gtids="u:1-4"),
    mark(2000, 3000, 150, youngest_s=300),
    mark(3500, 4000, 400),  # after a gap
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Yield the path of the file."""
    return tmp_path / "example" / "boundaries.sqlite"


@pytest.fixture
def index(path: Path) -> Iterator[BoundaryIndex]:
    """Yield an open index with the marks of one file."""
    made = BoundaryIndex(path)
    made.open()
    made.add(FILE, MARKS)
    yield made
    made.close()


def test_what_was_written_is_there(index: BoundaryIndex, path: Path) -> None:
    """Marks are returned in order, also to a reader of the file; it is private."""
    assert index.marks(FILE) == MARKS
    assert index.marks(FILE, 1000, 2001) == MARKS[1:3]
    reading = BoundaryIndex(path, read_only=True)
    reading.open()
    assert reading.marks(FILE) == MARKS
    reading.close()
    index.close()
    index.open()
    assert index.marks(FILE) == MARKS
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_before(index: BoundaryIndex) -> None:
    """The last mark before an offset is where reading can continue."""
    assert index.before(FILE, 999) is None
    assert index.before(FILE, 1000) == MARKS[0]
    assert index.before(FILE, 1 << 40) == MARKS[3]
    assert index.before(FILE, 1 << 40, with_gtids=True) == MARKS[1]
    assert index.before(FILE, 1999, with_gtids=True) is None


@pytest.mark.parametrize(
    ("time_s", "found"), [(100, None), (101, 0), (201, 1), (300, 1), (301, 2), (999, 2)]
)
def test_at_time(index: BoundaryIndex, time_s: int, found: int | None) -> None:
    """A time maps to the mark after everything older, up to the first gap."""
    expected = None if found is None else MARKS[found]
    assert index.at_time(FILE, time_s * 1000) == expected


def test_at_time_of_a_file_that_was_read_in_part(index: BoundaryIndex) -> None:
    """Marks that do not cover a file from its first event do not date it."""
    other = FILE._replace(name="binlog.000008")
    index.add(other, MARKS[1:])
    assert index.at_time(other, 999_000) is None


def test_count_between(index: BoundaryIndex) -> None:
    """Known ranges are summed up, unknown ones are listed."""
    assert index.count_between(FILE, 4, 3000) == Counted(6, 30, ())
    assert index.count_between(FILE, 500, 4000) == Counted(
        6, 30, ((500, 1000), (3000, 3500))
    )
    assert index.count_between(FILE, 1000, 3700) == Counted(4, 20, ((3000, 3700),))
    assert index.count_between(FILE, 100, 200) == Counted(0, 0, ((100, 200),))
    index.add(FILE, [mark(3000, 3500, rows=None)])
    assert index.count_between(FILE, 4, 4000) == Counted(10, None, ())


def test_another_file_of_the_same_name(index: BoundaryIndex) -> None:
    """A reset binlog, and another server, have no data of the old one."""
    newer = FILE._replace(began_s=FILE.began_s + 1)
    other = FILE._replace(source="uuid-2")
    for key in (newer, other):
        assert index.marks(key) == []
        assert index.before(key, 5000) is None
    assert index.key_of("uuid-1", FILE.name) == FILE
    assert index.key_of("uuid-2", FILE.name) is None
    index.add(other, MARKS[:1])
    assert index.marks(FILE) == MARKS
    index.add(newer, MARKS[:1])
    assert index.marks(newer) == MARKS[:1]
    assert index.marks(FILE) == []


def test_forget(index: BoundaryIndex) -> None:
    """A file that turned out to be another one is forgotten."""
    index.forget(FILE)
    assert index.marks(FILE) == []


def test_expires_with_the_binlogs(index: BoundaryIndex) -> None:
    """Files that the server no longer has are deleted; other servers' remain."""
    kept, other = FILE._replace(name="binlog.000008"), FILE._replace(source="uuid-2")
    for key in (kept, other):
        index.add(key, MARKS)
    index.expire(FILE.source, ["binlog.000008", "binlog.000009"])
    assert [len(index.marks(key)) for key in (FILE, kept, other)] == [0, 4, 4]


def test_servers_of_long_ago(index: BoundaryIndex) -> None:
    """Only the servers read last are kept, in their order."""
    sources = [f"uuid-{number}" for number in range(10, 13 + INDEXED_SOURCES_MAX)]
    for source in sources:
        index.use(FILE._replace(source=source))
    index.use(FILE._replace(source=sources[-3]))
    index.expire(sources[-1], [FILE.name])
    left = index.sources()
    assert len(left) == INDEXED_SOURCES_MAX
    assert left[-2:] == [sources[-1], sources[-3]]


# --- damage ---------------------------------------------------------------------------


def zero(path: Path) -> None:
    """Write NULs, as a power cut may."""
    path.write_bytes(bytes(path.stat().st_size))


def tear(path: Path) -> None:
    """Keep only the first part of it."""
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    """Empty it."""
    os.truncate(path, 0)


def change(path: Path) -> None:
    """Change one value only."""
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE mark SET youngest_s = 1 WHERE stop = 2000")
    connection.close()


@pytest.mark.parametrize("harm", [zero, tear, empty, change])
def test_damaged_file(index: BoundaryIndex, path: Path, harm: object) -> None:
    """A damaged file is recreated without an error for the caller, and works again."""
    index.close()
    harm(path)  # type: ignore[operator]
    index.open()
    assert index.marks(FILE) == []
    index.add(FILE, MARKS)
    assert index.marks(FILE) == MARKS
    index.close()
    index.open()
    assert index.marks(FILE) == MARKS


def test_file_that_is_in_use(
    index: BoundaryIndex, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A second writer has no index and does not touch the first one's."""
    second = BoundaryIndex(path)
    second.open()
    (record,) = caplog.records
    assert "continuing without the index" in record.getMessage()
    second.add(FILE, MARKS[:1])
    assert second.marks(FILE) == []
    assert second.sources() == []
    assert second.before(FILE, 5000) is None
    second.close()
    assert index.marks(FILE) == MARKS


def test_file_that_is_not_ours(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file of a later version is left unchanged."""
    path.parent.mkdir(parents=True)
    later = Database(path, replace(FORM, steps=(*FORM.steps, ())))
    later.open()
    later.close()
    content = path.read_bytes()
    index = BoundaryIndex(path)
    index.open()
    assert index.marks(FILE) == []
    index.close()
    assert path.read_bytes() == content
    assert caplog.records[0].levelno == logging.WARNING


def test_missing_file(path: Path) -> None:
    """A reader without a file finds nothing, and creates nothing."""
    reading = BoundaryIndex(path, read_only=True)
    reading.open()
    assert reading.marks(FILE) == []
    reading.close()
    assert not path.parent.exists()


def test_killed_while_it_writes(path: Path) -> None:
    """A killed process leaves complete marks, in the order they were written."""
    program = (
        "import sys; from pathlib import Path\n"
        "from canal_server.source.begin.boundary_index import *\n"
        "from canal_server.source.begin.boundary_index import FileKey, Mark\n"
        "index = BoundaryIndex(Path(sys.argv[1])); index.open()\n"
        "for i in range(1 << 30):\n"
        f"    index.add(FileKey(*{tuple(FILE)!r}), [Mark(i, i, i + 1, i, i, 1, 1)])\n"
        "    print(i + 1, flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env=child_environ(),
    ) as writing:
        assert writing.stdout
        for line in writing.stdout:
            if int(line) >= 20:
                break
        writing.kill()
    index = BoundaryIndex(path)
    index.open()
    found = index.marks(FILE)
    index.close()
    assert [each.stop for each in found] == list(range(1, len(found) + 1))
    assert len(found) >= 20
