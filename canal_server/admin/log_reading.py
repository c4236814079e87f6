"""Log files as canal-admin shows them: names, and the last lines of one."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Final

from canal_server.errors import CanalError

if TYPE_CHECKING:
    from pathlib import Path

TAIL_BYTES: Final = 4 * 1024 * 1024  # of the end of a file
SERVER: Final = "canal"  # the folder of the server's log
# A single name: neither a path nor a hidden file.
_is_name: Final = re.compile(r"[\w-][\w.-]*").fullmatch


class LogReading:
    """Reads the folder of `start --log-dir`."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def names(self, subject: str = SERVER) -> list[str]:
        """Return the names of the files of a destination, or of the server.

        Raises CanalError.
        """
        folder = self._folder_of(subject)
        try:
            found = [entry.name for entry in os.scandir(folder) if entry.is_file()]
        except OSError as error:
            raise CanalError(f"no log of {subject}: {error.strerror}") from error
        return sorted(found)

    def last_lines(self, count: int, subject: str = SERVER, name: str = "") -> str:
        """Return the last lines of a file. Raises CanalError."""
        name = name or f"{subject}.log"
        if not _is_name(name):
            raise CanalError(f"{name[:100]!r} is not the name of a log file")
        if count <= 0:
            return ""
        path = self._folder_of(subject) / name
        try:
            # Someone who may write there could have put a link or a pipe there.
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(fd, "rb") as file:
                found = os.fstat(fd)
                if not stat.S_ISREG(found.st_mode):
                    raise CanalError(f"log file {name} of {subject} is not a file")
                file.seek(max(0, found.st_size - TAIL_BYTES))
                text = file.read(TAIL_BYTES).decode(errors="replace")
        except OSError as error:
            raise CanalError(
                f"log file {name} of {subject}: {error.strerror}"
            ) from error
        return "\n".join(text.splitlines()[-count:])

    def _folder_of(self, subject: str) -> Path:
        if self._folder is None:
            raise CanalError(
                "the server does not log to files: start it with --log-dir"
            )
        if not _is_name(subject):
            raise CanalError(f"{subject[:100]!r} is not the name of a destination")
        return self._folder / subject
