"""`canal-server schema show`: print the tables at a position or time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from canal_server.cli.actions import add_destination_options
from canal_server.cli.schema.schema_options import (
    add_at_option,
    add_format_json,
    add_table_option,
    load_config,
)
from canal_server.tablemeta.history.history_moments import chosen_tables, moment_at
from canal_server.tablemeta.history.opened_history import opened_history
from canal_server.tablemeta.history.schema_views import (
    omitted_line,
    sql_lines,
    table_as_json,
    without_system,
)

if TYPE_CHECKING:
    import argparse

_FORMATS = ("sql", "json")


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
    requested = chosen_tables(moment.names(), args.table)
    left_out: list[str] = []
    if not (args.all or args.table):
        requested, left_out = without_system(requested)
    if args.format == "json":
        for name in requested:
            print(json.dumps(table_as_json(moment, name), ensure_ascii=False))
        return 0
    for line in sql_lines(moment, requested, config.destination, views=not args.table):
        print(line)
    if left_out:
        print(f"\n{omitted_line(left_out, '--all')}")
    return 0
