"""`canal-server position seek`: move clients to another place of the binlog."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from canal_server.cli.actions import (
    add_destination_options,
    add_json_option,
    print_json,
)
from canal_server.cli.conf_options import load_for, named
from canal_server.cli.position.position_found import (
    Found,
    amount_text,
    find_cursors,
    place_text,
    purged_text,
)
from canal_server.cli.position.position_parts import (
    Part,
    chosen_parts,
    parts_of,
    view_of,
)
from canal_server.cli.schema.schema_options import place_as_json, printable
from canal_server.daemon.control import ask, locked
from canal_server.errors import (
    CanalError,
    ConfigError,
    ConnectionLost,
    PositionError,
    SourceRefused,
)
from canal_server.model.moments import time_text
from canal_server.model.positions import (
    EntryPosition,
    LogPosition,
    log_position_to_json,
)
from canal_server.position.log_positions import same_server
from canal_server.position.offline import check_subscribed, move_stored
from canal_server.source.begin.seek_target import (
    Target,
    TargetFinder,
    Wanted,
    parse_target,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from canal_server.config.schema import InstanceConfig
    from canal_server.model.cursors import ClientCursor
    from canal_server.source.begin.source_lag import SourceView

SEEK_TIMEOUT_S: Final = 60.0  # for the server to stop reading and to begin anew
_NOBODY: Final = (
    "nothing was changed: standard input is no terminal, so the move cannot be"
    " confirmed; add --yes to move without being asked"
)


@dataclass(frozen=True, slots=True)
class _Move:
    """Where clients go in one source, which has no name if it is the only one."""

    source: str
    to: LogPosition
    effects: list[str]


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this action."""
    parser = subparsers.add_parser(
        "seek",
        help="move clients to another position",
        description="Move clients to another position of the source's binlog. What "
        "comes again or is skipped is printed before. A running server resumes from "
        "there at once, and its clients stay connected; batches that they have open "
        "are void.",
    )
    add_destination_options(parser, "whose clients")
    add = parser.add_argument
    add("--to", required=True, type=_target, metavar="TARGET",
        help="FILE:POSITION, a GTID set, a time with its zone "
        "(2026-11-21T10:00:00+00:00), in milliseconds since 1970 or relative to now "
        "(-1h, -10m, -2d), oldest, latest")  # fmt: skip
    add("--source", metavar="NAME", help="in a group move in this source only, named "
        "masterN or by its address; needed for FILE:POSITION and a GTID set (default: "
        "in all)")  # fmt: skip
    add("--client", type=int, action="append", metavar="ID",
        help="this client only; may be given again (default: all)")  # fmt: skip
    add("--dry-run", action="store_true", help="print what would happen, no more")
    add("--yes", action="store_true", help="do it without asking")
    add_json_option(parser)


