"""Client ids that `tail` picks by itself, so that it does not disturb other clients.

A range of ids is reserved for it: if one is subscribed but not connected, its `tail`
was killed, and the next one removes the subscription. Other ids are left alone.
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

ANSWER_S: Final = 5.0  # to wait for the state of a destination
UNANSWERED: Final = "unanswered"  # in a state: the server has not answered in time
IDS: Final = range(32_000, 32_768)


@dataclass(frozen=True, slots=True)
class Clients:
    """The subscribed clients, and which are connected; None if unknown."""

    subscribed: frozenset[int] = frozenset()
    connected: frozenset[int] | None = None

    @property
    def forgotten(self) -> list[int]:
        """Return the reserved ids that are subscribed but no longer connected."""
        if self.connected is None:
            return []
        return [each for each in IDS if each in self.subscribed - self.connected]


def state_of(args: argparse.Namespace) -> Mapping[str, Any] | None:
    """Ask for the state of the destination; None if the server cannot report it.

    Uses its own connection, because a server without this request closes it.
    """
    try:
        with ranged_client_of(args, ANSWER_S, ANSWER_S) as client:
            return client.state(args.destination)
    except TimeoutError:
        return {UNANSWERED: True}
    except (OSError, CanalError):
        return None


def clients_of(state: Mapping[str, Any] | None) -> Clients:
    """Return the clients that a state lists."""
    if state is None:
        return Clients()
    connected = state.get("connected")
    return Clients(
        frozenset(state.get("clients", ())),
        None if connected is None else frozenset(connected),
    )


def free_id(clients: Clients) -> int:
    """Return an unused reserved id, at random: others may be choosing one as well.

    Raises CanalError if all are in use.
    """
    free = [each for each in IDS if each not in clients.subscribed]
    if not free:
        raise CanalError(
            f"all client ids from {IDS.start} to {IDS.stop - 1} are subscribed; remove"
            " some with `canal-server unsubscribe`, or choose one with --client-id"
        )
    return secrets.choice(free)


def end_forgotten(args: argparse.Namespace, clients: Clients) -> None:
    """Remove the subscriptions of killed commands; failures are ignored."""
    for client_id in clients.forgotten:
        with (
            contextlib.suppress(OSError, CanalError),
            client_of(args, client_id) as client,
        ):
            client.unsubscribe()
