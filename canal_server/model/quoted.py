"""Text of others in lines of the log and in errors, as they wrote it.

What `repr` shows has each backslash twice, so that an expression cannot be copied.
"""

from __future__ import annotations

from typing import Final

SHOWN_MAX: Final = 200  # characters


def quoted(text: str) -> str:
    """Return a text in quotes, on one line: what cannot be printed is escaped.

    The rest of a long one is left out.
    """
    return f"'{printable(text)}'"


def printable(text: str) -> str:
    """Return a text on one line without quotes: what cannot be printed is escaped.

    So are control characters, those that turn the direction of writing, and halves of
    surrogate pairs. The rest of a long one is left out.
    """
    left_out = "…" if len(text) > SHOWN_MAX else ""
    shown = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in text[:SHOWN_MAX]
    )
    return f"{shown}{left_out}"
