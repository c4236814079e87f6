"""What the HTTP port asks of a server, noted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from canal_server.errors import UnknownDestination, UnknownSubscription
from canal_server.observe.readings import Reading
from canal_server.server.request_counts import RequestCounts

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class NotedPlan:
    """A move of one client."""

    destination: str
    client_ids: tuple[int, ...] = (7,)
    positions: tuple[str, ...] = ("binlog.1:4",)
    warnings: tuple[str, ...] = ()

    def lines(self):
        """Say nothing."""
        return ()

    def as_json(self, *, moved):
        """Return whether it was carried out."""
        return {"destination": self.destination, "moved": moved}


class NotedServer:
    """A server with destinations, which notes what is asked of it."""

    def __init__(self) -> None:
        self.lives = {"one": "stopped", "two": "idle"}
        self.deliveries: dict[str, object] = {}  # by destination
        self.asked: list[tuple[object, ...]] = []
        self.fails: Exception | None = None
        self.before_plan: Callable[[], object] = lambda: None

    def status(self):
        """Return a status."""
        if self.fails:
            raise self.fails
        return {
            "pid": 1,
            "conf": "/conf",
            "version": "1",
            "instances": [{"destination": name} for name in self.lives],
            "refused": {"two": "text"},
        }

    def clusters(self):
        """Return one in which another server runs a destination."""
        found = {"runs_on": "10.0.0.2:11111", "candidates": ["10.0.0.2:11111"]}
        session = {"state": "connected", "expired": 0, "timeout_s": 90.0}
        one = {
            "zookeeper": "zk:2181",
            "session": session,
            "servers": ["10.0.0.2:11111"],
            "destinations": {"one": found, "two": None},
            "error": None,
        }
        return {"this_server": "10.0.0.1:11111", "clusters": [one]}

    def readings(self):
        """Return a reading of each destination."""
        return [
            Reading(
                name,
                {
                    "destination": name,
                    "running": False,
                    "life": life,
                    "error": "",
                    "delivery": self.deliveries.get(name),
                },
                RequestCounts(),
                None,
            )
            for name, life in self.lives.items()
        ]

    def received(self):
        """Return nothing: none of them runs."""
        return {}

    def reading(self, destination):
        """Return the reading of one."""
        self._check(destination)
        return next(r for r in self.readings() if r.destination == destination)

    def positions(self, destination):
        """Return positions."""
        self._check(destination)
        return {"running": False}

    subscriptions = positions

    @property
    def schemas(self):
        """Return what answers about table histories: this."""
        return self

    def tables(self, destination):
        """Return none."""
        self._check(destination)
        return []

    def table(self, destination, table, **asked):
        """Note what is asked for."""
        self._check(destination)
        return {"table": table, "asked": repr(asked)}

    def show(self, destination, **asked):
        """Return what is asked for."""
        self._check(destination)
        return {"asked": repr(asked)}

    def show_sql(self, destination, **asked):
        """Return what is asked for."""
        self._check(destination)
        return repr(asked)

    def export(self, destination, **asked):
        """Return what is asked for."""
        self._check(destination)
        return repr(asked)

    def verify(self, destination, *, tables, source, stop):
        """Note it."""
        self._check(destination)
        self.asked.append(("verify", destination, tables, source))
        return {"equal": not stop.requested()}

    def remove_subscription(self, destination, name):
        """Note it."""
        self._check(destination)
        self.asked.append(("remove", destination, name))

    def log_levels(self):
        """Return the levels."""
        return {"level": "info", "destinations": {}}

    def set_log_level(self, level, destination=""):
        """Note it."""
        self.asked.append(("level", level, destination))

    def table_changes(self, destination, table, **_):
        """Return one."""
        self._check(destination)
        return [{"table": table}]

    def tap(self, destination, expression, on_news):
        """Run nowhere."""
        self._check(destination)
        self.asked.append(("tap", destination, expression))

    def stop_destination(self, destination):
        """Note it."""
        self._check(destination)
        self.asked.append(("stop", destination))

    def start_destination(self, destination):
        """Note it."""
        self._check(destination)
        self.asked.append(("start", destination))

    def plan_move(self, destination, to, *, source, client_ids):
        """Return a plan that moves the only client."""
        del to, source
        self._check(destination)
        self.before_plan()
        self.asked.append(("plan", destination, client_ids))
        return NotedPlan(destination)

    def move(self, plan):
        """Note it."""
        self.asked.append(("move", plan.destination))

    def unsubscribe(self, destination, client_id):
        """Refuse client 7."""
        self._check(destination)
        if client_id == 7:
            raise UnknownSubscription("client 7 is not subscribed")
        self.asked.append(("unsubscribe", destination, client_id))

    def _check(self, destination):
        if destination not in self.lives:
            raise UnknownDestination(f"can't find destination:{destination}")
