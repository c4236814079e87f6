"""Users and what they may do, as immutable values.

A destination pattern is one of the shell: `*` stands for any text, `?` for a character,
`[a-c]` for one of some. Case counts.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from canal_server.filters.column_filters import ColumnFilter
from canal_server.filters.table_filters import compile_expression

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

EVERYTHING: Final = "*"  # a pattern


class Right(Enum):
    """What a user may do with a destination; the value names it in the file."""

    READ = "read"  # subscribe, and receive rows
    RANGES = "ranges"  # ranged reads, as Spark and the mirror make them
    OPERATE = "operate"  # seek, stop, start, unsubscribe, set log levels
    OBSERVE = "observe"  # status, metrics, positions, table history


class ColumnRule(Enum):
    """What happens with a column's values."""

    SHOWN = 0
    REMOVED = 1
    MASKED = 2


@dataclass(frozen=True, slots=True)
class ReadRule:
    """What a user receives of the destinations of a pattern.

    `tables` is an expression as in `canal.instance.filter.regex`; empty means all.
    `columns`, `removed` and `masked` list columns as `canal.instance.filter.field`
    does. `clients` are the client ids that the user may use, as (first, last);
    `subscriptions` are patterns for the names of ranged subscriptions.
    """

    destination: str
    tables: str = ""
    columns: str = ""
    removed: str = ""
    masked: str = ""
    clients: tuple[tuple[int, int], ...] = ()
    subscriptions: tuple[str, ...] = ()

    @property
    def is_limited(self) -> bool:
        """Return whether there are changes that are not shown as they are."""
        return bool(self.tables or self.columns or self.removed or self.masked)

    def allows_client(self, client_id: int) -> bool:
        """Return whether the user may use a client id."""
        return not self.clients or any(
            first <= client_id <= last for first, last in self.clients
        )

    def allows_subscription(self, name: str) -> bool:
        """Return whether the user may use a ranged subscription."""
        return not self.subscriptions or _matches(self.subscriptions, name)


class ShownColumns:
    """Decides which tables, and which of their columns, a rule shows; thread-safe."""

    def __init__(self, rule: ReadRule) -> None:
        """Compile a rule. Raises ValueError if its expression is invalid."""
        # What takes too long to decide is not shown.
        self._tables = compile_expression(rule.tables, default=False)
        self._has_tables = bool(rule.tables)
        # One filter with both lists would ignore `removed` for tables with `columns`.
        self._listed = ColumnFilter(rule.columns, "")
        self._kept = ColumnFilter("", rule.removed)
        self._masked = ColumnFilter("", rule.masked)

    def shows(self, schema: str, table: str) -> bool:
        """Return whether changes of a table are shown."""
        return not self._has_tables or self._tables(f"{schema}.{table}")

    def has(self, schema: str, table: str, column: str) -> bool:
        """Return whether a table that is shown has a column, masked or not."""
        return self.column_rule(schema, table, column) is not ColumnRule.REMOVED

    def column_rule(self, schema: str, table: str, column: str) -> ColumnRule:
        """Return what happens with a column of a table that is shown."""
        names = schema, table, (column,)
        if not (self._listed.emitted(*names)[0] and self._kept.emitted(*names)[0]):
            return ColumnRule.REMOVED
        if not self._masked.emitted(*names)[0]:
            return ColumnRule.MASKED
        return ColumnRule.SHOWN


@dataclass(frozen=True, slots=True)
class User:
    """One user.

    `password_hash` is hex(SHA1(SHA1(password))), empty for none; `certificates` name
    certificates of clients (`certificate_names`). The first rule of `read` whose
    pattern matches a destination counts.
    """

    name: str
    password_hash: str = field(default="", repr=False)
    certificates: tuple[str, ...] = ()
    read: tuple[ReadRule, ...] = ()
    ranges: tuple[str, ...] = ()
    operate: tuple[str, ...] = ()
    observe: tuple[str, ...] = ()
    connections_max: int = 0  # 0: as canal.server.connections.per.user.max

    def may(self, right: Right, destination: str) -> bool:
        """Return whether the user has a right for a destination.

        Ranged reads need the right to read, too; who may operate may observe.
        """
        match right:
            case Right.READ:
                return self.read_rule(destination) is not None
            case Right.RANGES:
                return _matches(self.ranges, destination) and self.may(
                    Right.READ, destination
                )
            case Right.OPERATE:
                return _matches(self.operate, destination)
            case Right.OBSERVE:
                return _matches((*self.observe, *self.operate), destination)

    def read_rule(self, destination: str) -> ReadRule | None:
        """Return the rule by which a destination is read, None if it may not be."""
        return next(
            (each for each in self.read if _matches((each.destination,), destination)),
            None,
        )

    def may_everywhere(self, right: Right) -> bool:
        """Return whether the user has a right for all destinations, by one pattern."""
        return EVERYTHING in self._patterns(right)

    def may_anywhere(self, right: Right) -> bool:
        """Return whether there may be destinations for which the user has a right."""
        return bool(self._patterns(right))

    def _patterns(self, right: Right) -> Sequence[str]:
        patterns: dict[Right, Sequence[str]] = {
            Right.READ: [each.destination for each in self.read],
            Right.RANGES: self.ranges,
            Right.OPERATE: self.operate,
            Right.OBSERVE: (*self.observe, *self.operate),
        }
        return patterns[right]


def _matches(patterns: Iterable[str], text: str) -> bool:
    return any(fnmatch.fnmatchcase(text, each) for each in patterns)
