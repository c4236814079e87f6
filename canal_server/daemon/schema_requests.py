"""Requests of an operator to a running server about table histories.

They are read next to the destination, which may run or not. Leaves out the commands,
which do the same without a server (`canal_server.cli.schema`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from canal_server.cursor_moves.source_cursors import access_for, parts_of
from canal_server.errors import CanalError, ConfigError
from canal_server.model.cursors import DestinationCursors
from canal_server.model.position_json import position_as_json
from canal_server.runtime.log_context import log_about
from canal_server.source.schema.schema_check import end_of, verify
from canal_server.tablemeta.history.history_moments import (
    chosen_tables,
    moment_at,
    unknown_table,
)
from canal_server.tablemeta.history.opened_history import opened_history
from canal_server.tablemeta.history.schema_document import to_document
from canal_server.tablemeta.history.schema_views import (
    exported_at,
    omitted_line,
    sql_lines,
    table_as_json,
    table_sql,
    without_system,
)
from canal_server.tablemeta.history.table_change_view import changes_of, tables_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canal_server.config.schema import InstanceConfig
    from canal_server.cursor_moves.source_cursors import Part
    from canal_server.daemon.destinations import Destinations
    from canal_server.model.positions import EntryPosition
    from canal_server.runtime.lifecycle import Stop
    from canal_server.tablemeta.history.history_moments import Moment
    from canal_server.tablemeta.model.operations import Name

_TABLE: Final = "table"  # the name of the parameter, in errors


class SchemaRequests:
    """Answers what the HTTP port asks about table histories.

    `at` is a position, a time in ms, or None: the end of the history. `source` is the
    name or address of a source of a group; None: the only one. All methods raise
    CanalError.
    """

    def __init__(self, destinations: Destinations) -> None:
        self._destinations = destinations

    def tables(self, destination: str) -> list[str]:
        """Return the tables at the end, as schema.table; of a group those of all."""
        return tables_of(self._with_history(destination))

    def table_changes(
        self,
        destination: str,
        table: str,
        *,
        source: str | None = None,
        since_ms: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return the changes of a table, `schema.table`; of a group those of all."""
        config = self._with_history(destination)
        if source is not None:
            config = self._part(config, source).config
        schema, _, name = table.partition(".")
        return changes_of(config, schema, name, since_ms)

    def table(
        self,
        destination: str,
        table: str,
        *,
        at: EntryPosition | int | None,
        source: str | None,
    ) -> dict[str, Any]:
        """Return one table at a moment, with its statement."""
        _, moment = self._moment(destination, at, source)
        names = moment.names()
        for name in names:
            if ".".join(name) == table:
                return _shown(moment, name)
        raise unknown_table(table, names)

    def show(
        self,
        destination: str,
        *,
        at: EntryPosition | int | None,
        source: str | None,
        tables: Sequence[str],
        all_: bool,
        offset: int,
        limit: int,
    ) -> dict[str, Any]:
        """Return some tables at a moment; `next` is the offset of those that follow."""
        _, moment = self._moment(destination, at, source)
        names, omitted = _chosen(moment, tables, all_=all_)
        end = offset + limit
        return {
            "server": moment.segment.source,
            **position_as_json(moment.position),
            "count": len(names),
            "tables": [_shown(moment, each) for each in names[offset:end]],
            "next": end if end < len(names) else None,
            "omitted": omitted,
        }

    def show_sql(
        self,
        destination: str,
        *,
        at: EntryPosition | int | None,
        source: str | None,
        tables: Sequence[str],
        all_: bool,
    ) -> str:
        """Return the same tables as statements, all of them."""
        name, moment = self._moment(destination, at, source)
        names, omitted = _chosen(moment, tables, all_=all_)
        lines = list(sql_lines(moment, names, name, views=not tables))
        if omitted:
            lines += ["", omitted_line(omitted, "all=true")]
        return "\n".join(lines) + "\n"

    def export(
        self, destination: str, *, at: EntryPosition | int | None, source: str | None
    ) -> str:
        """Return the tables at a moment as a document, without passwords."""
        config = self._part(self._with_history(destination), source).config
        with opened_history(config) as history:
            exported = exported_at(history, moment_at(history, at), has_secrets=False)
        return to_document(exported)

    def verify(
        self, destination: str, *, tables: Sequence[str], source: str | None, stop: Stop
    ) -> dict[str, Any]:
        """Compare the end of the history with the source, which is asked now."""
        log_about(destination)
        part = self._part(self._with_history(destination), source)
        with opened_history(part.config) as history:
            end = end_of(history)
        found = verify(
            part.config,
            access_for(part.config, part.cursors),
            end,
            lambda names: chosen_tables(names, list(tables), option="tables"),
            stop,
        )
        return {"equal": found.is_equal, **found.as_json(end.segment)}

    def _moment(
        self, destination: str, at: EntryPosition | int | None, source: str | None
    ) -> tuple[str, Moment]:
        """Return the name of a source, and its tables at a moment."""
        config = self._part(self._with_history(destination), source).config
        with opened_history(config) as history:
            return config.destination, moment_at(history, at)

    def _part(self, config: InstanceConfig, source: str | None) -> Part:
        """Return one source of a destination. Raises ConfigError."""
        cursors = self._destinations.cursors(config.destination)
        parts = parts_of(config, cursors or DestinationCursors(()))
        if source is None and len(parts) == 1:
            return parts[0]
        for part in parts:
            if source is not None and source in (part.name, *part.addresses):
                return part
        names = ", ".join(part.name or part.addresses[0] for part in parts)
        shown = "is missing" if source is None else f"{source[:100]!r} is unknown"
        raise ConfigError(
            [f"source {shown}: destination {config.destination} reads {names}"]
        )

    def _with_history(self, destination: str) -> InstanceConfig:
        """Return the settings of a destination that keeps a table history."""
        config = self._destinations.require(destination)
        if not config.table_meta.enable:
            raise CanalError(
                f"destination {destination} keeps no table history:"
                " canal.instance.tsdb.enable is false"
            )
        return config


def _chosen(
    moment: Moment, tables: Sequence[str], *, all_: bool
) -> tuple[list[Name], list[str]]:
    """Return the tables to show, and the schemas that are left out."""
    names = chosen_tables(moment.names(), list(tables), option=_TABLE)
    if all_ or tables:
        return names, []
    return without_system(names)


def _shown(moment: Moment, name: Name) -> dict[str, Any]:
    return {**table_as_json(moment, name), "sql": table_sql(moment, name)}
