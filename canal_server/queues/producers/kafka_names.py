"""Names of topics that Kafka accepts."""

from __future__ import annotations

import re
from typing import Final

LENGTH_MAX: Final = 249
_OTHERS: Final = re.compile(r"[^A-Za-z0-9._-]")


def why_no_name(topic: str) -> str:
    """Return why a topic cannot have a name; empty: it can."""
    if not topic or topic in {".", ".."}:
        return "Kafka accepts no such name"
    if len(topic) > LENGTH_MAX:
        return f"{len(topic)} characters, Kafka accepts {LENGTH_MAX} in a name"
    if found := _OTHERS.search(topic):
        return (
            f"{found[0]!r} in a name, for which Kafka accepts letters of ASCII, digits,"
            " '.', '_' and '-'"
        )
    return ""
