"""The page of messages: it has what the reference has, and nothing that is not HTML."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from canal_server.messages.message_areas import SERVER_AREAS, all_messages
from canal_server.messages.note_search import ERRORS
from canal_server.web.message_page import message_page
from canal_server.web.note_texts import error_notes, html_of, plain, warning_notes

REFERENCE = Path(__file__).parents[2] / "docs/reference/messages.md"


class Page(HTMLParser):
    """The ids, the targets of links and the text of a page; all elements are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """Note an element."""
        found = dict(attrs)
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "a":
            self.targets.append(found["href"])
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        """Expect that it ends the last one."""
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page():
    """Give the page."""
    return Page(message_page("1.2.3").decode())


def test_anchors_are_those_of_the_reference(page):
    """Each message and each class of errors has a section; links lead to sections."""
    headings = re.findall("^### (.+)$", REFERENCE.read_text(), re.MULTILINE)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert set(page.ids) >= {each.lower() for each in headings}
    assert set(page.ids) >= set(all_messages(SERVER_AREAS))
    own = {each[1:] for each in page.targets if each.startswith("#")}
    assert own <= set(page.ids)


def test_nothing_is_left_of_markdown():
    """Code and links are the only marks that notes have."""
    text = message_page("1").decode()
    outside = re.sub("<code>.*?</code>", "", text, flags=re.DOTALL)
    assert not re.search(r"`|\]\(|\*\*|\.md\b", outside)


@pytest.mark.parametrize(
    ("markdown", "text", "html"),
    [
        ("set `a < b`", "set a < b", "set <code>a &lt; b</code>"),
        ("a < b & c", "a < b & c", "a &lt; b &amp; c"),
        (
            "[start `x`](../howto/start.md#y) now",
            "start x now",
            "start <code>x</code> (<cite>howto/start</cite>) now",
        ),
        (
            "see [it](#source-failed)",
            "see it",
            'see <a href="#source-failed">it</a>',
        ),
        (
            "see [it](../reference/messages.md#errors)",
            "see it",
            'see <a href="#errors">it</a>',
        ),
    ],
)
def test_texts(markdown, text, html):
    """Code and links, as text and as HTML."""
    assert plain(markdown) == text
    assert html_of(markdown) == html


def test_notes(page):
    """They have no marks, and lead to a section of the page."""
    for note in ERRORS:
        text = f"{note.error}: {note.fragments[0].replace('…', '7')}"
        for found in error_notes(text):
            assert found["anchor"] in page.ids
            assert "`" not in found["meaning"] + found["remedy"]
    assert error_notes("DecodeError: x") == [
        {"title": "DecodeError", "meaning": "", "remedy": "", "anchor": "decodeerror"}
    ]
    warnings = ["all is well", "sees no table, so columns cannot be read"]
    nothing, known = warning_notes(warnings)
    assert nothing is None
    assert known
    assert known["anchor"] in page.ids
    assert known["remedy"] == "Run the GRANT of the text."
