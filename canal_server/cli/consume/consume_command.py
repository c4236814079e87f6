"""`canal-server consume`: run a handler over the changes of a destination."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
import zoneinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from canal_server.cli.consume.consume_handler import READY, load_handler, settings_of
from canal_server.cli.consume.consume_progress import Progress
from canal_server.cli.filter_option import filter_of
from canal_server.cli.interrupts import SAME_S
from canal_server.cli.server_options import (
    add_link_options,
    client_of,
    complete_link,
    failure_of,
)
from canal_server.cli.start import log_to
from canal_server.cli.time_options import count, duration, patience
from canal_server.client.consume.consumer import RETRIES, Consumer
from canal_server.client.consume.dead_letters import DeadLetters
from canal_server.client.handlers.handler import calls_of
from canal_server.client.table_choice import TableChoice
from canal_server.errors import ClientError, ConfigError, ProtocolError
from canal_server.runtime.log_levels import LEVELS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from canal_server.client.canal import CanalClient

CLIENT_ID: Final = 1001
PROGRESS_S: Final = 10.0
BATCH_SIZE: Final = 1000
# Of one transaction, before the handler receives it in parts.
TRANSACTION_BYTES_MAX: Final = 16 * 1024 * 1024
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this command."""
    parser = subparsers.add_parser(
        "consume",
        help="run a handler over changes",
        description="Give the changes of a destination to a handler, in order, until a"
        " signal. Changes are acknowledged when the handler has flushed them, so"
        " that none is lost. Failures are retried. The host may be several names,"
        " separated by commas, or zk://host:2181,… with the ZooKeeper of a"
        " cluster.",
        epilog="Exit status: 0 stopped by SIGTERM, SIGINT (Ctrl-C) or SIGHUP after the"
        " current change; 1 failure, such as a change that cannot be handled,"
        " without --dead-letter; 2 invalid settings or options; 130 a second signal"
        " ended it at once.",
    )
    add_link_options(parser)
    add = parser.add_argument
    add("--handler", required=True, metavar="NAME", help="module:name of a function, "
        "object or class, found in the current folder or installed, or one of "
        f"{', '.join(READY)}")  # fmt: skip
    add("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings",
        help="setting of the handler; may be repeated")  # fmt: skip
    add("--set-env", action="append", default=[], metavar="KEY=VARIABLE",
        dest="variables", help="setting of the handler with the value of an "
        "environment variable, for secrets; may be repeated")  # fmt: skip
    add("--table", action="append", default=[], metavar="SCHEMA.TABLE", dest="tables",
        help="table whose changes are handled; may be repeated (default: all that the "
        "server selects)")  # fmt: skip
    add("--filter", default="", metavar="LIST", help="the same as comma-separated "
        "regular expressions for schema.table")  # fmt: skip
    add("--client-id", type=int, default=CLIENT_ID, metavar="ID", help="client whose "
        "position is used; each consumer needs its own (default: "
        "%(default)s)")  # fmt: skip
    add("--batch-size", type=count, default=BATCH_SIZE, metavar="N", help="maximum "
        "size of a message, in KiB or entries, depending on the server (default: "
        "%(default)s)")  # fmt: skip
    add("--time-zone", type=_zone, metavar="ZONE", help="time zone of the server "
        "process, in which it sends TIMESTAMP columns (default: UTC)")  # fmt: skip
    _add_failure_options(parser)
    add("--progress", type=duration, default=PROGRESS_S, metavar="DURATION",
        help="how often to print a progress line, 0s for never (default: "
        f"{PROGRESS_S:g}s)")  # fmt: skip
    add("--metrics-file", type=Path, metavar="FILE.prom", help="file for counters in"
        " the Prometheus format, for example for node_exporter")  # fmt: skip
    add("--log-level", choices=LEVELS, default="info", help="minimum level of log "
        "messages (default: %(default)s)")  # fmt: skip


