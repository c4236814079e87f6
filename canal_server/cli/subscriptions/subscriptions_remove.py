"""`canal-server subscriptions remove`: remove subscriptions that are no longer used."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from canal_server.cli.actions import (
    add_destination_options,
    add_json_option,
    print_json,
)
from canal_server.cli.conf_options import load_for, named
from canal_server.cli.offline_audit import OfflineAudit
from canal_server.daemon.control import NoServer, ask, locked
from canal_server.errors import ConfigError
from canal_server.ranges.offline_range_cursors import remove_subscription

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from canal_server.config.schema import InstanceConfig


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this action."""
    parser = subparsers.add_parser(
        "remove",
        help="remove subscriptions that are no longer used",
        description="Remove subscriptions with their positions. A subscription that a "
        "query currently reads is kept. A query that returns later resumes from its "
        "checkpoint and creates its subscription again.",
    )
    add_destination_options(parser, "whose")
    add_json_option(parser)
    parser.add_argument("name", nargs="+", help="name as shown by `subscriptions list`")


def run(args: argparse.Namespace) -> int:
    """Remove the subscriptions. Raises CanalError."""
    data_dir, instances = load_for(args.conf, args.destination, os.environ)
    config = named(instances, args.destination)
    if config.group:
        name = config.destination
        problem = f"destination {name} merges several sources: it has no subscriptions"
        raise ConfigError([problem])
    names = list(dict.fromkeys(args.name))
    for name in names:
        _remove(config, args.conf, data_dir, name)
        if not args.json:
            print(f"subscription {name} of {config.destination} was removed")
    if args.json:
        print_json({"destination": config.destination, "removed": names})
    return 0


def _remove(config: InstanceConfig, conf: Path, data_dir: Path, name: str) -> None:
    destination = config.destination
    try:
        # A server that runs owns the files of all its destinations.
        ask(data_dir, "unsubscribe", destination=destination, name=name)
    except NoServer:
        with locked(data_dir):
            audit = OfflineAudit(conf, data_dir)
            remove_subscription(config, name)
            audit.note("range_unsubscribe", destination=destination, subscription=name)
