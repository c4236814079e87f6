"""Standard output and standard error of the command, and failures to write to them.

A closed pipe (`| head`) or a full disk (`> /dev/full`) is noticed by the command that
writes, or when the rest of its output is flushed.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class OutputLost(Exception):  # noqa: N818  # neither a CanalError nor an OSError
    """Standard output cannot be written; not caught by handlers of other errors."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot write to standard output: {error.strerror or error}")
        # A reader that closed the pipe has seen enough.
        self.is_closed = isinstance(error, BrokenPipeError)


class _Output:
    """Standard output, or standard error, whose failures are ignored."""

    def __init__(self, stream: IO[str], *, must_write: bool) -> None:
        self._stream = stream
        self._must_write = must_write
        self.is_lost = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text. Raises OutputLost."""
        with self._checked():
            self._stream.write(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts. Raises OutputLost, and whatever `lines` raises."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Write buffered text. Raises OutputLost."""
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
        """Prevent an error message from the flush at the exit of the interpreter."""
        if self.is_lost:
            with contextlib.suppress(
                OSError, ValueError
            ):  # the stream has no descriptor
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


@contextlib.contextmanager
def checked_output() -> Iterator[None]:
    """Make standard output raise OutputLost, and standard error ignore failures.

    A stream that was closed before the command started (`>&-`) is discarded.
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
        with contextlib.suppress(OutputLost):  # already reported
            err.flush()
        out.let_go()
        err.let_go()
        sys.stdout, sys.stderr = before
