"""The pages of docs/reference that come from the code are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from reference import build, client_page, command_page, configuration_page
from reference.markdown import escaped, table

from canal_server import client
from canal_server.cli.help import EXAMPLES
from canal_server.client import range_client
from canal_server.config.key_tables import INSTANCE_KEYS, MODE_KEYS, SERVER_KEYS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("builder", build.BUILDERS)
def test_pages_are_up_to_date(builder):
    """Run tools/reference/build.py, or `make docs`, where this fails."""
    assert build.outdated(build.pages_of(builder), ROOT) == []


def test_a_stale_page_is_found(tmp_path):
    """A page that is missing or differs is outdated; one that is equal is not."""
    (tmp_path / "same.md").write_text("text")
    (tmp_path / "other.md").write_text("another text")
    texts = {Path(name): "text" for name in ("same.md", "other.md", "missing.md")}
    stale = build.outdated(texts, tmp_path)
    assert stale == [Path("other.md"), Path("missing.md")]


def headings(text):
    """Return the headings that are code."""
    return re.findall(r"^#+ `(.*)`$", text, re.MULTILINE)


def test_each_setting_has_a_heading():
    """Each key has a heading, hence an anchor; those of a standby have a row."""
    (text,) = configuration_page.pages().values()
    keys = [key.name for key in (*SERVER_KEYS, *INSTANCE_KEYS)]
    rows = re.findall(r"^\| `(canal\.instance\.standby\.[\w.]+)` ", text, re.MULTILINE)
    assert sorted(headings(text) + rows) == sorted([*keys, *MODE_KEYS])
    assert "{{" not in text


def test_defaults_are_as_in_a_conf_file():
    """None of them is an expression of Python."""
    (text,) = configuration_page.pages().values()
    defaults = re.findall(r"\*\*Default:\*\* (\S+)", text)
    assert len(defaults) > 100
    assert not [each for each in defaults if re.search(r"[(\[{]\W|None|True", each)]


def test_each_setting_is_described():
    """A description is a sentence or more, of one line."""
    for key in (*SERVER_KEYS, *INSTANCE_KEYS):
        assert re.fullmatch(r"[A-Z`].*[.]", key.description), key.name


def test_each_command_has_a_section():
    """All commands and their actions are there, with their exit statuses."""
    (text,) = command_page.pages().values()
    names = {name.removeprefix("canal-server ") for name in headings(text)}
    assert names == {name for name in EXAMPLES if name}
    assert text.count(f"**{command_page.STATUS}**") == len(names)


def test_the_client_is_whole():
    """All exported classes are there, and the methods of both clients."""
    (text,) = client_page.pages().values()
    shown = headings(text)
    for module in (client, range_client):
        for name in module.__all__:
            value = getattr(module, name)
            assert name in shown or f"| `{name}` |" in text
            if name.endswith("Client"):
                public = [each for each in vars(value) if not each.startswith("_")]
                assert [each for each in public if f"{name}.{each}" not in shown] == []
    assert "{{" not in text


def test_texts_read_the_same():
    """What means something in Markdown is escaped, but not in code."""
    assert escaped("shop.*|a_b <c> `x|*`") == r"shop.\*\|a_b \<c\> `x|*`"
    assert table(("a", "b"), [("1", "2")]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"
