"""`canal-server status`: what the server of a conf folder does, as JSON."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from canal_server.cli.conf import add_conf_option
from canal_server.config.load import load_data_dir
from canal_server.control import ask

if TYPE_CHECKING:
    import argparse


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this command."""
    parser = subparsers.add_parser("status", help="show what a running server does")
    add_conf_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print the reply. Raises ControlError when there is no server."""
    data_dir = load_data_dir(args.conf, os.environ)
    reply = ask(data_dir, "status")
    print(json.dumps(reply, indent=2, ensure_ascii=False))
    return 0
