"""The open alarms in a file, so that the next run resolves those that are over then."""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from canal_server.alarms.alarm_hooks import Alarm
from canal_server.messages import daemon_messages
from canal_server.position.atomic_file import Disk, replace_content

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)

FILE_NAME: Final = "canal-server.alarms.json"
Key = tuple[str, str, str]  # destination, kind, and what it is about


@dataclass(slots=True)
class OpenAlarms:
    """The alarms that were raised and not resolved, and what no hook accepted yet."""

    raised: dict[Key, Alarm] = field(default_factory=dict)
    unsent: dict[str, list[Alarm]] = field(default_factory=dict)  # by names of hooks

    def encode(self) -> bytes:
        """Return the content of the file, empty if nothing is open."""
        unsent = {
            name: [asdict(each) for each in alarms]
            for name, alarms in self.unsent.items()
            if alarms
        }
        if not self.raised and not unsent:
            return b""
        raised = [
            {"about": key[2], "alarm": asdict(alarm)}
            for key, alarm in self.raised.items()
        ]
        return json.dumps({"raised": raised, "unsent": unsent}, indent=1).encode()

    @classmethod
    def decode(cls, content: bytes) -> OpenAlarms:
        """Return what a file has. Raises ValueError."""
        try:
            found = json.loads(content)
            raised = {}
            for each in found["raised"]:
                alarm = _alarm_of(each["alarm"])
                raised[alarm.destination, alarm.kind, str(each["about"])] = alarm
            unsent = {
                str(name): [_alarm_of(each) for each in alarms]
                for name, alarms in found["unsent"].items()
            }
        except (AttributeError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"not a list of alarms: {error!r}") from error
        return cls(raised, unsent)


def _alarm_of(fields: dict[str, Any]) -> Alarm:
    return Alarm(**{name: kind(fields[name]) for name, kind in _FIELDS.items()})


_FIELDS: Final = {
    "state": str,
    "destination": str,
    "kind": str,
    "text": str,
    "about": str,
    "time_ms": int,
    "server": str,
}


class AlarmFile:
    """The file of one data folder. A failure is logged, and stops no alarm."""

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self._path = path
        self._disk = disk or Disk()
        self._lock = threading.Lock()
        self._written: bytes | None = None  # None: unknown
        self._is_failing = False
        self._is_closed = False

    def read(self) -> OpenAlarms:
        """Return what an earlier run left open."""
        try:
            self._written = self._disk.read(self._path)
            return OpenAlarms.decode(self._written)
        except FileNotFoundError:
            self._written = b""
        except (OSError, ValueError) as error:
            daemon_messages.OPEN_ALARMS_UNREADABLE.log(log, self._path, error)
        return OpenAlarms()

    def write(self, found: OpenAlarms) -> None:
        """Write what is open now, if that has changed."""
        content = found.encode()
        with self._lock:
            if self._is_closed or content == self._written:
                return
            try:
                if content:
                    replace_content(self._disk, self._path, content, backup=None)
                else:
                    self._disk.remove(self._path)
            except OSError as error:
                if not self._is_failing:  # not at each look
                    daemon_messages.OPEN_ALARMS_NOT_STORED.log(log, self._path, error)
                self._is_failing = True
                return
            self._is_failing = False
            self._written = content

    def close(self) -> None:
        """Write nothing from now on: the file may be that of a next run."""
        with self._lock:
            self._is_closed = True
