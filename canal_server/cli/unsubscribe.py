"""`canal-server unsubscribe`: end the subscription of a client that is gone."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from canal_server.cli.link import add_link_options, client_of, failure_of
from canal_server.errors import CanalError

if TYPE_CHECKING:
    import argparse


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this command."""
    parser = subparsers.add_parser(
        "unsubscribe",
        help="end the subscription of a client that is gone for good",
        description="End a client's subscription, so that the server holds no changes "
        "for it any more. It misses those that the others ack before it subscribes "
        "again.",
    )
    add_link_options(parser)
    parser.add_argument(
        "--client-id",
        type=int,
        required=True,
        metavar="ID",
        help="whose subscription; `canal-server status` lists them",
    )


def run(args: argparse.Namespace) -> int:
    """End it; status 1 when the server cannot be reached or refuses."""
    client = client_of(args, args.client_id)
    try:
        with client:
            client.unsubscribe()
    except (OSError, CanalError) as error:
        print(failure_of(args, error), file=sys.stderr)
        return 1
    print(f"client {args.client_id} is not subscribed to {args.destination} any more")
    return 0
