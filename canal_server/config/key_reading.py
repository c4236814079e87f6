"""Reads the values of keys as their tables define."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.config.problems import find

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canal_server.config.keys.setting import Key
    from canal_server.config.problems import Problems
    from canal_server.config.substitution import Lookup


def read_all(
    keys: Sequence[Key], lookup: Lookup, problems: Problems
) -> dict[str, object]:
    """Return the values of the keys that are set, by field.

    Other fields keep their defaults.
    """
    read: dict[str, object] = {}
    for key in keys:
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
