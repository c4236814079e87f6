"""`canal-server start`: run the server until a signal or `stop`."""

from __future__ import annotations

import logging
import os
import resource
import signal
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from canal_server.admin.managed_settings import ManagedSettings
from canal_server.admin.settings_client import SettingsError
from canal_server.cli.conf_options import add_conf_option
from canal_server.cli.interrupts import Interrupts
from canal_server.cli.log_files import LogFolder
from canal_server.cli.log_lines import ClientThrottle, JsonFormatter, LineFormatter
from canal_server.config.load import listed_destinations, load, load_managed
from canal_server.daemon import daemon
from canal_server.daemon.daemon import Outcome
from canal_server.doors.zookeeper import ZooKeepers
from canal_server.errors import CanalError, ConfigError
from canal_server.instance.instance import Instance
from canal_server.messages import daemon_messages
from canal_server.model.quoted import printable
from canal_server.runtime.background import SIGNALLED, Starter, detach
from canal_server.runtime.log_levels import LEVELS, LogLevels
from canal_server.runtime.private_files import reason_of
from canal_server.server.process_zone import unknown_zone

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from canal_server.config.schema import DaemonConfig, ServerConfig

log = logging.getLogger(__name__)

FORMATS = ("text", "json")
MEGABYTE = 1_000_000
LOGS = "logs"  # in the data folder
OUTPUT = "canal/canal_stdout.log"  # what is not the log, such as a crash's last words
LOG_LINE = "%(asctime)s %(levelname)-7s [%(threadName)s] %(message)s"


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this command."""
    parser = subparsers.add_parser(
        "start",
        help="run the server",
        description="Run the server until SIGTERM, SIGINT (Ctrl-C), SIGHUP or "
        "`canal-server stop`. It runs in the foreground and logs to standard error, or "
        "to files. With --daemon it runs in the background: the command ends when the "
        "server serves clients, or when it has failed.",
        epilog="Exit status: 0 clean shutdown, with --daemon: serves clients, 1 "
        "failure, 2 invalid settings or options, 130 with --daemon: interrupted before "
        "the server served clients.",
    )
    add_conf_option(parser)
    parser.add_argument(
        "--log-level",
        choices=LEVELS,
        default="info",
        help="minimum level of log messages (default: %(default)s)",
    )
    parser.add_argument(
        "--log-format",
        choices=FORMATS,
        default="text",
        help="lines of text, or of JSON (default: %(default)s)",
    )
    parser.add_argument(
        "--log-dir",
        type=Path,
        metavar="DIR",
        help="log to DIR/canal/canal.log and DIR/<destination>/<destination>.log,"
        " instead of standard error; full files are rotated (canal.log.file.megabytes,"
        " canal.log.files). With --daemon the default is the folder logs in the data"
        " folder",
    )
    parser.add_argument(
        "--daemon",
        action="store_true",
        help="run in the background, independently of the terminal",
    )
    parser.add_argument(
        "--pid-file",
        type=Path,
        metavar="FILE",
        help="write the process id to FILE while the server runs",
    )


def run(args: argparse.Namespace) -> int:
    """Run the server until it stops, or start one in the background."""
    settings = managed_settings(args.conf)
    config = load(args.conf, os.environ)
    pid_file = None if args.pid_file is None else args.pid_file.absolute()
    if not args.daemon:
        return _serve(args, config, settings, args.log_dir, pid_file)
    log_dir = (args.log_dir or config.data_dir / LOGS).absolute()
    process = detach()
    if isinstance(process, Starter):
        return _await_ready(process, log_dir)
    try:
        process.begin(log_dir / OUTPUT)
    except OSError as error:
        raise ConfigError(
            [f"--log-dir {log_dir}: cannot write there: {reason_of(error)}"]
        ) from error
    return _serve(args, config, settings, log_dir, pid_file, process.ready)


def _await_ready(process: Starter, log_dir: Path) -> int:
    """Wait until the server in the background serves clients or has failed."""
    interrupts = Interrupts()
    try:
        with interrupts.caught(), interrupts.allowed():
            status, has_said_why = process.wait()
    except KeyboardInterrupt:
        process.stop()
        raise
    logs = f"its log is in {log_dir}"
    if status == 0:
        print(f"canal-server runs in the background as process {process.pid}; {logs}")
    elif status > SIGNALLED:
        name = signal.Signals(status - SIGNALLED).name
        raise CanalError(f"the server was ended by {name} before it was ready; {logs}")
    elif not has_said_why:
        raise CanalError(f"the server ended before it was ready; {logs}")
    return status


def _serve(  # noqa: PLR0917  # what a run consists of
    args: argparse.Namespace,
    config: DaemonConfig,
    settings: _Fetched,
    log_dir: Path | None,
    pid_file: Path | None,
    on_ready: Callable[[], None] | None = None,
) -> int:
    """Run the server until it stops; returns the exit status."""
    folder = None if log_dir is None else log_folder(log_dir, config.server)
    levels = log_to(args.log_level, folder, args.log_format)
    allow_descriptors()
    warn_of_zone()
    settings.log_doubts()
    while True:
        zookeepers = ZooKeepers()
        outcome = daemon.run(
            config,
            partial(Instance, zookeepers=zookeepers),
            zookeepers,
            levels,
            log_dir=log_dir,
            settings=settings.settings,
            pid_file=pid_file,
            on_ready=on_ready,
        )
        if outcome is not Outcome.RESTARTS:
            break
        config = load(config.conf_dir, os.environ)
        on_ready = None
    if outcome is Outcome.ENDED:
        return 0
    # Threads that do not end would keep the interpreter from exiting.
    logging.shutdown()
    os._exit(1)


@dataclass(frozen=True, slots=True)
class _Fetched:
    """Settings from canal-admin, if it hands out any, and what was wrong with them."""

    settings: ManagedSettings | None = None
    unavailable: str = ""
    refused: str = ""

    def log_doubts(self) -> None:
        """Log what was wrong; settings of before are used then."""
        if self.unavailable:
            daemon_messages.ADMIN_SETTINGS_UNAVAILABLE.log(log, self.unavailable)
        if self.refused:
            daemon_messages.ADMIN_SETTINGS_REFUSED.log(log, self.refused)


def managed_settings(conf: Path) -> _Fetched:
    """Fetch the settings from canal-admin, if it hands out any.

    While canal-admin cannot be reached, those that it handed out last are used. Raises
    CanalError if there are none.
    """
    managed = load_managed(conf, os.environ)
    if managed is None:
        return _Fetched()
    conf = conf.absolute()  # a process in the background changes its folder
    settings = ManagedSettings(
        managed,
        lambda: load(conf, os.environ),
        lambda: listed_destinations(conf, os.environ),
    )
    try:
        changes = settings.fetch()
    except SettingsError as error:
        if not settings.has_copy:
            raise
        return _Fetched(settings, unavailable=str(error))
    return _Fetched(settings, refused=changes.refused)


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


def warn_of_zone() -> None:
    """Log a TZ that names no zone: TIMESTAMP columns are then written in UTC."""
    if zone := unknown_zone():
        daemon_messages.TIME_ZONE_UNKNOWN.log(log, printable(zone))


def log_folder(folder: Path, server: ServerConfig) -> LogFolder:
    """Open log files that are rotated as the settings say. Raises ConfigError."""
    file_bytes = server.log_file_megabytes * MEGABYTE
    return LogFolder(folder, file_bytes=file_bytes, files=server.log_files)


def log_to(
    level: str, handler: logging.Handler | None = None, log_format: str = "text"
) -> LogLevels:
    """Log to a handler, by default to standard error; returns the levels."""
    handler = handler or logging.StreamHandler(sys.stderr)
    is_json = log_format == "json"
    handler.setFormatter(JsonFormatter() if is_json else LineFormatter(LOG_LINE))
    levels = LogLevels(level)
    handler.addFilter(levels)
    handler.addFilter(ClientThrottle())
    logging.getLogger().addHandler(handler)
    return levels
