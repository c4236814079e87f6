"""The notes on errors are about texts that there are, and the pages show them all."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from reference import message_pages

from canal_server.messages import server_notes, source_notes
from canal_server.messages.message_areas import all_messages
from canal_server.messages.mirror import mirror_notes

if TYPE_CHECKING:
    from canal_server.messages.note import Note

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "canal_server"
NOTES = [
    note
    for table in (source_notes, server_notes, mirror_notes)
    for value in vars(table).values()
    if isinstance(value, tuple)
    for note in value
]


@cache
def texts() -> str:
    """Return the texts of the package, one a line; `…` for what is put into them."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if PACKAGE / "messages" in path.parents and path.stem.endswith("_notes"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                found.append(
                    "".join(
                        str(each.value) if isinstance(each, ast.Constant) else "…"
                        for each in node.values
                    )
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    found.extend(
        re.sub(r'"\s+"', "", path.read_text())  # parts of one text
        for path in sorted(PACKAGE.rglob("*.pyx"))
    )
    return "\n".join(text.replace("\n", " ") for text in found)


@cache
def classes() -> set[str]:
    """Return the names of all classes of the package."""
    return {
        node.name
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }


@pytest.mark.parametrize("note", NOTES, ids=lambda note: note.fragments[0])
def test_fragments_occur(note: Note) -> None:
    """A text that somebody looks for is one of the program's.

    Where this fails the text was changed: change the note as well.
    """
    assert not note.error or note.error in classes()
    for fragment in () if note.is_foreign else note.fragments:
        parts = (re.escape(part) for part in fragment.split("…"))
        found = re.search("[^\n]*?".join(parts), texts())
        assert found is not None, f"no text has `{fragment}`"
    assert note.meaning.endswith((".", "`"))


def test_pages_are_up_to_date() -> None:
    """Run tools/reference/build.py, or `make docs`, where this fails."""
    for path, text in message_pages.pages().items():
        assert (ROOT / path).read_text() == text, path


def test_pages_have_all_messages() -> None:
    """Each name is a heading, and so an anchor, once in both pages."""
    headings = re.findall(
        r"^### ([a-z-]+)$", "".join(message_pages.pages().values()), re.MULTILINE
    )
    assert sorted(headings) == list(all_messages())


def test_code_in_code() -> None:
    """A text with code in it stands between two backquotes."""
    assert message_pages.code("run `stop`") == "`` run `stop` ``"
    assert message_pages.code("plain") == "`plain`"


def test_a_slot_that_is_missing(tmp_path: Path) -> None:
    """A template without a slot for what is generated is an error."""
    template = tmp_path / "page.md"
    template.write_text("{{one}}\n")
    assert message_pages.filled(template, {"one": " text "}) == "text\n"
    with pytest.raises(ValueError, match=r"page.md does not have \{\{two\}\} once"):
        message_pages.filled(template, {"one": "text", "two": "text"})
