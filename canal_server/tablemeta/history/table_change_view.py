"""Who changed a table, when, and how: as values, read while a server writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from canal_server.errors import UnknownTable
from canal_server.model.position_json import position_as_json
from canal_server.tablemeta.history.ddl_secrets import without_secrets
from canal_server.tablemeta.history.opened_history import opened_history
from canal_server.tablemeta.history.table_log import Changelog, since

if TYPE_CHECKING:
    from canal_server.config.schema import InstanceConfig
    from canal_server.tablemeta.history.table_log import TableChange

_JSON_CHARS_MAX: Final = 100_000


def tables_of(config: InstanceConfig) -> list[str]:
    """Return the tables at the end of a destination's history, as schema.table.

    Of a group, those of all its sources. Raises TableMetaStoreError, and TableMetaError
    if a history is empty.
    """
    found: set[str] = set()
    for source in config.by_source:
        with opened_history(source) as history:
            segment = history.tsdb.segments()[-1]
            image = history.tsdb.at(segment.last, segment)
            found |= {
                f"{schema}.{table}"
                for schema in image.schemas()
                for table in image.tables(schema)
            }
    return sorted(found)


def changes_of(
    config: InstanceConfig, schema: str, table: str, since_ms: int | None = None
) -> list[dict[str, Any]]:
    """Return the changes of a table as JSON values, oldest first, since a time.

    Of a group, source by source. Raises TableMetaStoreError, and UnknownTable.
    """
    found: list[TableChange] = []
    for source in config.by_source:
        with opened_history(source) as history:
            found += Changelog(history.storage).of_table(schema, table)
    if not found:
        raise UnknownTable(
            f"unknown table {schema}.{table}: it is not in the table history of"
            f" destination {config.destination}"
        )
    if since_ms is not None:
        found = since(found, since_ms)
    return [change_as_json(each) for each in found]


def change_as_json(change: TableChange) -> dict[str, Any]:
    """Return a change as JSON values, without passwords."""
    record = change.record
    shown: dict[str, Any] = {
        **position_as_json(change.position),
        "server": change.segment.source,
        "schema": change.name[0],
        "table": change.name[1],
        "differences": [each.as_json() for each in change.found],
        "lines": [str(each) for each in change.found],
        "uncertain": change.is_uncertain,
    }
    if record is not None:
        shown |= {
            "sql": without_secrets(record.ddl)[:_JSON_CHARS_MAX],
            "sqlCharacters": len(record.ddl),
            "defaultSchema": record.schema,
            "threadId": record.context.thread_id,
            "contained": change.is_contained,
            "answer": record.is_answer,
        }
    return shown
