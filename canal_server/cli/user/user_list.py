"""`canal-server user list`: print the users and their rights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from canal_server.cli.actions import add_json_option, print_json
from canal_server.cli.user.user_file import add_file_options, path_of
from canal_server.model.quoted import LINE_MAX, printable
from canal_server.users.rights import Right
from canal_server.users.users_file import content_of, read_users

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from canal_server.users.rights import ReadRule, User


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this action."""
    parser = subparsers.add_parser(
        "list",
        help="print the users and their rights",
        description="Print the users and their rights, without their passwords.",
    )
    add_file_options(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print the users. Raises ConfigError."""
    users = read_users(path_of(args))
    if args.json:
        print_json({"users": [_as_json(each) for each in users.values()]})
        return 0
    for user in users.values():
        for line in _lines(user):
            print(printable(line, LINE_MAX))
    return 0


def _as_json(user: User) -> dict[str, object]:
    content = content_of(user)
    return {
        "name": user.name,
        "has_password": bool(content.pop("password", "")),
        **content,
    }


def _lines(user: User) -> Iterator[str]:
    yield user.name
    ways = ["password"] if user.password_hash else []
    yield f"  log-in: {', '.join([*ways, *user.certificates]) or 'none'}"
    for rule in user.read:
        yield f"  {Right.READ.value}: {rule.destination}{_limits(rule)}"
    for right, patterns in (
        (Right.RANGES, user.ranges),
        (Right.OPERATE, user.operate),
        (Right.OBSERVE, user.observe),
    ):
        if patterns:
            yield f"  {right.value}: {', '.join(patterns)}"
    if user.connections_max:
        yield f"  connections: {user.connections_max}"


def _limits(rule: ReadRule) -> str:
    limits = [
        f"{name} {value}"
        for name, value in (
            ("tables", rule.tables),
            ("columns", rule.columns),
            ("without", rule.removed),
            ("masked", rule.masked),
            (
                "clients",
                ", ".join(f"{a}-{b}" if a < b else f"{a}" for a, b in rule.clients),
            ),
            ("subscriptions", ", ".join(rule.subscriptions)),
        )
        if value
    ]
    return f" ({'; '.join(limits)})" if limits else ""
