"""`canal-server tail`: print changes as they come, as a client of a server."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from canal_server.cli.link import add_link_options, client_of, failure_of
from canal_server.client.format import changes, json_line, text_lines
from canal_server.errors import CanalError
from canal_server.model.entry import EntryType

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from canal_server.client.canal import CanalClient
    from canal_server.protocol.entries import Entry

# An id of our own, so that looking on takes nothing away from the real clients.
TAIL_CLIENT_ID = 9999
_FETCH_SIZE = 1000
_FETCH_TIMEOUT_S = 60.0


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this command."""
    parser = subparsers.add_parser(
        "tail",
        help="print changes as they come, as a client of a server",
        description="Print the changes of a destination: lines for the eye on a "
        "terminal, else one JSON object a line.",
    )
    add_link_options(parser)
    add = parser.add_argument
    add("--filter", default="", help="tables, as regular expressions for schema.table; "
        "default: what the server has configured")  # fmt: skip
    add("--client-id", type=int, metavar="ID", help="go on where this client is, and "
        "leave its subscription in place; default: a new subscription of the id "
        f"{TAIL_CLIENT_ID}, which ends with the command; two commands at once need two "
        "ids")  # fmt: skip
    add("--count", type=int, metavar="N", help="end after N changes")
    add("--no-ack", action="store_true", help="acknowledge nothing: the position of "
        "the client stays where it is (the server stops when its memory for changes "
        "is full)")  # fmt: skip
    add("--transactions", action="store_true", help="print begin and end as well")
    add("--json", action="store_true", help="JSON lines also on a terminal")


def run(args: argparse.Namespace) -> int:
    """Print until the count is reached, Ctrl-C, or the connection ends (status 1)."""
    client = client_of(
        args, TAIL_CLIENT_ID if args.client_id is None else args.client_id
    )
    try:
        with _interrupted_by_signals():
            client.connect()
            with _subscription(client, args):
                _print_changes(client, args)
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        raise  # nobody reads what we print any more; the caller knows what to do
    except (OSError, CanalError) as error:
        print(failure_of(args, error), file=sys.stderr)
        return 1
    finally:
        client.close()
    return 0


def _print_changes(client: CanalClient, args: argparse.Namespace) -> None:
    as_json = args.json or not sys.stdout.isatty()
    colour = not as_json and not os.environ.get("NO_COLOR")
    left = args.count  # None: without end
    others = _OtherReaders(client.client_id)
    while left is None or left > 0:
        message = client.get(_FETCH_SIZE, _FETCH_TIMEOUT_S)
        if not message:
            continue
        others.see(message.id)
        whole = True
        for entry in message.entries:
            lines = list(_lines(entry, args.transactions, as_json, colour))
            if left is not None and entry.entry_type == EntryType.ROWDATA:
                whole = whole and len(lines) <= left
                del lines[left:]
                left -= len(lines)
            sys.stdout.writelines(lines)
        sys.stdout.flush()
        # What was printed in part comes again.
        if whole and not args.no_ack:
            client.ack(message.id)


def _lines(entry: Entry, marks: bool, as_json: bool, colour: bool) -> Iterator[str]:
    if as_json:
        for change in changes(entry, marks=marks):
            yield json_line(change) + "\n"
    else:
        for line in text_lines(entry, colour=colour, marks=marks):
            yield line + "\n"


@contextlib.contextmanager
def _subscription(client: CanalClient, args: argparse.Namespace) -> Iterator[None]:
    """Subscribe; take it back at the end unless it is that of a client of its own.

    A subscription that nobody serves would hold the server's memory.
    """
    client.subscribe(args.filter)
    try:
        yield
    finally:
        if args.client_id is None:
            # On a new connection: the old one may be amid an answer, or broken.
            client.close()
            with contextlib.suppress(OSError, CanalError):  # the server may be gone
                client.connect()
                client.unsubscribe()


class _OtherReaders:
    """Notices another program that reads under the same client id.

    The server numbers the batches of a client one by one, and gives each change to
    one of those who ask in its name: a number that is left out went to somebody else.
    """

    def __init__(self, client_id: int) -> None:
        self._client_id = client_id
        self._last: int | None = None
        self._told = False

    def see(self, message_id: int) -> None:
        """Look at the number of the batch that came; tell once of another reader."""
        left_out = self._last is not None and message_id != self._last + 1
        self._last = message_id
        if left_out and not self._told:
            self._told = True
            print(
                f"canal-server tail: another program reads as client {self._client_id} "
                "too, and each gets a part of the changes; name another --client-id",
                file=sys.stderr,
            )


@contextlib.contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """Let SIGTERM, and SIGHUP of a terminal that closes, end us as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can set it
        return
    before = {
        number: signal.signal(number, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN  # as under nohup
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
