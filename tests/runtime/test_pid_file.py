"""The pid file: who holds it, which files are stale, and whom `stop_process` ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys

import pytest
from fix_daemon import child_environ

from canal_server.errors import CanalError
from canal_server.runtime.lifecycle import Deadline
from canal_server.runtime.pid_file import PidFile, stop_process

# Writes the pid file, says so, and waits for the end of its input or for SIGTERM.
HOLDER = """
import signal, sys
from pathlib import Path
from canal_server.runtime.pid_file import PidFile
if len(sys.argv) > 2:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
PidFile(Path(sys.argv[1])).start()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path):
    """Give the path of a pid file."""
    return tmp_path / "canal.pid"


@pytest.fixture
def hold(path):
    """Return a function that starts a process with the pid file."""
    processes = []

    def start(*options):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(path), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environ(),
        )
        processes.append(process)
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        return process

    yield start
    for each in processes:
        each.kill()
        each.communicate()


@contextlib.contextmanager
def running():
    """Give a process of another program, which runs within the context."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        yield process
        assert process.stdin
        process.stdin.close()


def ended_pid():
    """Return the id of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_written_and_removed(path):
    """The file has the id while the stage runs, readable by others; then it is away."""
    stage = PidFile(path)
    stage.start()
    assert path.read_text() == f"{os.getpid()}\n"
    assert path.stat().st_mode & 0o044 == 0o044
    stage.request_stop()
    assert stage.join(Deadline(1))
    assert not path.exists()
    assert stage.join(Deadline(1))


@pytest.mark.parametrize("text", ["", "\n", "{ended}\n", "{ended}"])
def test_stale(path, text):
    """A file without an id, or with that of a process that has ended, is replaced."""
    path.write_text(text.format(ended=ended_pid()))
    stage = PidFile(path)
    stage.start()
    assert path.read_text() == f"{os.getpid()}\n"
    stage.join(Deadline(1))


def test_a_recycled_id_is_stale(path):
    """A process that began long after the file was written did not write it."""
    with running() as process:
        path.write_text(f"{process.pid}\n")
        os.utime(path, (0, 0))
        stage = PidFile(path)
        stage.start()
        stage.join(Deadline(1))


def test_a_process_without_a_lock_is_refused(path):
    """The Java server's file, say, is of a running process: it is named, and stays."""
    with running() as process:
        path.write_text(str(process.pid))
        with pytest.raises(CanalError, match=rf"names process {process.pid} \(cat\)"):
            PidFile(path).start()
        assert path.read_text() == str(process.pid)


@pytest.mark.parametrize("text", ["canal", "-1", "1.5", "9" * 30])
def test_another_file_is_refused(path, text):
    """A file that never was a pid file is not overwritten."""
    path.write_text(text)
    with pytest.raises(CanalError, match="does not contain a process id"):
        PidFile(path).start()
    assert path.read_text() == text


def test_a_running_server_is_refused(path, hold):
    """While a process holds the file, no other one gets it, nor removes it."""
    process = hold()
    stage = PidFile(path)
    with pytest.raises(CanalError, match=rf"running server \(process {process.pid}\)"):
        stage.start()
    stage.join(Deadline(1))
    assert path.read_text() == f"{process.pid}\n"


def test_a_link_is_not_followed(path, tmp_path):
    """A link instead of the file is refused, and its target is unchanged."""
    target = tmp_path / "target"
    target.write_text("text")
    path.symlink_to(target)
    with pytest.raises(CanalError, match="is a symbolic link"):
        PidFile(path).start()
    assert target.read_text() == "text"


def test_a_folder_that_does_not_exist(tmp_path):
    """The error has the path and the option."""
    path = tmp_path / "none/canal.pid"
    with pytest.raises(CanalError, match=rf"{path}: No such file .* --pid-file"):
        PidFile(path).start()


def test_a_file_of_somebody_else_stays(path):
    """A file that was replaced meanwhile is not ours to remove."""
    stage = PidFile(path)
    stage.start()
    path.unlink()
    path.write_text("1\n")
    stage.join(Deadline(1))
    assert path.exists()


def test_stop(path, hold):
    """The process gets SIGTERM, has ended afterwards, and its file is removed."""
    process = hold()
    assert stop_process(path, Deadline(60)) == process.pid
    assert process.wait() == -15
    assert not path.exists()


def test_stop_takes_too_long(path, hold):
    """A process that does not end before the deadline is an error; the file stays."""
    process = hold("ignore")
    with pytest.raises(CanalError, match=f"process {process.pid} .* still runs"):
        stop_process(path, Deadline(0.01))
    assert path.exists()


def test_stop_of_nobody(path):
    """Without a file, and with a stale one, no server runs."""
    with pytest.raises(CanalError, match=f"no server runs with the pid file {path}"):
        stop_process(path, Deadline(1))
    path.write_text(f"{os.getpid()}\n")
    with pytest.raises(CanalError, match=f"no server runs with the pid file {path}"):
        stop_process(path, Deadline(1))


def test_stop_ends_nobody_else(path):
    """An id that means another process here, as a container's may, gets no signal."""
    with running() as other, path.open("w+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(f"{other.pid}\n")
        file.flush()
        with pytest.raises(CanalError, match=f"is not process {other.pid} on"):
            stop_process(path, Deadline(1))
        assert other.poll() is None
