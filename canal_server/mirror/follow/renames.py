"""Columns that are hidden, and may have come to be seen under another name.

Rules go by the names of columns. A statement that the stream brings tells which column
has another name (`evolve`); where a table is copied again, only names can be compared.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from canal_server.mirror.settings.mirror_settings import SHOW
from canal_server.mirror.settings.wanted_tables import HIDDEN_PREFIX, mask_of, selects

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from canal_server.mirror.settings.mirror_settings import TableRule
    from canal_server.mirror.settings.table_values import TableName
    from canal_server.mirror.state.state import TableState
    from canal_server.model.columns_known import ColumnMeta


def is_shown(rule: TableRule, column: str) -> bool:
    """Tell whether somebody says of a column that its values may be seen."""
    return column.lower() in {each.lower() for each in rule.shown}


def hidden_columns(columns: Iterable[ColumnMeta], rule: TableRule) -> tuple[str, ...]:
    """Return the names of those columns whose values the lake does not have."""
    return tuple(
        each.name
        for each in columns
        if not each.name.startswith(HIDDEN_PREFIX) and _is_hidden(rule, each.name)
    )


def with_columns(
    state: TableState,
    columns: tuple[ColumnMeta, ...],
    kept: tuple[str, ...],
    rule: TableRule,
) -> TableState:
    """Return a table that has other columns, or the same."""
    hidden = hidden_columns(columns, rule)
    return replace(state, columns=columns, kept=kept, hidden=hidden)


def what_is_revealed(
    state: TableState, after: Sequence[ColumnMeta], rule: TableRule
) -> str:
    """Tell what a new copy may show that was hidden so far; "" for nothing.

    That is a column which is new, where a hidden one is gone: it may be the same one.
    Hidden is also what a rule of before has hidden. Columns that the rule names are
    known to somebody.
    """
    before = {each.name.lower() for each in state.columns}
    now = {each.name.lower() for each in after}
    hidden = (*state.hidden, *hidden_columns(state.columns, rule))
    gone = [name for name in dict.fromkeys(hidden) if name.lower() not in now]
    named = {each.lower() for each in (*rule.columns, *rule.shown)}
    came = [
        each.name
        for each in after
        if each.name.lower() not in before | named
        and not each.name.startswith(HIDDEN_PREFIX)
        and not _is_hidden(rule, each.name)
    ]
    if not (gone and came):
        return ""
    return (
        f"since it was copied, {_listed(gone)} (masked or left out) went and "
        f"{_listed(came)} (neither) came, which may be the same under another name: "
        f"put {_listed(came)} under masks or without, or under masks as "
        f"`{SHOW}` what may be seen"
    )


def hidden_in_another(
    name: TableName,
    columns: Sequence[ColumnMeta],
    rule: TableRule,
    known: Iterable[TableState],
) -> dict[TableName, str]:
    """Tell what a table shows that another one hid, which it may have been.

    That has the same columns, by their names. Where it is still there, it is another.
    """
    names = {each.name.lower() for each in columns}
    hidden = {each.lower() for each in hidden_columns(columns, rule)}
    hidden |= {each.lower() for each in (*rule.columns, *rule.shown)}
    found = {}
    for other in known:
        seen = [each for each in other.hidden if each.lower() not in hidden]
        if not seen or other.source == name or len(other.columns) != len(columns):
            continue
        if names == {each.name.lower() for each in other.columns}:
            found[other.source] = (
                f"it has the columns of {other.source}, which is gone, and shows "
                f"{_listed(seen)}, masked or left out there: put {_listed(seen)} under "
                f"masks or without, or under masks as `{SHOW}` what may be seen"
            )
    return found


def _is_hidden(rule: TableRule, column: str) -> bool:
    return not selects(rule, column) or mask_of(rule, column) is not None


def _listed(names: Sequence[str]) -> str:
    *others, one = names
    text = f"{', '.join(others)} and {one}" if others else one
    return f"column{'s' if others else ''} {text}"
