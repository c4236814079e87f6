"""`canal-server schema verify`: compare the table history with the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from canal_server.capture.source_parts import access_of, standby_access_of
from canal_server.cli.actions import (
    add_destination_options,
    add_json_option,
    print_json,
)
from canal_server.cli.position.position_found import find_cursors
from canal_server.cli.schema.schema_options import (
    add_table_option,
    load_config,
)
from canal_server.cursor_moves.source_cursors import access_for, parts_of
from canal_server.source.schema.schema_check import end_of, verify
from canal_server.tablemeta.history.history_moments import chosen_tables
from canal_server.tablemeta.history.opened_history import opened_history
from canal_server.tablemeta.history.schema_views import printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from canal_server.config.schema import DaemonConfig, InstanceConfig
    from canal_server.mysql.source_settings import Access
    from canal_server.source.schema.schema_check import Differing, Verified
    from canal_server.tablemeta.storage.history_storage import BinlogSegment

DIFFERENT = 1


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this action."""
    parser = subparsers.add_parser(
        "verify",
        help="compare the history with the tables of the server",
        description="Compare the tables at the end of the history with those of the "
        "server that is read, which may be the standby. Later statements in the binlog "
        "are read and applied first, so any difference is an error in the history or "
        "the server.",
        epilog="Exit status: 0 equal, 1 different or failure, 2 invalid settings "
        "or options, 130 interrupted by Ctrl-C.",
    )
    add_destination_options(parser, "destination whose history to compare")
    add_table_option(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print the differences; returns the exit status."""
    settings, config = load_config(args)
    access = _access_to_read(settings, config)
    with opened_history(config) as history:
        end = end_of(history)
    verified = verify(
        config, access, end, lambda names: chosen_tables(names, args.table)
    )
    if args.json:
        print_json(verified.as_json(end.segment))
    else:
        for line in _lines(verified, end.segment):
            print(printable(line))
    return 0 if verified.is_equal else DIFFERENT


def _access_to_read(settings: DaemonConfig, config: InstanceConfig) -> Access:
    """Return the access to the server that is read, which may be the standby.

    `config` is of one source. Raises CanalError if it cannot be known.
    """
    if standby_access_of(config.source) is None:
        return access_of(config.source, config.destination)
    (destination,) = (
        each
        for each in settings.instances
        if config.destination in {source.destination for source in each.by_source}
    )
    found = find_cursors(destination, settings.data_dir)
    (part,) = (
        each
        for each in parts_of(destination, found.cursors)
        if each.config.destination == config.destination
    )
    return access_for(part.config, part.cursors)


def _lines(verified: Verified, segment: BinlogSegment) -> Iterator[str]:
    for differing in verified.differing:
        yield from _difference_lines(differing)
        yield ""
    for problem in verified.unread:
        yield f"not compared: {problem}"
    yield f"the history ends at {segment.last}, the server at {verified.position}"
    if verified.later:
        number = len(verified.later)
        statements = "1 statement" if number == 1 else f"{number} statements"
        yield (
            f"also applied {statements} from {verified.later[0]} on, which the history"
            " does not contain yet"
        )
    tables = "1 table" if verified.compared == 1 else f"{verified.compared} tables"
    number = len(verified.differing)
    yield f"{tables} compared, {number or 'none'} differ{'s' if number == 1 else ''}"


def _difference_lines(differing: Differing) -> Iterator[str]:
    schema, table = differing.name
    title = f"{schema}.{table}" if table else f"schema {schema}"
    doubt = " (the history is uncertain about it)" if differing.is_uncertain else ""
    yield f"{title}: changes from the history to the server{doubt}"
    for each in differing.found:
        yield f"  {each}"
