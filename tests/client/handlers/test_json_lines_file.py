"""Changes as lines of JSON: complete, rotated, and each at least once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import change_messages
import pytest
from change_messages import Maker, changes_of
from fix_daemon import child_environ

from canal_server.client.handlers import RetryLater, json_lines_file
from canal_server.client.handlers.json_lines_file import JsonLines

NOW = 1_764_150_000.0  # 2025-11-26T09:40:00Z


@pytest.fixture
def maker():
    """Give what makes messages."""
    return Maker()


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def ids(path) -> list[int]:
    """Return the ids of inserted rows in a file."""
    return [json.loads(line)["after"]["id"] for line in path.read_text().splitlines()]


def apply(handler, *messages) -> None:
    """Handle and flush messages, as a consumer does."""
    for message in messages:
        for change in changes_of(message):
            handler.handle(change)
        handler.flush()


def test_a_restart(tmp_path, maker):
    """The next run appends, after a line that a crash left incomplete was removed."""
    path = tmp_path / "out.jsonl"
    handler = JsonLines(path)
    handler.open()
    apply(handler, maker.inserts(1, 1, 2))
    handler.close()
    with path.open("a") as file:
        file.write('{"schema":"sh')
    handler = JsonLines(str(path))
    handler.open()
    apply(handler, maker.inserts(2, 3))
    handler.close()
    assert ids(path) == [1, 2, 3]


def test_a_rollback(tmp_path, maker):
    """What was not flushed is not in the file."""
    path = tmp_path / "out.jsonl"
    handler = JsonLines(path)
    handler.open()
    handler.handle(changes_of(maker.inserts(1, 1))[0])
    handler.rollback()
    apply(handler, maker.inserts(1, 2))
    handler.handle(changes_of(maker.inserts(1, 3))[0])
    handler.close()
    assert ids(path) == [2]


def test_rotation_by_size(tmp_path, maker):
    """A file that is large enough gets a name with the time, and a new one begins."""
    path = tmp_path / "out.jsonl"
    handler = JsonLines(path, rotate_bytes=300, clock=Clock())
    handler.open()
    for number in range(1, 7):  # a line has about 190 bytes
        apply(handler, maker.inserts(number, number))
    handler.close()
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "out.20251126T094000Z-1.jsonl",
        "out.20251126T094000Z-2.jsonl",
        "out.20251126T094000Z.jsonl",
        "out.jsonl",
    ]
    assert ids(tmp_path / "out.20251126T094000Z.jsonl") == [1, 2]
    assert ids(tmp_path / "out.20251126T094000Z-2.jsonl") == [5, 6]
    assert ids(path) == []


def test_rotation_by_time(tmp_path, maker):
    """A file is rotated when it has been open for long enough, unless it is empty."""
    clock = Clock()
    path = tmp_path / "out.jsonl"
    handler = JsonLines(path, rotate_s=60, clock=clock)
    handler.open()
    clock.now += 61
    handler.flush()
    apply(handler, maker.inserts(1, 1))
    clock.now += 59
    apply(handler, maker.inserts(2, 2))
    clock.now += 1
    apply(handler, maker.inserts(3, 3))
    handler.close()
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == [
        "out.20251126T094101Z.jsonl", "out.20251126T094201Z.jsonl", "out.jsonl"
    ]  # fmt: skip
    assert [ids(tmp_path / name) for name in names] == [[1], [2, 3], []]


def test_a_file_that_was_moved(tmp_path, maker):
    """After logrotate, lines go to a new file, and none is there twice."""
    path, moved = tmp_path / "out.jsonl", tmp_path / "moved.jsonl"
    handler = JsonLines(path, rotate_s=60, clock=Clock())
    handler.open()
    apply(handler, maker.inserts(1, 1))
    path.rename(moved)
    apply(handler, maker.inserts(2, 2))
    apply(handler, maker.inserts(3, 3))
    path.unlink()
    apply(handler, maker.inserts(4, 4))
    apply(handler, maker.inserts(5, 5))
    handler.close()
    assert ids(moved) == [1, 2]
    assert ids(path) == [5]


@pytest.mark.parametrize("where", ["rename", "open"])
def test_a_rotation_that_fails(tmp_path, maker, monkeypatch, caplog, where):
    """The file goes on, nothing is written twice, and a later flush rotates it."""
    clock = Clock()
    path = tmp_path / "out.jsonl"
    handler = JsonLines(path, rotate_s=60, clock=clock)
    handler.open()
    clock.now += 61

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        if where == "rename":
            patch.setattr(Path, "rename", refuse)
        else:
            patch.setattr(json_lines_file, "LineFile", refuse)
        apply(handler, maker.inserts(1, 1))
        apply(handler, maker.inserts(2, 2))
        assert caplog.text.count("was not rotated: [Errno 13] Permission denied") == 1
    apply(handler, maker.inserts(3, 3))
    clock.now += 11
    apply(handler, maker.inserts(4, 4))
    apply(handler, maker.inserts(5, 5))
    handler.close()
    (rotated,) = set(tmp_path.iterdir()) - {path}
    assert ids(rotated) == [1, 2, 3, 4]
    assert ids(path) == [5]


@pytest.mark.parametrize("options", [{"rotate_s": -1.0}, {"rotate_bytes": -1}])
def test_wrong_options(tmp_path, options):
    """Limits are not negative."""
    with pytest.raises(ValueError, match="must be 0 or more"):
        JsonLines(tmp_path / "out.jsonl", **options)


def test_a_folder_that_is_missing(tmp_path):
    """It is an error at the start."""
    with pytest.raises(FileNotFoundError):
        JsonLines(tmp_path / "none/out.jsonl").open()


PROGRAM = """
import resource, signal, sys
sys.path[:0] = sys.argv[2:]
from change_messages import Maker, changes_of
from canal_server.client.handlers.json_lines_file import JsonLines
handler = JsonLines(sys.argv[1], rotate_bytes=2000)
handler.open()
maker = Maker()
for number in range(100_000):
    for change in changes_of(maker.inserts(number, number)):
        handler.handle(change)
    handler.flush()
    print(number, flush=True)
"""


def test_kills(tmp_path, rng):
    """Killed at any moment, every line that was flushed is there, and complete."""
    path = tmp_path / "out.jsonl"
    store = str(Path(str(change_messages.__file__)).parent)
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(path), store],
            env=child_environ(),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout
        flushed = -1
        for line in process.stdout:
            flushed = int(line)
            if flushed >= rng.randint(10, 200):
                process.send_signal(signal.SIGKILL)
                break
        flushed = max([flushed, *map(int, process.stdout.read().split())])
        process.stdout.close()
        process.wait()
        handler = JsonLines(path)  # removes what is incomplete
        handler.open()
        handler.close()
        found = {number for each in tmp_path.glob("out*.jsonl") for number in ids(each)}
        assert found >= set(range(flushed + 1))
        for each in tmp_path.glob("out*.jsonl"):
            each.unlink()


def test_a_disk_that_is_full(tmp_path, maker, monkeypatch):
    """It is no reason for dead letters: the changes are repeated."""
    handler = JsonLines(tmp_path / "out.jsonl")
    handler.open()
    write = os.write
    with Path("/dev/full").open("wb") as full:
        monkeypatch.setattr(os, "write", lambda _, data: write(full.fileno(), data))
        with pytest.raises(RetryLater, match=r"out.jsonl: No space left on device"):
            apply(handler, maker.inserts(1, 1))
    monkeypatch.undo()
    handler.rollback()
    apply(handler, maker.inserts(1, 1))
    handler.close()
    assert ids(tmp_path / "out.jsonl") == [1]
