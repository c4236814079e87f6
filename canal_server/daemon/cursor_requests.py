"""Requests of an operator to a running server about positions of clients.

How they are stored is the task of `canal_server.position`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.daemon.control import ACCOUNT, ControlError
from canal_server.model.cursors import cursors_to_json
from canal_server.model.positions import log_position_from_json
from canal_server.position.offline import read_stored
from canal_server.users.audit_log import LOCAL

if TYPE_CHECKING:
    from canal_server.daemon.control import Arguments
    from canal_server.daemon.destinations import Destinations
    from canal_server.users.audit_log import AuditLog


class CursorRequests:
    """Answers `positions` and `seek` of the control socket."""

    def __init__(self, destinations: Destinations, audit: AuditLog) -> None:
        self._destinations = destinations
        self._audit = audit

    def positions(self, arguments: Arguments) -> dict[str, object]:
        """Return the positions of a destination's clients, if it runs here.

        Also the error for which it does not run, or does not read.
        """
        name = str(arguments.get("destination"))
        found = self._destinations.cursors(name)
        status = self._destinations.status_of(name) or {}
        failure = {each: status.get(each) for each in ("error", "error_since_ms")}
        if found is None:
            return {"running": False, **failure}
        return {"running": True, **failure, **cursors_to_json(found)}

    def of(self, destination: str) -> dict[str, object]:
        """Return the positions of a destination's clients, or those that are stored.

        `runs_on` is the server that runs it instead. Raises CanalError.
        """
        found = self.positions({"destination": destination})
        if found["running"]:
            return found
        stored = read_stored(self._destinations.require(destination))
        owner = stored.owner or None
        return {**found, "runs_on": owner, **cursors_to_json(stored.cursors)}

    def seek(self, arguments: Arguments) -> dict[str, object]:
        """Move clients of a destination to positions. Raises CanalError."""
        try:
            destination = str(arguments["destination"])
            clients = [int(each) for each in arguments["clients"]]
            positions = [log_position_from_json(p) for p in arguments["positions"]]
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ControlError(f"invalid seek request: {error!r}") from error
        self._destinations.seek(destination, clients, *positions)
        self._audit.note(
            "seek",
            None,
            LOCAL,
            account=arguments.get(ACCOUNT),
            destination=destination,
            client_ids=clients,
            to=[str(each) for each in positions],
        )
        return {}
