"""Files and folders for their owner only, which are never opened through a link.

A user who may write into such a folder could put a symbolic link where a file is about
to be created, and thus have the link's target emptied or written to. Leaves out what
the files hold.
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
READ_BYTES_MAX: Final = 256 << 20  # of one file that is read at once


def make_private_folder(path: Path) -> None:
    """Create a folder and its parents, where they do not exist; raises OSError.

    A new folder is for the owner only, whatever the umask; an existing one is left
    unchanged.
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
    path.chmod(FOLDER_OWNER_ONLY)  # the umask may have removed rights


def open_private(path: Path, flags: int, *, may_be_pipe: bool = False) -> int:
    """Open a file, which is created for its owner only; returns its descriptor.

    Raises OSError, with ELOOP for a symbolic link. A pipe, whose opening could block
    until someone reads or writes, is refused; `may_be_pipe`: only without a reader.
    """
    try:
        fd = os.open(
            path,
            flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
            FILE_OWNER_ONLY,
        )
    except OSError as error:
        if error.errno == errno.ENXIO and not may_be_pipe:  # nobody reads it
            raise _not_regular(path) from None
        raise
    if not may_be_pipe and not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _not_regular(path)
    return fd


def _not_regular(path: Path) -> OSError:
    return OSError(errno.EINVAL, _NOT_REGULAR, str(path))


_NOT_REGULAR: Final = "not a regular file, remove it"


def read_whole(path: Path) -> bytes:
    """Return the content of a file; raises OSError.

    A user who may write into the folder could put a pipe there, whose opening would
    block until someone writes, or a file larger than memory.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise _not_regular(path)
        if found.st_size > READ_BYTES_MAX:
            raise OSError(
                errno.EFBIG,
                f"{found.st_size} bytes exceed the limit of {READ_BYTES_MAX}; restore a"
                " copy of it or remove it",
                str(path),
            )
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read(READ_BYTES_MAX)
    finally:
        os.close(fd)


def refuse_link(path: Path) -> None:
    """Raise OSError when a symbolic link has the name of our file."""
    if path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def descriptor_shortage() -> str:
    """Return the text of `reason_of` while no more files can be opened, or ""."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return reason_of(error)
    return ""


def unwritten(error: OSError, folder: Path) -> str:
    """Return why a file in a folder was not written, and the remedy."""
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ELOOP):
        return reason_of(error)
    return f"{error}; check free space and permissions of {folder}"


def reason_of(error: OSError) -> str:
    """Return what went wrong with a file or socket, and the remedy if one is known."""
    if error.errno == errno.ELOOP and error.filename is not None:
        name = os.fsdecode(error.filename)
        return f"{name} is a symbolic link, which is not followed: remove it"
    if error.errno == errno.EISDIR and error.filename is not None:
        return f"{os.fsdecode(error.filename)} is a folder: remove it"
    if error.strerror == _NOT_REGULAR:
        return f"{error.filename} is not a regular file: remove it"
    if error.errno == errno.EMFILE:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return (
            f"too many open files, the limit of this process is {limit}: raise it"
            " (ulimit -n, LimitNOFILE of systemd)"
        )
    if error.errno == errno.ENFILE:
        return "too many open files on this machine: raise fs.file-max"
    return error.strerror or str(error)
