"""The wall clock of one process, which can be turned while the process runs."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).with_name("clock.c")
BYTES = 8


class Clock:
    """A clock, and what a process has in its environment to have it."""

    def __init__(self, folder: Path) -> None:
        """Build in a folder what is loaded. Raises CalledProcessError, OSError."""
        self._file, library = folder / "clock", folder / "clock.so"
        self._turn(0)
        subprocess.run(
            ["cc", "-O1", "-shared", "-fPIC", "-o", library, SOURCE], check=True
        )
        self.environ = [f"LD_PRELOAD={library}", f"SOAK_CLOCK={self._file}"]

    @contextlib.contextmanager
    def turned(self, seconds: int) -> Iterator[None]:
        """Have it ahead by so many seconds inside; below 0: behind."""
        self._turn(seconds)
        try:
            yield
        finally:
            self._turn(0)

    def _turn(self, seconds: int) -> None:
        # The process sees the file's memory: it must stay the same one.
        mode = "r+b" if self._file.exists() else "wb"
        with self._file.open(mode) as opened:
            opened.write(seconds.to_bytes(BYTES, "little", signed=True))
