"""What canal-admin may do: start and stop the server and its destinations."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final, Protocol

from canal_server.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

log = logging.getLogger(__name__)

STOP_S: Final = 30.0  # for one destination, before it starts again
_POLL_S: Final = 0.05


class ManagedDestinations(Protocol):
    """What is asked of the destinations of the process."""

    def names(self) -> Sequence[str]:
        """Return all names."""

    def is_held(self, destination: str) -> bool:
        """Return whether an operator stopped it."""

    def is_shared(self, destination: str) -> bool:
        """Return whether another server of a cluster can run it."""

    def status_of(self, destination: str) -> Mapping[str, object] | None:
        """Return what it does."""

    def stop(self, destination: str) -> None:
        """Stop it until `resume`; returns at once. Raises ClientError."""

    def resume(self, destination: str) -> None:
        """Let it run again; returns at once. Raises ClientError."""


class AdminActions:
    """The actions by their names in the protocol; thread-safe.

    To stop the server is to stop all its destinations: the process continues, as that
    of the Java server does.
    """

    def __init__(self, destinations: ManagedDestinations) -> None:
        self._destinations = destinations
        self._lock = threading.Lock()  # one action at a time

    def of_server(self, action: str) -> str | None:
        """Carry out an action; returns its result, None for an unknown one."""
        if action == "check":
            return _digit(self._runs())
        if action == "list":
            return ",".join(filter(self._is_running, self._destinations.names()))
        with self._lock:
            if action == "start":
                return _digit(self._start_all())
            if action == "stop":
                return _digit(self._stop_all())
            if action == "restart":
                done = [self._restart(name) for name in self._destinations.names()]
                return _digit(all(done))
        return None

    def of_destination(self, name: str, action: str) -> str | None:
        """Do the same for one destination; an unknown one has the result `0`."""
        if action == "check":
            return _digit(self._is_running(name))
        do = {
            "start": self._start,
            "stop": self._stop,
            "restart": self._restart,
            "release": self._release,
        }.get(action)
        if do is None:
            return None
        with self._lock:
            try:
                return _digit(do(name))
            except ClientError as error:  # it is unknown
                log.info("canal-admin: cannot %s %s: %s", action, name[:200], error)
                return _digit(False)

    def _life(self, name: str) -> str:
        status = self._destinations.status_of(name)
        return "" if status is None else str(status["life"])

    def _is_running(self, name: str) -> bool:
        return self._life(name) == "running"

    def _runs(self) -> bool:
        names = self._destinations.names()
        return not names or not all(map(self._destinations.is_held, names))

    def _start_all(self) -> bool:
        if self._runs():
            return False
        for name in self._destinations.names():
            self._destinations.resume(name)
        return True

    def _stop_all(self) -> bool:
        if not self._runs():
            return False
        for name in self._destinations.names():
            self._destinations.stop(name)
        return True

    def _start(self, name: str) -> bool:
        self._destinations.resume(name)
        return True

    def _stop(self, name: str) -> bool:
        self._destinations.stop(name)
        return True

    def _restart(self, name: str) -> bool:
        self._destinations.stop(name)
        ends_at = time.monotonic() + STOP_S
        while self._life(name) != "stopped":
            if time.monotonic() > ends_at:
                log.info("canal-admin: %s did not stop in %g s", name, STOP_S)
                return False
            time.sleep(_POLL_S)
        self._destinations.resume(name)
        return True

    def _release(self, name: str) -> bool:
        """Let another server of the cluster run it, and stand by for that one."""
        if self._destinations.is_shared(name):
            return self._restart(name)
        return self._stop(name)


def _digit(value: bool) -> str:  # its only purpose
    return "1" if value else "0"
