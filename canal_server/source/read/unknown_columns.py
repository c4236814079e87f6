"""The error of a table whose columns at a place in the binlog cannot be known."""

from __future__ import annotations

from typing import Final

from canal_server.errors import TableMetaError

# What helps wherever columns are not known.
LEAVE_OUT: Final = (
    "exclude the table with canal.instance.filter.black.regex, leave its rows out with"
    " canal.instance.filter.table.error = true"
)
FROM_NOW_ON: Final = (
    "binlog_row_metadata = FULL on the server lets it write what columns are from now"
    " on"
)


class UnknownColumnsError(TableMetaError):
    """Rows contradict what is known of their table; `problem` says where and how."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}. {remedy}")
        self.problem = problem


def unknown_columns(reason: str, at: str, *, has_columns: bool) -> UnknownColumnsError:
    """Return it, with what can be done; `has_columns`: there is such a table now."""
    # A table that we may not read looks as one that is gone.
    unless = "" if has_columns else ", or the account has no SELECT on it"
    return UnknownColumnsError(
        f"the columns that rows at {at} have are not known: {reason}",
        f"The table was altered or dropped after this position{unless}: begin after"
        f" that statement, {LEAVE_OUT}, or begin the table history with a dump of"
        f" before (canal-server schema import); {FROM_NOW_ON}",
    )
