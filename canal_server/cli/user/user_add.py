"""`canal-server user add`: add a user, or replace the rights of one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from canal_server.cli.user.user_file import (
    add_file_options,
    add_password_option,
    changed_users,
    path_of,
    read_password,
)
from canal_server.errors import CanalError, ConfigError
from canal_server.tls.certificate_names import checked_name
from canal_server.users.rights import ReadRule, User
from canal_server.users.users_file import client_ids

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this action."""
    parser = subparsers.add_parser(
        "add",
        help="add a user with rights",
        description="Add a user to the file of users, which is created if it does not"
        " exist. PATTERN is the name of a destination, or a pattern of the shell such"
        " as 'shop_*'; options with a pattern or a list may be repeated.",
    )
    add_file_options(parser)
    add_password_option(parser)
    parser.add_argument("name", metavar="NAME", help="name to log in with")
    _add_reading_options(parser)
    _add_patterns(
        parser,
        "operate",
        "move cursors of these destinations, stop and start them, remove clients",
    )
    _add_patterns(
        parser,
        "observe",
        "see the state, metrics, positions and table history of these destinations",
    )
    add = parser.add_argument
    add(
        "--certificate",
        metavar="SUBJECT",
        action="append",
        default=[],
        help="log in with a certificate of this subject (CN=name,O=company), or with"
        " this name in it: dns:NAME, email:ADDRESS, uri:URI, ip:ADDRESS",
    )
    add(
        "--no-password",
        action="store_true",
        help="the user logs in with a certificate only",
    )
    add(
        "--connections",
        metavar="N",
        type=int,
        default=0,
        help="connections at the same time (default:"
        " canal.server.connections.per.user.max)",
    )


def _add_reading_options(parser: argparse.ArgumentParser) -> None:
    _add_patterns(
        parser, "read", "subscribe to these destinations, and receive their rows"
    )
    for option, text in (
        (
            "--tables",
            (
                "of them only these tables: regular expressions as in"
                " canal.instance.filter.regex"
            ),
        ),
        (
            "--columns",
            (
                "only these columns of some tables, as in canal.instance.filter.field:"
                " schema.table:column/column,…"
            ),
        ),
        ("--remove-columns", "leave these columns out"),
        (
            "--mask-columns",
            "replace the values of these columns: texts by ****, others by NULL",
        ),
    ):
        parser.add_argument(
            option,
            metavar="LIST",
            action="append",
            default=[],
            help=text,
        )
    parser.add_argument(
        "--client",
        metavar="ID",
        action="append",
        default=[],
        help="use only this client id, or these: 2000-2099 (may be repeated)",
    )
    _add_patterns(
        parser, "subscription", "use only ranged subscriptions with these names"
    )
    _add_patterns(
        parser,
        "ranges",
        "read ranges of these destinations, as Spark and the mirror do; needs --read",
    )


def _add_patterns(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    parser.add_argument(
        f"--{name}", metavar="PATTERN", action="append", default=[], help=text
    )


def run(args: argparse.Namespace) -> int:
    """Add the user. Raises CanalError."""
    path = path_of(args)
    if args.no_password and not args.certificate:
        raise ConfigError(["--no-password needs --certificate: how else to log in?"])
    try:
        certificates = tuple(map(checked_name, args.certificate))
    except ValueError as error:
        raise ConfigError([f"--certificate {error}"]) from error
    user = User(
        args.name,
        "",
        certificates,
        tuple(_rules(args)),
        tuple(args.ranges),
        tuple(args.operate),
        tuple(args.observe),
        args.connections,
    )
    if not (user.read or user.operate or user.observe):
        raise ConfigError(
            ["the user would have no rights: add --read, --operate or --observe"]
        )
    if not args.no_password:
        user = replace(user, password_hash=read_password(args))
    with changed_users(path) as users:
        if user.name in users:
            raise CanalError(
                f"user {user.name!r} is in {path} already; remove it first, or edit the"
                " file"
            )
        users[user.name] = user
    print(f"user {user.name} was added to {path}")
    return 0


def _rules(args: argparse.Namespace) -> Iterator[ReadRule]:
    limits = {
        "--tables": args.tables, "--columns": args.columns,
        "--remove-columns": args.remove_columns, "--mask-columns": args.mask_columns,
        "--client": args.client, "--subscription": args.subscription,
        "--ranges": args.ranges,
    }  # fmt: skip
    for option, value in limits.items():
        if value and not args.read:
            raise ConfigError([f"{option} needs --read"])
    try:
        clients = tuple(map(client_ids, args.client))
    except ValueError as error:
        raise ConfigError([f"--client {error}"]) from error
    # An empty list would be no limit, when a variable of a script is not set.
    for option, value in limits.items():
        if not all(each.strip() for each in value):
            raise ConfigError([f"{option} is empty: leave it out for no limit"])
    for pattern in args.read:
        yield ReadRule(
            pattern,
            ",".join(args.tables),
            ",".join(args.columns),
            ",".join(args.remove_columns),
            ",".join(args.mask_columns),
            clients,
            tuple(args.subscription),
        )
