"""The command `canal-server`: one module per subcommand, loaded on demand.

Each module has `add_parser(subparsers)`, which adds its options, and `run(args)`, which
runs the command and returns the exit status. The work itself is done by the packages
below. Nothing imports this package.

Exit status: 0 success, 1 failure, 2 invalid settings or options, 130 interrupted by
Ctrl-C. The help of a command lists any others that it has.
"""

from __future__ import annotations

import importlib
import re
import sys
from typing import TYPE_CHECKING, Any

from canal_server.cli.help import Parser, add_version_option, complete_help
from canal_server.cli.output import OutputLost, checked_output
from canal_server.errors import CanalError, ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

COMMANDS = {
    "init": "write a conf folder to start with",
    "start": "run the server",
    "stop": "stop a running server",
    "check": "check settings, sources and privileges before a start",
    "status": "show the state of a server and of its cluster",
    "position": "show and move the positions of clients",
    "subscriptions": "show and remove subscriptions of ranged readers",
    "user": "manage users and their rights",
    "tail": "print changes as they arrive",
    "consume": "run a handler over changes",
    "unsubscribe": "remove the subscription of a client",
    "decode": "print changes from binlog files or a server's binlog",
    "mirror": "replicate tables into a data lake with Spark",
    "schema": "show, verify, export and import the table history",
    "files": "write files for systemd, Prometheus, Grafana and Kubernetes",
    "completion": "print a script with which a shell completes commands",
    "version": "print the version",
}

PROGRAM = "canal-server"
_NUMBERED = re.compile(r"-[0-9]")  # no option starts like this
FAILED = 1
UNUSABLE = 2
INTERRUPTED = 130
EXIT_STATUS = (
    "Exit status: 0 success, 1 failure, 2 invalid settings or options, 130"
    " interrupted by Ctrl-C."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default those of the process."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    has_command = bool(arguments) and arguments[0] in COMMANDS
    with checked_output():
        name = " ".join((PROGRAM, *arguments[:1])) if has_command else PROGRAM
        try:
            try:
                module, args = _parsed(arguments)
                name = args.parser.prog  # includes the action
                return _status_of(module, args, name)
            except KeyboardInterrupt:
                return INTERRUPTED
            finally:
                sys.stdout.flush()
        except OutputLost as lost:
            if not lost.is_closed:
                print(f"{name}: {lost}", file=sys.stderr)
            return FAILED


def _status_of(module: Any, args: argparse.Namespace, name: str) -> int:
    try:
        status: int = module.run(args)
    except ConfigError as error:
        for problem in error.problems:
            print(f"{name}: {problem}", file=sys.stderr)
        for warning in error.warnings:
            print(f"{name}: warning: {warning}", file=sys.stderr)
        return UNUSABLE
    except CanalError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return FAILED
    return status


def _parsed(arguments: list[str]) -> tuple[Any, argparse.Namespace]:
    """Return the module of the command, and its parsed options."""
    parser, module = parser_for(arguments[0] if arguments else "")
    args, unknown = parser.parse_known_args(_with_relative_times(arguments))
    if unknown:
        args.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if module is None:
        parser.error("expected a command before the options")
    return module, args


def parser_for(command: str) -> tuple[argparse.ArgumentParser, Any]:
    """Return a parser that knows this command, and the command's module.

    For an unknown command the parser knows only the names of all commands, and the
    module is None. In the parsed arguments, `parser` is the parser of the command or of
    its action.
    """
    parser = Parser(
        prog=PROGRAM,
        description="Change data capture for MySQL and MariaDB.",
        epilog=f"{EXIT_STATUS} Commands with other exit statuses list them in their "
        "help.",
    )
    add_version_option(parser, "print the version and exit")
    subparsers = parser.add_subparsers(dest="command", metavar="command", required=True)
    module = None
    if command in COMMANDS:
        module = load(command)
        module.add_parser(subparsers)
    else:
        # Only the names and their help; no module is loaded.
        for name, text in COMMANDS.items():
            subparsers.add_parser(name, help=text)
    complete_help(parser, EXIT_STATUS)
    return parser, module


def load(command: str) -> Any:
    """Return the module of a command; a command with several modules is a package."""
    package = f"canal_server.cli.{command}"
    module = importlib.import_module(package)
    if hasattr(module, "__path__"):
        return importlib.import_module(f"{package}.{command}_command")
    return module


def _with_relative_times(arguments: list[str]) -> list[str]:
    """Join an option and a relative time like `-1h`, which argparse reads as an option.

    Other values that start with a digit, such as `-10min`, are joined as well: the
    parser of the value then reports what it accepts.
    """
    joined: list[str] = []
    for each in arguments:
        if _NUMBERED.match(each) and joined and joined[-1].startswith("--"):
            joined[-1] += f"={each}"
        else:
            joined.append(each)
    return joined
