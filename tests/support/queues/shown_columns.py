"""Columns as the schemas of messages show them."""

from __future__ import annotations

from dataclasses import dataclass

from canal_server.queues.forms.column_traits import traits_of

VARCHAR = 12  # of java.sql.Types


@dataclass
class Shown:
    """A column as schemas show it."""

    name: str
    mysql_type: str
    kind: str
    is_key: bool
    a: int
    b: int


def shown_column(name: str, mysql_type: str, *, is_key: bool = False) -> Shown:
    """Return a column of a type."""
    kind, a, b = traits_of(mysql_type, VARCHAR)
    return Shown(name, mysql_type, kind, is_key, a, b)
