"""`canal-server subscriptions …`: the cursors of ranged reads, and removing them.

Each action is a module of its own, made like those of the commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from canal_server.cli import subscriptions_list, subscriptions_remove

if TYPE_CHECKING:
    import argparse

_ACTIONS = {"list": subscriptions_list, "remove": subscriptions_remove}


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the actions of this command and their options."""
    parser = subparsers.add_parser(
        "subscriptions",
        help="show and end subscriptions of readers of ranges",
        description="Show the subscriptions of ranged readers, such as Spark's "
        "streaming queries, and remove those that nobody reads any more: while a "
        "server runs, and when none does.",
        epilog="Exit status: 0 done, 1 failed, 2 settings or options that cannot be "
        "used.",
    )
    actions = parser.add_subparsers(dest="action", metavar="action", required=True)
    for action in _ACTIONS.values():
        action.add_parser(actions)


def run(args: argparse.Namespace) -> int:
    """Do what the action says; returns the exit status."""
    status: int = _ACTIONS[args.action].run(args)
    return status
