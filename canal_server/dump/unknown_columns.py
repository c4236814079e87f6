"""The error of a table whose columns at a place in the binlog cannot be known."""

from __future__ import annotations

from canal_server.errors import TableMetaError


def unknown_columns(reason: str, at: str, *, has_columns: bool) -> TableMetaError:
    """Return it, with what can be done; `has_columns`: there is such a table now."""
    # A table that we may not read looks as one that is gone.
    unless = "" if has_columns else ", unless our account has no SELECT on it"
    return TableMetaError(
        f"{reason}; at {at}. The table was altered or dropped behind this "
        f"place in the binlog{unless}: begin behind that statement, exclude the "
        "table with canal.instance.filter.black.regex, leave its rows out with "
        "canal.instance.filter.table.error = true, or begin the table history with "
        "a dump of before (canal-server schema import); binlog_row_metadata = FULL "
        "on the server lets it write what columns are from now on"
    )
