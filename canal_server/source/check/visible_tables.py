"""The tables that an account sees, and what clients do not get of them.

An account sees the tables on which it has any right, such as SELECT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal_server.filters.table_filters import (
    TableFilter,
    compile_expression,
    split_expression,
)
from canal_server.model.quoted import quoted
from canal_server.mysql.server_answers import reads_answers
from canal_server.mysql.server_errors import account_text
from canal_server.mysql.silent_foreign_keys import hidden_foreign_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from canal_server.config.schema import FilterConfig
    from canal_server.mysql.control_connection import ControlConnection
    from canal_server.mysql.silent_foreign_keys import ForeignKey

# Comparisons of one check of the tables; each takes some microseconds.
MATCHES_MAX: Final = 50_000
OPENED_MAX: Final = 1_000  # tables, when a destination starts
KEYS_SHOWN_MAX: Final = 5

# Nothing in the schemas that are left out is in the binlog.
_TABLES: Final = (
    "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES"
    " WHERE TABLE_TYPE NOT LIKE '%VIEW' AND TABLE_SCHEMA NOT IN"
    " ('information_schema', 'performance_schema', 'sys')"
)


@reads_answers("its tables")
def visible_tables(control: ControlConnection) -> list[tuple[str, str]]:
    """Return the tables that the account sees. Raises SourceError."""
    return [(str(schema), str(table)) for schema, table in control.query(_TABLES)]


def hidden_keys(
    control: ControlConnection, tables: Sequence[tuple[str, str]]
) -> list[ForeignKey]:
    """Return foreign keys whose changes are in no event, unless that takes too long.

    MariaDB opens each table for it.
    """
    if len(tables) > OPENED_MAX and control.is_mariadb:
        return []
    schemas = {schema for schema, _ in tables} - {"mysql"}
    return hidden_foreign_keys(control, schemas)


def key_warning(filters: FilterConfig, keys: Sequence[ForeignKey]) -> str:
    """Return the changes that clients do not get, for a person; empty: none."""
    table_filter = TableFilter(filters.regex, filters.black_regex).accepts
    found = [key for key in keys if table_filter((key.child,))]
    if not found:
        return ""
    listed = "; ".join(
        f"{'.'.join(key.child)}: {key}" for key in found[:KEYS_SHOWN_MAX]
    )
    more = len(found) - KEYS_SHOWN_MAX
    if more > 0:
        listed += f"; and {more} more"
    return (
        "rows that foreign keys delete or change are not in this server's binlog, so"
        f" clients do not receive them: {listed}"
    )


def table_warning(
    filters: FilterConfig,
    tables: Sequence[tuple[str, str]],
    account_of: tuple[str, str],
    address: str,
) -> str:
    """Return what is wrong with the tables that an account sees; empty: nothing.

    It sees the tables on which it has any right, such as SELECT.
    """
    who, account = f"account {account_of[0]} at {address}", account_text(*account_of)
    if not tables:
        return (
            f"{who} sees no table, so columns cannot be read: have an administrator"
            f" run: GRANT SELECT ON *.* TO {account}"
        )
    missing = ", ".join(map(quoted, _unmatched(filters.regex, tables)))
    if missing:
        return (
            f"canal.instance.filter.regex: no table that {who} sees matches {missing}:"
            " correct it, leave it if the tables do not exist yet, or have an"
            f" administrator run: GRANT SELECT ON *.* TO {account}"
        )
    table_filter = TableFilter(filters.regex, filters.black_regex).accepts
    if filters.black_regex and not any(
        table_filter(((schema, table),)) for schema, table in tables[:MATCHES_MAX]
    ):
        return (
            "canal.instance.filter.black.regex excludes all tables that"
            f" {who} sees: {quoted(filters.black_regex)}"
        )
    return ""


def _unmatched(expression: str, tables: Iterable[tuple[str, str]]) -> list[str]:
    """Return the pieces that match no table; none if finding out takes too long."""
    left = {piece: compile_expression(piece) for piece in split_expression(expression)}
    tries = 0
    for schema, table in tables:
        tries += len(left)
        if not left or tries > MATCHES_MAX:
            return []
        name = f"{schema}.{table}"
        for piece in [piece for piece, matches in left.items() if matches(name)]:
            del left[piece]
    return list(left)
