"""`canal-server position show`: the positions of clients, and their lag."""

from __future__ import annotations

import json
import os
import shlex
from typing import TYPE_CHECKING, Any

from canal_server.cli.actions import add_listing_options
from canal_server.cli.conf_options import load_for
from canal_server.cli.position.position_found import (
    Found,
    find_cursors,
    lag_as_json,
    lag_text,
)
from canal_server.cli.status.status_text import error_text
from canal_server.cursor_moves.source_cursors import Part, parts_of, view_of
from canal_server.errors import CanalError
from canal_server.model.position_json import position_as_json
from canal_server.model.quoted import LINE_MAX, printable
from canal_server.source.begin.source_lag import Lag

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

    from canal_server.config.schema import InstanceConfig
    from canal_server.model.cursors import DestinationCursors
    from canal_server.model.positions import LogPosition
    from canal_server.source.begin.source_lag import SourceView


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this action."""
    parser = subparsers.add_parser(
        "show",
        help="print the positions of clients, and their lag",
        description="Print the position that each client has acked, the position up to "
        "which the source was read, and how far both are behind the end of the binlog.",
    )
    add_listing_options(parser)


def run(args: argparse.Namespace) -> int:
    """Print the positions. Raises ConfigError, ControlError, MetaStoreError."""
    data_dir, instances = load_for(args.conf, args.destination, os.environ)
    statuses = [_as_json(each, find_cursors(each, data_dir)) for each in instances]
    if args.json:
        print(json.dumps({"destinations": statuses}, indent=2, ensure_ascii=False))
        return 0
    for number, each in enumerate(statuses):
        if number:
            print()
        for line in _lines(each, args.conf):
            print(printable(line, LINE_MAX))
    return 0


# --- as values ------------------------------------------------------------------------


def _as_json(config: InstanceConfig, found: Found) -> dict[str, Any]:
    """Return the state of a destination as a JSON value."""
    status: dict[str, Any] = {
        "destination": config.destination,
        "running": found.running,
        "runs_on": found.owner or None,
        "error": found.error or None,
        "error_since_ms": found.error_since_ms,
        "source": None,  # in a group, each source has its own
        "problem": None,
    }
    parts = parts_of(config, found.cursors)
    if not config.group:
        status |= _source(parts[0])
        return status
    # The cursor belongs to the source acked last; each source has its own lag.
    status |= _positions(found.cursors, None)
    status["sources"] = [{"name": part.name, **_source(part)} for part in parts]
    return status


def _source(part: Part) -> dict[str, Any]:
    """Return a source, and the positions of clients in it."""
    try:
        with view_of(part) as view:
            return {
                "source": {
                    "address": str(view.access.address),
                    "server": str(view.info),
                    "end": f"{view.end.file}:{view.end.position}",
                },
                "problem": None,
                **_positions(part.cursors, view),
            }
    except CanalError as error:
        return {"source": None, "problem": str(error), **_positions(part.cursors, None)}


def _positions(cursors: DestinationCursors, view: SourceView | None) -> dict[str, Any]:
    parsed = cursors.parsed
    return {
        "parsed": None if parsed is None else _position(parsed, view),
        "clients": [
            {
                "client": each.identity.client_id,
                "filter": each.identity.filter,
                "open_batches": each.open_batches,
                **_position(each.cursor, view, each.furthest()),
            }
            for each in cursors.clients
        ],
    }


def _position(
    position: LogPosition | None,
    view: SourceView | None,
    furthest: LogPosition | None = None,
) -> dict[str, Any]:
    if position is None:
        return {"position": None, "behind": None}
    lag = Lag() if view is None else view.lag_of(furthest or position)
    return {
        **position_as_json(position.position),
        "source": f"{position.identity.address}:{position.identity.port}",
        **lag_as_json(lag),
    }


# --- as text --------------------------------------------------------------------------


def _lines(status: dict[str, Any], conf: Path) -> Iterator[str]:
    if status["running"]:
        state = "running here"
    elif status["runs_on"]:
        state = f"run by {status['runs_on']}; as stored"
    else:
        state = "not running; as stored"
    yield f"destination {status['destination']}: {state}"
    if status["error"]:
        yield f"  error: {error_text(status)}"
    named = f"--conf {shlex.quote(str(conf))} --destination {status['destination']}"
    if "sources" not in status:
        yield from _source_lines(status, named)
    for each in status.get("sources", ()):
        lines = _source_lines(each, f"{named} --source {each['name']}")
        yield f"  {each['name']}: {next(lines).lstrip()}"
        yield from (f"  {line}" for line in lines)
    if not status["clients"]:
        yield "  no client is subscribed"


def _source_lines(status: dict[str, Any], named: str) -> Iterator[str]:
    """Yield at least one line; `named` are the options that select the source."""
    source = status["source"]
    if source is not None:
        yield f"  {source['address']} ({source['server']}), ends at {source['end']}"
    if status["problem"]:
        yield f"  lag is unknown: {status['problem']}"
    if status["parsed"] is not None:
        yield from _position_lines("read up to", status["parsed"], named)
    for client in status["clients"]:
        if client["position"] is None:
            yield f"  client {client['client']}: nothing acked yet"
        else:
            yield from _position_lines(f"client {client['client']} at", client, named)


def _position_lines(what: str, position: dict[str, Any], named: str) -> Iterator[str]:
    when = f" ({position['time']})" if position["time"] else ""
    yield f"  {what} {position['position']}{when}{lag_text(position)}"
    if position["problem"]:
        yield f"    {position['problem']}"
    if position["gone"] is not None:
        client = f" --client-id {position['client']}" if "client" in position else ""
        seek = f"canal-server position seek {named}{client} --to"
        yield f"    {position['gone']['text']}"
        yield "    options: restore the files; or reload the tables, then run"
        yield f"      {seek} oldest   to resume with the remaining changes"
        yield f"      {seek} latest   to resume with new changes"
