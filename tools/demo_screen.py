"""What the demo prints: headings, statements, changes, a counter; and when it ends.

Leaves out what is shown (`demo`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import textwrap
import time
from typing import TYPE_CHECKING

from canal_server.client.entry_format import text_lines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from canal_server.client import Entry

PAUSE_S = 0.6  # between two steps on a terminal, for the eye to follow
COUNTER_S = 0.05  # between two changes of the counter
WIDTH = 84  # of SQL
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_BOLD, _DIM, _CYAN, _GREEN = "1", "2", "36", "32"


class Screen:
    """Writes to standard output; colours, pauses and a counter on a terminal only."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdout.isatty()
        self._colour = self.is_terminal and not os.environ.get("NO_COLOR")
        self._counted_at = 0.0

    def heading(self, text: str) -> None:
        """Begin a section."""
        self._write(f"\n{self._paint(_BOLD, text)}")

    def note(self, text: str) -> None:
        """Say something in the demo's own voice."""
        self._write(f"  {text}")

    def event(self, text: str) -> None:
        """Say that something happened that is no statement."""
        self._write(f"\n  {self._paint(_CYAN, '*')} {self._paint(_BOLD, text)}")

    def aside(self, text: str) -> None:
        """Say something that may be read or not."""
        self._write(self._paint(_DIM, f"  {text}"))

    def result(self, text: str) -> None:
        """Say what came out well."""
        self._write(f"  {self._paint(_GREEN, text)}")

    def statement(self, prompt: str, sql: str) -> None:
        """Show what is sent to the database server."""
        first, *more = textwrap.wrap(sql, WIDTH, break_long_words=False)
        self._write(
            f"\n  {self._paint(_CYAN, f'{prompt}>')} {self._paint(_BOLD, first)}"
        )
        for line in more:
            self._write(f"  {' ' * len(prompt)}  {self._paint(_BOLD, line)}")

    def change(self, entry: Entry) -> None:
        """Show what the client received."""
        for line in text_lines(entry, colour=self._colour):
            self._write(f"  {line}")

    def count(self, what: str, number: int, total: int) -> None:
        """Show how far something is, on one line that is written over."""
        now = time.monotonic()
        if self.is_terminal and now - self._counted_at > COUNTER_S:
            self._counted_at = now
            sys.stdout.write(f"\r  {number:,} of {total:,} {what}")
            sys.stdout.flush()

    def clear_count(self) -> None:
        """Take the counter away."""
        if self.is_terminal:
            sys.stdout.write("\r\x1b[K")

    def pause(self) -> None:
        """Leave time to read."""
        if self.is_terminal:
            time.sleep(PAUSE_S)

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour else text

    @staticmethod
    def _write(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


class Interrupted(BaseException):
    """A signal asked for the end. Like KeyboardInterrupt, nobody catches it midway."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


class Interrupts:
    """Turns the first signal into `Interrupted`, but for moments that must not break.

    Main thread only.
    """

    def __init__(self) -> None:
        self._held = False
        self._pending = 0
        for number in SIGNALS:
            signal.signal(number, self._on_signal)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Put the first signal off until the end of the body; a second one counts."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._pending:
            self._end(self._pending)

    @staticmethod
    def ignore() -> None:
        """Take no signal any more: what is left to do is clean-up, and short."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self._held and not self._pending:
            self._pending = number
        else:
            self._end(number)

    def _end(self, number: int) -> None:
        self.ignore()
        raise Interrupted(number)
