"""`canal-server subscriptions list`: the positions of ranged readers, and their lag."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from canal_server.cli.actions import add_listing_options
from canal_server.cli.conf_options import load_for
from canal_server.cli.position.position_found import (
    find_cursors,
    lag_as_json,
    lag_text,
)
from canal_server.cursor_moves.source_cursors import parts_of, view_of
from canal_server.daemon.control import NoServer, ask
from canal_server.errors import CanalError
from canal_server.model.moments import time_text
from canal_server.model.positions import EntryPosition, LogPosition
from canal_server.model.quoted import LINE_MAX, printable
from canal_server.model.ranges import EpochPosition, Subscription
from canal_server.ranges.offline_range_cursors import read_subscriptions
from canal_server.source.begin.source_lag import Lag

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from canal_server.config.schema import InstanceConfig
    from canal_server.source.begin.source_lag import SourceView


@dataclass(frozen=True, slots=True)
class Found:
    """The subscriptions of a destination, from its server or as stored.

    `queries` maps a subscription to the query that currently reads it.
    """

    subscriptions: Sequence[Subscription]
    epoch: int | None
    running: bool = False
    owner: str = ""
    queries: Mapping[str, str] = field(default_factory=dict)


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this action."""
    parser = subparsers.add_parser(
        "list",
        help="print the subscriptions, and their lag",
        description="Print the position of each subscription, its lag behind the end "
        "of the binlog, the time of its last ack, and whether a query reads it now.",
    )
    add_listing_options(parser)


def run(args: argparse.Namespace) -> int:
    """Print the subscriptions. Raises ConfigError, ControlError, MetaStoreError."""
    data_dir, instances = load_for(args.conf, args.destination, os.environ)
    statuses = [_as_json(each, data_dir) for each in instances if not each.group]
    if args.json:
        print(json.dumps({"destinations": statuses}, indent=2, ensure_ascii=False))
        return 0
    for number, each in enumerate(statuses):
        if number:
            print()
        for line in _lines(each):
            print(printable(line, LINE_MAX))
    return 0


def find_subscriptions(config: InstanceConfig, data_dir: Path) -> Found:
    """Ask the server, or read the stored subscriptions.

    Raises ControlError, MetaStoreError.
    """
    reply: dict[str, Any] = {"running": False}
    with contextlib.suppress(NoServer):
        reply = ask(data_dir, "subscriptions", destination=config.destination)
    if not reply["running"]:
        stored = read_subscriptions(config)
        return Found(stored.found, stored.epoch, owner=stored.owner)
    found = [
        Subscription(
            each["name"],
            each["filter"],
            EpochPosition(each["epoch"], each["journal"], each["position"]),
            each["acked_ms"],
        )
        for each in reply["subscriptions"]
    ]
    queries = {
        each["name"]: each["query"] for each in reply["subscriptions"] if each["query"]
    }
    return Found(found, reply["epoch"], running=True, queries=queries)


# --- as values ------------------------------------------------------------------------


def _as_json(config: InstanceConfig, data_dir: Path) -> dict[str, Any]:
    """Return the subscriptions of a destination as a JSON value."""
    found = find_subscriptions(config, data_dir)
    status: dict[str, Any] = {
        "destination": config.destination,
        "running": found.running,
        "runs_on": found.owner or None,
        "source": None,
        "problem": None,
        "subscriptions": [],
    }
    if not found.subscriptions:
        return status
    (part,) = parts_of(config, find_cursors(config, data_dir).cursors)
    try:
        with view_of(part) as view:
            return status | {
                "source": {
                    "address": str(view.access.address),
                    "server": str(view.info),
                    "end": f"{view.end.file}:{view.end.position}",
                },
                "subscriptions": _each(found, view),
            }
    except CanalError as error:
        return status | {"problem": str(error), "subscriptions": _each(found, None)}


def _each(found: Found, view: SourceView | None) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "filter": each.filter,
            "position": f"{each.cursor.journal}:{each.cursor.position}",
            "epoch": each.cursor.epoch,
            "acked": time_text(each.acked_ms) or None,
            "query": found.queries.get(each.name),
            **lag_as_json(_lag(each.cursor, found.epoch, view)),
        }
        for each in sorted(found.subscriptions, key=lambda each: each.name)
    ]


def _lag(cursor: EpochPosition, epoch: int | None, view: SourceView | None) -> Lag:
    if view is None:
        return Lag()
    if cursor.epoch != epoch:
        return Lag(
            problem=f"its position is in epoch {cursor.epoch}, but the source has"
            f" started a new binlog since (epoch {epoch})"
        )
    position = EntryPosition(cursor.journal, cursor.position, included=True)
    return view.lag_of(LogPosition(view.identity, position))


# --- as text --------------------------------------------------------------------------


def _lines(status: dict[str, Any]) -> Iterator[str]:
    if status["running"]:
        state = "running here"
    elif status["runs_on"]:
        state = f"run by {status['runs_on']}; as stored"
    else:
        state = "not running; as stored"
    yield f"destination {status['destination']}: {state}"
    if (source := status["source"]) is not None:
        yield f"  {source['address']} ({source['server']}), ends at {source['end']}"
    if status["problem"]:
        yield f"  lag is unknown: {status['problem']}"
    for each in status["subscriptions"]:
        yield f"  {each['name']} at {each['position']}{lag_text(each)}"
        acked = f"last acked {each['acked']}" if each["acked"] else "nothing acked yet"
        if status["running"]:
            acked += (
                f", read by query {each['query']}" if each["query"] else ", not read"
            )
        yield f"    {acked}; filter {each['filter'] or 'of the destination'}"
        if each["problem"]:
            yield f"    {each['problem']}"
        if each["gone"] is not None:
            yield f"    {each['gone']['text']}"
    if not status["subscriptions"]:
        yield "  no subscriptions"
