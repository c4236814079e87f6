"""The pages of messages: every warning and error of the log, and notes on errors."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

from canal_server.messages import note_search, server_notes, source_notes
from canal_server.messages.message_areas import MIRROR_AREAS, SERVER_AREAS, Area
from canal_server.messages.mirror import mirror_notes
from reference.markdown import notice, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from canal_server.messages.message import Message
    from canal_server.messages.note import Note

REFERENCE = Path("docs/reference")
TEMPLATES = Path(__file__).parent / "templates"
SOURCES = "canal_server/messages and tools/reference/templates"
PLACEHOLDER = re.compile(r"%(?:\.\d+)?[sdrf]")
NOTHING = "Nothing."


def pages() -> dict[Path, str]:
    """Return both pages by their paths."""
    server = {
        "messages": areas(SERVER_AREAS),
        "errors": by_class(note_search.ERRORS),
        "warnings_of_a_source": notes(source_notes.SOURCE_WARNINGS),
        "answers_to_clients": notes(server_notes.CLIENT_ANSWERS),
        "information": notes(server_notes.INFORMATION),
    }
    mirror = {
        "messages": areas(MIRROR_AREAS),
        "ends": notes(mirror_notes.MIRROR_ENDS),
        "waits": notes(mirror_notes.TABLE_WAITS),
        "copied_again": notes(mirror_notes.TABLE_COPIED_AGAIN),
        "stops": notes(mirror_notes.TABLE_STOPS),
    }
    return {
        REFERENCE / name: notice(SOURCES) + filled(TEMPLATES / name, slots)
        for name, slots in (("messages.md", server), ("mirror-messages.md", mirror))
    }


def filled(template: Path, slots: dict[str, str]) -> str:
    """Return a template with its slots filled, each of them once."""
    text = template.read_text()
    for name, content in slots.items():
        slot = f"{{{{{name}}}}}"
        if text.count(slot) != 1:
            raise ValueError(f"{template.name} does not have {slot} once")
        text = text.replace(slot, content.strip())
    return text


def areas(found: Sequence[Area]) -> str:
    """Return the messages of all areas, each area sorted by name."""
    return "\n".join(
        f"## {area.title}\n\n{''.join(entry(m) for m in by_name(area))}"
        for area in found
    )


def by_name(area: Area) -> list[Message]:
    """Return the messages of an area, sorted."""
    return sorted(area.messages().values(), key=lambda message: message.name)


def entry(message: Message) -> str:
    """Return a message under a heading, whose anchor is its name."""
    level = logging.getLevelName(message.level)
    text = code(PLACEHOLDER.sub("…", message.text))
    return (
        f"### {message.name}\n\n"
        f"{level}: {text}\n\n"
        f"- **Meaning**: {message.meaning}\n"
        f"- **What to do**: {message.remedy or NOTHING}\n\n"
    )


def by_class(found: Iterable[Note]) -> str:
    """Return the notes on errors, each class under a heading, sorted."""
    return "\n".join(
        f"### {name}\n\n{notes(listed)}"
        for name, listed in note_search.by_class(found).items()
    )


def notes(found: Iterable[Note]) -> str:
    """Return a table of notes."""
    rows = [
        (
            ", ".join(code(PLACEHOLDER.sub("…", each)) for each in note.fragments),
            note.meaning,
            note.remedy or NOTHING,
        )
        for note in found
    ]
    return table(("Text", "Meaning", "What to do"), rows)


def code(text: str) -> str:
    """Return text as code, also where it has code in it."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"
