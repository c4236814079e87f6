"""`canal-server schema history`: who changed a table, when, and how."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any, Final

from canal_server.cli.actions import add_destination_options
from canal_server.cli.schema.schema_options import (
    add_format_json,
    load_config,
    time_ms,
)
from canal_server.errors import ConfigError
from canal_server.model.moments import time_text
from canal_server.tablemeta.history.ddl_secrets import without_secrets
from canal_server.tablemeta.history.history_moments import unknown_table
from canal_server.tablemeta.history.opened_history import opened_history
from canal_server.tablemeta.history.schema_views import printable
from canal_server.tablemeta.history.table_change_view import change_as_json
from canal_server.tablemeta.history.table_log import Changelog, since

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from canal_server.tablemeta.history.opened_history import History
    from canal_server.tablemeta.history.table_log import TableChange
    from canal_server.tablemeta.model.operations import Name

_FORMATS: Final = ("text", "json")
_TEXT_CHARS_MAX: Final = 300
_JSON_CHARS_MAX: Final = 100_000


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this action."""
    parser = subparsers.add_parser(
        "history",
        help="print who changed a table, when, and how",
        description="Print each statement that changed a table: its time and binlog "
        "position, its session, its text, and how it changed the columns.",
    )
    add_destination_options(parser, "destination whose history to read")
    add = parser.add_argument
    add("--table", metavar="SCHEMA.TABLE", required=True, help="the table")
    add("--since", metavar="TIME", type=time_ms, help="only changes since this time: "
        "2026-11-21T10:00:00, -1h, or milliseconds since 1970")  # fmt: skip
    add("--format", choices=_FORMATS, default="text", help="text, or one JSON object "
        "per line (default: %(default)s)")  # fmt: skip
    add_format_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the changes. Raises TableMetaError."""
    schema, dot, table = args.table.partition(".")
    if not dot or not schema or not table:
        raise ConfigError([f"--table {args.table}: expected schema.table"])
    _, config = load_config(args)
    with opened_history(config) as history:
        changes = Changelog(history.storage).of_table(schema, table)
        if not changes:
            raise unknown_table(args.table, _known(history))
    if args.since is not None:
        changes = since(changes, args.since)
        if not changes:
            when = time_text(args.since)
            print(
                f"canal-server schema history: nothing changed {args.table} since"
                f" {when}",
                file=sys.stderr,
            )
    for change in changes:
        if args.format == "json":
            print(json.dumps(change_as_json(change), ensure_ascii=False))
        else:
            print("\n".join(_lines(change)), end="\n\n")
    return 0


def _known(history: History) -> Iterator[Name]:
    for segment in history.tsdb.segments():
        image = history.tsdb.at(segment.last, segment)
        for schema in image.schemas():
            for table in image.tables(schema):
                yield schema, table


def _lines(change: TableChange) -> Iterator[str]:
    """Return a change as lines of text."""
    record = change.record
    yield printable("  ".join(filter(None, _head(change))))
    if record is not None:
        yield f"    {printable(_shortened(record.ddl))}"
    for each in change.found:
        yield f"  {printable(str(each))}"
    if not change.found:
        yield "  (columns and keys unchanged)"
    if change.is_contained:
        yield "  (already contained in definitions read from the server later)"
    if change.is_uncertain:
        yield "  (columns may differ from here on)"


def _head(change: TableChange) -> Iterator[str]:
    """Return the time, the position and the session of a change."""
    yield time_text(change.position.timestamp)
    yield str(change.position)
    record = change.record
    if record is None:
        yield f"read tables of server {change.segment.source}"
    elif record.is_answer:
        yield "read from the server"
    else:
        yield record.schema and f"in {record.schema}"
        yield f"thread {record.context.thread_id}" if record.context.thread_id else ""
        yield f"GTID {change.position.gtid}" if change.position.gtid else ""


def _shortened(text: str) -> str:
    """Return a statement on one line, without passwords, and shortened."""
    line = re.sub(r"\s+", " ", without_secrets(text)).strip()
    if len(line) <= _TEXT_CHARS_MAX:
        return line
    return f"{line[:_TEXT_CHARS_MAX]}… ({len(line)} characters)"
