"""Reads the file of a password, such as a secret of Docker or Kubernetes."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from canal_server.errors import PasswordError

if TYPE_CHECKING:
    from pathlib import Path

PASSWORD_BYTES_MAX: Final = 64 * 1024  # also of the output of a command


def content_of(key: str, path: Path) -> bytes:
    """Return the content of a file. Raises PasswordError with key, file and remedy."""
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise PasswordError(
            key,
            str(path),
            f"cannot read: {error.strerror}; write the password into this file, and"
            " make it readable by the user of the server",
        ) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise PasswordError(
                key, str(path), "not a regular file; write the password into a file"
            )
        # A regular file returns all that it has, up to the size.
        data = os.read(descriptor, PASSWORD_BYTES_MAX + 1)
    except OSError as error:
        raise PasswordError(
            key, str(path), f"cannot read: {error.strerror}; check the file system"
        ) from error
    finally:
        os.close(descriptor)
    if len(data) > PASSWORD_BYTES_MAX:
        raise PasswordError(
            key,
            str(path),
            f"larger than {PASSWORD_BYTES_MAX} bytes; write the password, and nothing"
            " else",
        )
    return data


def is_exposed(path: Path) -> bool:
    """Return whether every user of this host can read a file.

    That takes the permission to search each folder on the way to it as well.
    """
    try:
        real = path.resolve(strict=True)
        if not real.stat().st_mode & stat.S_IROTH:
            return False
        return all(folder.stat().st_mode & stat.S_IXOTH for folder in real.parents)
    except OSError:
        return False
