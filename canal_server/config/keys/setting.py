"""What the tables of settings consist of.

The reference (docs/reference/configuration.md) is generated from the tables, so their
descriptions are Markdown, and links in them are relative to that page. The default of
a key is the default of its field in `canal_server.config.schema`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from canal_server.config.values import Reader

DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Key:
    """One setting: its name in the file, its field, how its text is read.

    `field` is a path of attributes from ServerConfig or InstanceConfig on. `default`
    is for a key whose default depends on other settings, and is Markdown as well.
    A key that the Java server does not have is marked `ours`. A password that
    `has_forms` may also be in a file or come from a command
    (`canal_server.config.password_forms`); one that `is_late` is read from there each
    time that it is needed.
    """

    name: str
    field: str
    read: Reader[object]
    description: str
    ours: bool = False
    secret: bool = False
    has_forms: bool = False
    is_late: bool = False
    default: str = ""


@dataclass(frozen=True, slots=True)
class Mode:
    """A setting that decides what is served; `canal_server.config.modes` reads it."""

    name: str
    kind: str  # the texts that are accepted, Markdown
    default: str
    description: str
