"""`canal-server position …`: where clients stand, and moving them.

Each action is a module of its own, made like those of the commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from canal_server.cli import position_seek, position_show

if TYPE_CHECKING:
    import argparse

_ACTIONS = {"show": position_show, "seek": position_seek}


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the actions of this command and their options."""
    parser = subparsers.add_parser(
        "position",
        help="show where clients stand, and move them",
        description="Show where the clients of a destination stand and how far they "
        "are behind, and move them: while a server runs, and when none does.",
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
