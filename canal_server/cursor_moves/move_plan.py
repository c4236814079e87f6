"""A move of clients to another position: where to, and what is repeated or skipped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from canal_server.cursor_moves.position_texts import (
    amount_text,
    position_text,
    purged_text,
)
from canal_server.cursor_moves.source_cursors import chosen_parts, parts_of, view_of
from canal_server.errors import (
    CanalError,
    ConnectionLost,
    PositionError,
    SourceRefused,
)
from canal_server.model.moments import time_text
from canal_server.model.position_json import position_as_json
from canal_server.model.positions import LogPosition
from canal_server.position.log_position_managers import same_server
from canal_server.position.offline import check_subscribed
from canal_server.source.begin.seek_target import Target, TargetFinder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from canal_server.config.schema import InstanceConfig
    from canal_server.cursor_moves.source_cursors import Part
    from canal_server.model.cursors import ClientCursor, DestinationCursors
    from canal_server.model.positions import EntryPosition
    from canal_server.source.begin.seek_target import TargetText
    from canal_server.source.begin.source_lag import SourceView


@dataclass(frozen=True, slots=True)
class Move:
    """A move of clients in one source; the name is empty if it is the only source."""

    source: str
    to: LogPosition
    effects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MovePlan:
    """What a move of some clients of a destination would do; nothing is done yet."""

    destination: str
    client_ids: tuple[int, ...]
    moves: tuple[Move, ...]
    others_stay: bool  # in sources in which nobody is moved
    warnings: tuple[str, ...]

    @property
    def positions(self) -> list[LogPosition]:
        """The new position in each source in which clients are moved."""
        return [each.to for each in self.moves]

    def lines(self) -> Iterator[str]:
        """Yield the plan as lines of text."""
        for each in self.moves:
            name = f", {each.source}" if each.source else ""
            where = position_text(each.to.position)
            yield f"destination {self.destination}{name}: to {where}"
            yield from (f"  {effect}" for effect in each.effects)
        if self.others_stay:
            yield (
                "in the other sources all clients keep their positions; changes they"
                " received but did not ack are repeated"
            )

    def as_json(self, *, moved: bool) -> dict[str, Any]:
        """Return the plan as JSON values; `moved`: whether it was carried out."""
        return {
            "destination": self.destination,
            "moved": moved,
            "clients": sorted(self.client_ids),
            "sources": [
                {
                    "name": each.source or None,
                    **position_as_json(each.to.position),
                    "effects": list(each.effects),
                }
                for each in self.moves
            ],
        }


def plan_move(
    config: InstanceConfig,
    cursors: DestinationCursors,
    to: TargetText,
    *,
    source: str | None = None,
    client_ids: Collection[int] | None = None,
) -> MovePlan:
    """Look up a target in the sources, and what a move of clients there would do.

    `source` is the name or an address of a source, None for all; `client_ids` are the
    clients to move, None for all. Raises CanalError, also if another client would lose
    changes by it.
    """
    parts = parts_of(config, cursors)
    chosen = chosen_parts(config, parts, source, to)
    ids = _chosen_ids(config, cursors, client_ids)
    warnings = [
        warning
        for part in parts
        if part not in chosen and (warning := _check_kept(part)) is not None
    ]
    return MovePlan(
        config.destination,
        tuple(ids),
        tuple(_look_at_all(chosen, to, ids)),
        len(chosen) < len(parts),
        tuple(warnings),
    )


def _chosen_ids(
    config: InstanceConfig,
    cursors: DestinationCursors,
    requested: Collection[int] | None,
) -> list[int]:
    """Return the clients to move. Raises CanalError if there are none."""
    known = [each.identity.client_id for each in cursors.clients]
    if not known:
        raise CanalError(
            f"destination {config.destination} has no clients, so there is no stored"
            " position to move; configure where it starts with"
            " canal.instance.master.journal.name and .position"
        )
    if requested is None:
        return known
    check_subscribed(config.destination, requested, known)
    return [each for each in known if each in requested]


def _look_at_all(
    parts: Sequence[Part], target_text: TargetText, ids: Collection[int]
) -> list[Move]:
    """Find the position in each of some sources, and the effect of a move there."""
    try:
        return [_look(part, target_text, ids) for part in parts]
    except (ConnectionLost, SourceRefused) as error:
        if len(parts) == 1:
            raise
        raise CanalError(
            f"{error}; nothing was changed: name a source to move clients in it"
            f" regardless of the others: {', '.join(each.name for each in parts)}"
        ) from error


def _look(part: Part, target_text: TargetText, ids: Collection[int]) -> Move:
    """Find the position in one source, and the effect of a move there."""
    moved: list[ClientCursor] = []
    others: list[ClientCursor] = []
    for each in part.cursors.clients:
        (moved if each.identity.client_id in ids else others).append(each)
    with view_of(part) as view:
        target = TargetFinder(view).find(target_text)
        _check_others(part, view, others)
        effects = tuple(_effects(view, target, moved, others=bool(others)))
        return Move(part.name, LogPosition(view.identity, target.position), effects)


def _check_kept(part: Part) -> str | None:
    """Refuse if clients would lose changes of another source that only the server has.

    A move restarts reading of all sources from the positions of their clients, so the
    changes that these have not acked must still be in the binlog. Returns a warning if
    this cannot be checked.
    """
    parsed = part.cursors.parsed
    if parsed is None:
        return None  # nothing was read from it yet
    unacked = [
        each
        for each in part.cursors.clients
        if (at := each.furthest()) is not None
        and same_server(at.identity, parsed.identity)
        and at.position.order() < parsed.position.order()
    ]
    if not unacked:
        return None
    try:
        with view_of(part) as view:
            _check_others(part, view, unacked)
    except (ConnectionLost, SourceRefused) as error:
        return (
            f"cannot check {part.name} ({error}): changes of it that clients have not"
            " acked are repeated once it can be read"
        )
    return None


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


def _effects(
    view: SourceView, target: Target, moved: list[ClientCursor], *, others: bool
) -> Iterator[str]:
    if target.inside is not None:
        yield (
            f"{target.inside} is inside a transaction: using the end of the previous"
            " one"
        )
    if target.is_before:
        yield (
            "that time is before the first transaction in the binlog of the source:"
            f" using the beginning of its oldest file, {target.position.journal_name}"
        )
    for each in moved:
        yield f"client {each.identity.client_id}{_effect(view, target.position, each)}"
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
