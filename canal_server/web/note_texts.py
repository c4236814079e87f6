"""Notes for operators, which are Markdown, as plain text and as HTML.

Only what notes have: code and links. The documents are not served, so a link to one of
them is its words, with the name of the page.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any, Final

from canal_server.messages.note_search import (
    classes_in,
    messages_on_error,
    note_on_warning,
    notes_on_error,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canal_server.messages.message import Message
    from canal_server.messages.note import Note

SOURCE_WARNINGS_ANCHOR: Final = "warnings-of-a-source"
NOTHING: Final = "Nothing."
_CODE: Final = r"``\s?(?P<code2>.+?)\s?``|`(?P<code>[^`]+)`"
_LINK: Final = r"\[(?P<words>(?:[^\]`]|`[^`]*`)+)\]\((?P<target>[^)\s]+)\)"
_PART: Final = re.compile(f"{_CODE}|{_LINK}", re.DOTALL)
_PAGE: Final = re.compile(r"(?:\.\./)?(?P<page>[\w./-]+?)\.md(?:#[\w-]+)?")
_OWN: Final = re.compile(r"(?:(?:\.\./reference/)?messages\.md)?#(?P<anchor>[\w-]+)")


def plain(markdown: str) -> str:
    """Return a note without its marks."""
    return _PART.sub(_plain_part, markdown)


def html_of(markdown: str) -> str:
    """Return a note as HTML; links lead to the page of messages only."""
    parts, end = [], 0
    for found in _PART.finditer(markdown):
        parts += [html.escape(markdown[end : found.start()]), _html_part(found)]
        end = found.end()
    return "".join([*parts, html.escape(markdown[end:])])


def error_notes(error: str) -> list[dict[str, Any]]:
    """Return what is known of an error, as JSON values."""
    found = [_as_json(each, each.error.lower()) for each in notes_on_error(error)]
    found += [_of_message(each) for each in messages_on_error(error)]
    if found:
        return found
    return [
        {"title": name, "meaning": "", "remedy": "", "anchor": name.lower()}
        for name in classes_in(error)
    ]


def warning_notes(warnings: Sequence[str]) -> list[dict[str, Any] | None]:
    """Return what is known of each warning."""
    return [
        None if note is None else _as_json(note, SOURCE_WARNINGS_ANCHOR)
        for note in map(note_on_warning, warnings)
    ]


def _as_json(note: Note, anchor: str) -> dict[str, Any]:
    return _described(note.error or "Warning", note, anchor)


def _of_message(message: Message) -> dict[str, Any]:
    return _described(message.name, message, message.name)


def _described(title: str, text: Note | Message, anchor: str) -> dict[str, Any]:
    return {
        "title": title,
        "meaning": plain(text.meaning),
        "remedy": plain(text.remedy or NOTHING),
        "anchor": anchor,
    }


def _plain_part(found: re.Match[str]) -> str:
    if found["words"] is not None:
        return plain(found["words"])
    return found["code2"] or found["code"]


def _html_part(found: re.Match[str]) -> str:
    if found["words"] is None:
        return f"<code>{html.escape(found['code2'] or found['code'])}</code>"
    words = html_of(found["words"])
    if own := _OWN.fullmatch(found["target"]):
        return f'<a href="#{own["anchor"]}">{words}</a>'
    if page := _PAGE.fullmatch(found["target"]):
        return f"{words} (<cite>{html.escape(page['page'])}</cite>)"
    return words
