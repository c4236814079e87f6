"""The output of `tail`: lines of text, or one JSON object per line."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from canal_server.cli.flat_output import FlatOutput
from canal_server.client.entry_format import text_lines
from canal_server.client.frame_reader import entries_of
from canal_server.client.json_changes import json_lines
from canal_server.model.entry import EntryType
from canal_server.protocol.entry_messages import decode_entry

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from canal_server.protocol.entry_messages import Entry


class Printer:
    """Prints entries until the requested number of changes is reached."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._as_json = args.json or not sys.stdout.isatty()
        self._colour = not self._as_json and _uses_colour()
        self._flat = FlatOutput() if args.canal_json else None
        self._marks: bool = args.transactions
        self._left: int | None = args.count  # None: no limit
        self.has_printed_changes = False  # in the last call

    def has_enough(self) -> bool:
        """Return whether all requested changes are printed."""
        return self._left is not None and self._left <= 0

    def take(self, body: bytes | memoryview) -> bool:
        """Print the entries in a body of Messages; false if some were not printed."""
        if self._flat is not None:
            return self._take_as_flat(self._flat, body)
        if self._as_json:
            return self._take_as_json(body)
        return self._take_as_text(map(decode_entry, entries_of(body)))

    def _take_as_flat(self, flat: FlatOutput, body: bytes | memoryview) -> bool:
        text, count, whole = flat.lines(body, -1 if self._left is None else self._left)
        self.has_printed_changes = count > 0
        if self._left is not None:
            self._left -= count
        sys.stdout.write(text)
        sys.stdout.flush()
        return whole

    def _take_as_json(self, body: bytes | memoryview) -> bool:
        limit = -1 if self._left is None else self._left
        found = json_lines(body, marks=self._marks, limit=limit)
        self.has_printed_changes = found.changes > 0
        if self._left is not None:
            self._left -= found.changes
        sys.stdout.write(found.text.decode())
        sys.stdout.flush()
        return found.whole

    def _take_as_text(self, entries: Iterable[Entry]) -> bool:
        whole, self.has_printed_changes = True, False
        for entry in entries:
            lines = [
                line + "\n"
                for line in text_lines(entry, colour=self._colour, marks=self._marks)
            ]
            if entry.entry_type == EntryType.ROWDATA:
                self.has_printed_changes = True
                if self._left is not None:
                    whole = whole and len(lines) <= self._left
                    del lines[self._left :]
                    self._left -= len(lines)
            sys.stdout.writelines(lines)
        sys.stdout.flush()
        return whole


def _uses_colour() -> bool:
    """Return whether the user and the terminal accept colours (no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
