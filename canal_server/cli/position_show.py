"""`canal-server position show`: where clients stand, and how far they are behind."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from canal_server.cli.conf import add_conf_option, load_for
from canal_server.cli.position_found import (
    Found,
    access_for,
    amount_text,
    find_cursors,
    gone_text,
)
from canal_server.cli.schema_options import place_as_json, printable
from canal_server.dump.lag import Behind, SourceView
from canal_server.errors import CanalError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from canal_server.config.schema import InstanceConfig
    from canal_server.model.positions import LogPosition


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this action."""
    parser = subparsers.add_parser(
        "show",
        help="print where clients stand, and how far they are behind",
        description="Print the place up to which each client has acked, the one up to "
        "which the source was read, and how far they are behind its end.",
    )
    add_conf_option(parser)
    parser.add_argument(
        "--destination", metavar="NAME", help="this one only (default: all)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for machines")


def run(args: argparse.Namespace) -> int:
    """Print the places. Raises ConfigError, ControlError, MetaStoreError."""
    data_dir, instances = load_for(args.conf, args.destination, os.environ)
    told = [_told(each, find_cursors(each, data_dir)) for each in instances]
    if args.json:
        print(json.dumps({"destinations": told}, indent=2, ensure_ascii=False))
        return 0
    for number, each in enumerate(told):
        if number:
            print()
        for line in _lines(each):
            print(printable(line))
    return 0


# --- as values ------------------------------------------------------------------------


def _told(config: InstanceConfig, found: Found) -> dict[str, Any]:
    """Return all that is told of a destination, as values of JSON."""
    told: dict[str, Any] = {
        "destination": config.destination,
        "running": found.running,
        "runs_on": found.owner or None,
        "source": None,
        "problem": None,
    }
    if config.group:
        told["problem"] = (
            "it merges several sources; `canal-server status` tells of each, distances"
            " are told of single ones only"
        )
        _add_places(told, found, None)
        return told
    try:
        with SourceView(config, access_for(config, found.cursors)) as view:
            told["source"] = {
                "address": str(view.access.address),
                "server": str(view.info),
                "end": f"{view.end.file}:{view.end.position}",
            }
            _add_places(told, found, view)
    except CanalError as error:
        told["problem"] = str(error)
        _add_places(told, found, None)
    return told


def _add_places(told: dict[str, Any], found: Found, view: SourceView | None) -> None:
    parsed = found.cursors.parsed
    told["parsed"] = None if parsed is None else _place(parsed, view)
    told["clients"] = [
        {
            "client": each.identity.client_id,
            "filter": each.identity.filter,
            "open_batches": each.open_batches,
            **_place(each.cursor, view, each.furthest()),
        }
        for each in found.cursors.clients
    ]


def _place(
    position: LogPosition | None,
    view: SourceView | None,
    furthest: LogPosition | None = None,
) -> dict[str, Any]:
    if position is None:
        return {"position": None, "behind": None}
    behind = Behind() if view is None else view.behind(furthest or position)
    gone = behind.gone
    return {
        **place_as_json(position.position),
        "source": f"{position.identity.address}:{position.identity.port}",
        "behind": {
            "bytes": behind.bytes,
            "seconds": None if behind.seconds is None else round(behind.seconds, 3),
            "transactions": behind.transactions,
        },
        "gone": None
        if gone is None
        else {
            "first": gone.first,
            "last": gone.last,
            "files": gone.files,
            "transactions": gone.transactions,
            "text": gone_text(gone),
        },
        "problem": behind.problem or None,
    }


# --- as text --------------------------------------------------------------------------


def _lines(told: dict[str, Any]) -> Iterator[str]:
    if told["running"]:
        state = "running here"
    elif told["runs_on"]:
        state = f"run by {told['runs_on']}; as stored"
    else:
        state = "not running; as stored"
    yield f"destination {told['destination']}: {state}"
    source = told["source"]
    if source is not None:
        yield f"  {source['address']} ({source['server']}), ends at {source['end']}"
    if told["problem"]:
        yield f"  how far behind is not known: {told['problem']}"
    if told["parsed"] is not None:
        yield from _place_lines("read up to", told["parsed"], told["destination"])
    for client in told["clients"]:
        if client["position"] is None:
            yield f"  client {client['client']}: nothing acked yet"
        else:
            yield from _place_lines(
                f"client {client['client']} at", client, told["destination"]
            )
    if not told["clients"]:
        yield "  no client is subscribed"


def _place_lines(what: str, place: dict[str, Any], destination: str) -> Iterator[str]:
    when = f" ({place['time']})" if place["time"] else ""
    yield f"  {what} {place['position']}{when}{_behind_text(place)}"
    if place["problem"]:
        yield f"    {place['problem']}"
    if place["gone"] is not None:
        client = f" --client {place['client']}" if "client" in place else ""
        seek = f"canal-server position seek --destination {destination}{client} --to"
        yield f"    {place['gone']['text']}"
        yield "    choices: put the files back; or load the tables anew, then"
        yield f"      {seek} oldest   begins with what is left"
        yield f"      {seek} latest   begins with what comes"


def _behind_text(place: dict[str, Any]) -> str:
    behind = place["behind"]
    if behind["transactions"] == 0:
        return ": up to date"
    if behind["bytes"] is None and behind["transactions"] is None:
        seconds = behind["seconds"]
        return "" if seconds is None else f": {seconds:.0f} s behind"
    amount = amount_text(behind["transactions"], behind["bytes"])
    seconds = behind["seconds"]
    return f": {amount}{'' if seconds is None else f', {seconds:.0f} s'} behind"
