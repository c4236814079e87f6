"""`canal-server completion`: print the script of a shell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from canal_server.cli.completion.bash_script import bash_script
from canal_server.cli.completion.completion_tree import program
from canal_server.cli.completion.fish_script import fish_script
from canal_server.cli.completion.zsh_script import zsh_script

if TYPE_CHECKING:
    import argparse

SCRIPTS: Final = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this command."""
    parser = subparsers.add_parser(
        "completion",
        help="print a script with which a shell completes commands",
        description="Print a script with which a shell completes commands, options,"
        " files and destinations of canal-server.",
    )
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="the shell")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    print(SCRIPTS[args.shell](program()), end="")
    return 0
