"""Files and folders of ours: for their owner only, and never by way of a link.

Whoever may write into a folder of ours could put a symbolic link where a file is about
to be made, and have the link's target emptied or written to. Leaves out what the files
hold.
"""

from __future__ import annotations

import errno
import os
import resource
import stat
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

FOLDER_OWNER_ONLY: Final = 0o700
FILE_OWNER_ONLY: Final = 0o600
READ_BYTES_MAX: Final = 256 << 20  # of one file that is read whole


def make_private_folder(path: Path) -> None:
    """Make a folder and those above it, where they do not exist; raises OSError.

    What is made here is the owner's alone, whatever the umask; what was there stays as
    it is.
    """
    if path.is_dir():
        return
    if path.parent != path:
        make_private_folder(path.parent)
    try:
        path.mkdir(mode=FOLDER_OWNER_ONLY)
    except FileExistsError:
        if not path.is_dir():
            raise
        return  # another process was first
    path.chmod(FOLDER_OWNER_ONLY)  # the umask may have taken rights away


def open_private(path: Path, flags: int) -> int:
    """Open a file, made for its owner only where it is new; returns its descriptor.

    Raises OSError, with ELOOP for a symbolic link.
    """
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_OWNER_ONLY)


def read_whole(path: Path) -> bytes:
    """Return the content of a file; raises OSError.

    Whoever may write into our folder could put a pipe there, which is never opened for
    reading unless somebody writes, or a file larger than memory.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file, remove it", str(path))
        if found.st_size > READ_BYTES_MAX:
            raise OSError(
                errno.EFBIG,
                f"{found.st_size} bytes, at most {READ_BYTES_MAX} are read; put a copy"
                " of it back or remove it",
                str(path),
            )
        return file.read(READ_BYTES_MAX)


def refuse_link(path: Path) -> None:
    """Raise OSError when a symbolic link stands where a file of ours is to be."""
    if path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def want_of_descriptors() -> str:
    """Return what `reason_of` says while no more files can be opened, "" otherwise."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return reason_of(error)
    return ""


def unwritten(error: OSError, folder: Path) -> str:
    """Return why a file of a folder was not written, and what is to be done."""
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ELOOP):
        return reason_of(error)
    return f"{error}, make room or rights in {folder}"


def reason_of(error: OSError) -> str:
    """Return what went wrong with a file or socket, and the remedy if one is known."""
    if error.errno == errno.ELOOP and error.filename is not None:
        name = os.fsdecode(error.filename)
        return f"{name} is a symbolic link, which is not followed: remove it"
    if error.errno == errno.EMFILE:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return (
            f"too many open files, the limit of this process is {limit}: raise it"
            " (ulimit -n, LimitNOFILE of systemd)"
        )
    if error.errno == errno.ENFILE:
        return "too many open files on this machine: raise fs.file-max"
    return error.strerror or str(error)
