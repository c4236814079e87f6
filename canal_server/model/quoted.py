"""Foreign text in log lines and errors, as it was written.

`repr` doubles each backslash, so that a regular expression could not be copied from it.
"""

from __future__ import annotations

from typing import Final

SHOWN_MAX: Final = 200  # characters
LINE_MAX: Final = 8_192  # characters of a whole line, in the log or on a terminal


def quoted(text: str) -> str:
    """Return a text in quotes, on one line, with unprintable characters escaped.

    A text that is too long is cut.
    """
    return f"'{printable(text)}'"


def printable(text: str, limit: int = SHOWN_MAX) -> str:
    """Return a text on one line without quotes, with unprintable characters escaped.

    These are control characters, marks that change the direction of writing, and
    unpaired surrogates. What exceeds `limit` characters is cut.
    """
    left_out = "…" if len(text) > limit else ""
    shown = text[:limit]
    if not shown.isprintable():
        shown = "".join(
            char if char.isprintable() else char.encode("unicode_escape").decode()
            for char in shown
        )
    return f"{shown}{left_out}"
