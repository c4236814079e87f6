"""Stored subscriptions of a destination that no instance runs in this process.

They are read and removed for an operator, like the cursors of clients (`offline`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from canal_server.config.schema import Wiring
from canal_server.errors import UnknownSubscription
from canal_server.position.offline import connected, kept_from_servers, owner_in
from canal_server.ranges.range_cursors import (
    FILE_NAME,
    SubscriptionFile,
    SubscriptionNodes,
)
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canal_server.config.schema import InstanceConfig
    from canal_server.model.ranges import Subscription
    from canal_server.ranges.range_cursors import SubscriptionStorage


@dataclass(frozen=True, slots=True)
class StoredSubscriptions:
    """What is stored, the last epoch, and who claims to run them ("": nobody)."""

    found: Sequence[Subscription]
    epoch: int | None
    owner: str = ""


def read_subscriptions(config: InstanceConfig) -> StoredSubscriptions:
    """Return what is stored for a destination. Raises MetaStoreError."""
    destination, owner = config.destination, ""
    if config.position.wiring is Wiring.ZOOKEEPER:
        with connected(config.position.zookeeper_servers) as zookeeper:
            epochs, found = SubscriptionNodes(zookeeper, destination).look()
            owner = owner_in(zookeeper, destination)
    else:
        file = _file(config, read_only=True)
        file.open(Stop())
        try:
            epochs, found = file.read()
        finally:
            file.close()
    return StoredSubscriptions(
        found, max((e.number for e in epochs), default=None), owner
    )


def remove_subscription(config: InstanceConfig, name: str) -> None:
    """Remove a subscription of a destination that is not running.

    Raises UnknownSubscription, and MetaStoreError when a server runs the destination.
    """
    if config.position.wiring is Wiring.ZOOKEEPER:
        with (
            connected(config.position.zookeeper_servers) as zookeeper,
            kept_from_servers(zookeeper, config.destination),
        ):
            _remove(SubscriptionNodes(zookeeper, config.destination), config, name)
    else:
        _remove(_file(config), config, name)


def check_known(destination: str, name: str, known: Sequence[str]) -> None:
    """Raise UnknownSubscription when a subscription is not one of the known ones."""
    if name not in known:
        existing = ", ".join(sorted(known))[:500] or "none"
        raise UnknownSubscription(
            f"destination {destination} has no subscription {name}; it has: {existing}"
        )


def _remove(position: SubscriptionStorage, config: InstanceConfig, name: str) -> None:
    position.open(Stop())
    try:
        names = [each.name for each in position.read()[1]]
        check_known(config.destination, name, names)
        position.remove(name)
    finally:
        position.close()


def _file(config: InstanceConfig, *, read_only: bool = False) -> SubscriptionFile:
    folder = config.position.data_dir / config.destination
    return SubscriptionFile(folder / FILE_NAME, read_only=read_only)
