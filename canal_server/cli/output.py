"""Standard output and standard error of the command, when they cannot be written.

A reader that went away (`| head`) and a full disk (`> /dev/full`) are noticed by
whichever command writes, or when the last of its output is flushed.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class OutputLost(Exception):  # noqa: N818  # neither an error of ours nor an OSError
    """Standard output cannot be written; passes by those who catch other errors."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot write to standard output: {error.strerror or error}")
        # Whoever read it has seen enough.
        self.is_closed = isinstance(error, BrokenPipeError)


class _Output:
    """Standard output, or standard error, which is not worth failing for."""

    def __init__(self, stream: IO[str], *, must_write: bool) -> None:
        self._stream = stream
        self._must_write = must_write
        self.is_lost = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text. Raises OutputLost."""
        with self._checked():
            self._stream.write(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write some texts. Raises OutputLost, and whatever the texts raise."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Write what is held back. Raises OutputLost."""
        with self._checked():
            self._stream.flush()

    @contextlib.contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.is_lost = True
            if self._must_write:
                raise OutputLost(error) from error

    def let_go(self) -> None:
        """Keep the interpreter from complaining when it flushes at its end."""
        if self.is_lost:
            with contextlib.suppress(OSError, ValueError):  # without a descriptor
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


@contextlib.contextmanager
def checked_output() -> Iterator[None]:
    """Within it, standard output raises OutputLost, standard error nothing.

    One that was closed before the command began (`>&-`) counts as not wanted.
    """
    before = sys.stdout, sys.stderr
    out, err = (
        _Output(stream or open(os.devnull, "w", encoding="utf-8"), must_write=must)  # noqa: SIM115, PTH123  # until the process ends
        for stream, must in ((before[0], True), (before[1], False))
    )
    sys.stdout, sys.stderr = out, err
    try:
        yield
    finally:
        with contextlib.suppress(OutputLost):  # known by now
            err.flush()
        out.let_go()
        err.let_go()
        sys.stdout, sys.stderr = before
