"""A file system in memory at a folder, which can be full, or for readers only."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from server_folders import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILLER = "filler"
BLOCK = bytes(1 << 16)


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[Path]:
    """Give a new file system in memory at a folder. Raises Unavailable."""
    folder.mkdir()
    _run("mount", "-t", "tmpfs", "-o", ",".join(options), "none", str(folder))
    try:
        yield folder
    finally:
        # Also where somebody still looks into it, as a process that was just killed.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Have nothing written to a mounted folder meanwhile."""
    _run("mount", "-o", "remount,ro", str(folder))
    try:
        yield
    finally:
        _run("mount", "-o", "remount,rw", str(folder))


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """Have no space left in a mounted folder meanwhile."""
    filler = folder / FILLER
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(BLOCK):
                continue
        except OSError:
            file.flush()
    try:
        yield
    finally:
        filler.unlink()


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        shown = getattr(error, "stderr", "") or error
        raise Unavailable(
            f"file systems cannot be mounted here (uid {os.getuid()}): {shown}"
        ) from error
