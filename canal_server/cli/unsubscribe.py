"""`canal-server unsubscribe`: end the subscription of a client that is gone."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from canal_server.cli.actions import add_json_option, print_json
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
_NOT_SUBSCRIBED: Final = "should subscribe first"  # the words of the protocol


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this command."""
    parser = subparsers.add_parser(
        "unsubscribe",
        help="end the subscription of a client that is gone for good",
        description="End a client's subscription, so that the server holds no changes "
        "for it any more. It misses those that the others ack before it subscribes "
        "again.",
        epilog="Exit status: 0 done, 1 failed, or the client is not subscribed, 2 "
        "settings or options that cannot be used, 130 ended by Ctrl-C.",
    )
    add_link_options(parser)
    parser.add_argument(
        "--client-id",
        type=int,
        required=True,
        metavar="ID",
        help="whose subscription; `canal-server status` lists them",
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """End it; status 1 when the server refuses, or has no such client."""
    complete_link(args)
    client = client_of(args, args.client_id)
    try:
        with client:
            _unsubscribe(client)
    except (OSError, CanalError) as error:
        print(failure_of(args, error), file=sys.stderr)
        return 1
    if args.json:
        print_json({"destination": args.destination, "unsubscribed": args.client_id})
    else:
        print(
            f"client {args.client_id} is not subscribed to {args.destination} any more"
        )
    return 0


def _unsubscribe(client: CanalClient) -> None:
    """End the subscription. Raises ClientError when there is none.

    The protocol answers both alike. But an ack of no batch, which changes nothing, is
    refused to a client that is not subscribed, and its refusal comes first.
    """
    client.ack(_NO_BATCH)
    try:
        client.unsubscribe()
    except ClientError as error:
        if _NOT_SUBSCRIBED in str(error):
            raise ClientError(
                f"client {client.client_id} is not subscribed; `canal-server status`"
                " lists those that are"
            ) from error
        # A client that can be given nothing may not ack either, but may leave.
        client.connect()
        client.unsubscribe()
