"""`canal-server tail`: print changes as they arrive, as a client of a server."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import TYPE_CHECKING, Any, Final

from canal_server.cli import flat_output
from canal_server.cli.filter_option import add_filter_option, filter_of
from canal_server.cli.interrupts import Interrupts
from canal_server.cli.server_options import (
    add_link_options,
    client_of,
    complete_link,
    failure_of,
)
from canal_server.cli.tail.tail_ids import (
    ANSWER_S,
    IDS,
    clients_of,
    end_forgotten,
    free_id,
    state_of,
)
from canal_server.cli.tail.tail_print import Printer
from canal_server.cli.tail.tail_ranged import follow, start_of
from canal_server.cli.tail.tail_silence import Silence
from canal_server.cli.time_options import count
from canal_server.errors import CanalError, ClientError, ConfigError
from canal_server.protocol.range_messages import NOT_HERE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canal_server.client.canal import CanalClient

_FETCH_SIZE: Final = 1000
_FIRST_WAIT_S: Final = 2.0  # for the first change, before the reason is printed
_WAIT_S_MAX: Final = 30.0  # between two checks of the reason
_BUSY: Final = "the server has not answered yet"
_NOT_HERE: Final = "should start first"  # the text of the protocol


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this command."""
    parser = subparsers.add_parser(
        "tail",
        help="print changes as they arrive",
        description="Print the changes of a destination: as text on a terminal, else "
        "as one JSON object per line. While there are no changes, the reason is "
        "printed on standard error.",
        epilog="Exit status: 0 the count is reached, or interrupted by Ctrl-C, SIGTERM "
        "or SIGHUP; 1 failure, or the server stopped; 2 invalid settings or "
        "options.",
    )
    add_link_options(parser)
    add = parser.add_argument
    add_filter_option(parser, "the filter configured on the server")
    add("--from", "--since", dest="start", metavar="START", type=_start, help="where "
        "to start: FILE:POSITION, a time (2026-11-21T10:00:00, -10m, -1h, milliseconds "
        "since 1970), gtid:SET, oldest or latest; the binlog of the source is read "
        "again without subscribing a client; default: the oldest change that the "
        "server holds in memory")  # fmt: skip
    add("--client-id", type=int, metavar="ID", help="resume from the position of this "
        "client, and keep its subscription; default: an unused id, whose subscription "
        "is removed at the end")  # fmt: skip
    add("--count", type=count, metavar="N", help="stop after N changes")
    add("--no-ack", action="store_true", help="do not acknowledge changes, so the "
        "position of the client does not move (the server stops reading when its "
        "memory for changes is full)")  # fmt: skip
    add(
        "--transactions",
        action="store_true",
        help="also print the begin and end of transactions",
    )
    add("--json", action="store_true", help="print JSON lines also on a terminal")
    add("--canal-json", action="store_true", help=flat_output.HELP)


def _start(text: str) -> str:
    try:
        return start_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None  # the cause adds nothing


def run(args: argparse.Namespace) -> int:
    """Print until the count is reached, Ctrl-C, or the connection ends (status 1)."""
    if args.start is not None and (args.client_id is not None or args.no_ack):
        raise ConfigError(
            [("--from reads the binlog without a client: leave out --client-id"
             " and --no-ack")]
        )  # fmt: skip
    flat_output.check_flat_options(args)
    filter_of(args)
    complete_link(args)
    try:
        interrupts = Interrupts()
        with interrupts.caught():
            if args.start is None:
                _as_client(args, interrupts)
            else:
                with interrupts.allowed():
                    follow(args, Printer(args), Silence(args))
    except KeyboardInterrupt:
        pass
    except ConfigError:
        raise  # invalid options
    except (OSError, CanalError) as error:
        print(failure_of(args, error), file=sys.stderr)
        if isinstance(error, ClientError) and (
            error.code == NOT_HERE or _NOT_HERE in str(error)
        ):
            Silence(args).explain()
        return 1
    return 0


def _as_client(args: argparse.Namespace, interrupts: Interrupts) -> None:
    """Print what a client receives. Raises the error that ends it.

    A signal during the subscribe request waits for its answer, because a request in
    flight cannot be undone.
    """
    client = client_of(args, IDS.start if args.client_id is None else args.client_id)
    silence = Silence(args)
    try:
        with interrupts.allowed():
            with silence.while_waiting(_FIRST_WAIT_S, _BUSY):
                client.connect()
            if args.client_id is None:
                clients = clients_of(state_of(args))
                end_forgotten(args, clients)
                client.client_id = free_id(clients)
        with _subscription(client, args, silence), interrupts.allowed():
            _print_changes(client, args, silence)
    finally:
        client.close()


def _print_changes(
    client: CanalClient, args: argparse.Namespace, silence: Silence
) -> None:
    printer = Printer(args)
    others = _OtherReaders(client.client_id)
    wait_s = _FIRST_WAIT_S
    while not printer.has_enough():
        with silence.while_waiting(wait_s + _FIRST_WAIT_S, _BUSY):
            message = client.get(_FETCH_SIZE, wait_s)
        if not message:
            silence.explain()
            wait_s = min(2 * wait_s, _WAIT_S_MAX)
            continue
        wait_s = _FIRST_WAIT_S
        others.see(message.id)
        whole = printer.take(message.body)
        if printer.has_printed_changes:
            silence.end()
        # Changes that were printed only in part are delivered again.
        if whole and not args.no_ack:
            client.ack(message.id)


@contextlib.contextmanager
def _subscription(
    client: CanalClient, args: argparse.Namespace, silence: Silence
) -> Iterator[None]:
    """Subscribe; unsubscribe at the end unless the client has its own id.

    A subscription without a reader would retain changes in the server's memory.
    """
    options = {}
    try:
        with silence.while_waiting(_FIRST_WAIT_S, _BUSY):
            client.subscribe(args.filter)
        yield
    except TimeoutError:
        # The command has waited long enough; the next one removes the subscription.
        options = {"timeout_s": ANSWER_S}
        raise
    finally:
        if args.client_id is None:
            # On a new connection: the old one may wait for an answer, or be broken.
            client.close()
            with (
                contextlib.suppress(OSError, CanalError),  # the server may have stopped
                client_of(args, client.client_id, **options) as other,
            ):
                other.unsubscribe()


class _OtherReaders:
    """Notices another program that reads with the same client id.

    The server numbers the batches of a client consecutively and gives each change to
    only one of its readers: a missing number was delivered to another reader.
    """

    def __init__(self, client_id: int) -> None:
        self._client_id = client_id
        self._last: int | None = None
        self._has_warned = False

    def see(self, message_id: int) -> None:
        """Check the number of a batch; warns once about another reader."""
        left_out = self._last is not None and message_id != self._last + 1
        self._last = message_id
        if left_out and not self._has_warned:
            self._has_warned = True
            print(
                f"canal-server tail: another program also reads as client "
                f"{self._client_id}, so each gets only some changes; choose another "
                "--client-id",
                file=sys.stderr,
            )
