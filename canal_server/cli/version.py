"""`canal-server version`."""

from __future__ import annotations

import json
import platform
from typing import TYPE_CHECKING, Any

from canal_server import __version__

if TYPE_CHECKING:
    import argparse


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this command."""
    parser = subparsers.add_parser("version", help="print the version")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def run(args: argparse.Namespace) -> int:
    """Print the version of this package and of Python."""
    if args.json:
        found = {"version": __version__, "python": platform.python_version()}
        print(json.dumps(found))
        return 0
    print(f"canal-server {__version__} (Python {platform.python_version()})")
    return 0
