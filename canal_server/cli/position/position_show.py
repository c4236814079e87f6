"""`canal-server position show`: where clients stand, and how far they are behind."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from canal_server.cli.actions import add_listing_options
from canal_server.cli.conf_options import load_for
from canal_server.cli.position.position_found import (
    Found,
    find_cursors,
    lag_as_json,
    lag_text,
)
from canal_server.cli.position.position_parts import Part, parts_of, view_of
from canal_server.cli.schema.schema_options import place_as_json
from canal_server.cli.status.status_text import error_text
from canal_server.errors import CanalError
from canal_server.model.quoted import LINE_MAX, printable
from canal_server.source.begin.source_lag import Lag

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from canal_server.config.schema import InstanceConfig
    from canal_server.model.cursors import DestinationCursors
    from canal_server.model.positions import LogPosition
    from canal_server.source.begin.source_lag import SourceView


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this action."""
    parser = subparsers.add_parser(
        "show",
        help="print where clients stand, and how far they are behind",
        description="Print the position up to which each client has acked, the one up "
        "to which the source was read, and how far they are behind its end.",
    )
    add_listing_options(parser)


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
            print(printable(line, LINE_MAX))
    return 0


# --- as values ------------------------------------------------------------------------


def _told(config: InstanceConfig, found: Found) -> dict[str, Any]:
    """Return all that is told of a destination, as values of JSON."""
    told: dict[str, Any] = {
        "destination": config.destination,
        "running": found.running,
        "runs_on": found.owner or None,
        "error": found.error or None,
        "error_since_ms": found.error_since_ms,
        "source": None,  # of a group each source tells it
        "problem": None,
    }
    parts = parts_of(config, found.cursors)
    if not config.group:
        told |= _source(parts[0])
        return told
    # The cursor is of whichever source was acked last: distances are of each.
    told |= _places(found.cursors, None)
    told["sources"] = [{"name": part.name, **_source(part)} for part in parts]
    return told


def _source(part: Part) -> dict[str, Any]:
    """Return a source, and where clients stand in it."""
    try:
        with view_of(part) as view:
            return {
                "source": {
                    "address": str(view.access.address),
                    "server": str(view.info),
                    "end": f"{view.end.file}:{view.end.position}",
                },
                "problem": None,
                **_places(part.cursors, view),
            }
    except CanalError as error:
        return {"source": None, "problem": str(error), **_places(part.cursors, None)}


def _places(cursors: DestinationCursors, view: SourceView | None) -> dict[str, Any]:
    parsed = cursors.parsed
    return {
        "parsed": None if parsed is None else _place(parsed, view),
        "clients": [
            {
                "client": each.identity.client_id,
                "filter": each.identity.filter,
                "open_batches": each.open_batches,
                **_place(each.cursor, view, each.furthest()),
            }
            for each in cursors.clients
        ],
    }


def _place(
    position: LogPosition | None,
    view: SourceView | None,
    furthest: LogPosition | None = None,
) -> dict[str, Any]:
    if position is None:
        return {"position": None, "behind": None}
    behind = Lag() if view is None else view.behind(furthest or position)
    return {
        **place_as_json(position.position),
        "source": f"{position.identity.address}:{position.identity.port}",
        **lag_as_json(behind),
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
    if told["error"]:
        yield f"  error: {error_text(told)}"
    name = told["destination"]
    if "sources" not in told:
        yield from _source_lines(told, f"--destination {name}")
    for each in told.get("sources", ()):
        lines = _source_lines(each, f"--destination {name} --source {each['name']}")
        yield f"  {each['name']}: {next(lines).lstrip()}"
        yield from (f"  {line}" for line in lines)
    if not told["clients"]:
        yield "  no client is subscribed"


def _source_lines(told: dict[str, Any], named: str) -> Iterator[str]:
    """Yield at least one line; `named` tells a seek which source is meant."""
    source = told["source"]
    if source is not None:
        yield f"  {source['address']} ({source['server']}), ends at {source['end']}"
    if told["problem"]:
        yield f"  how far behind is not known: {told['problem']}"
    if told["parsed"] is not None:
        yield from _place_lines("read up to", told["parsed"], named)
    for client in told["clients"]:
        if client["position"] is None:
            yield f"  client {client['client']}: nothing acked yet"
        else:
            yield from _place_lines(f"client {client['client']} at", client, named)


def _place_lines(what: str, place: dict[str, Any], named: str) -> Iterator[str]:
    when = f" ({place['time']})" if place["time"] else ""
    yield f"  {what} {place['position']}{when}{lag_text(place)}"
    if place["problem"]:
        yield f"    {place['problem']}"
    if place["gone"] is not None:
        client = f" --client {place['client']}" if "client" in place else ""
        seek = f"canal-server position seek {named}{client} --to"
        yield f"    {place['gone']['text']}"
        yield "    choices: put the files back; or load the tables again, then"
        yield f"      {seek} oldest   resumes with what is left"
        yield f"      {seek} latest   resumes with what comes"
