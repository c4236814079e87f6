"""The command `canal-server`: one module per subcommand, loaded when it is asked for.

A module has `add_parser(subparsers)`, which adds its options, and `run(args)`, which
does the work and returns the exit status. Leaves out everything else: the work is
done by the packages below.

Exit status: 0 done, 1 failed, 2 settings or options that cannot be used, 130 ended by
Ctrl-C. What a command has beside these is in its help.
"""

from __future__ import annotations

import importlib
import re
import sys
from typing import TYPE_CHECKING, Any

from canal_server import __version__
from canal_server.cli.help import Parser, complete_help
from canal_server.cli.output import OutputLost, checked_output
from canal_server.errors import CanalError, ConfigError

if TYPE_CHECKING:
    import argparse
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

PROGRAM = "canal-server"
_NUMBERED = re.compile(r"-[0-9]")  # no option begins so
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
    has_command = bool(arguments) and arguments[0] in COMMANDS
    with checked_output():
        name = " ".join((PROGRAM, *arguments[:1])) if has_command else PROGRAM
        try:
            try:
                module, args = _parsed(arguments)
                name = args.parser.prog  # the command with its action
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
    """Return the module of the command, and what its options say."""
    parser, module = parser_for(arguments[0] if arguments else "")
    args, unknown = parser.parse_known_args(_with_relative_times(arguments))
    if unknown:
        args.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if module is None:
        parser.error("the command comes first, its options after it")
    return module, args


def parser_for(command: str) -> tuple[argparse.ArgumentParser, Any]:
    """Return a parser that knows this command, and the command's module.

    Of a command that there is not it knows all names, and there is no module. In what
    it parses, `parser` is the one of the command or of its action.
    """
    parser = Parser(
        prog=PROGRAM,
        description="Change data capture for MySQL and MariaDB.",
        epilog=f"{EXIT_STATUS} Commands that have others show them in their --help.",
    )
    parser.add_argument(
        "-V", "--version", action="version", version=f"{PROGRAM} {__version__}"
    )
    subparsers = parser.add_subparsers(dest="command", metavar="command", required=True)
    module = None
    if command in COMMANDS:
        module = load(command)
        module.add_parser(subparsers)
    else:
        # Only names and what they are for; no module is loaded.
        for name, text in COMMANDS.items():
            subparsers.add_parser(name, help=text)
    complete_help(parser, EXIT_STATUS)
    return parser, module


def load(command: str) -> Any:
    """Return the module of a command; one of several modules is a package."""
    package = f"canal_server.cli.{command}"
    module = importlib.import_module(package)
    if hasattr(module, "__path__"):
        return importlib.import_module(f"{package}.{command}_command")
    return module


def _with_relative_times(arguments: list[str]) -> list[str]:
    """Join an option and a time like `-1h`, which argparse takes for an option.

    So is one that is not a time, as `-10min`: who reads the value says what it may be.
    """
    joined: list[str] = []
    for each in arguments:
        if _NUMBERED.match(each) and joined and joined[-1].startswith("--"):
            joined[-1] += f"={each}"
        else:
            joined.append(each)
    return joined
