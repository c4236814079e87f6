"""Warnings about settings of message queues that do nothing, or not what is meant."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from canal_server.config.queue_section import MODE_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canal_server.config.substitution import Lookup

_WITH_PARTITIONS: Final = ("kafka", "pulsarmq")
_HASH_KEY: Final = "canal.mq.partitionHash"
# The primary key by a part of its name, such as `$pk`, which no column has.
_NEARLY_KEY: Final = re.compile(r"\$pk|pk\$", re.IGNORECASE)
_KEY: Final = "$pk$"


def hash_hints(lookup: Lookup) -> Iterator[str]:
    """Yield items of a destination's hash that misspell the primary key."""
    mode, found = lookup.find_safely(MODE_KEY), lookup.find_safely(_HASH_KEY)
    if mode is None or mode.text.lower() not in _WITH_PARTITIONS or found is None:
        return
    for item in re.split("[,;]", found.text):
        columns = item.rpartition(":")[2].strip()
        if ":" not in item or columns.lower() == _KEY:
            continue
        for name in columns.split("^"):
            if _NEARLY_KEY.search(name):
                yield (
                    f"{found.origin}: {_HASH_KEY} = {item.strip()}: {name} is taken for"
                    f" a column; for the primary key, write {_KEY} alone after the"
                    " colon"
                )
