"""The command `canal-server`: one module per subcommand, loaded when it is asked for.

A module has `add_parser(subparsers)`, which adds its options, and `run(args)`, which
does the work and returns the exit status. Leaves out everything else: the work is
done by the packages below.

Exit status: 0 done, 1 failed, 2 settings or options that cannot be used, 130 ended by
Ctrl-C.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import TYPE_CHECKING

from canal_server import __version__
from canal_server.errors import CanalError, ConfigError

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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default the process's own."""
    arguments = list(sys.argv[1:] if argv is None else argv)
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
    except BrokenPipeError:
        # Whoever read our output has gone (`| head`). The interpreter would complain
        # once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="canal-server",
        description="Change data capture for MySQL and MariaDB.",
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
    status: int = module.run(parser.parse_args(arguments))
    return status
