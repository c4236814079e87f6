"""Hidden columns that may have become visible under another name.

Rules go by column names. A statement of the stream shows which column has another name
(`evolve`); when a table is copied again, only names can be compared.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from canal_server.mirror.settings.mirror_settings import SHOW
from canal_server.mirror.settings.selected_tables import HIDDEN_PREFIX, mask_of, selects

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from canal_server.mirror.settings.mirror_settings import TableRule
    from canal_server.mirror.settings.table_values import TableName
    from canal_server.mirror.state.state import TableState
    from canal_server.mirror.state.table_shape import Columns
    from canal_server.model.columns_known import ColumnMeta


def is_shown(rule: TableRule, column: str) -> bool:
    """Check whether the settings allow a column's values to be seen."""
    return column.lower() in {each.lower() for each in rule.shown}


def hidden_columns(columns: Iterable[ColumnMeta], rule: TableRule) -> tuple[str, ...]:
    """Return the names of the columns whose values the lake does not have."""
    return tuple(
        each.name
        for each in columns
        if not each.name.startswith(HIDDEN_PREFIX) and _is_hidden(rule, each.name)
    )


def with_columns(
    state: TableState,
    known: Columns,
    rule: TableRule,
) -> TableState:
    """Return the state of a table with other columns."""
    return replace(
        state,
        columns=known.all,
        kept=known.kept,
        hidden=hidden_columns(known.all, rule),
        partitions=known.partitions,
    )


def what_is_revealed(
    state: TableState, after: Sequence[ColumnMeta], rule: TableRule
) -> str:
    """Return what a new copy may reveal that was hidden so far; "" for nothing.

    It is a new column, if a hidden one has disappeared: it may be the same column. What
    an earlier rule has hidden counts as hidden. Columns that the rule names are known
    to the user.
    """
    before = {each.name.lower() for each in state.columns}
    now = {each.name.lower() for each in after}
    hidden = (*state.hidden, *hidden_columns(state.columns, rule))
    missing = [name for name in dict.fromkeys(hidden) if name.lower() not in now]
    named = {each.lower() for each in (*rule.columns, *rule.shown)}
    appeared = [
        each.name
        for each in after
        if each.name.lower() not in before | named
        and not each.name.startswith(HIDDEN_PREFIX)
        and not _is_hidden(rule, each.name)
    ]
    if not (missing and appeared):
        return ""
    return (
        f"since the table was copied, {_listed(missing)} (masked or left out) "
        f"disappeared and {_listed(appeared)} (neither) appeared, which may be the "
        f"same under another name: add {_listed(appeared)} to masks or without; "
        f"`{SHOW}` under masks allows its values to be seen"
    )


def hidden_in_another(
    name: TableName,
    columns: Sequence[ColumnMeta],
    rule: TableRule,
    known: Iterable[TableState],
) -> dict[TableName, str]:
    """Return what a table reveals that another one hid, of which it may be a rename.

    Such a table has the same columns, by their names. If the other table still exists,
    it is not a rename.
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
                f"it has the columns of {other.source}, which was dropped, and shows "
                f"{_listed(seen)}, masked or left out there: add {_listed(seen)} to "
                f"masks or without; `{SHOW}` under masks allows its values to be seen"
            )
    return found


def _is_hidden(rule: TableRule, column: str) -> bool:
    return not selects(rule, column) or mask_of(rule, column) is not None


def _listed(names: Sequence[str]) -> str:
    *others, one = names
    text = f"{', '.join(others)} and {one}" if others else one
    return f"column{'s' if others else ''} {text}"
