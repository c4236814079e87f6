"""`canal-server schema show`: print the tables at a position or time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from canal_server.cli.actions import add_destination_options
from canal_server.cli.schema.schema_options import (
    Moment,
    add_at_option,
    add_format_json,
    add_table_option,
    chosen_tables,
    load_config,
    moment_at,
    printable,
)
from canal_server.model.moments import time_text
from canal_server.model.position_json import position_as_json
from canal_server.tablemeta.history.ddl_secrets import without_secrets
from canal_server.tablemeta.history.opened_history import opened_history
from canal_server.tablemeta.model.table_schema import GENERATED, INVISIBLE, quoted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from canal_server.tablemeta.model.operations import Name
    from canal_server.tablemeta.model.table_schema import Table

_FORMATS = ("sql", "json")
# The schemas of the server itself, shown only on request.
_SYSTEM: Final = frozenset({"information_schema", "mysql", "performance_schema", "sys"})


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this action."""
    parser = subparsers.add_parser(
        "show",
        help="print the tables at a position or time",
        description="Print the table definitions at a position in the binlog or at a "
        "time.",
    )
    add_destination_options(parser, "destination whose history to read")
    add_at_option(parser)
    add_table_option(parser)
    parser.add_argument(
        "--all",
        action="store_true",
        help="include tables of the server itself, such as mysql.user, which are"
        " otherwise shown only if --table selects them",
    )
    parser.add_argument(
        "--format",
        choices=_FORMATS,
        default="sql",
        help="CREATE TABLE statements, or one JSON object per line (default: "
        "%(default)s)",
    )
    add_format_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the tables. Raises TableMetaError."""
    _, config = load_config(args)
    with opened_history(config) as history:
        moment = moment_at(history, args.at)
    image = moment.image
    names = [
        (schema, table)
        for schema in image.schemas()
        for table in {*image.tables(schema), *image.uncertain(schema)}
    ]
    requested = chosen_tables(names, args.table)
    left_out: set[str] = set()
    if not (args.all or args.table):
        left_out = {schema for schema, _ in requested if schema.lower() in _SYSTEM}
        requested = [name for name in requested if name[0] not in left_out]
    if args.format == "json":
        lines = _json_lines(moment, requested)
    else:
        lines = _sql_lines(moment, requested, config.destination, all_=not args.table)
    for line in lines:
        print(line)
    if left_out and args.format != "json":
        print(f"\n-- omitted without --all: {', '.join(sorted(left_out))}")
    return 0


def _sql_lines(
    moment: Moment, names: list[Name], destination: str, *, all_: bool
) -> Iterator[str]:
    image = moment.image
    yield f"-- destination {destination}, server {moment.segment.source}"
    when = time_text(moment.position.timestamp)
    yield f"-- as of {moment.position}" + (f" ({when})" if when else "")
    last = None
    for schema, table in names:
        if schema != last:
            yield f"\nUSE {printable(quoted(schema))};"
            last = schema
            if all_:
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
        text = image.text(schema, table)
        if text is None:
            yield f"-- {printable(quoted(table))}: its columns are unknown"
        else:
            yield f"{printable(without_secrets(text)).rstrip().rstrip(';')};"


def _json_lines(moment: Moment, names: list[Name]) -> Iterator[str]:
    for schema, name in names:
        table = moment.image.find(schema, name)
        shown = {
            "schema": schema,
            "table": name,
            "columns": None if table is None else table_columns(table),
            "primaryKey": None if table is None else list(table.primary),
            "charset": None if table is None else table.charset,
            "uncertain": moment.image.is_uncertain(schema, name),
            "server": moment.segment.source,
            **position_as_json(moment.position),
        }
        yield json.dumps(shown, ensure_ascii=False)


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
