"""`canal-server user passwd`: change the password of a user."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from canal_server.cli.user.user_file import (
    add_file_options,
    add_password_option,
    changed_users,
    known_users,
    path_of,
    read_password,
    unknown,
)

if TYPE_CHECKING:
    import argparse


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this action."""
    parser = subparsers.add_parser(
        "passwd",
        help="change the password of a user",
        description="Change the password of a user. Sessions of that user end.",
    )
    add_file_options(parser)
    add_password_option(parser)
    parser.add_argument("name", metavar="NAME", help="name of the user")


def run(args: argparse.Namespace) -> int:
    """Change the password. Raises CanalError."""
    path = path_of(args)
    if args.name not in known_users(path):
        raise unknown(args.name, path)  # before the password is asked for
    stored = read_password(args)
    with changed_users(path) as users:
        if args.name not in users:
            raise unknown(args.name, path)
        users[args.name] = replace(users[args.name], password_hash=stored)
    print(f"the password of user {args.name} was changed in {path}")
    return 0
