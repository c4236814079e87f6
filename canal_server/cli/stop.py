"""`canal-server stop`: ends the server of a conf folder and waits for its end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from canal_server.cli.conf import add_conf_option
from canal_server.config.load import load_data_dir
from canal_server.control import ControlError, ask_to_stop
from canal_server.lifecycle import Deadline

if TYPE_CHECKING:
    import argparse

TIMEOUT_S = 30.0


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this command."""
    parser = subparsers.add_parser("stop", help="end a running server")
    add_conf_option(parser)
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=float,
        default=TIMEOUT_S,
        help="how long to wait for its end (default: %(default)g)",
    )


def run(args: argparse.Namespace) -> int:
    """Ask for the end and wait. Raises ControlError when there is no server."""
    data_dir = load_data_dir(args.conf, os.environ)
    if not ask_to_stop(data_dir, Deadline(args.timeout)):
        raise ControlError(
            f"the server of {data_dir} still runs after {args.timeout:g} seconds;"
            " see its log"
        )
    return 0
