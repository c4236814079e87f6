"""The settings in the docs and the README are those that exist."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("yaml")
from canal_server.doors.yaml_document import Section
from canal_server.mirror.settings import settings_file

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*/mirror*.md"))]
EXAMPLES = [
    dedent(example)
    for page in PAGES
    for example in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    if "scrape_configs:" not in example  # of Prometheus
]
WHOLE = (
    "name: shop\ncanal: {destination: d}\nsource: {host: h, user: u}\nlake: {path: l}\n"
)
SECRETS = {"MIRROR_PASSWORD": "secret", "MIRROR_SALT": "0123456789"}


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_can_be_read(example: str):
    """Every example is valid as written, partial ones with the rest added."""
    text = example if "name:" in example else WHOLE + example
    if "\ntables:" not in f"\n{text}":
        text += "tables: [{match: shop\\..*}]\n"
    settings = settings_file.read(text, "/srv/mirror.yml", SECRETS)
    assert settings.name == "shop"
    assert settings.tables[0].match.startswith(r"shop\.")


def documented_keys() -> Iterator[str]:
    """Yield the keys of the table of settings, without their sections."""
    table = (ROOT / "docs/reference/mirror-settings.md").read_text()
    for line in table.splitlines():
        if line.startswith("| "):
            yield from re.findall(r"`([a-z0-9_]+)`", line.split("|")[1])
        elif line.startswith("## "):
            yield from re.findall(r"`([a-z0-9_]+)`", line)


def test_every_setting_is_reported(monkeypatch: pytest.MonkeyPatch):
    """The table of settings has every key that is asked for, and no other one."""
    asked: set[str] = set()
    finish = Section.finish

    def noted(section: Section) -> None:
        asked.update(section._asked)
        finish(section)

    monkeypatch.setattr(Section, "finish", noted)
    masked = "tables: [{match: shop.t, masks: {a: {truncate: 4}}}]"
    whole = WHOLE.replace("u}", "u, replica: {host: r}}")
    text = f"{whole}mask_salt: 0123456789\n{masked}\n"
    settings_file.read(text, "/srv/mirror.yml", {})
    documented = set(documented_keys())
    of_columns = {"a", "truncate"}
    assert documented == asked - of_columns
