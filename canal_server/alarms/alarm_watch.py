"""Watches all destinations, and raises and resolves alarms: a stage of the process."""

from __future__ import annotations

import logging
import socket
import threading
import time
from typing import TYPE_CHECKING, Final

from canal_server.alarms.alarm_conditions import (
    Condition,
    conditions_of,
    switches_of,
)
from canal_server.alarms.alarm_hooks import Alarm
from canal_server.errors import CanalError
from canal_server.messages import daemon_messages
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canal_server.alarms.alarm_conditions import AlarmLimits
    from canal_server.alarms.alarm_hooks import AlarmHook
    from canal_server.observe.readings import Reading
    from canal_server.runtime.lifecycle import Deadline

log = logging.getLogger(__name__)

LOOK_S: Final = 5.0
UNSENT_MAX: Final = 1000  # of one hook that fails; then the oldest are forgotten
_Key = tuple[str, str, str]


class Alarms:
    """Which alarms are raised; without a thread."""

    def __init__(
        self,
        limits: AlarmLimits,
        hooks: Sequence[AlarmHook],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._server = socket.gethostname()
        self._first_seen_s: dict[_Key, float] = {}
        self._raised: dict[_Key, Condition] = {}
        self._switches: dict[str, int] = {}
        # Changes to another server that are not over, and since when that is read.
        self._switched: dict[str, tuple[Condition, float]] = {}
        self._unsent: dict[AlarmHook, list[Alarm]] = {hook: [] for hook in hooks}
        self._failing: set[AlarmHook] = set()

    def look(self, readings: Sequence[Reading]) -> None:
        """Raise what has lasted long enough, and resolve what is over."""
        now_s = self._clock()
        found = {
            each.key: each
            for reading in readings
            for each in conditions_of(reading, self._limits, now_s)
        }
        for key in self._first_seen_s.keys() - found.keys():
            del self._first_seen_s[key]
        for key, condition in found.items():
            first_s = self._first_seen_s.setdefault(key, now_s)
            lasts_s = max(now_s - first_s, condition.since_s or 0.0)
            if key not in self._raised and lasts_s >= self._limits.after_s:
                self._raised[key] = condition
                self._put("raised", condition, now_s)
        for key in [each for each in self._raised if each not in found]:
            self._put("resolved", self._raised.pop(key), now_s)
        self._look_at_switches(readings, now_s)
        self._send()

    def _look_at_switches(self, readings: Sequence[Reading], now_s: float) -> None:
        """Raise each change to another server; resolve it when that is read steadily.

        That is when it was read for `after_s` without an error or another change, or
        the destination does not run here any longer.
        """
        found = {reading.destination: reading for reading in readings}
        for name in self._switched.keys() - found.keys():
            self._resolve_switch(name, now_s)
        for name, reading in found.items():
            now = switches_of(reading)
            if now > self._switches.get(name, 0):
                self._resolve_switch(name, now_s)
                reads = reading.status.get("reads") or "see the status"
                text = f"reading changed to another server: {reads}"
                condition = Condition(name, "source_switched", text)
                self._switched[name] = condition, now_s
                self._put("raised", condition, now_s)
            elif name in self._switched:
                condition, since_s = self._switched[name]
                if reading.metrics is None or (
                    reading.reads_source and now_s - since_s >= self._limits.after_s
                ):
                    self._resolve_switch(name, now_s)
                elif not reading.reads_source:
                    self._switched[name] = condition, now_s
            self._switches[name] = now

    def _resolve_switch(self, name: str, now_s: float) -> None:
        if name in self._switched:
            condition, _ = self._switched.pop(name)
            self._put("resolved", condition, now_s)

    def _put(self, state: str, condition: Condition, now_s: float) -> None:
        alarm = Alarm(
            state=state,
            destination=condition.destination,
            kind=condition.kind,
            text=condition.text,
            about=condition.about if condition.about != condition.text else "",
            time_ms=round(now_s * 1000),
            server=self._server,
        )
        for unsent in self._unsent.values():
            unsent.append(alarm)
            del unsent[:-UNSENT_MAX]

    def _send(self) -> None:
        """Send to each hook what it has not accepted yet, in order.

        After a failure, the rest waits for the next look.
        """
        for hook, unsent in self._unsent.items():
            while unsent:
                try:
                    hook.send(unsent[0])
                except CanalError as error:
                    if hook not in self._failing:  # not at each look
                        daemon_messages.ALARM_NOT_SENT.log(log, error)
                    self._failing.add(hook)
                    break
                self._failing.discard(hook)
                del unsent[0]


class AlarmWatch:
    """The stage: looks at all destinations every few seconds."""

    def __init__(self, alarms: Alarms, read: Callable[[], Sequence[Reading]]) -> None:
        self._alarms = alarms
        self._read = read
        self._stop = Stop()
        self._thread = threading.Thread(target=self._run, name="alarms", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def request_stop(self) -> None:
        """Ask to stop; returns at once."""
        self._stop.request()

    def join(self, deadline: Deadline) -> bool:
        """Return at once: the thread ends with the process, also within a hook."""
        del deadline
        return True

    def _run(self) -> None:
        while not self._stop.wait(LOOK_S):
            try:
                self._alarms.look(self._read())
            except Exception:  # noqa: BLE001  # the outermost frame of this thread
                daemon_messages.ALARMS_FAILED.log(log, exc_info=True)
