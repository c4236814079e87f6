"""Requests of an operator to a running server about ranged subscriptions.

The control socket and the HTTP port pass the requests on; the instances know the
subscriptions, and the server for clients knows which of them are in use. Those of a
destination that does not run here are stored (`ranges.offline_range_cursors`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from canal_server.daemon.control import ACCOUNT, ControlError
from canal_server.errors import ClientError
from canal_server.messages import daemon_messages
from canal_server.ranges.offline_range_cursors import (
    check_known,
    read_subscriptions,
    remove_subscription,
)
from canal_server.users.audit_log import LOCAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from canal_server.daemon.control import Arguments
    from canal_server.daemon.destinations import Destinations
    from canal_server.model.ranges import Subscription
    from canal_server.ports import RangeSource
    from canal_server.server.listener import Server
    from canal_server.users.audit_log import AuditLog

log = logging.getLogger(__name__)


class SubscriptionRequests:
    """Answers `subscriptions` and `unsubscribe` of the control socket."""

    def __init__(
        self, destinations: Destinations, server: Server, audit: AuditLog
    ) -> None:
        self._audit = audit
        self._destinations = destinations
        self._server = server

    def list_all(self, arguments: Arguments) -> dict[str, object]:
        """Return a destination's subscriptions, if it runs here."""
        destination = str(arguments.get("destination"))
        ranges = self._ranges(destination)
        if ranges is None:
            return {"running": False}
        found, epoch = ranges.subscriptions()
        queries = self._server.claims(destination)
        return {
            "running": True,
            "epoch": epoch,
            "subscriptions": _as_json(found, queries),
        }

    def of(self, destination: str) -> dict[str, object]:
        """Return a destination's subscriptions, or those that are stored.

        `runs_on` is the server that runs it instead. Raises CanalError.
        """
        found = self.list_all({"destination": destination})
        config = self._destinations.require(destination)
        if found["running"] or config.group:
            return found
        stored = read_subscriptions(config)
        return {
            "running": False,
            "runs_on": stored.owner or None,
            "epoch": stored.epoch,
            "subscriptions": _as_json(stored.found, {}),
        }

    def remove(self, arguments: Arguments) -> dict[str, object]:
        """Remove a subscription, as a command asks. Raises CanalError."""
        try:
            destination = str(arguments["destination"])
            name = str(arguments["name"])
        except (LookupError, TypeError) as error:
            raise ControlError(f"invalid unsubscribe request: {error!r}") from error
        self.remove_named(destination, name)
        self._audit.note(
            "range_unsubscribe",
            None,
            LOCAL,
            account=arguments.get(ACCOUNT),
            destination=destination,
            subscription=name,
        )
        return {"running": True}

    def remove_named(self, destination: str, name: str) -> None:
        """Forget a subscription that no query reads, also a stored one.

        Raises CanalError, also if another server runs the destination.
        """
        config = self._destinations.require(destination)
        if config.group:
            raise ClientError(
                f"destination {destination} merges several sources: it has no ranged"
                " subscriptions"
            )
        ranges = self._ranges(destination)
        if ranges is None:
            self._destinations.change_stored(
                destination, lambda: remove_subscription(config, name)
            )
        else:
            self._remove_running(ranges, destination, name)
        daemon_messages.SUBSCRIPTION_REMOVED.log(log, destination, name)

    def _remove_running(self, ranges: RangeSource, destination: str, name: str) -> None:
        query = self._server.claims(destination).get(name)
        if query is not None:
            raise ClientError(
                f"subscription {name} of {destination} is read by query {query}: end"
                " that first, otherwise it creates the subscription again"
            )
        found, _ = ranges.subscriptions()
        check_known(destination, name, [each.name for each in found])
        ranges.unsubscribe(name)

    def add_queries(self, instances: Iterable[Mapping[str, Any]]) -> None:
        """Add to the status of instances which queries read their subscriptions."""
        for each in instances:
            ranges = each.get("ranges")
            if ranges:
                ranges["queries"] = self._server.claims(str(each["destination"]))

    def _ranges(self, destination: str) -> RangeSource | None:
        """Return a destination's ranges; None if it does not run, or has none."""
        self._destinations.require(destination)
        instance = self._destinations.running(destination)
        return None if instance is None else instance.ranges


def _as_json(
    found: Sequence[Subscription], queries: Mapping[str, str]
) -> list[dict[str, object]]:
    """Return subscriptions as JSON values; `queries` are those that read them."""
    return [
        {
            "name": each.name,
            "filter": each.filter,
            "epoch": each.cursor.epoch,
            "journal": each.cursor.journal,
            "position": each.cursor.position,
            "acked_ms": each.acked_ms,
            "query": queries.get(each.name),
        }
        for each in found
    ]
