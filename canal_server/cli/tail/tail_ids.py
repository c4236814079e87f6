"""Client ids that `tail` picks by itself, so that it takes nothing from others.

A range of ids is its own: one of them that is subscribed while nobody is connected
belongs to a `tail` that was killed, and the next one ends it. Ids below are left alone.
"""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from canal_server.cli.server_options import client_of, ranged_client_of
from canal_server.errors import CanalError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

_ANSWER_S: Final = 5.0  # for the server to say what a destination does
IDS: Final = range(32_000, 32_768)


@dataclass(frozen=True, slots=True)
class Clients:
    """Who is subscribed, and which of them are connected; None: not known."""

    subscribed: frozenset[int] = frozenset()
    connected: frozenset[int] | None = None

    @property
    def forgotten(self) -> list[int]:
        """Return the ids of ours that nobody serves any more."""
        if self.connected is None:
            return []
        return [each for each in IDS if each in self.subscribed - self.connected]


def state_of(args: argparse.Namespace) -> Mapping[str, Any] | None:
    """Ask what the destination does; None where the server cannot say that.

    On a connection of its own: a server without this request closes it.
    """
    with (
        contextlib.suppress(OSError, CanalError),
        ranged_client_of(args, _ANSWER_S, _ANSWER_S) as client,
    ):
        return client.state(args.destination)
    return None


def clients_of(state: Mapping[str, Any] | None) -> Clients:
    """Return the clients that a state tells of."""
    if state is None:
        return Clients()
    connected = state.get("connected")
    return Clients(
        frozenset(state.get("clients", ())),
        None if connected is None else frozenset(connected),
    )


def free_id(clients: Clients) -> int:
    """Return an id of ours that nobody uses, at random: others may look just now.

    Raises CanalError when all are in use.
    """
    free = [each for each in IDS if each not in clients.subscribed]
    if not free:
        raise CanalError(
            f"all client ids from {IDS.start} to {IDS.stop - 1} are subscribed; end"
            " some by `canal-server unsubscribe`, or name one by --client-id"
        )
    return secrets.choice(free)


def end_forgotten(args: argparse.Namespace, clients: Clients) -> None:
    """End the subscriptions of those that were killed; no matter if that fails."""
    for client_id in clients.forgotten:
        with (
            contextlib.suppress(OSError, CanalError),
            client_of(args, client_id) as client,
        ):
            client.unsubscribe()