def _add_failure_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--retries", type=_number, default=RETRIES, metavar="N", help="how often a"
        " failing change is retried (default: %(default)s)")  # fmt: skip
    add("--retry-for", type=patience, metavar="DURATION", help="how long an unavailable"
        " target is retried (default: without limit)")  # fmt: skip
    add("--dead-letter", type=Path, metavar="FILE", help="file to which changes that"
        " failed for good are appended (default: the first one ends the command with"
        " status 1)")  # fmt: skip


def _number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError("expected 0 or a positive number")
    return int(text)


def _zone(text: str) -> zoneinfo.ZoneInfo:
    try:
        return zoneinfo.ZoneInfo(text)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise argparse.ArgumentTypeError(
            f"{text}: expected the name of a time zone, such as Europe/Berlin"
        ) from None


def run(args: argparse.Namespace) -> int:
    """Handle changes until a signal. Raises CanalError."""
    complete_link(args)
    handler = load_handler(
        args.handler, settings_of(args.settings, args.variables, os.environ)
    )
    args.filter = _filter(args)
    log_to(args.log_level)
    with contextlib.ExitStack() as opened:
        dead_letters = _dead_letters(args)
        if dead_letters is not None:
            opened.callback(dead_letters.close)
        # What receives whole messages has no more than the subscription's filter.
        by_message = calls_of(handler).is_by_message
        consumer = Consumer(
            handler,
            tables=() if by_message else args.tables,
            retries=args.retries,
            retry_for_s=args.retry_for,
            dead_letters=dead_letters,
        )
        return _consume(args, consumer)


def _consume(args: argparse.Namespace, consumer: Consumer) -> int:
    client = _client(args, consumer)
    progress = Progress(client, consumer.counters, args.progress, args.metrics_file)
    with contextlib.closing(client), _stopped_by_signals(consumer):
        try:
            with progress:
                consumer.run(client)
        except (ClientError, ProtocolError) as error:
            print(failure_of(args, error), file=sys.stderr)
            return 1
    return 0


def _client(args: argparse.Namespace, consumer: Consumer) -> CanalClient:
    try:
        return client_of(
            args,
            args.client_id,
            filter=args.filter,
            batch_size=args.batch_size,
            time_zone=args.time_zone,
            ack="manual",
            whole_transactions=True,
            transaction_bytes_max=TRANSACTION_BYTES_MAX,
            over_limit="part",
            reconnect_for_s=None,
            on_redelivery=consumer.forget,
        )
    except ValueError as error:
        raise ConfigError([str(error)]) from error


def _filter(args: argparse.Namespace) -> str:
    """Return the filter to subscribe with. Raises ConfigError."""
    if not args.tables:
        filter_of(args)
        return str(args.filter)
    if args.filter:
        raise ConfigError(["--table and --filter exclude each other"])
    try:
        filters = [TableChoice(each).filter for each in args.tables]
    except ValueError as error:
        raise ConfigError([f"--table: {error}"]) from error
    # A name that no expression can have is selected here, and not by the server.
    return ",".join(filters) if all(filters) else ""


def _dead_letters(args: argparse.Namespace) -> DeadLetters | None:
    if args.dead_letter is None:
        return None
    try:
        return DeadLetters(args.dead_letter)
    except OSError as error:
        raise ConfigError(
            [f"--dead-letter {args.dead_letter}: {error.strerror}"]
        ) from error


@contextlib.contextmanager
def _stopped_by_signals(consumer: Consumer) -> Iterator[None]:
    """End the consumer after the message at hand at a signal, at once at another."""
    first_s: float | None = None

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal first_s
        now_s = time.monotonic()
        if first_s is None:
            first_s = now_s
            name = signal.Signals(number).name
            text = f"received {name}, shutting down (repeat to force)"
            # Not by way of a buffer, which the interrupted code may be writing to.
            os.write(2, f"canal-server consume: {text}\n".encode())
            consumer.stop()
        elif now_s - first_s >= SAME_S:
            raise KeyboardInterrupt

    before = {
        number: signal.signal(number, on_signal)
        for number in _SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN  # as under nohup
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
