"""The columns and partitions of a table in the source.

Leaves out which rows partitions have (`ddl.partitions`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from canal_server.model.columns_known import ColumnMeta


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition; `values` is its upper bound or its list, in the server's words.

    "" if it is not known.
    """

    name: str
    values: str = ""


@dataclass(frozen=True, slots=True)
class Partitions:
    """All partitions of a table, in order. Without any: it is not partitioned.

    `method` and `expression` are those of the server's catalog.
    """

    method: str = ""
    expression: str = ""
    parts: tuple[Partition, ...] = ()

    @property
    def are_complete(self) -> bool:
        """Whether the values of all partitions are known."""
        is_hashed = not self.method.upper().startswith(("RANGE", "LIST"))
        return is_hashed or all(each.values for each in self.parts)

    def to_json(self) -> list[Any]:
        """Return them as JSON values."""
        parts = [[each.name, each.values] for each in self.parts]
        return [self.method, self.expression, parts]

    @classmethod
    def from_json(cls, found: Any) -> Partitions:
        """Return those of `to_json`. Raises ValueError, TypeError."""
        method, expression, parts = found
        named = tuple(Partition(str(name), str(values)) for name, values in parts)
        return cls(str(method), str(expression), named)


class Columns(NamedTuple):
    """The columns of a table in the source, and those that only the lake has kept."""

    all: tuple[ColumnMeta, ...]
    kept: tuple[str, ...] = ()  # names in the lake
    partitions: Partitions | None = None  # None: not known
