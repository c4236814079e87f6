"""`canal-server unsubscribe`: remove the subscription of a client."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from canal_server.cli.actions import add_json_option, print_json
from canal_server.cli.no_answer import reported
from canal_server.cli.server_options import (
    add_link_options,
    client_of,
    complete_link,
    failure_of,
)
from canal_server.errors import CanalError, ClientError

if TYPE_CHECKING:
    import argparse

    from canal_server.client.canal import CanalClient

_NO_BATCH: Final = -1  # an ack of it changes nothing
_NOT_SUBSCRIBED: Final = "should subscribe first"  # the text of the protocol


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this command."""
    parser = subparsers.add_parser(
        "unsubscribe",
        help="remove the subscription of a client",
        description="Remove the subscription of a client, so that the server no longer"
        " retains changes for it. It misses changes that the others ack before it"
        " subscribes again.",
        epilog="Exit status: 0 success, 1 failure, or the client is not subscribed, 2 "
        "invalid settings or options, 130 interrupted by Ctrl-C.",
    )
    add_link_options(parser, changes=True)
    parser.add_argument(
        "--client-id",
        "--client",
        dest="client_id",
        type=int,
        required=True,
        metavar="ID",
        help="id of the client; `canal-server status` lists them",
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Unsubscribe; status 1 if the server refuses, or has no such client."""
    complete_link(args, changes=True)
    client = client_of(args, args.client_id)
    try:
        with reported(args), client:
            _unsubscribe(client)
    except (OSError, CanalError) as error:
        print(failure_of(args, error), file=sys.stderr)
        return 1
    if args.json:
        print_json({"destination": args.destination, "unsubscribed": args.client_id})
    else:
        print(f"client {args.client_id} is no longer subscribed to {args.destination}")
    return 0


def _unsubscribe(client: CanalClient) -> None:
    """Remove the subscription. Raises ClientError if there is none.

    The protocol answers both the same way. But an ack without a batch, which changes
    nothing, is refused for a client that is not subscribed.
    """
    client.ack(_NO_BATCH)
    try:
        client.unsubscribe()
    except ClientError as error:
        if _NOT_SUBSCRIBED in str(error):
            raise ClientError(
                f"client {client.client_id} is not subscribed; `canal-server status`"
                " lists the subscribed clients"
            ) from error
        # A client that cannot receive changes may not ack either, but may unsubscribe.
        client.connect()
        client.unsubscribe()
