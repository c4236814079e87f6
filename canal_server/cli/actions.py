"""Commands with actions, each of which is a module made like those of the commands.

What the actions have in common: the way to them, and the options that say of what.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from canal_server.cli import COMMANDS, UNUSABLE
from canal_server.cli.conf_options import add_conf_option

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

_EPILOG = (
    "Exit status: 0 done, 1 failed{failed}, 2 settings or options that cannot be used,"
    " 130 ended by Ctrl-C."
)


class Action(Protocol):
    """A module of an action."""

    def add_parser(self, subparsers: argparse._SubParsersAction[Any], /) -> None:
        """Add its name and its options."""

    def run(self, args: argparse.Namespace, /) -> int:
        """Do it; returns the exit status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command that does nothing itself. `failed` is what else its status 1 means."""

    name: str
    description: str
    actions: Mapping[str, Action]
    failed: str = ""

    def add_parser(self, subparsers: argparse._SubParsersAction[Any]) -> None:
        """Add the actions and their options."""
        parser = subparsers.add_parser(
            self.name,
            help=COMMANDS[self.name],
            description=self.description,
            epilog=_EPILOG.format(failed=self.failed),
        )
        actions = parser.add_subparsers(dest="action", metavar="action")
        for action in self.actions.values():
            action.add_parser(actions)

    def run(self, args: argparse.Namespace) -> int:
        """Do what the action says, or tell which there are; returns the exit status."""
        if args.action is None:
            args.parser.print_help(sys.stderr)
            *others, last = self.actions
            names = f"{', '.join(others)} or {last}"
            print(f"\n{args.parser.prog}: name an action: {names}", file=sys.stderr)
            return UNUSABLE
        return self.actions[args.action].run(args)


def add_listing_options(parser: argparse.ArgumentParser) -> None:
    """Add `--conf`, `--destination` of one of all, and `--json`."""
    add_conf_option(parser)
    parser.add_argument(
        "--destination", metavar="NAME", help="this one only (default: all)"
    )
    add_json_option(parser)


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add `--json`, as `args.json`."""
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def print_json(found: object) -> None:
    """Print values as JSON, for programs."""
    print(json.dumps(found, indent=2, ensure_ascii=False))


def add_destination_options(parser: argparse.ArgumentParser, whose: str) -> None:
    """Add `--conf`, and `--destination` of the one that is meant."""
    add_conf_option(parser)
    parser.add_argument(
        "--destination",
        metavar="NAME",
        help=f"{whose}; needed when several destinations are configured",
    )
