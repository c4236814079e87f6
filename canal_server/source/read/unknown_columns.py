"""The error for a table whose columns at a binlog position cannot be known."""

from __future__ import annotations

from typing import Final

from canal_server.errors import TableMetaError

# What helps in every case of unknown columns.
LEAVE_OUT: Final = (
    "exclude the table with canal.instance.filter.black.regex, or leave out its rows"
    " with canal.instance.filter.table.error = true"
)
FROM_NOW_ON: Final = (
    "with binlog_row_metadata = FULL the server writes the columns into the binlog from"
    " now on"
)


class UnknownColumnsError(TableMetaError):
    """Rows contradict the columns of their table; `problem` says where and how."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}. {remedy}")
        self.problem = problem


def unknown_columns(reason: str, at: str, *, has_columns: bool) -> UnknownColumnsError:
    """Return the error and its remedy; `has_columns`: the table exists now."""
    # A table without SELECT privilege looks like a dropped one.
    unless = "" if has_columns else ", or the account lacks SELECT on it"
    return UnknownColumnsError(
        f"the columns of the rows at {at} are not known: {reason}",
        f"The table was altered or dropped after this position{unless}: start after"
        f" that statement, {LEAVE_OUT}, or start the table history from an older dump"
        f" (canal-server schema import); {FROM_NOW_ON}",
    )
