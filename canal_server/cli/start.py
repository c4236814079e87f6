"""`canal-server start`: run the server in the foreground until a signal or `stop`."""

from __future__ import annotations

import logging
import os
import resource
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from canal_server.cli.conf_options import add_conf_option
from canal_server.cli.log_lines import ClientThrottle, LineFormatter
from canal_server.config.load import load
from canal_server.daemon import daemon
from canal_server.doors.zookeeper import ZooKeepers
from canal_server.instance.instance import Instance
from canal_server.messages import daemon_messages

if TYPE_CHECKING:
    import argparse

log = logging.getLogger(__name__)

LEVELS = ("debug", "info", "warning", "error")
LOG_LINE = "%(asctime)s %(levelname)-7s [%(threadName)s] %(message)s"


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this command."""
    parser = subparsers.add_parser(
        "start",
        help="run the server in the foreground",
        description="Run the server in the foreground until SIGTERM, SIGINT (Ctrl-C), "
        "SIGHUP or `canal-server stop`. It logs to standard error.",
        epilog="Exit status: 0 clean shutdown, 1 failure, 2 invalid settings or "
        "options.",
    )
    add_conf_option(parser)
    parser.add_argument(
        "--log-level",
        choices=LEVELS,
        default="info",
        help="minimum level of log messages (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Run the server until it stops; the log goes to standard error."""
    config = load(args.conf, os.environ)
    log_to_stderr(args.log_level)
    allow_descriptors()
    zookeepers = ZooKeepers()
    if daemon.run(config, partial(Instance, zookeepers=zookeepers), zookeepers):
        return 0
    # Threads that do not end would keep the interpreter from exiting.
    logging.shutdown()
    os._exit(1)


def allow_descriptors() -> None:
    """Raise the limit of open descriptors to its maximum; often it starts at 1024.

    An idle instance needs about 17, a client one. All waiting here uses `poll`, which
    has no limit of its own.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        # The usual limit suffices for a few instances.
        daemon_messages.DESCRIPTOR_LIMIT_KEPT.log(log, soft, error)


def log_to_stderr(level: str, handler: logging.Handler | None = None) -> None:
    """Log to standard error, or to a handler: time and zone, level, thread, message."""
    handler = handler or logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(LOG_LINE))
    handler.addFilter(ClientThrottle())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level.upper())
