"""Finds what an operator reads about an error, by its text.

A text names the class of the error before its message, in a group also those of several
sources: `master1: SourceRefused: access denied`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from canal_server.messages.delivery_messages import POSITION_NOT_READ
from canal_server.messages.server_notes import SERVER_ERRORS
from canal_server.messages.source_notes import (
    HISTORY_ERRORS,
    SOURCE_ERRORS,
    SOURCE_WARNINGS,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from canal_server.messages.message import Message
    from canal_server.messages.note import Note

ERRORS: Final = (*SOURCE_ERRORS, *HISTORY_ERRORS, *SERVER_ERRORS)
# Of errors that are the texts of messages too, without the name of the destination.
MESSAGES: Final = {
    each.text.removeprefix("destination %s "): each for each in (POSITION_NOT_READ,)
}
CLASSES: Final = tuple(dict.fromkeys(each.error for each in ERRORS))
_PLACEHOLDER: Final = re.compile(r"…|%(?:\.\d+)?[sdrf]")
_CLASS: Final = re.compile(rf"\b({'|'.join(CLASSES)})\b")


def classes_in(error: str) -> list[str]:
    """Return the classes of errors that a text names and that have notes."""
    return list(dict.fromkeys(_CLASS.findall(error)))


def notes_on_error(error: str) -> list[Note]:
    """Return the notes on what a text says."""
    named = classes_in(error)
    return [note for note in ERRORS if note.error in named and _applies(note, error)]


def messages_on_error(error: str) -> list[Message]:
    """Return the messages whose text an error has."""
    return [each for text, each in MESSAGES.items() if _found(text, error)]


def note_on_warning(warning: str) -> Note | None:
    """Return the note on a warning of a source; None: there is none."""
    return next((note for note in SOURCE_WARNINGS if _applies(note, warning)), None)


def _applies(note: Note, text: str) -> bool:
    return any(_found(fragment, text) for fragment in note.fragments)


def _found(fragment: str, text: str) -> bool:
    """Return whether the parts of a fragment are in a text, in their order."""
    start = 0
    for part in _PLACEHOLDER.split(fragment):
        start = text.find(part.strip(), start)
        if start < 0:
            return False
        start += len(part.strip())
    return True


def by_class(notes: Iterable[Note]) -> dict[str, list[Note]]:
    """Return notes on errors by the class of the error, sorted."""
    found: dict[str, list[Note]] = {}
    for note in notes:
        found.setdefault(note.error, []).append(note)
    return dict(sorted(found.items()))
