"""Lines of a file are complete or absent, whenever its writer ends."""

from __future__ import annotations

import errno
import subprocess
import sys

import pytest
from fix_daemon import child_environ

from canal_server.client.handlers.line_file import LineFile
from canal_server.errors import CanalError


@pytest.fixture
def path(tmp_path):
    """Give a path where nothing is."""
    return tmp_path / "lines"


def test_lines_are_there_after_a_sync(path):
    """Lines are appended to those of before."""
    file = LineFile(path)
    file.append("one")
    file.append("zwei ü")
    file.sync()
    file.close()
    file = LineFile(path)
    file.append("three")
    file.sync()
    file.close()
    assert path.read_text() == "one\nzwei ü\nthree\n"


@pytest.mark.parametrize("length", [3, 3_000_000])
def test_lines_without_a_sync(path, length):
    """They are removed by `rollback` and `close`, also if they were written already."""
    file = LineFile(path)
    file.append("one")
    file.sync()
    file.append("x" * length)
    file.rollback()
    file.append("two")
    file.sync()
    file.append("y" * length)
    file.close()
    assert path.read_text() == "one\ntwo\n"


@pytest.mark.parametrize("whole", ["", "one\n", "one\ntwo\n", "x" * 70_000 + "\n"])
@pytest.mark.parametrize("part", ["", "pa", "y" * 200_000])
def test_a_line_that_a_crash_left_incomplete(path, whole, part):
    """It is removed, and nothing else."""
    path.write_text(whole + part)
    file = LineFile(path)
    assert file.size == len(whole)
    file.append("next")
    file.sync()
    file.close()
    assert path.read_text() == f"{whole}next\n"


def test_two_writers(path):
    """A second writer is refused, until the first one ends."""
    file = LineFile(path)
    with pytest.raises(CanalError, match="is written by another process"):
        LineFile(path)
    file.close()
    LineFile(path).close()


def test_a_surrogate(path):
    """What UTF-8 cannot write becomes an escape of JSON."""
    file = LineFile(path)
    file.append('"\ud800"')
    file.sync()
    file.close()
    assert path.read_bytes() == b'"\\ud800"\n'


def test_a_full_disk(path):
    """What could be written of a line is removed by `rollback`."""
    code = (
        "import os, resource, signal, sys; from pathlib import Path\n"
        "from canal_server.client.handlers.line_file import LineFile\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "file = LineFile(Path(sys.argv[1]))\n"
        "file.append('one'); file.sync()\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, -1))\n"
        "file.append('x' * 5000)\n"
        "try: file.sync()\n"
        "except OSError as error: print(error.errno)\n"
        "file.rollback(); file.append('two'); file.sync(); file.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        env=child_environ(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{errno.EFBIG}\n"
    assert path.read_text() == "one\ntwo\n"
