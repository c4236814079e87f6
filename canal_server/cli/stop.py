"""`canal-server stop`: stop the server of a conf folder or pid file, and wait."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from canal_server.cli.actions import add_json_option, print_json
from canal_server.cli.conf_options import add_conf_option
from canal_server.cli.time_options import duration
from canal_server.config.load import load_data_dir
from canal_server.daemon.control import ControlError, ask_to_stop, paused_text
from canal_server.runtime.lifecycle import Deadline
from canal_server.runtime.pid_file import stop_process

if TYPE_CHECKING:
    import argparse

TIMEOUT_S = 30.0


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this command."""
    parser = subparsers.add_parser(
        "stop",
        help="stop a running server",
        description="Stop the server of a conf folder, or of a pid file, and wait until"
        " it has stopped.",
        epilog="Exit status: 0 stopped, 1 no server runs, or it still runs after the "
        "timeout, 2 invalid settings or options, 130 interrupted by Ctrl-C.",
    )
    add_conf_option(parser)
    add_json_option(parser)
    parser.add_argument(
        "--pid-file",
        type=Path,
        metavar="FILE",
        help="stop the server that was started with this file, instead of --conf",
    )
    parser.add_argument(
        "--timeout",
        metavar="TIME",
        type=duration,
        default=TIMEOUT_S,
        help="how long to wait, such as 30s or 2m (default: %(default)gs)",
    )


def run(args: argparse.Namespace) -> int:
    """Request the stop and wait. Raises CanalError if no server runs."""
    if args.pid_file is not None:
        pid = stop_process(args.pid_file, Deadline(args.timeout))
        if args.json:
            print_json({"stopped": str(args.pid_file), "pid": pid})
        return 0
    data_dir = load_data_dir(args.conf, os.environ)
    if not ask_to_stop(data_dir, Deadline(args.timeout)):
        paused = paused_text(data_dir)
        raise ControlError(
            f"the server of {data_dir} still runs after {args.timeout:g} seconds"
            + (f": {paused}, then it stops" if paused else "; see its log")
        )
    if args.json:
        print_json({"stopped": str(data_dir)})
    return 0
