"""What an operator reads about a text that is not a message of its own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Note:
    """A note on errors and other texts, which are recognised by a fragment.

    `error` is the class of the error, whose name the log shows before its text; empty
    for other texts. In `fragments`, `…` stands for what differs. `meaning` and `remedy`
    are Markdown; an empty remedy: nothing is to be done. The fragments of a note that
    `is_foreign` are texts of MySQL, Spark or Python, or put together from several.
    """

    fragments: tuple[str, ...]
    meaning: str
    remedy: str = ""
    error: str = ""
    is_foreign: bool = False
