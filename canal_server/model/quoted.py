"""Text of others in lines of the log and in errors, as they wrote it.

What `repr` shows has each backslash twice, so that an expression cannot be copied.
"""

from __future__ import annotations

from typing import Final

SHOWN_MAX: Final = 200  # characters
LINE_MAX: Final = 8_192  # those of a whole line, of the log or on a terminal


def quoted(text: str) -> str:
    """Return a text in quotes, on one line: what cannot be printed is escaped.

    The rest of a long one is left out.
    """
    return f"'{printable(text)}'"


def printable(text: str, limit: int = SHOWN_MAX) -> str:
    """Return a text on one line without quotes: what cannot be printed is escaped.

    So are control characters, those that turn the direction of writing, and halves of
    surrogate pairs. What exceeds `limit` characters is left out.
    """
    left_out = "…" if len(text) > limit else ""
    shown = text[:limit]
    if not shown.isprintable():
        shown = "".join(
            char if char.isprintable() else char.encode("unicode_escape").decode()
            for char in shown
        )
    return f"{shown}{left_out}"
