"""`canal-server position seek`: move clients to another binlog position."""

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
    position_text,
    purged_text,
)
from canal_server.cli.position.position_parts import (
    Part,
    chosen_parts,
    parts_of,
    view_of,
)
from canal_server.cli.schema.schema_options import position_as_json, printable
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
    TargetText,
    parse_target,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from canal_server.config.schema import InstanceConfig
    from canal_server.model.cursors import ClientCursor
    from canal_server.source.begin.source_lag import SourceView

SEEK_TIMEOUT_S: Final = 60.0  # for the server to stop reading and restart
_NOT_CONFIRMED: Final = (
    "nothing was changed: standard input is not a terminal, so the move cannot be"
    " confirmed; add --yes to move without confirmation"
)


@dataclass(frozen=True, slots=True)
class _Move:
    """A move of clients in one source; the name is empty if it is the only source."""

    source: str
    to: LogPosition
    effects: list[str]


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this action."""
    parser = subparsers.add_parser(
        "seek",
        help="move clients to another position",
        description="Move clients to another position in the binlog of the source. "
        "What will be repeated or skipped is printed first. A running server resumes "
        "from there at once, and its clients stay connected; batches that they have "
        "not yet acked become invalid.",
    )
    add_destination_options(parser, "destination whose clients to move")
    add = parser.add_argument
    add("--to", required=True, type=_target, metavar="TARGET",
        help="new position: FILE:POSITION, a GTID set, a time with a zone "
        "(2026-11-21T10:00:00+00:00), in milliseconds since 1970 or relative to now "
        "(-1h, -10m, -2d), oldest, latest")  # fmt: skip
    add("--source", metavar="NAME", help="move only in this source of a group, given "
        "as masterN or by its address; required for FILE:POSITION and a GTID set "
        "(default: all)")  # fmt: skip
    add("--client", type=int, action="append", metavar="ID",
        help="only this client; repeatable (default: all)")  # fmt: skip
    add(
        "--dry-run", action="store_true", help="print what would happen, change nothing"
    )
    add("--yes", action="store_true", help="move without confirmation")
    add_json_option(parser)


def _target(text: str) -> TargetText:
    try:
        return parse_target(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None  # the cause adds nothing


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
        where = position_text(each.to.position)
        yield f"destination {instance.destination}{name}: to {where}"
        yield from (f"  {effect}" for effect in each.effects)
    if others_stay:
        yield (
            "in the other sources all clients keep their positions; changes they"
            " received but did not ack are repeated"
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
                **position_as_json(each.to.position),
                "effects": each.effects,
            }
            for each in moves
        ],
    }


def _look_at_all(
    parts: list[Part], wanted: TargetText, ids: Collection[int]
) -> list[_Move]:
    """Find the position in each of some sources, and the effect of a move there."""
    try:
        return [_look(part, wanted, ids) for part in parts]
    except (ConnectionLost, SourceRefused) as error:
        if len(parts) == 1:
            raise
        raise CanalError(
            f"{error}; nothing was changed: use --source to move clients in one source"
            f" regardless of the others: {', '.join(each.name for each in parts)}"
        ) from error


def _look(part: Part, wanted: TargetText, ids: Collection[int]) -> _Move:
    """Find the position in one source, and the effect of a move there."""
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
    """Return the clients to move. Raises CanalError if there are none."""
    clients = found.cursors.clients
    if not found.running and found.owner:
        raise CanalError(
            f"destination {config.destination} is run by {found.owner}: run this"
            " command where that server runs, or stop it"
        )
    if not clients:
        raise CanalError(
            f"destination {config.destination} has no clients, so there is no stored"
            " position to move; configure where it starts with"
            " canal.instance.master.journal.name and .position"
        )
    if wanted is None:
        return list(clients)
    check_subscribed(
        config.destination, wanted, [each.identity.client_id for each in clients]
    )
    return [each for each in clients if each.identity.client_id in wanted]


def _check_kept(part: Part) -> None:
    """Refuse if clients would lose changes of another source that only the server has.

    A seek restarts reading of all sources from the positions of their clients, so the
    changes that these have not acked must still be in the binlog.
    """
    parsed = part.cursors.parsed
    if parsed is None:
        return  # nothing was read from it yet
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
            f"canal-server position seek: cannot check {part.name} ({error}): changes"
            " of it that clients have not acked are repeated once it can be read",
            file=sys.stderr,
        )


def _check_others(part: Part, view: SourceView, others: list[ClientCursor]) -> None:
    """Refuse if a client that stays would lose changes that only the server has."""
    for each in others:
        furthest = each.furthest()
        if furthest is None or not same_server(furthest.identity, view.identity):
            continue
        purged = view.purged_after(furthest.position)
        if purged is not None:
            of = f" of {part}" if part.name else ""
            raise PositionError(
                f"client {each.identity.client_id} is at {furthest.position}{of}:"
                f" {purged_text(purged)}, so the changes it has not acked cannot be"
                " read again; move it as well, or let it ack first"
            )


def _move(
    config: InstanceConfig,
    data_dir: Path,
    clients: list[ClientCursor],
    positions: list[LogPosition],
) -> None:
    """Move the clients in the server, or in the stored cursors if none runs."""
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
    """Ask for confirmation. Raises ConfigError if there is no terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise ConfigError([_NOT_CONFIRMED])
    return input("move them? [y/N] ").strip().lower() in ("y", "yes")


# --- effects ------------------------------------------------------------------------


def _effects(
    view: SourceView, target: Target, moved: list[ClientCursor], *, others: bool
) -> Iterator[str]:
    if target.inside is not None:
        yield (
            f"{target.inside} is inside a transaction: using the end of the previous"
            " one"
        )
    for each in moved:
        yield f"client {each.identity.client_id}{_effect(view, target.place, each)}"
    if others:
        yield (
            "the other clients keep their positions; changes they received but did not"
            " ack are repeated"
        )


def _effect(view: SourceView, target: EntryPosition, client: ClientCursor) -> str:
    furthest = client.furthest()
    if furthest is None:
        return ", which has acked nothing, starts there"
    before = furthest.position
    text = f", from {position_text(before)}: "
    if not same_server(furthest.identity, view.identity):
        return (
            f"{text}in the binlog of {furthest.identity.address}:"
            f"{furthest.identity.port}, so what is repeated or skipped is unknown"
        )
    purged = view.purged_after(before)
    if purged is not None:
        lost = purged_text(purged)
        return f"{text}{lost}; everything before the new position is skipped"
    if not view.files.had(before.journal_name, before.position):
        return f"{text}not in this binlog, which has been reset"
    if before.order() <= target.order():
        distance, verb = view.between(before, target), "skipped"
    else:
        distance, verb = view.between(target, before), "repeated"
    if distance.transactions == 0:
        return f"{text}nothing is skipped or repeated"
    amount = amount_text(distance.transactions, distance.bytes)
    first, last = distance.first_ms, max(before.timestamp or 0, target.timestamp or 0)
    span = f", from {time_text(first)} to {time_text(last)}" if first and last else ""
    return f"{text}{amount} {verb}{span}"
