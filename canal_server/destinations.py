"""The destinations of this process, and the life of each: compete, run, end, again.

Leaves out what an instance consists of (`canal_server.instance`), and who may run one
(`canal_server.ha`).
"""

from __future__ import annotations

import logging
import threading
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from canal_server.errors import CanalError, ConfigError
from canal_server.lifecycle import Deadline, Stage, Stop
from canal_server.ports import RunningInstance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from canal_server.config.schema import InstanceConfig
    from canal_server.ports import Lease

log = logging.getLogger(__name__)

JOIN_S: Final = 8.0  # within what the process has for its end
RETRY_MIN_S: Final = 10.0  # after a start that failed; others may try meanwhile
RETRY_MAX_S: Final = 300.0
START_WAIT_S: Final = 30.0  # how long a client waits for the start that it caused


class Instance(RunningInstance, Stage, Protocol):
    """The pipeline of one destination, as the process sees it.

    `start` returns when clients can be served; it does not wait for the source, whose
    failures the instance logs and mends by itself. An instance starts once. A `join`
    that raises has ended it all the same.
    """

    def status(self) -> dict[str, object]:
        """Return what a person wants to know, as values of JSON; never blocks."""


class State(StrEnum):
    """What a destination does here."""

    IDLE = "idle"  # it waits for its first client
    COMPETING = "competing"  # it wants the lease
    STARTING = "starting"  # it has the lease, the instance loads what is stored
    RUNNING = "running"
    STOPPING = "stopping"  # the instance ends; nothing starts before it has
    PAUSED = "paused"  # the start failed: the lease is free, another try comes
    ENDED = "ended"


TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.IDLE: frozenset({State.COMPETING, State.ENDED}),
    State.COMPETING: frozenset({State.COMPETING, State.STARTING, State.ENDED}),
    State.STARTING: frozenset({State.RUNNING, State.PAUSED, State.COMPETING}),
    State.RUNNING: frozenset({State.STOPPING}),
    State.STOPPING: frozenset({State.COMPETING, State.ENDED}),
    State.PAUSED: frozenset({State.COMPETING, State.ENDED}),
    State.ENDED: frozenset(),
}


