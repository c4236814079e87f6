"""`canal-server position seek`: move clients to another binlog position."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from canal_server.cli.actions import (
    add_destination_options,
    add_json_option,
    print_json,
)
from canal_server.cli.conf_options import load_for, named
from canal_server.cli.offline_audit import OfflineAudit
from canal_server.cli.position.position_found import find_cursors
from canal_server.cursor_moves.move_plan import plan_move
from canal_server.daemon.control import ask, locked
from canal_server.errors import CanalError, ConfigError
from canal_server.model.positions import log_position_to_json
from canal_server.position.offline import move_stored
from canal_server.source.begin.seek_target import TargetText, parse_target
from canal_server.tablemeta.history.schema_views import printable

if TYPE_CHECKING:
    from pathlib import Path

    from canal_server.config.schema import InstanceConfig
    from canal_server.cursor_moves.move_plan import MovePlan

SEEK_TIMEOUT_S: Final = 60.0  # for the server to stop reading and restart
_NOT_CONFIRMED: Final = (
    "nothing was changed: standard input is not a terminal, so the move cannot be"
    " confirmed; add --yes to move without confirmation"
)


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this action."""
    parser = subparsers.add_parser(
        "seek",
        help="move clients to another position",
        description="Move clients to another position in the binlog of the source. "
        "What will be repeated or skipped is printed first. A running server resumes "
        "from there at once, and its clients stay connected; batches that they have "
        "not yet acked become invalid.",
    )
    add_destination_options(parser, "destination whose clients to move")
    add = parser.add_argument
    add("--to", required=True, type=_target, metavar="TARGET",
        help="new position: FILE:POSITION, a GTID set, a time with a zone "
        "(2026-11-21T10:00:00+00:00), in milliseconds since 1970 or relative to now "
        "(-1h, -10m, -2d), oldest, latest")  # fmt: skip
    add("--source", metavar="NAME", help="move only in this source of a group, given "
        "as masterN or by its address; required for FILE:POSITION and a GTID set "
        "(default: all)")  # fmt: skip
    add("--client-id", "--client", dest="client", type=int, action="append",
        metavar="ID", help="only this client; repeatable (default: all)")  # fmt: skip
    add(
        "--dry-run", action="store_true", help="print what would happen, change nothing"
    )
    add("--yes", action="store_true", help="move without confirmation")
    add_json_option(parser)


def _target(text: str) -> TargetText:
    try:
        return parse_target(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None  # the cause adds nothing


def run(args: argparse.Namespace) -> int:
    """Move the clients. Raises CanalError."""
    data_dir, instances = load_for(args.conf, args.destination, os.environ)
    instance = named(instances, args.destination)
    found = find_cursors(instance, data_dir)
    if not found.running and found.owner:
        raise CanalError(
            f"destination {instance.destination} is run by {found.owner}: run this"
            " command where that server runs, or stop it"
        )
    plan = plan_move(
        instance, found.cursors, args.to, source=args.source, client_ids=args.client
    )
    for warning in plan.warnings:
        print(f"canal-server position seek: {warning}", file=sys.stderr)
    if not args.json:
        for line in plan.lines():
            print(printable(line))
    if not args.dry_run and not args.yes and not _agreed():
        print("canal-server position seek: nothing was changed", file=sys.stderr)
        return 1
    if not args.dry_run:
        _carry_out(plan, instance, args.conf, data_dir)
    if args.json:
        print_json(plan.as_json(moved=not args.dry_run))
    else:
        print("nothing was changed" if args.dry_run else "done")
    return 0


def _carry_out(
    plan: MovePlan, config: InstanceConfig, conf: Path, data_dir: Path
) -> None:
    """Move the clients in the server, or in the stored cursors if none runs."""
    if find_cursors(config, data_dir).server_runs:
        ask(
            data_dir,
            "seek",
            SEEK_TIMEOUT_S,
            destination=config.destination,
            clients=plan.client_ids,
            positions=[log_position_to_json(each) for each in plan.positions],
        )
        return
    with locked(data_dir):
        audit = OfflineAudit(conf, data_dir)
        move_stored(config, plan.client_ids, *plan.positions)
        audit.note(
            "seek",
            destination=config.destination,
            client_ids=sorted(plan.client_ids),
            to=[str(each) for each in plan.positions],
        )


def _agreed() -> bool:
    """Ask for confirmation. Raises ConfigError if there is no terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise ConfigError([_NOT_CONFIRMED])
    return input("move them? [y/N] ").strip().lower() in ("y", "yes")
