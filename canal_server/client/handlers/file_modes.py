"""The modes of files with data: their owner's only, unless an option names others."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

PRIVATE: Final = 0o600
_DIGITS: Final = re.compile(r"0?6[0246]{2}").fullmatch


def mode_of(text: str) -> int:
    """Return the mode that an option names, such as `0640`. Raises ValueError."""
    if not _DIGITS(text):
        raise ValueError("mode must be octal digits from 0600 to 0666, such as 0640")
    return int(text, 8)


def open_with_mode(path: Path, flags: int, mode: int) -> int:
    """Open a file, and create it with this mode, whatever the umask. Raises OSError.

    One that exists keeps its mode.
    """
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError:
        return os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fchmod(descriptor, mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def make_folder(path: Path, mode: int) -> None:
    """Create a folder and its parents, for those who may read files of this mode.

    Folders that exist keep their mode. Raises OSError.
    """
    if path.is_dir():
        return
    make_folder(path.parent, mode)
    path.mkdir(exist_ok=True)
    path.chmod(mode | (mode & 0o444) >> 2)  # who may read may search
