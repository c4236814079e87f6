"""The error of a table whose columns at a place in the binlog cannot be known."""

from __future__ import annotations

from canal_server.errors import TableMetaError


def unknown_columns(reason: str, at: str, *, has_columns: bool) -> TableMetaError:
    """Return it, with what can be done; `has_columns`: there is such a table now."""
    # A table that we may not read looks as one that is gone.
    unless = "" if has_columns else ", or the account has no SELECT on it"
    return TableMetaError(
        f"the columns that rows at {at} have are not known: {reason}. The table was "
        f"altered or dropped after this position{unless}: begin after that statement, "
        "exclude the "
        "table with canal.instance.filter.black.regex, leave its rows out with "
        "canal.instance.filter.table.error = true, or begin the table history with "
        "a dump of before (canal-server schema import); binlog_row_metadata = FULL "
        "on the server lets it write what columns are from now on"
    )
