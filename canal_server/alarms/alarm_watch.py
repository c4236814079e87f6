"""Watches all destinations, and raises and resolves alarms: a stage of the process."""

from __future__ import annotations

import logging
import socket
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from canal_server.alarms.alarm_conditions import (
    Condition,
    conditions_of,
    switches_of,
)
from canal_server.alarms.alarm_hooks import Alarm
from canal_server.alarms.open_alarms import Key, OpenAlarms
from canal_server.errors import CanalError
from canal_server.messages import daemon_messages
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from canal_server.alarms.alarm_conditions import AlarmLimits
    from canal_server.alarms.alarm_hooks import AlarmHook
    from canal_server.alarms.open_alarms import AlarmFile
    from canal_server.observe.readings import Reading
    from canal_server.runtime.lifecycle import Deadline

log = logging.getLogger(__name__)

LOOK_S: Final = 5.0
SHARE_MAX: Final = 0.02  # of the time, that looks may take
UNSENT_MAX: Final = 1000  # of one hook that fails; then the oldest are forgotten
TAKEN_UP_MIN_S: Final = 30.0  # for a condition of the earlier run to show again
SWITCHED: Final = "source_switched"
_SETTLING: Final = ("starting", "locating")


class Alarms:
    """Which alarms are raised; without a thread.

    What is open is in a file. The next run takes it up: an alarm whose condition is
    found again stays raised, and is not sent a second time; another one is resolved
    when the destination has had the time to show the condition.
    """

    def __init__(
        self,
        limits: AlarmLimits,
        hooks: Sequence[AlarmHook],
        clock: Callable[[], float] = time.time,
        *,
        file: AlarmFile | None = None,
    ) -> None:
        """`file` is of what an earlier run left open; None: nothing is stored."""
        self._limits = limits
        self._clock = clock
        self._server = socket.gethostname()
        self._file = file
        found = OpenAlarms() if file is None else file.read()
        self._first_seen_s: dict[Key, float] = {}
        self._raised = {
            key: alarm for key, alarm in found.raised.items() if key[1] != SWITCHED
        }
        self._switches: dict[str, int] = {}
        now_s = clock()
        # Changes to another server that are not over, and since when that is read.
        self._switched = {
            key[0]: (alarm, now_s)
            for key, alarm in found.raised.items()
            if key[1] == SWITCHED
        }
        # Of the earlier run, and not seen in this one.
        self._taken_up = set(found.raised)
        self._taken_up_until_s = now_s + max(limits.after_s, TAKEN_UP_MIN_S)
        self._unsent: dict[AlarmHook, list[Alarm]] = {
            hook: found.unsent.get(hook.name, []) for hook in hooks
        }
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
        self._taken_up -= found.keys()
        for key, condition in found.items():
            if condition.is_part:
                self._first_seen_s.pop(key, None)
                continue
            first_s = self._first_seen_s.setdefault(key, now_s)
            lasts_s = max(now_s - first_s, condition.since_s or 0.0)
            if key not in self._raised and lasts_s >= self._limits.after_s:
                self._raised[key] = self._raise(condition, now_s)
        states = {reading.destination: reading.state for reading in readings}
        for key in [each for each in self._raised if each not in found]:
            if not self._may_return(key, states, now_s):
                self._resolve(key, self._raised.pop(key), now_s)
        self._look_at_switches(readings, states, now_s)
        self._store()  # first: what a crash would interrupt is sent again
        self._send()
        self._store()

    def close(self) -> None:
        """Store nothing from now on."""
        if self._file is not None:
            self._file.close()

    def _may_return(self, key: Key, states: Mapping[str, str], now_s: float) -> bool:
        """Return whether a condition of the earlier run may just not show yet."""
        state = states.get(key[0])
        return (
            key in self._taken_up
            and state is not None
            and (now_s < self._taken_up_until_s or state in _SETTLING)
        )

    def _look_at_switches(
        self, readings: Sequence[Reading], states: Mapping[str, str], now_s: float
    ) -> None:
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
                alarm = self._raise(Condition(name, SWITCHED, text), now_s)
                self._switched[name] = alarm, now_s
            elif name in self._switched:
                alarm, since_s = self._switched[name]
                is_steady = (
                    reading.reads_source and now_s - since_s >= self._limits.after_s
                )
                is_elsewhere = reading.metrics is None and not self._may_return(
                    (name, SWITCHED, ""), states, now_s
                )
                if is_steady or is_elsewhere:
                    self._resolve_switch(name, now_s)
                elif not reading.reads_source:
                    self._switched[name] = alarm, now_s
            self._switches[name] = now

    def _resolve_switch(self, name: str, now_s: float) -> None:
        if name in self._switched:
            alarm, _ = self._switched.pop(name)
            self._resolve((name, SWITCHED, ""), alarm, now_s)

    def _raise(self, condition: Condition, now_s: float) -> Alarm:
        alarm = Alarm(
            state="raised",
            destination=condition.destination,
            kind=condition.kind,
            text=condition.text,
            about=condition.about if condition.about != condition.text else "",
            time_ms=round(now_s * 1000),
            server=self._server,
        )
        self._put(alarm)
        return alarm

    def _resolve(self, key: Key, alarm: Alarm, now_s: float) -> None:
        """Resolve it with what it was raised with, also by another name of the host."""
        self._taken_up.discard(key)
        self._put(replace(alarm, state="resolved", time_ms=round(now_s * 1000)))

    def _put(self, alarm: Alarm) -> None:
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

    def _store(self) -> None:
        if self._file is None:
            return
        switched = {
            (name, SWITCHED, ""): alarm for name, (alarm, _) in self._switched.items()
        }
        unsent = {hook.name: alarms for hook, alarms in self._unsent.items()}
        self._file.write(OpenAlarms({**self._raised, **switched}, unsent))


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
        """Ask to stop; returns at once. What is open stays so, for the next run."""
        self._stop.request()
        self._alarms.close()

    def join(self, deadline: Deadline) -> bool:
        """Return at once: the thread ends with the process, also within a hook."""
        del deadline
        return True

    def _run(self) -> None:
        wait_s = LOOK_S
        while not self._stop.wait(wait_s):
            began_s = time.monotonic()
            try:
                self._alarms.look(self._read())
            except Exception:  # noqa: BLE001  # the outermost frame of this thread
                daemon_messages.ALARMS_FAILED.log(log, exc_info=True)
            # With a thousand destinations a look takes a tenth of a second.
            wait_s = max(LOOK_S, (time.monotonic() - began_s) / SHARE_MAX)
