"""`canal-server subscriptions remove`: forget what nobody reads any more."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from canal_server.cli.actions import (
    add_destination_options,
    add_json_option,
    print_json,
)
from canal_server.cli.conf_options import load_for, named
from canal_server.daemon.control import NoServer, ask, locked
from canal_server.errors import ConfigError, MetaStoreError
from canal_server.ranges.offline_range_cursors import (
    check_known,
    read_subscriptions,
    remove_subscription,
)

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from canal_server.config.schema import InstanceConfig


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this action."""
    parser = subparsers.add_parser(
        "remove",
        help="end subscriptions that nobody reads any more",
        description="Forget subscriptions and where they stand. One that a query "
        "reads is not removed; a query that comes back later resumes from its "
        "checkpoint, and makes its subscription again.",
    )
    add_destination_options(parser, "whose")
    add_json_option(parser)
    parser.add_argument("name", nargs="+", help="as `subscriptions list` shows it")


def run(args: argparse.Namespace) -> int:
    """Remove them. Raises CanalError."""
    data_dir, instances = load_for(args.conf, args.destination, os.environ)
    config = named(instances, args.destination)
    if config.group:
        raise ConfigError(
            [f"--destination {config.destination} merges several sources: it has none"]
        )
    names = list(dict.fromkeys(args.name))
    for name in names:
        _remove(config, data_dir, name)
        if not args.json:
            print(f"subscription {name} of {config.destination} is removed")
    if args.json:
        print_json({"destination": config.destination, "removed": names})
    return 0


def _remove(config: InstanceConfig, data_dir: Path, name: str) -> None:
    destination = config.destination
    try:
        if ask(data_dir, "unsubscribe", destination=destination, name=name)["running"]:
            return
    except NoServer:
        with locked(data_dir):
            remove_subscription(config, name)
        return
    # A server is there, and keeps the files of what it may run.
    stored = read_subscriptions(config)
    check_known(destination, name, [each.name for each in stored.found])
    where = f"run by {stored.owner}: do it there" if stored.owner else "not running"
    raise MetaStoreError(
        f"destination {destination} is {where}; subscription {name} stays until it is"
        " removed where the destination runs, or while no server does"
    )
