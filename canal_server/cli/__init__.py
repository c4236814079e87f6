"""The command `canal-server`: one module per subcommand, loaded when it is asked for.

A module has `add_parser(subparsers)`, which adds its options, and `run(args)`, which
does the work and returns the exit status. Leaves out everything else: the work is
done by the packages below.

Exit status: 0 done, 1 failed, 2 settings or options that cannot be used, 130 ended by
Ctrl-C. What a command has beside these is in its help.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import TYPE_CHECKING, Any

from canal_server import __version__
from canal_server.cli.output import OutputLost, checked_output
from canal_server.errors import CanalError, ConfigError
from canal_server.model.moments import is_relative

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "start": "run the server in the foreground",
    "stop": "end a running server",
    "status": "show what a server does, and who runs what in its cluster",
    "position": "show where clients stand, and move them",
    "subscriptions": "show and end subscriptions of readers of ranges",
    "tail": "print changes as they come, as a client of a server",
    "unsubscribe": "end the subscription of a client that is gone for good",
    "decode": "print what binlog files or a server's binlog hold",
    "mirror": "keep copies of tables in a lake, by Spark",
    "schema": "show, check and carry the history of table definitions",
    "version": "print the version",
}

FAILED = 1
UNUSABLE = 2
INTERRUPTED = 130
EXIT_STATUS = (
    "Exit status: 0 done, 1 failed, 2 settings or options that cannot be used, 130"
    " ended by Ctrl-C."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default the process's own."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    with checked_output():
        try:
            try:
                return _status_of(arguments)
            finally:
                sys.stdout.flush()
        except OutputLost as lost:
            if not lost.is_closed:
                print(f"canal-server: {lost}", file=sys.stderr)
            return FAILED


def _status_of(arguments: list[str]) -> int:
    try:
        return _run(arguments)
    except ConfigError as error:
        for problem in error.problems:
            print(f"canal-server: {problem}", file=sys.stderr)
        return UNUSABLE
    except CanalError as error:
        print(f"canal-server: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="canal-server",
        description="Change data capture for MySQL and MariaDB.",
        epilog=f"{EXIT_STATUS} Commands that have others show them in their --help.",
    )
    parser.add_argument(
        "-V", "--version", action="version", version=f"canal-server {__version__}"
    )
    subparsers = parser.add_subparsers(dest="command", metavar="command", required=True)
    command = arguments[0] if arguments else ""
    if command not in COMMANDS:
        # Only names and what they are for; no module is loaded.
        for name, text in COMMANDS.items():
            subparsers.add_parser(name, help=text)
        parser.parse_args(arguments)
        parser.error("the command comes first, its options after it")
    module = importlib.import_module(f"canal_server.cli.{command}")
    module.add_parser(subparsers)
    _add_exit_status(subparsers)
    status: int = module.run(parser.parse_args(_with_relative_times(arguments)))
    return status


def _add_exit_status(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Have each help say which exit statuses there are, unless it does."""
    for parser in subparsers.choices.values():
        told = f"{parser.description or ''}{parser.epilog or ''}"
        if "Exit status:" not in told:
            parser.epilog = f"{parser.epilog or ''} {EXIT_STATUS}".strip()
        for action in parser._actions:  # noqa: SLF001  # no other way to the actions
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  # likewise
                _add_exit_status(action)


def _with_relative_times(arguments: list[str]) -> list[str]:
    """Join an option and a time like `-1h`, which argparse takes for an option."""
    joined: list[str] = []
    for each in arguments:
        if is_relative(each) and joined and joined[-1].startswith("--"):
            joined[-1] += f"={each}"
        else:
            joined.append(each)
    return joined
