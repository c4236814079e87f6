"""What a server leaves out of its binlog, so that nobody can receive it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from canal_server.errors import SourceRefused
from canal_server.filters.table_filters import TableFilter
from canal_server.model.quoted import quoted
from canal_server.mysql.binlogs import logged_schemas
from canal_server.mysql.standby import logs_what_it_replicates, replica_channels
from canal_server.source.check.visible_tables import MATCHES_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canal_server.config.schema import FilterConfig
    from canal_server.mysql.binlogs import LoggedSchemas
    from canal_server.mysql.control_connection import ControlConnection
    from canal_server.mysql.flavour import ServerInfo

SHOWN_MAX: Final = 5  # schemas
_REPLICATED: Final = (
    "the server is a replica that does not log what it replicates, so clients do not"
    " receive that: set log_replica_updates = ON (log_slave_updates) at the server and"
    " restart it, or read from its source"
)


def unlogged_changes(
    control: ControlConnection,
    info: ServerInfo,
    filters: FilterConfig,
    tables: Sequence[tuple[str, str]],
) -> list[str]:
    """Return the changes that clients do not get, for a person; empty: none.

    What the account may not see is not reported. Raises SourceError.
    """
    found = []
    with suppress(SourceRefused):  # of an account without REPLICATION CLIENT
        found.append(schema_warning(filters, tables, logged_schemas(control, info)))
    with suppress(SourceRefused):
        if replica_channels(control, info) and not logs_what_it_replicates(control):
            found.append(_REPLICATED)
    return [each for each in found if each]


def schema_warning(
    filters: FilterConfig, tables: Sequence[tuple[str, str]], logged: LoggedSchemas
) -> str:
    """Return which schemas that the filter matches are not logged; empty: none."""
    accepts = TableFilter(filters.regex, filters.black_regex).accepts
    schemas = sorted(
        {
            schema
            for schema, table in tables[:MATCHES_MAX]
            if schema not in logged and accepts(((schema, table),))
        }
    )
    if not schemas:
        return ""
    listed = ", ".join(map(quoted, schemas[:SHOWN_MAX]))
    more = len(schemas) - SHOWN_MAX
    if more > 0:
        listed += f" and {more} more"
    return (
        f"the server does not log {listed}, so clients do not receive their changes:"
        " correct binlog_do_db and binlog_ignore_db at the server and restart it, or"
        " leave them out by canal.instance.filter.regex"
    )
