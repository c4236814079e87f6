"""Commands that have actions; each action is a module with the interface of a command.

Holds the dispatch to actions and the options that several of them share.
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
    "Exit status: 0 success, 1 failure{failed}, 2 invalid settings or options,"
    " 130 interrupted by Ctrl-C."
)


class Action(Protocol):
    """The interface of the module of an action."""

    def add_parser(self, subparsers: argparse._SubParsersAction[Any], /) -> None:
        """Add the name and the options of the action."""

    def run(self, args: argparse.Namespace, /) -> int:
        """Run the action and return the exit status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command that consists of actions; `failed` extends the meaning of status 1."""

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
        """Run the chosen action, or list the actions; returns the exit status."""
        if args.action is None:
            args.parser.print_help(sys.stderr)
            *others, last = self.actions
            names = f"{', '.join(others)} or {last}"
            print(
                f"\n{args.parser.prog}: missing action: expected {names}",
                file=sys.stderr,
            )
            return UNUSABLE
        return self.actions[args.action].run(args)


def add_listing_options(parser: argparse.ArgumentParser) -> None:
    """Add `--conf`, an optional `--destination`, and `--json`."""
    add_conf_option(parser)
    parser.add_argument(
        "--destination", metavar="NAME", help="only this destination (default: all)"
    )
    add_json_option(parser)


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add `--json`, as `args.json`."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def print_json(found: object) -> None:
    """Print a value as JSON."""
    print(json.dumps(found, indent=2, ensure_ascii=False))


def add_destination_options(parser: argparse.ArgumentParser, whose: str) -> None:
    """Add `--conf`, and `--destination` with `whose` as the start of its help."""
    add_conf_option(parser)
    parser.add_argument(
        "--destination",
        metavar="NAME",
        help=f"{whose}; required if several destinations are configured",
    )
