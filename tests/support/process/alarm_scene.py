"""Alarms of a destination that tests make wrong and well, with a clock and a hook."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from canal_server.alarms.alarm_conditions import AlarmLimits
from canal_server.alarms.alarm_watch import Alarms
from canal_server.errors import CanalError
from canal_server.observe.readings import Reading
from canal_server.server.request_counts import RequestCounts

if TYPE_CHECKING:
    from canal_server.alarms.alarm_hooks import Alarm

NOW_S = 1_700_000_000.0


class Hook:
    """Keeps alarms; fails while it is asked to."""

    name = "webhook"

    def __init__(self) -> None:
        self.got: list[tuple[str, str, str]] = []
        self.alarms: list[Alarm] = []  # all of them, whole
        self.fails = False

    def send(self, alarm) -> None:
        """Take an alarm."""
        if self.fails:
            raise CanalError("canal.alarm.command: exit status 1: no route")
        self.alarms.append(alarm)
        self.got.append((alarm.state, alarm.kind, alarm.text))

    def take(self):
        """Return what arrived since the last call."""
        got, self.got = self.got, []
        return got


class Scene:
    """Alarms, a hook, and a clock."""

    def __init__(self, file=None, now_s=NOW_S, **limits) -> None:
        self.now_s = now_s
        self.hook = Hook()
        found = AlarmLimits(**{"after_s": 60.0, **limits})
        self.alarms = Alarms(found, [self.hook], lambda: self.now_s, file=file)

    def look(self, seconds=0.0, metrics=None, **status):
        """Look after some time; returns the alarms that arrived."""
        self.now_s += seconds
        status = {"destination": "shop", "running": True, "reads": "db2:3306"} | status
        self.alarms.look([Reading("shop", status, RequestCounts(), metrics)])
        return self.hook.take()


def metrics(lag_s=0.0, switches=0, **client_lags):
    """Return numbers of a destination with one source."""
    return SimpleNamespace(
        sources={0: SimpleNamespace(lag_s=lag_s, switches=switches)},
        clients=[
            SimpleNamespace(client_id=int(name[1:]), state="in_ring", lag_s=value)
            for name, value in client_lags.items()
        ],
    )
