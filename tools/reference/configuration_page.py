"""The page of all settings: its prose is a template, its keys come from the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from canal_server.config import values
from canal_server.config.group_sources import SOURCES_MAX
from canal_server.config.key_tables import SERVER_KEYS, Key
from canal_server.config.keys.filter_keys import FILTER_KEYS
from canal_server.config.keys.history_keys import TABLE_META_KEYS
from canal_server.config.keys.mode_keys import (
    DESTINATION_MODES,
    HISTORY_MODES,
    SERVER_MODES,
    SOURCE_MODES,
)
from canal_server.config.keys.queue_keys import QUEUE_KEYS, ROUTING_KEYS
from canal_server.config.keys.source_keys import (
    CONNECTION_KEYS,
    host_keys,
    unreadable_key,
)
from canal_server.config.keys.store_keys import POSITION_KEYS, STORE_KEYS
from canal_server.config.schema import InstanceConfig, ServerConfig
from reference.markdown import notice, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canal_server.config.keys.setting import Mode

PAGE = Path("docs/reference/configuration.md")
TEMPLATE = Path(__file__).parent / "templates/configuration.md"
SOURCES = "tools/reference/templates/configuration.md and canal_server/config/keys"
FOREIGN = "*not in the Java server*"  # which ignores such a key


def pages() -> dict[Path, str]:
    """Return the page by its path."""
    slots = {
        "server": entries(
            [key for key in SERVER_KEYS if key not in QUEUE_KEYS], ServerConfig()
        )
        + modes(SERVER_MODES),
        "queue": entries(QUEUE_KEYS, ServerConfig()),
        "routing": entries(ROUTING_KEYS),
        "destination": modes(DESTINATION_MODES),
        "master": entries((*host_keys("master"), unreadable_key())),
        "standby": standby_table(),
        "connection": entries(CONNECTION_KEYS) + modes(SOURCE_MODES),
        "group": group_table(),
        "group_max": str(SOURCES_MAX),
        "filter": entries(FILTER_KEYS),
        "store": entries(STORE_KEYS),
        "position": entries(POSITION_KEYS),
        "history": entries(TABLE_META_KEYS) + modes(HISTORY_MODES),
    }
    text = re.sub(
        r"\{\{(\w+)\}\}", lambda slot: slots[slot[1]].strip(), TEMPLATE.read_text()
    )
    return {PAGE: notice(SOURCES) + text}


def entries(
    keys: Sequence[Key], defaults: ServerConfig | InstanceConfig | None = None
) -> str:
    """Return a heading for each key, what it does, its values and its default."""
    settings = defaults or InstanceConfig(destination="example")
    return "".join(
        _entry(
            key.name,
            key.description,
            key.read.kind,
            default_of(key, settings),
            is_foreign=key.ours,
            has_forms=key.has_forms,
        )
        for key in keys
    )


def modes(those: Sequence[Mode]) -> str:
    """Return the same for settings that decide what is served."""
    return "".join(
        _entry(mode.name, mode.description, mode.kind, _shown(mode.default))
        for mode in those
    )


def default_of(key: Key, settings: object) -> str:
    """Return what holds when the key is not set, as it would be written."""
    if key.default:
        return key.default
    value = settings
    for name in key.field.split("."):
        value = getattr(value, name)
    return _shown(not value if key.read is values.opposite else value)


def standby_table() -> str:
    """Return the keys of a standby, each with the one of the master that it is as."""
    settings = InstanceConfig(destination="example")
    rows = [
        (f"`{key.name}`", f"[`{like.name}`]({_anchor(like.name)})",
         default_of(key, settings))
        for key, like in zip(host_keys("standby"), host_keys("master"), strict=True)
    ]  # fmt: skip
    return table(("key", "as", "default"), rows)


def group_table() -> str:
    """Return the keys of one source of a group, in the order of those of a master."""
    rows = []
    for host in ("master", "standby"):
        for key in host_keys(host):
            word = key.name.removeprefix(f"canal.instance.{host}.")
            name = f"`canal.instance.{host}<N>.{word}`"
            like = f"canal.instance.master.{word}"
            rows.append((name, f"[`{like}`]({_anchor(like)})"))
    like = unreadable_key().name
    name = like.replace("master", "master<N>")
    rows.append((f"`{name}`", f"[`{like}`]({_anchor(like)})"))
    return table(("key", "as"), rows)


def _entry(
    name: str,
    description: str,
    kind: str,
    default: str,
    *,
    is_foreign: bool = False,
    has_forms: bool = False,
) -> str:
    facts = [f"**Values:** {kind}", f"**Default:** {default}"]
    if has_forms:
        facts.append(f"**Also:** `{name}.file`, `{name}.command`")
    if is_foreign:
        facts.append(FOREIGN)
    return f"#### `{name}`\n\n{description}\n\n{' · '.join(facts)}\n\n"


def _shown(value: object) -> str:
    """Return a value as a conf file has it, where backslashes are doubled."""
    if value is None or value in ("", (), frozenset()):
        return "empty"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float):
        return f"`{value:g}`"
    return "`{}`".format(str(value).replace("\\", "\\\\"))


def _anchor(name: str) -> str:
    return "#" + re.sub(r"[^\w-]", "", name.lower())
