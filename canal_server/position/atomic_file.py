"""Files that are complete after a crash at any moment: the old content or the new."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from canal_server.runtime.private_files import (
    make_private_folder,
    open_private,
    read_whole,
)

if TYPE_CHECKING:
    from pathlib import Path


class Disk:
    """The operations on files that can fail; tests substitute a failing one."""

    def read(self, path: Path) -> bytes:
        """Return the content of a file."""
        return read_whole(path)

    def make_directory(self, path: Path) -> None:
        """Create a directory and its parents, where they do not exist."""
        make_private_folder(path)

    def create(self, path: Path) -> int:
        """Create a file that must not exist, for its owner only, and open it."""
        return open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)

    def write(self, descriptor: int, data: bytes) -> int:
        """Write the beginning of the data; returns how many bytes were written."""
        return os.write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        """Return when the content of the open file is on the disk."""
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        """Close a file."""
        os.close(descriptor)

    def remove(self, path: Path) -> None:
        """Remove a file if it exists."""
        path.unlink(missing_ok=True)

    def link(self, path: Path, other: Path) -> None:
        """Give a file another name, which must not exist."""
        other.hardlink_to(path)

    def replace(self, path: Path, other: Path) -> None:
        """Rename a file in one step, replacing a file with the other name."""
        path.replace(other)

    def sync_directory(self, path: Path) -> None:
        """Return when the names in a directory are on the disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def replace_content(
    disk: Disk, path: Path, content: bytes, *, backup: Path | None
) -> None:
    """Replace a file's content; it is on the disk when this returns.

    The old content becomes `backup`; with None an older backup stays unchanged.
    A crash at any step leaves the old or the new content at `path`. Raises OSError.
    """
    disk.make_directory(path.parent)
    fresh = path.with_name(path.name + ".tmp")
    _write_new(disk, fresh, content)
    if backup is not None:
        _keep(disk, path, backup)
    # The renamed file was synced before. Otherwise, a crash of the machine could leave
    # the new name with blocks of zeros.
    disk.replace(fresh, path)
    disk.sync_directory(path.parent)


def _write_new(disk: Disk, path: Path, content: bytes) -> None:
    disk.remove(path)  # left over from a crash
    descriptor = disk.create(path)
    try:
        rest = content
        while rest:
            rest = rest[disk.write(descriptor, rest) :]
        disk.sync(descriptor)
    finally:
        disk.close(descriptor)


def _keep(disk: Disk, path: Path, backup: Path) -> None:
    """Make `backup` another name of the file, or a copy of it."""
    disk.remove(backup)
    try:
        disk.link(path, backup)
    except FileNotFoundError:
        return  # the first content ever
    except OSError:
        # Some file systems have no hard links.
        _write_new(disk, backup, disk.read(path))
