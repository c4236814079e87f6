"""Requests of an operator to a running server about ranged subscriptions.

The control socket passes the requests on; the instances know the subscriptions, and the
server for clients knows which of them are in use. Leaves out those of a stopped server
(`canal_server.ranges.offline_range_cursors`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from canal_server.daemon.control import ACCOUNT, ControlError
from canal_server.errors import ClientError
from canal_server.messages import daemon_messages
from canal_server.ranges.offline_range_cursors import check_known
from canal_server.users.audit_log import LOCAL

if TYPE_CHECKING:
    from canal_server.daemon.control import Arguments
    from canal_server.daemon.destinations import Destinations
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
            "subscriptions": [
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
            ],
        }

    def remove(self, arguments: Arguments) -> dict[str, object]:
        """Forget a subscription that no query reads, if the destination runs here.

        Raises CanalError.
        """
        try:
            destination = str(arguments["destination"])
            name = str(arguments["name"])
        except (LookupError, TypeError) as error:
            raise ControlError(f"invalid unsubscribe request: {error!r}") from error
        ranges = self._ranges(destination)
        if ranges is None:
            return {"running": False}
        query = self._server.claims(destination).get(name)
        if query is not None:
            raise ClientError(
                f"subscription {name} of {destination} is read by query {query}: end"
                " that first, otherwise it creates the subscription again"
            )
        found, _ = ranges.subscriptions()
        check_known(destination, name, [each.name for each in found])
        ranges.unsubscribe(name)
        self._audit.note(
            "range_unsubscribe",
            None,
            LOCAL,
            account=arguments.get(ACCOUNT),
            destination=destination,
            subscription=name,
        )
        daemon_messages.SUBSCRIPTION_REMOVED.log(log, destination, name)
        return {"running": True}

    def add_queries(self, instances: list[dict[str, Any]]) -> None:
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
