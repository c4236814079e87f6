"""Folders of the private servers: the cache, its locks, one folder per running server.

Leaves out what is put into them (`server_packages`, `server_data`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCK_SECONDS_MAX = 1800.0  # somebody else downloads and unpacks meanwhile


class Unavailable(Exception):  # noqa: N818  # what a test skips with
    """A server cannot be had here; the message says why and what would help."""


def cache_folder() -> Path:
    """Return the folder for unpacked servers: CANAL_SERVERS_DIR or below ~/.cache."""
    named = os.environ.get("CANAL_SERVERS_DIR")
    folder = Path(named) if named else Path.home() / ".cache/canal-server"
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file that other processes respect; it ends with the process."""
    give_up_at = time.monotonic() + LOCK_SECONDS_MAX
    with path.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > give_up_at:
                    raise Unavailable(
                        f"another process has held {path} for {LOCK_SECONDS_MAX:g} s"
                    ) from None
                time.sleep(0.1)
            else:
                break
        yield


@contextlib.contextmanager
def made_atomically(target: Path) -> Iterator[Path]:
    """Give an empty folder that becomes `target` when the body succeeds.

    Call it with the lock of that folder held: leftovers of a killed process are
    removed.
    """
    for leftover in target.parent.glob(f".{target.name}-*.part"):
        shutil.rmtree(leftover, ignore_errors=True)
    part = Path(
        tempfile.mkdtemp(".part", f".{target.name}-", target.parent)  # mode 0700
    )
    try:
        yield part
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def claim_folder(flavour: str) -> tuple[Path, int]:
    """Make a folder for one server; returns it and the descriptor that holds it.

    Folders of processes that died are removed: their lock is free.
    """
    runs = cache_folder() / "run"
    runs.mkdir(exist_ok=True)
    with locked(runs / ".lock"):
        for other in runs.glob("*/owner"):
            with other.open() as file, contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(other.parent, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{flavour}-", dir=runs))
        owned = os.open(folder / "owner", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(owned, fcntl.LOCK_EX)
    return folder, owned
