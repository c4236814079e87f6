"""What the log lines of a thread are about: a destination, and a client.

Threads say so once, so that lines of the same destination or client can be selected,
whatever their texts are.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, NamedTuple


class Subject(NamedTuple):
    """A destination, and the client whose request is answered."""

    destination: str = ""
    client_id: int | None = None


_NOTHING: Final = Subject()
_subject: ContextVar[Subject] = ContextVar("subject", default=_NOTHING)


def log_about(destination: str, client_id: int | None = None) -> None:
    """Note what the lines of this thread are about from now on; cheap."""
    now = _subject.get()
    if now.destination != destination or now.client_id != client_id:
        _subject.set(Subject(destination, client_id))


def logged_subject() -> Subject:
    """Return what the lines of this thread are about."""
    return _subject.get()
