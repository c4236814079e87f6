"""`canal-server user remove`: remove a user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from canal_server.cli.user.user_file import (
    add_file_options,
    changed_users,
    path_of,
    unknown,
)

if TYPE_CHECKING:
    import argparse


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this action."""
    parser = subparsers.add_parser(
        "remove",
        help="remove a user",
        description="Remove a user from the file of users. Sessions of that user end.",
    )
    add_file_options(parser)
    parser.add_argument("name", metavar="NAME", help="name of the user")


def run(args: argparse.Namespace) -> int:
    """Remove the user. Raises CanalError."""
    path = path_of(args)
    with changed_users(path) as users:
        if users.pop(args.name, None) is None:
            raise unknown(args.name, path)
    print(f"user {args.name} was removed from {path}")
    return 0
