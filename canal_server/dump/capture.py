"""Whether a source lets itself be captured: its settings, and what the account sees.

Settings that make capture impossible are an error; the rest is worth a warning. Leaves
out the place to begin at.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from canal_server.errors import ConnectionLost, SourceError
from canal_server.model.quoted import quoted
from canal_server.mysql.failures import answer_about
from canal_server.mysql.flavour import (
    capture_warnings,
    check_capture,
    read_server_info,
)
from canal_server.mysql.foreign_keys import hidden_foreign_keys
from canal_server.sink.filters import TableFilter, compile_expression, split_expression

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from canal_server.config.schema import FilterConfig, SourceConfig
    from canal_server.dump.failures import Failures
    from canal_server.mysql.connection import ControlConnection
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.mysql.foreign_keys import ForeignKey

_log = logging.getLogger(__name__)

# Of one look at the tables; each takes some microseconds.
MATCHES_MAX: Final = 50_000
OPENED_MAX: Final = 1_000  # tables, when a destination starts
KEYS_TOLD_MAX: Final = 5

# Nothing in the schemas that are left out is in the binlog.
_TABLES: Final = (
    "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES"
    " WHERE TABLE_TYPE NOT LIKE '%VIEW' AND TABLE_SCHEMA NOT IN"
    " ('information_schema', 'performance_schema', 'sys')"
)


class CaptureChecks:
    """The checks of one destination's sources; for the pump's thread."""

    def __init__(self, source: SourceConfig, tables: FilterConfig) -> None:
        self._source = source
        self._tables = tables
        self._looked_at: set[str] = set()  # addresses whose tables were looked at

    def examine(self, control: ControlConnection, failures: Failures) -> ServerInfo:
        """Return the server's settings; warns of what an operator should know.

        Raises SourceRefused when capture is impossible, SourceError for the rest.
        """
        info = read_server_info(control)
        check_capture(
            info,
            address=control.access.address,
            formats=self._source.binlog_formats,
            images=self._source.binlog_images,
        )
        for line in (*capture_warnings(info), *self._table_warnings(control)):
            if line:
                failures.warn(line)
        return info

    def _table_warnings(self, control: ControlConnection) -> tuple[str, ...]:
        """Return what is odd about the tables, once for each server."""
        address = str(control.access.address)
        if address in self._looked_at:
            return ()
        self._looked_at.add(address)
        user = control.access.credentials.user
        try:
            rows = control.query(_TABLES)
            with answer_about("its tables", address):
                tables = [(str(schema), str(table)) for schema, table in rows]
            keys = _hidden_keys(control, tables)
        except ConnectionLost:
            raise
        except SourceError as error:
            _log.debug("could not look at the tables of %s: %s", address, error)
            return ()
        return (
            table_warning(self._tables, tables, f"account {user} at {address}"),
            key_warning(self._tables, keys),
        )


def _hidden_keys(
    control: ControlConnection, tables: Sequence[tuple[str, str]]
) -> list[ForeignKey]:
    """Return foreign keys whose changes are in no event, unless that takes too long.

    MariaDB opens each table to tell.
    """
    if len(tables) > OPENED_MAX and control.is_mariadb:
        return []
    schemas = {schema for schema, _ in tables} - {"mysql"}
    return hidden_foreign_keys(control, schemas)


def key_warning(filters: FilterConfig, keys: Sequence[ForeignKey]) -> str:
    """Return what clients do not see of tables that they may get; empty for nothing."""
    accepts = TableFilter(filters.regex, filters.black_regex).accepts
    found = [key for key in keys if accepts((key.child,))]
    if not found:
        return ""
    told = "; ".join(f"{'.'.join(key.child)}: {key}" for key in found[:KEYS_TOLD_MAX])
    more = len(found) - KEYS_TOLD_MAX
    if more > 0:
        told += f"; and {more} more"
    return (
        "rows that foreign keys delete or change are in no event of this server's "
        f"binlog, so no client gets them: {told}"
    )


def table_warning(
    filters: FilterConfig, tables: Sequence[tuple[str, str]], who: str
) -> str:
    """Return what is odd about the tables that an account sees; empty if nothing is.

    It sees those on which it has a right: SELECT, where nobody gave it others.
    """
    if not tables:
        return (
            f"{who} sees no table, so columns cannot be read: let an administrator"
            " run GRANT SELECT ON *.* for it, or on the schemas that are captured"
        )
    missing = ", ".join(map(quoted, _unmatched(filters.regex, tables)))
    if missing:
        return (
            f"canal.instance.filter.regex: no table that {who} sees matches {missing}:"
            " correct it, grant SELECT on the tables, or leave it if they are yet to"
            " be created"
        )
    accepts = TableFilter(filters.regex, filters.black_regex).accepts
    if filters.black_regex and not any(
        accepts(((schema, table),)) for schema, table in tables[:MATCHES_MAX]
    ):
        return (
            "canal.instance.filter.black.regex leaves none of the tables that"
            f" {who} sees: {quoted(filters.black_regex)}"
        )
    return ""


def _unmatched(expression: str, tables: Iterable[tuple[str, str]]) -> list[str]:
    """Return the pieces that match no table; none when that takes too long to know."""
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
