"""The page of all messages and errors, with their meanings and remedies.

It is made of the same tables as the reference, and has its anchors: the page of a
server leads to what this version of it means, without another host, and without telling
another host what is wrong here.
"""

from __future__ import annotations

import html
import logging
import re
from string import Template
from typing import TYPE_CHECKING, Final

from canal_server.messages.message_areas import SERVER_AREAS
from canal_server.messages.note_search import ERRORS, by_class
from canal_server.messages.server_notes import CLIENT_ANSWERS, INFORMATION
from canal_server.messages.source_notes import SOURCE_WARNINGS
from canal_server.web.note_texts import NOTHING, SOURCE_WARNINGS_ANCHOR, html_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from canal_server.messages.message import Message
    from canal_server.messages.note import Note

_PLACEHOLDER: Final = re.compile(r"%(?:\.\d+)?[sdrf]")
_OTHERS: Final = (  # anchor, title, notes
    (SOURCE_WARNINGS_ANCHOR, "Warnings of a source", SOURCE_WARNINGS),
    ("answers-to-clients", "Answers to clients", CLIENT_ANSWERS),
    ("information", "Information", INFORMATION),
)
_PAGE: Final = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Messages · canal-server</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="page.css">
</head>
<body class="messages">
<header>
<h1>Messages of canal-server $version</h1>
<p><a href="./">Destinations</a></p>
</header>
<main>
$sections
</main>
</body>
</html>
""")


def message_page(version: str) -> bytes:
    """Return the page."""
    sections = "\n".join([*_error_sections(), *_other_sections(), *_areas()])
    return _PAGE.substitute(version=html.escape(version), sections=sections).encode()


def _error_sections() -> Iterator[str]:
    yield '<h2 id="errors">Errors</h2>'
    for name, notes in by_class(ERRORS).items():
        yield f'<section id="{name.lower()}">\n<h3>{name}</h3>'
        yield from _notes(notes)
        yield "</section>"


def _other_sections() -> Iterator[str]:
    for anchor, title, notes in _OTHERS:
        yield f'<section id="{anchor}">\n<h2>{title}</h2>'
        yield from _notes(notes)
        yield "</section>"


def _areas() -> Iterator[str]:
    for area in SERVER_AREAS:
        yield f"<h2>{html.escape(area.title)}</h2>"
        for message in sorted(area.messages().values(), key=lambda each: each.name):
            yield _message(message)


def _message(message: Message) -> str:
    level = logging.getLevelName(message.level)
    return (
        f'<section id="{message.name}">\n<h3>{message.name}</h3>\n'
        f"<p>{level}: {_texts([message.text])}</p>\n"
        f"{_meaning(message.meaning, message.remedy)}\n</section>"
    )


def _notes(notes: Iterable[Note]) -> Iterator[str]:
    for note in notes:
        yield f"<p>{_texts(note.fragments)}</p>"
        yield _meaning(note.meaning, note.remedy)


def _meaning(meaning: str, remedy: str) -> str:
    return (
        f"<dl><dt>Meaning</dt><dd>{html_of(meaning)}</dd>"
        f"<dt>What to do</dt><dd>{html_of(remedy or NOTHING)}</dd></dl>"
    )


def _texts(fragments: Iterable[str]) -> str:
    return ", ".join(
        f"<code>{html.escape(_PLACEHOLDER.sub('…', each))}</code>" for each in fragments
    )
