"""Tests of the cache in which private servers are kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import server_folders


def test_made_atomically(tmp_path: Path) -> None:
    """The folder appears under its name only when it is complete."""
    target = tmp_path / "tree"
    with server_folders.made_atomically(target) as part:
        (part / "file").touch()
        assert not target.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["tree"]
    assert (target / "file").exists()


def test_failure_leaves_nothing(tmp_path: Path) -> None:
    """What could not be completed is removed, and the error goes on."""
    with (
        pytest.raises(ZeroDivisionError),
        server_folders.made_atomically(tmp_path / "tree"),
    ):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_the_killed(tmp_path: Path) -> None:
    """What a killed process left behind goes when the folder is made again."""
    (tmp_path / ".tree-x.part").mkdir()
    with server_folders.made_atomically(tmp_path / "tree"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["tree"]


def test_lock_keeps_others_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another process holds the lock, waiting ends with a clear reason."""
    lock = tmp_path / "lock"
    program = (
        "import pathlib, server_folders, sys\n"
        f"with server_folders.locked(pathlib.Path({str(lock)!r})):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(Path(server_folders.__file__).parent)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        monkeypatch.setattr(server_folders, "LOCK_SECONDS_MAX", 0.0)
        with (
            pytest.raises(server_folders.Unavailable, match="another process"),
            server_folders.locked(lock),
        ):
            pytest.fail("the lock was given twice")
        other.kill()
    with server_folders.locked(lock):  # it ended with its process
        assert lock.exists()


def test_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CANAL_SERVERS_DIR names the cache, and the folder is made."""
    monkeypatch.setenv("CANAL_SERVERS_DIR", str(tmp_path / "a/b"))
    assert server_folders.cache_folder() == tmp_path / "a/b"
    assert (tmp_path / "a/b").is_dir()
