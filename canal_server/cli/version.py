"""`canal-server version`."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

from canal_server import __version__

if TYPE_CHECKING:
    import argparse


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add this command; it has no options."""
    subparsers.add_parser("version", help="print the version")


def run(_: argparse.Namespace) -> int:
    """Print the version of this package and of Python."""
    print(f"canal-server {__version__} (Python {platform.python_version()})")
    return 0
