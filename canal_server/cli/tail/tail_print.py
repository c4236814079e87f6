"""The output of `tail`: lines of text, or one JSON object per line."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from canal_server.client.entry_format import changes, json_line, text_lines
from canal_server.model.entry import EntryType

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    from canal_server.protocol.entry_messages import Entry


class Printer:
    """Prints entries until the requested number of changes is reached."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._as_json = args.json or not sys.stdout.isatty()
        self._colour = not self._as_json and not os.environ.get("NO_COLOR")
        self._marks: bool = args.transactions
        self._left: int | None = args.count  # None: no limit
        self.has_printed_changes = False  # in the last call

    def has_enough(self) -> bool:
        """Return whether all requested changes are printed."""
        return self._left is not None and self._left <= 0

    def take(self, entries: Iterable[Entry]) -> bool:
        """Print entries; returns false if some were not printed completely."""
        whole, self.has_printed_changes = True, False
        for entry in entries:
            lines = list(self._lines(entry))
            if entry.entry_type == EntryType.ROWDATA:
                self.has_printed_changes = True
                if self._left is not None:
                    whole = whole and len(lines) <= self._left
                    del lines[self._left :]
                    self._left -= len(lines)
            sys.stdout.writelines(lines)
        sys.stdout.flush()
        return whole

    def _lines(self, entry: Entry) -> Iterator[str]:
        if self._as_json:
            for change in changes(entry, marks=self._marks):
                yield json_line(change) + "\n"
        else:
            for line in text_lines(entry, colour=self._colour, marks=self._marks):
                yield line + "\n"
