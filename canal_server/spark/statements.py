"""What the text of a statement tells about tables, without parsing it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from canal_server.spark.options import TableName

_DROPS_SCHEMA: Final = re.compile(
    r"(?:\s|/\*.*?\*/)*DROP\s+(?:DATABASE|SCHEMA)\s+(?:IF\s+EXISTS\s+)?"
    r"(?:`((?:[^`]|``)+)`|([^\s;`/]+))",
    re.IGNORECASE | re.DOTALL,
)
_OF_NAMES: Final = re.compile(r"[\w$]")


def dropped_schema(sql: str) -> str | None:
    """Return the schema that a statement drops, with all of its tables."""
    found = _DROPS_SCHEMA.match(sql)
    if found is None:
        return None
    return found[1].replace("``", "`") if found[1] else found[2]


def may_concern(sql: str, table: TableName) -> bool:
    """Tell whether a statement may be about a table: false only if it is not.

    It names each table that it is about, but those of a schema that it drops.
    """
    dropped = dropped_schema(sql)
    if dropped is not None and dropped.lower() == table.schema.lower():
        return True
    text, name = sql.lower(), table.table.lower()
    # Quotes in a quoted name are doubled; in an unquoted one there are none.
    names = {name, name.replace("`", "``"), name.replace('"', '""')}
    return any(_stands_alone(each, text) for each in names)


def _stands_alone(name: str, text: str) -> bool:
    """Tell whether a name is in a text, not only within another one."""
    at = text.find(name)
    while at >= 0:
        around = text[at - 1 : at] + text[at + len(name) : at + len(name) + 1]
        if not _OF_NAMES.search(around):
            return True
        at = text.find(name, at + 1)
    return False
