"""`canal-server schema …`: look into the table history, check it, carry it elsewhere.

Each action is a module of its own, made like those of the commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from canal_server.cli import (
    schema_export,
    schema_history,
    schema_import,
    schema_show,
    schema_verify,
)

if TYPE_CHECKING:
    import argparse

_ACTIONS = {
    "show": schema_show,
    "history": schema_history,
    "verify": schema_verify,
    "export": schema_export,
    "import": schema_import,
}


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the actions of this command and their options."""
    parser = subparsers.add_parser(
        "schema",
        help="show, check and carry the table history",
        description="Look into the history of table definitions that a server keeps: "
        "while it runs, and when it does not.",
        epilog="Exit status: 0 done, 1 failed or verify found differences, 2 settings "
        "or options that cannot be used.",
    )
    actions = parser.add_subparsers(dest="action", metavar="action", required=True)
    for action in _ACTIONS.values():
        action.add_parser(actions)


def run(args: argparse.Namespace) -> int:
    """Do what the action says; returns the exit status."""
    status: int = _ACTIONS[args.action].run(args)
    return status