def _target(text: str) -> Wanted:
    try:
        return parse_target(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None  # says no more


def run(args: argparse.Namespace) -> int:
    """Move the clients. Raises CanalError."""
    data_dir, instances = load_for(args.conf, args.destination, os.environ)
    instance = named(instances, args.destination)
    found = find_cursors(instance, data_dir)
    parts = parts_of(instance, found.cursors)
    chosen = chosen_parts(instance, parts, args.source, args.to)
    moved = _chosen(instance, found, args.client)
    ids = {each.identity.client_id for each in moved}
    for part in parts:
        if part not in chosen:
            _check_kept(part)
    moves = _look_at_all(chosen, args.to, ids)
    others_stay = len(chosen) < len(parts)
    if not args.json:
        for line in _lines(instance, moves, others_stay=others_stay):
            print(printable(line))
    if not args.dry_run and not args.yes and not _agreed():
        print("canal-server position seek: nothing was changed", file=sys.stderr)
        return 1
    if not args.dry_run:
        _move(instance, data_dir, moved, [each.to for each in moves])
    if args.json:
        print_json(_as_json(instance, moves, sorted(ids), moved=not args.dry_run))
    else:
        print("nothing was changed" if args.dry_run else "done")
    return 0


def _lines(
    instance: InstanceConfig, moves: list[_Move], *, others_stay: bool
) -> Iterator[str]:
    for each in moves:
        name = f", {each.source}" if each.source else ""
        where = place_text(each.to.position)
        yield f"destination {instance.destination}{name}: to {where}"
        yield from (f"  {effect}" for effect in each.effects)
    if others_stay:
        yield (
            "in the other sources all clients stay where they are; what they have got"
            " and not acked comes again"
        )


def _as_json(
    instance: InstanceConfig, moves: list[_Move], clients: list[int], *, moved: bool
) -> dict[str, Any]:
    return {
        "destination": instance.destination,
        "moved": moved,
        "clients": clients,
        "sources": [
            {
                "name": each.source or None,
                **place_as_json(each.to.position),
                "effects": each.effects,
            }
            for each in moves
        ],
    }


def _look_at_all(
    parts: list[Part], wanted: Wanted, ids: Collection[int]
) -> list[_Move]:
    """Find the position in each of some sources, and what a move there does."""
    try:
        return [_look(part, wanted, ids) for part in parts]
    except (ConnectionLost, SourceRefused) as error:
        if len(parts) == 1:
            raise
        raise CanalError(
            f"{error}; nothing was changed: --source moves clients in one source,"
            f" whatever becomes of the others: {', '.join(each.name for each in parts)}"
        ) from error


def _look(part: Part, wanted: Wanted, ids: Collection[int]) -> _Move:
    """Find the position in one source, and what a move to it does."""
    moved: list[ClientCursor] = []
    others: list[ClientCursor] = []
    for each in part.cursors.clients:
        (moved if each.identity.client_id in ids else others).append(each)
    with view_of(part) as view:
        target = TargetFinder(view).find(wanted)
        _check_others(part, view, others)
        effects = list(_effects(view, target, moved, others=bool(others)))
        return _Move(part.name, LogPosition(view.identity, target.place), effects)


def _chosen(
    config: InstanceConfig, found: Found, wanted: Collection[int] | None
) -> list[ClientCursor]:
    """Return the clients to move. Raises CanalError when there are none."""
    clients = found.cursors.clients
    if not found.running and found.owner:
        raise CanalError(
            f"destination {config.destination} is run by {found.owner}: run this"
            " command where that server runs, or stop it"
        )
    if not clients:
        raise CanalError(
            f"destination {config.destination} has no clients: nothing is stored that"
            " could be moved; where it begins is configured"
            " (canal.instance.master.journal.name and .position)"
        )
    if wanted is None:
        return list(clients)
    check_subscribed(
        config.destination, wanted, [each.identity.client_id for each in clients]
    )
    return [each for each in clients if each.identity.client_id in wanted]


def _check_kept(part: Part) -> None:
    """Refuse when clients would lose what only the server has of another source.

    All sources are read anew from where their clients stand, so that what these have
    not acked has to be there.
    """
    parsed = part.cursors.parsed
    if parsed is None:
        return  # nothing was read that it could have
    unacked = [
        each
        for each in part.cursors.clients
        if (at := each.furthest()) is not None
        and same_server(at.identity, parsed.identity)
        and at.position.order() < parsed.position.order()
    ]
    if not unacked:
        return
    try:
        with view_of(part) as view:
            _check_others(part, view, unacked)
    except (ConnectionLost, SourceRefused) as error:
        print(
            f"canal-server position seek: {part.name} cannot be looked at ({error}):"
            " what clients have not acked of it comes again when it can be read",
            file=sys.stderr,
        )


def _check_others(part: Part, view: SourceView, others: list[ClientCursor]) -> None:
    """Refuse when a client that stays would lose what only the server still has."""
    for each in others:
        furthest = each.furthest()
        if furthest is None or not same_server(furthest.identity, view.identity):
            continue
        gone = view.gone(furthest.position)
        if gone is not None:
            of = f" of {part}" if part.name else ""
            raise PositionError(
                f"client {each.identity.client_id} stands at {furthest.position}{of}:"
                f" {purged_text(gone)}. What it has not acked would have to be read"
                " again; move it as well, or let it ack first"
            )


def _move(
    config: InstanceConfig,
    data_dir: Path,
    clients: list[ClientCursor],
    positions: list[LogPosition],
) -> None:
    """Have the server do it, or do it where the cursors are stored."""
    ids = [each.identity.client_id for each in clients]
    found = find_cursors(config, data_dir)
    if found.server_runs:
        ask(
            data_dir,
            "seek",
            SEEK_TIMEOUT_S,
            destination=config.destination,
            clients=ids,
            positions=[log_position_to_json(each) for each in positions],
        )
        return
    with locked(data_dir):
        move_stored(config, ids, *positions)


def _agreed() -> bool:
    """Ask the person at the terminal. Raises ConfigError when there is none."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise ConfigError([_NOBODY])
    return input("move them? [y/N] ").strip().lower() in ("y", "yes")


# --- what it would do -----------------------------------------------------------------


def _effects(
    view: SourceView, target: Target, moved: list[ClientCursor], *, others: bool
) -> Iterator[str]:
    if target.inside is not None:
        yield (
            f"{target.inside} is no end of a transaction: the last one before it is"
            " taken"
        )
    for each in moved:
        yield f"client {each.identity.client_id}{_effect(view, target.place, each)}"
    if others:
        yield (
            "the other clients stay where they are; what they have got and not acked"
            " comes again"
        )


def _effect(view: SourceView, place: EntryPosition, client: ClientCursor) -> str:
    furthest = client.furthest()
    if furthest is None:
        return ", which has acked nothing, begins there"
    before = furthest.position
    text = f", from {place_text(before)}: "
    if not same_server(furthest.identity, view.identity):
        return (
            f"{text}of {furthest.identity.address}:{furthest.identity.port}, so what"
            " comes again or is skipped is not known"
        )
    gone = view.gone(before)
    if gone is not None:
        return f"{text}{purged_text(gone)}; all before the new position is skipped"
    if not view.files.had(before.journal_name, before.position):
        return f"{text}not in this binlog, which was reset"
    if before.order() <= place.order():
        distance, verb = view.between(before, place), "skipped"
    else:
        distance, verb = view.between(place, before), "repeated"
    if distance.transactions == 0:
        return f"{text}nothing is skipped or repeated"
    amount = amount_text(distance.transactions, distance.bytes)
    first, last = distance.first_ms, max(before.timestamp or 0, place.timestamp or 0)
    span = f", from {time_text(first)} to {time_text(last)}" if first and last else ""
    return f"{text}{amount} {verb}{span}"
