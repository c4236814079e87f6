"""The values of keys as their tables say how to read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.config.problems import find

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canal_server.config.key_tables import Key
    from canal_server.config.problems import Problems
    from canal_server.config.substitution import Lookup


def read_all(
    keys: Sequence[Key], lookup: Lookup, problems: Problems
) -> dict[str, object]:
    """Return the values of the keys that are set, by field.

    A field that is left out keeps its default.
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
