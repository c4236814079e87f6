"""Which files of settings have changed since the server read them.

An operator who corrects a file and waits for it to count would otherwise wait for ever.
Leaves out what applies changes: the watch of the conf folder.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class _Look(NamedTuple):
    """What a file was when it was looked at; `digest` is empty without a file."""

    written_ns: int
    size: int
    digest: bytes


_MISSING = _Look(0, 0, b"")


class LoadedFiles:
    """The files as they were when this was created; any thread may ask."""

    def __init__(self, files: Iterable[Path]) -> None:
        """Read all files; one that is missing is none that has changed."""
        self._seen = {file: _look(file) for file in files}

    def note_loaded(self, file: Path) -> None:
        """Note that a file was read again, if it is one of them."""
        if file in self._seen:
            self._seen[file] = _look(file)

    def changed(self) -> list[str]:
        """Return the files whose content is another now, or that were removed."""
        seen = dict(self._seen)
        return [str(file) for file, look in seen.items() if _differs(file, look)]


def _differs(file: Path, seen: _Look) -> bool:
    try:
        now = file.stat()
    except OSError:
        return seen is not _MISSING
    # It is read only when it was written, as this is asked every few seconds.
    if (now.st_mtime_ns, now.st_size) == (seen.written_ns, seen.size):
        return False
    return _look(file).digest != seen.digest


def _look(file: Path) -> _Look:
    try:
        written = file.stat()
        content = file.read_bytes()
    except OSError:
        return _MISSING
    return _Look(written.st_mtime_ns, written.st_size, hashlib.sha256(content).digest())
