"""The tables of a history at a position or a time, and the choice of some of them.

Leaves out how they are shown (`schema_views`).
"""

from __future__ import annotations

import contextlib
import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.errors import ConfigError, TableMetaError, UnknownTable
from canal_server.filters.table_filters import TableFilter
from canal_server.model.moments import WRITTEN_AS, moment_ms, time_text
from canal_server.model.positions import EntryPosition, base_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from canal_server.ports import TablePredicate
    from canal_server.tablemeta.history.opened_history import History
    from canal_server.tablemeta.model.operations import Name
    from canal_server.tablemeta.storage.history_storage import BinlogSegment
    from canal_server.tablemeta.tables.schemas import FrozenTables

_POSITION: Final = re.compile(r"(?P<file>[^\s:]+):(?P<offset>\d+)")
_NEAREST: Final = 3  # similar names suggested for an unknown one


@dataclass(frozen=True, slots=True)
class Moment:
    """A position in a binlog segment, and the tables at it."""

    segment: BinlogSegment
    position: EntryPosition
    image: FrozenTables

    def names(self) -> list[Name]:
        """Return all tables, also those whose columns are unknown."""
        return [
            (schema, table)
            for schema in self.image.schemas()
            for table in {*self.image.tables(schema), *self.image.uncertain(schema)}
        ]


def parse_position(text: str) -> EntryPosition:
    """Return a binlog position such as `binlog.000003:4711`. Raises ValueError."""
    found = _POSITION.fullmatch(text)
    if found is None:
        raise ValueError("expected a position such as binlog.000003:4711")
    return EntryPosition(found["file"], int(found["offset"]))


def parse_moment(text: str, *, needs_zone: bool = False) -> EntryPosition | int:
    """Return a binlog position, or a time in ms. Raises ValueError.

    A time without a zone is local; with `needs_zone` it raises.
    """
    if text.isascii() and text.isdecimal():
        return moment_ms(text)  # its error is more specific
    try:
        moment_ms(text)
    except ValueError:
        with contextlib.suppress(ValueError):
            return parse_position(text)
        raise ValueError(
            f"expected a position such as binlog.000003:4711, or {WRITTEN_AS}"
        ) from None  # the cause names times only
    return moment_ms(text, needs_zone=needs_zone)


def moment_at(history: History, at: EntryPosition | int | None) -> Moment:
    """Return the tables at a position or time, by default at the end of the history.

    Raises TableMetaError when the history does not cover it.
    """
    tsdb = history.tsdb
    segments = tsdb.segments()
    if at is None:
        segment = segments[-1]
        position = segment.last
    elif isinstance(at, int):
        if not any((each.first.timestamp or 0) <= at for each in segments):
            raise _not_covered(history, time_text(at))
        segment, position = tsdb.position_at(at)
    else:
        segment, position = _segment_at(history, at), at
    return Moment(segment, position, tsdb.at(position, segment))


def _segment_at(history: History, at: EntryPosition) -> BinlogSegment:
    for segment in reversed(history.tsdb.segments()):
        same_name = base_name(segment.last.journal_name or "") == base_name(
            at.journal_name or ""
        )
        if same_name and segment.first.order() <= at.order() <= segment.last.order():
            return segment
    hint = ""
    last = history.tsdb.segments()[-1].last
    same_name = base_name(last.journal_name or "") == base_name(at.journal_name or "")
    if same_name and at.order() > last.order():
        hint = (
            "; events that a server has read after that end changed no table: leave the"
            " position out for the tables at the end"
        )
    raise _not_covered(history, str(at), hint)


def _not_covered(history: History, requested: str, hint: str = "") -> TableMetaError:
    covered = "; ".join(
        f"{_position_text(each.first)} to {_position_text(each.last)} of server "
        f"{each.source}"
        for each in history.tsdb.segments()
    )
    return TableMetaError(
        f"the table history of destination {history.config.destination} does not cover"
        f" {requested}; it covers {covered}{hint}"
    )


def _position_text(position: EntryPosition) -> str:
    when = time_text(position.timestamp)
    return f"{position} ({when})" if when else str(position)


# --- the choice of tables -------------------------------------------------------------


def chosen_tables(
    names: Iterable[Name], requested: list[str], *, option: str = "--table"
) -> list[Name]:
    """Return the names that match `requested`, in order; all if it is empty.

    Raises UnknownTable for an expression that matches no table, with similar names,
    and ConfigError for one that cannot be used; `option` is what it was given as.
    """
    known = sorted(names)
    if not requested:
        return known
    chosen: set[Name] = set()
    for expression in requested:
        # A plain name stands for itself, whatever it matches as an expression.
        found = {name for name in known if ".".join(name) == expression}
        if not found:
            accepts = _accepting(expression, option)
            found = {name for name in known if accepts((name,))}
        if not found:
            raise unknown_table(expression, known)
        chosen |= found
    return sorted(chosen)


def unknown_table(requested: str, known: Iterable[Name]) -> UnknownTable:
    """Return the error for an unknown table, with similar names."""
    names = {".".join(name).lower(): ".".join(name) for name in known}
    nearest = difflib.get_close_matches(requested.lower(), names, _NEAREST)
    text = f"unknown table {requested}"
    if nearest:
        text += f"; similar names: {', '.join(names[each] for each in nearest)}"
    elif "." not in requested:
        text += "; expected schema.table"
    return UnknownTable(text)


def _accepting(expression: str, option: str) -> TablePredicate:
    try:
        return TableFilter(expression, "").accepts
    except ValueError as error:
        raise ConfigError([f"{option} {expression}: {error}"]) from error
