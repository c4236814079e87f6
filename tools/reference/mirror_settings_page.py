"""The page of a mirror's settings: a template, with the defaults of the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from unittest import mock

from canal_server.doors.yaml_document import Section
from canal_server.mirror.settings import settings_file
from canal_server.mirror.settings.mirror_settings import SERVERS
from reference.markdown import notice

PAGE = Path("docs/reference/mirror-settings.md")
TEMPLATE = Path(__file__).parent / "templates/mirror-settings.md"
SOURCES = (
    "tools/reference/templates/mirror-settings.md and canal_server/mirror/settings"
)
LEAST = """
name: shop
canal: {destination: example}
source: {host: db, user: mirror}
lake: {path: lake}
tables: [{match: shop.orders}]
"""
UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def pages() -> dict[Path, str]:
    """Return the page by its path."""
    known = defaults()
    text = re.sub(
        r"\{\{([\w.]+)\}\}", lambda slot: shown(known[slot[1]]), TEMPLATE.read_text()
    )
    return {PAGE: notice(SOURCES) + text}


def defaults() -> dict[str, object]:
    """Return the default of each setting of one value, by its path in the file.

    They are what the reader of the file asks for while it reads the smallest one.
    """
    found: dict[str, object] = {"canal.servers": SERVERS}
    read = Section.read

    def noted(section: Section, key: str, parse: Any, default: Any, **rest: Any) -> Any:
        found[section.at(key).replace("[0]", "")] = default
        return read(section, key, parse, default, **rest)

    with mock.patch.object(Section, "read", noted):
        settings_file.read(LEAST, "mirror.yml", {})
    return found


def shown(value: object) -> str:
    """Return a default as it is written in the file; floats are durations."""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float):
        unit = next(
            (name for name, each in UNITS.items() if value and value % each == 0), "s"
        )
        return f"`{value / UNITS[unit]:g}{unit}`"
    return "empty" if value == "" else f"`{value}`"