class DestinationLife:
    """One destination of this process: a stage with a thread of its own.

    The thread competes for the lease, runs an instance as long as the lease is held,
    ends it, joins it, gives the lease back, and begins again, until a stop. So there
    is never more than one instance, and each reads what is stored anew.

    The lock of `_changed` guards all that other threads see; it is never held while
    an instance or the lease is called.
    """

    def __init__(
        self,
        config: InstanceConfig,
        make_instance: Callable[[InstanceConfig], Instance],
        lease: Lease,
    ) -> None:
        """Build without starting. Raises ConfigError."""
        self.config = config
        self.destination = config.destination
        self._make_instance = make_instance
        self._lease = lease
        self._next: Instance | None = make_instance(config)  # not started yet
        self._stop = Stop()
        self._changed = threading.Condition()
        self._state = State.IDLE
        self._asked = not config.lazy  # somebody wants it to run, now
        self._instance: Instance | None = None  # from before its start to its end
        self._serving: Instance | None = None  # while it is RUNNING
        self._error: CanalError | None = None  # with which the last instance ended
        self._retry_s = RETRY_MIN_S
        self._thread = threading.Thread(
            target=self._live, name=f"{self.destination} life", daemon=True
        )

    # --- Stage ----------------------------------------------------------------------

    def start(self) -> None:
        """Begin; a lazy destination waits for `want`."""
        if self.config.lazy:
            log.info("destination %s waits for its first client", self.destination)
        self._thread.start()

    def request_stop(self) -> None:
        """Ask the instance to stop; none starts any more."""
        self._stop.request()
        with self._changed:
            instance, self._serving = self._instance, None
            self._changed.notify_all()
        if instance is not None:
            instance.request_stop()
        self._lease.wake()

    def join(self, deadline: Deadline) -> bool:
        """Wait until the instance has ended and the lease is free.

        Raises the error with which the instance ended.
        """
        if self._thread.ident is None:
            return True
        self._thread.join(deadline.remaining_s())
        if self._thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True

    # --- what others ask ------------------------------------------------------------

    def running(self) -> Instance | None:
        """Return the instance while it runs here and may; cheap, for each request."""
        instance = self._serving
        return instance if instance is not None and self._lease.held() else None

    def want(self) -> Instance | None:
        """Have it run, also after a failure; return it when it then runs here.

        Waits until it does, or cannot now, or another server is known to run it.
        """
        with self._changed:
            if self._state in (State.IDLE, State.PAUSED):
                self._asked = True
                self._changed.notify_all()
            self._changed.wait_for(self._is_settled, START_WAIT_S)
        return self.running()

    def settle(self) -> None:
        """Wait until it runs or cannot; at once for what may wait for others."""
        if self._lease.shared or self.config.lazy:
            return
        with self._changed:
            self._changed.wait_for(self._is_settled)

    def status(self) -> dict[str, object]:
        """Return what a person wants to know, as values of JSON; never blocks."""
        instance = self.running()
        return {
            "destination": self.destination,
            "running": instance is not None,
            "lazy": self.config.lazy,
            "life": self._state.value,
            "runs_on": self._lease.owner,
            **(instance.status() if instance is not None else {}),
        }

    def _is_settled(self) -> bool:
        if self._state is State.ENDED or self._stop.requested():
            return True
        if self._asked:
            return False  # the thread has not taken note yet
        if self._state is State.COMPETING:
            return self._lease.owner is not None and not self._lease.held()
        return self._state in (State.RUNNING, State.PAUSED)

    # --- the thread -----------------------------------------------------------------

    def _live(self) -> None:
        try:
            self._lease.open(self._lease_changed)
            try:
                self._wait(None)
                while not self._stop.requested():
                    self._compete()
            finally:
                self._lease.close()
        except Exception:  # the outermost frame of this thread
            log.exception("destination %s: unexpected error", self.destination)
        finally:
            self._become(State.ENDED)

    def _lease_changed(self) -> None:
        """Have those look again who wait for news; called by any thread."""
        with self._changed:
            self._changed.notify_all()

    def _wait(self, seconds: float | None) -> None:
        """Wait until somebody wants it, the time is up, or a stop."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._asked or self._stop.requested(), seconds
            )

    def _compete(self) -> None:
        """Wait for the lease, and be what it entitles to."""
        with self._changed:
            self._asked = False
            self._become(State.COMPETING)
        if not self._lease.acquire(self._stop):
            return
        self._become(State.STARTING)
        try:
            self._lead()
        finally:
            self._lease.release()
        if self._state is State.PAUSED:
            self._wait(self._retry_s)
            self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)

    def _lead(self) -> None:
        """Run an instance while the lease is held; it has ended on return."""
        try:
            instance = self._started()
        except CanalError as error:
            log.error("destination %s cannot start: %s", self.destination, error)  # noqa: TRY400  # told in words
            # Without the lease there is nothing to give to others: it is wanted again.
            lost = not self._lease.held()
            with self._changed:
                self._instance = None
                self._become(State.COMPETING if lost else State.PAUSED)
            return
        self._retry_s = RETRY_MIN_S
        with self._changed:
            if not self._stop.requested():
                self._serving = instance
            self._become(State.RUNNING)
        try:
            reason = self._lease.wait_until_lost(self._stop)
            if reason:
                log.warning("destination %s is given up: %s", self.destination, reason)
        finally:
            self._serving = None
            self._become(State.STOPPING)
            self._end(instance)

    def _started(self) -> Instance:
        """Make an instance and start it. Raises CanalError."""
        # An instance starts once: each run but the first needs a new one.
        instance, self._next = self._next, None
        instance = instance or self._make_instance(self.config)
        with self._changed:
            self._instance = instance
            stopping = self._stop.requested()
        if stopping:  # it came before the instance could be told
            instance.request_stop()
        instance.start()
        return instance

    def _end(self, instance: Instance) -> None:
        """Stop an instance and wait for its end, however long that takes."""
        instance.request_stop()
        self._error = None
        try:
            while not instance.join(Deadline(JOIN_S)):
                log.error("destination %s does not stop", self.destination)
        except CanalError as error:
            self._error = error
            log.error("destination %s ended badly: %s", self.destination, error)  # noqa: TRY400  # told in words
        with self._changed:
            self._instance = None

    def _become(self, state: State) -> None:
        with self._changed:
            before, self._state = self._state, state
            self._changed.notify_all()
        assert state in TRANSITIONS[before] or state is State.ENDED, (before, state)
        log.debug("destination %s: %s, was %s", self.destination, state, before)


class Destinations:
    """The destinations of this process; implements the port `Instances`.

    A stage too. The table of lives is replaced, not changed: it is read without a
    lock, by each request.
    """

    def __init__(
        self,
        configs: Sequence[InstanceConfig],
        make_instance: Callable[[InstanceConfig], Instance],
        make_lease: Callable[[InstanceConfig], Lease],
    ) -> None:
        """Raise ConfigError with the problems of all instances, if there are any."""
        lives: dict[str, DestinationLife] = {}
        problems: list[str] = []
        for config in configs:
            try:
                lives[config.destination] = DestinationLife(
                    config, make_instance, make_lease(config)
                )
            except ConfigError as error:
                problems += error.problems
        if problems:
            raise ConfigError(problems)
        self._lives: Mapping[str, DestinationLife] = lives  # as they are configured

    def start(self) -> None:
        """Start every instance that is not lazy; a failing one does not stop others.

        Nor does one that waits for ZooKeeper or for other servers.
        """
        for life in self._lives.values():
            life.start()
        for life in self._lives.values():
            life.settle()

    def request_stop(self) -> None:
        """Ask all instances to stop; from now on none starts."""
        for life in reversed(list(self._lives.values())):
            life.request_stop()

    def join(self, deadline: Deadline) -> bool:
        """Wait for all instances, the last one first.

        Raises the first error with which one ended, when all have been waited for.
        """
        ended = True
        first_error: CanalError | None = None
        for life in reversed(list(self._lives.values())):
            try:
                if not life.join(deadline):
                    log.error("destination %s does not stop", life.destination)
                    ended = False
            except CanalError as error:  # the others must still write their cursors
                first_error = first_error or error
        if first_error is not None:
            raise first_error
        return ended

    def is_configured(self, destination: str) -> bool:
        """Tell whether the destination is one of ours."""
        return destination in self._lives

    def running(self, destination: str) -> RunningInstance | None:
        """Return the instance when it runs here."""
        life = self._lives.get(destination)
        return None if life is None else life.running()

    def start_lazy(self, destination: str) -> RunningInstance | None:
        """Start a configured instance that does not run yet.

        Blocks while it starts. Returns None when it cannot start now.
        """
        life = self._lives.get(destination)
        return None if life is None else life.want()

    def status(self) -> list[dict[str, object]]:
        """Return the state of each destination, in the order they are configured."""
        return [life.status() for life in self._lives.values()]
