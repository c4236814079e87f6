"""Reads the values of keys as their tables define."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from canal_server.config.password_forms import read_password
from canal_server.config.problems import find

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from canal_server.config.keys.setting import Key
    from canal_server.config.problems import Problems
    from canal_server.config.substitution import Lookup


def read_all(
    keys: Sequence[Key], lookup: Lookup, problems: Problems, conf_dir: Path
) -> dict[str, object]:
    """Return the values of the keys that are set, by field.

    Other fields keep their defaults. `conf_dir` is where the paths of passwords' files
    start.
    """
    read: dict[str, object] = {}
    for key in keys:
        if key.has_forms:
            password = read_password(key, lookup, problems, conf_dir)
            if password is not None:
                read[key.field] = password
            continue
        found = find(lookup, key.name, problems, secret=key.secret)
        if found is None:
            continue
        try:
            read[key.field] = key.read(found.text)
        except ValueError as error:
            problems.add(
                found.origin, key.name, found.text, str(error), secret=key.secret
            )
    return read


def fields_of(read: dict[str, object], prefix: str) -> dict[str, Any]:
    """Return the values of one section, without those of its subsections.

    The tables in `key_tables` guarantee the types of the values; their tests verify it.
    """
    names = {
        field.removeprefix(prefix): value
        for field, value in read.items()
        if field.startswith(prefix)
    }
    return {name: value for name, value in names.items() if "." not in name}
