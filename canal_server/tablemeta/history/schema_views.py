"""The tables at one moment of a history: as JSON values, as SQL, as an export."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from canal_server.model.moments import time_text
from canal_server.model.position_json import position_as_json
from canal_server.tablemeta.history.ddl_secrets import without_secrets
from canal_server.tablemeta.history.replay import stored_schemas
from canal_server.tablemeta.history.schema_document import Exported
from canal_server.tablemeta.model.table_schema import GENERATED, INVISIBLE, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from canal_server.model.positions import EntryPosition
    from canal_server.tablemeta.history.history_moments import Moment
    from canal_server.tablemeta.history.opened_history import History
    from canal_server.tablemeta.model.operations import Name
    from canal_server.tablemeta.model.table_schema import Table
    from canal_server.tablemeta.storage.history_storage import DdlRecord

# The schemas of the server itself, shown only on request.
_SYSTEM: Final = frozenset({"information_schema", "mysql", "performance_schema", "sys"})
_CONTROLS: Final = {
    code: f"\\x{code:02x}"
    for code in (*range(32), *range(127, 160))
    if code not in (9, 10)
}


def printable(text: str) -> str:
    """Return a text without control characters that affect a terminal."""
    return text.translate(_CONTROLS)


def without_system(names: Sequence[Name]) -> tuple[list[Name], list[str]]:
    """Return the tables that are not of the server itself, and the schemas left out."""
    left_out = {schema for schema, _ in names if schema.lower() in _SYSTEM}
    return [name for name in names if name[0] not in left_out], sorted(left_out)


def table_as_json(moment: Moment, name: Name) -> dict[str, Any]:
    """Return a table at a moment as JSON values; columns are null if unknown."""
    table = moment.image.find(*name)
    return {
        "schema": name[0],
        "table": name[1],
        "columns": None if table is None else table_columns(table),
        "primaryKey": None if table is None else list(table.primary),
        "charset": None if table is None else table.charset,
        "uncertain": moment.image.is_uncertain(*name),
        "server": moment.segment.source,
        **position_as_json(moment.position),
    }


def table_columns(table: Table) -> list[dict[str, Any]]:
    """Return the columns as JSON values.

    `key` is the position in the primary key, starting at 1; 0 for other columns.
    """
    keys = {name.lower(): number for number, name in enumerate(table.primary, 1)}
    return [
        {
            "name": each.name,
            "type": each.type,
            "nullable": each.nullable,
            "key": keys.get(each.key, 0),
            "charset": each.charset,
            "generated": GENERATED in each.flags,
            "invisible": INVISIBLE in each.flags,
        }
        for each in table.columns
    ]


def table_sql(moment: Moment, name: Name) -> str | None:
    """Return CREATE TABLE without passwords; None if the columns are unknown."""
    text = moment.image.text(*name)
    if text is None:
        return None
    return f"{printable(without_secrets(text)).rstrip().rstrip(';')};"


def sql_lines(
    moment: Moment, names: Sequence[Name], destination: str, *, views: bool
) -> Iterator[str]:
    """Yield tables as statements, and comments; `views`: also the names of these."""
    image = moment.image
    yield f"-- destination {destination}, server {moment.segment.source}"
    when = time_text(moment.position.timestamp)
    yield f"-- as of {moment.position}" + (f" ({when})" if when else "")
    last = None
    for schema, table in names:
        if schema != last:
            yield f"\nUSE {printable(quoted(schema))};"
            last = schema
            if views:
                yield from (
                    f"-- a view: {printable(quoted(view))}"
                    for view in sorted(image.views(schema))
                )
        yield ""
        if image.is_uncertain(schema, table):
            yield (
                f"-- uncertain: {printable(quoted(table))} may have had different"
                " columns"
            )
        yield table_sql(moment, (schema, table)) or (
            f"-- {printable(quoted(table))}: its columns are unknown"
        )


def omitted_line(schemas: Sequence[str], option: str) -> str:
    """Return which schemas are left out, and what shows them."""
    return f"-- omitted without {option}: {', '.join(schemas)}"


def exported_at(
    history: History, moment: Moment, *, has_secrets: bool = True
) -> Exported:
    """Return the tables at a moment for another history.

    Without `has_secrets`, passwords are left out of what CREATE TABLE says of other
    servers, which no column depends on.
    """
    position, statement = _beginning(history, moment)
    schemas = tuple(stored_schemas(moment.image))
    if not has_secrets:
        schemas = tuple(
            replace(
                each,
                tables=tuple(
                    (name, without_secrets(text)) for name, text in each.tables
                ),
            )
            for each in schemas
        )
        if statement is not None:
            statement = replace(statement, ddl=without_secrets(statement.ddl))
    segment = moment.segment
    return Exported(segment.source, segment.traits, position, schemas, statement)


def _beginning(
    history: History, moment: Moment
) -> tuple[EntryPosition, DdlRecord | None]:
    """Return the next position where reading can start, with the same tables.

    At the end of the history, that is the position after its last statement.
    """
    segment = moment.segment
    for record in history.storage.records(segment.id, start=moment.position):
        if record.is_answer:
            continue  # no event starts there
        # Its GTID is the one of the transaction that follows.
        return replace(record.position, gtid=None), None
    event = history.tsdb.end_event(segment)
    for record in history.storage.records(segment.id, start=event, stop=segment.last):
        return segment.last, record
    return segment.last, None
