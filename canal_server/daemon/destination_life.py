"""The life of one destination of this process: compete, run, end, repeat.

Leaves out what an instance consists of (`canal_server.instance.instance`), and who may
run one (`canal_server.ha`).
"""

from __future__ import annotations

import logging
import threading
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from canal_server.errors import CanalError, ConnectionLost
from canal_server.messages import destination_messages
from canal_server.ports import RunningInstance
from canal_server.position.offline import move_stored
from canal_server.runtime.lifecycle import Deadline, Stage, Stop
from canal_server.runtime.log_context import log_about
from canal_server.runtime.start_turns import STARTS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from canal_server.config.schema import InstanceConfig
    from canal_server.instance.change_tap import ChangeTap
    from canal_server.instance.instance_metrics import InstanceMetrics, Received
    from canal_server.model.cursors import DestinationCursors
    from canal_server.model.positions import LogPosition
    from canal_server.ports import Lease, MetaManager, TablePredicate

log = logging.getLogger(__name__)

JOIN_S: Final = 8.0  # within the time in which the process shuts down
RETRY_MIN_S: Final = 10.0  # after a failed start; others may try meanwhile
RETRY_MAX_S: Final = 300.0
START_WAIT_S: Final = 30.0  # how long a client waits for the start that it requested


class Instance(RunningInstance, Stage, Protocol):
    """The pipeline of one destination, as the process sees it.

    `start` returns when clients can be served. It does not wait for the source: the
    instance itself logs and retries the source's failures. An instance starts once. A
    `join` that raises has ended it nevertheless.
    """

    def status(self) -> dict[str, object]:
        """Return the status for people, as JSON values; never blocks."""

    def reading(self) -> tuple[dict[str, object], InstanceMetrics]:
        """Return status, and the numbers of its stages; never blocks for long."""

    def received(self) -> Received:
        """Return how much came from its sources; never blocks."""

    def cursors(self) -> DestinationCursors:
        """Return the position of each client, and how far the source was read."""

    def tap(
        self, table_filter: TablePredicate, on_news: Callable[[], None]
    ) -> ChangeTap:
        """Return what follows the changes of some tables from now on."""

    def seek(self, clients: Collection[int], *positions: LogPosition) -> None:
        """Move clients' cursors, and restart reading. Raises CanalError.

        One position for each source in which they are moved, or for the only source.
        """

    def retry(self) -> None:
        """Read sources again now whose last session failed; returns at once."""

    def is_whole(self) -> bool:
        """Return whether it can continue: false after an incomplete move of cursors."""


class MakeInstance(Protocol):
    """Creates the instance of a destination, not started. Raises ConfigError."""

    def __call__(
        self,
        config: InstanceConfig,
        *,
        held: Callable[[], bool],
        on_loaded: Callable[[MetaManager, Stop], None] | None = None,
    ) -> Instance:
        """`held` returns whether the right to run it is certain at this moment.

        `on_loaded` may move cursors when they are loaded, before anything is read.
        """


class State(StrEnum):
    """What a destination does in this process."""

    IDLE = "idle"  # it waits for its first client
    COMPETING = "competing"  # it waits for the lease
    STARTING = "starting"  # it has the lease, the instance loads what is stored
    RUNNING = "running"
    STOPPING = "stopping"  # the instance ends; no other starts before it has ended
    PAUSED = "paused"  # it failed: the lease is free, a retry follows
    STOPPED = "stopped"  # by an operator: the lease is free until it is started again
    ENDED = "ended"


TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.IDLE: frozenset({State.COMPETING, State.STOPPED, State.ENDED}),
    State.COMPETING: frozenset(
        {State.COMPETING, State.STARTING, State.PAUSED, State.STOPPED, State.ENDED}
    ),
    State.STARTING: frozenset({State.RUNNING, State.PAUSED, State.COMPETING}),
    State.RUNNING: frozenset({State.STOPPING}),
    State.STOPPING: frozenset(
        {State.COMPETING, State.PAUSED, State.STOPPED, State.ENDED}
    ),
    State.PAUSED: frozenset({State.COMPETING, State.STOPPED, State.ENDED}),
    State.STOPPED: frozenset({State.COMPETING, State.ENDED}),
    State.ENDED: frozenset(),
}


class DestinationLife:
    """One destination of this process: a stage with its own thread.

    The thread competes for the lease, runs an instance as long as the lease is held,
    ends it, joins it, releases the lease, and starts over, until a stop. So there is
    never more than one instance, and each one reads again what is stored.

    The lock of `_changed` guards all that other threads see; it is never held during a
    call to an instance or the lease.
    """

    def __init__(
        self,
        config: InstanceConfig,
        make_instance: MakeInstance,
        lease: Lease,
        *,
        after: DestinationLife | None = None,
    ) -> None:
        """Create without starting; begins when the life `after` has ended.

        Raises ConfigError.
        """
        self.config = config
        self._after = after
        self.destination = config.destination
        self._make_instance = make_instance
        self._lease = lease
        # Not started yet.
        self._next: Instance | None = make_instance(config, held=lease.held)
        self._stop = Stop()
        # From competing to the end of the run; guarded by `_changed`.
        self._turn_stop = Stop()
        self._changed = threading.Condition()
        self._state = State.IDLE
        self._asked = not config.lazy  # a run was requested
        self._is_held = False  # an operator stopped it; nothing but `resume` starts it
        self._instance: Instance | None = None  # from before its start to its end
        self._serving: Instance | None = None  # while it is RUNNING
        self._is_moving = False  # stored cursors are moved: it must not start
        self._error: CanalError | None = None  # with which an instance was stopped
        self._failure = ""  # why it runs nowhere, if another server is not the reason
        self._failing_since_ms = 0
        self._retry_s = RETRY_MIN_S
        self._thread = threading.Thread(
            target=self._live, name=f"{self.destination} life", daemon=True
        )

    # --- Stage ----------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread; a lazy destination waits for `start_now`."""
        if self.config.lazy:
            log.info("destination %s waits for its first client", self.destination)
        self._thread.start()

    def request_stop(self) -> None:
        """Ask the instance to stop; from now on none starts."""
        self._stop.request()
        self._end_turn()

    def _end_turn(self) -> None:
        with self._changed:
            instance, self._serving = self._instance, None
            self._turn_stop.request()
            self._changed.notify_all()
        if instance is not None:
            instance.request_stop()
        self._lease.wake()

    def join(self, deadline: Deadline) -> bool:
        """Wait until the instance has ended and the lease is free.

        Raises the error with which the instance ended, if a stop ended it: what an
        earlier one could not write was the task of its successor, here or elsewhere.
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

    def request_run(self) -> None:
        """Let it run as soon as it can, even if it is lazy."""
        with self._changed:
            self._asked = True
            self._changed.notify_all()

    def hold(self) -> None:
        """Stop it, as an operator asks, until `resume`; returns at once.

        Its lease is released, so that another server may run it.
        """
        with self._changed:
            self._is_held = True
        self._end_turn()

    def resume(self) -> None:
        """Let it run after `hold`, a failure, or if it is lazy; returns at once.

        If it runs but cannot read its source, that is tried again at once.
        """
        with self._changed:
            if self._is_held or self._state in (State.IDLE, State.PAUSED):
                self._is_held = False
                self._asked = True
                self._changed.notify_all()
            instance = self._serving
        if instance is not None:
            instance.retry()

    @property
    def is_shared(self) -> bool:
        """Return whether another server of a cluster can run it."""
        return self._lease.shared

    @property
    def is_held(self) -> bool:
        """Return whether an operator stopped it."""
        return self._is_held

    def start_now(self) -> Instance | None:
        """Start it, even after a failure; return it if it then runs here.

        Waits until it runs, or cannot run now, or another server is known to run it.
        """
        with self._changed:
            if self._state in (State.IDLE, State.PAUSED):
                self._asked = True
                self._changed.notify_all()
            self._changed.wait_for(self._is_settled, START_WAIT_S)
        return self.running()

    def wait_until_ended(self) -> None:
        """Wait for its end, without limit, if it was started."""
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def has_ended(self) -> bool:
        """Return whether it was started and its thread has ended."""
        return self._thread.ident is not None and not self._thread.is_alive()

    @property
    def is_idle(self) -> bool:
        """Return whether it waits for its first client."""
        return self._state is State.IDLE and not self._asked

    def seek(self, clients: Collection[int], *positions: LogPosition) -> None:
        """Move clients' cursors, by the instance or in the storage.

        Raises CanalError, also when an instance is just starting or ending.
        """
        instance = self.running()
        if instance is not None:
            try:
                instance.seek(clients, *positions)
            finally:
                if not instance.is_whole():
                    self.restart(instance)
            return
        self.change_stored(lambda: move_stored(self.config, clients, *positions))

    def change_stored(self, change: Callable[[], None]) -> None:
        """Change what is stored, while no instance runs here or can start.

        Raises CanalError if one does, or is just starting or ending.
        """
        with self._changed:
            # A life that ends may have a successor, which knows nothing of this change.
            ending = self._stop.requested() or self._state is State.ENDED
            if self._instance is not None or self._is_moving or ending:
                raise CanalError(
                    f"destination {self.destination} is {self._state}, try again"
                )
            self._is_moving = True
        try:
            change()
        finally:
            with self._changed:
                self._is_moving = False
                self._changed.notify_all()

    def restart(self, instance: RunningInstance) -> None:
        """End an instance that cannot continue; another one starts after it."""
        with self._changed:
            if self._instance is not instance or self._turn_stop.requested():
                return
            self._serving = None
            self._turn_stop.request()
        destination_messages.DESTINATION_RESTARTING.log(log, self.destination)
        self._lease.wake()

    def settle(self, deadline: Deadline) -> None:
        """Wait until it runs or cannot run; no wait for a shared or lazy one."""
        if self._lease.shared or self.config.lazy:
            return
        with self._changed:
            if not self._changed.wait_for(self._is_settled, deadline.remaining_s()):
                log.info(
                    "destination %s is still starting; its clients wait, all others"
                    " are served",
                    self.destination,
                )

    def status(self) -> dict[str, object]:
        """Return the status for people, as JSON values; never blocks."""
        instance = self.running()
        return self._status(None if instance is None else instance.status())

    def reading(self) -> tuple[dict[str, object], InstanceMetrics | None]:
        """Return the status, and the numbers of its stages while it runs here."""
        instance = self.running()
        if instance is None:
            return self._status(None), None
        status, metrics = instance.reading()
        return self._status(status), metrics

    def _status(self, shown: Mapping[str, object] | None) -> dict[str, object]:
        """Return the status; `shown` is that of the instance, None: none runs."""
        lease = self._lease.status()
        waits = self._state is State.COMPETING
        problem = self._lease.problem() if waits else None
        owner = None if problem is not None else self._lease.owner
        if problem is not None:
            failure = {"error": problem.text, "error_since_ms": problem.since_ms}
        elif self._failure and not (waits and owner):
            failure = {
                "error": self._failure,
                "error_since_ms": self._failing_since_ms,
            }
        else:  # also while another server runs what failed here
            failure = {}
        return {
            "destination": self.destination,
            "running": shown is not None,
            "lazy": self.config.lazy,
            "life": self._state.value,
            "runs_on": owner,
            **({} if lease is None else {"lease": lease}),
            **(failure if shown is None else shown),
        }

    def _failed(self, why: str) -> None:
        """Note why it does not run, until it does."""
        self._failure = why
        self._failing_since_ms = self._failing_since_ms or round(time.time() * 1000)

    def _is_settled(self) -> bool:
        if self._state is State.ENDED or self._stop.requested():
            return True
        if self._asked:
            return False  # the thread has not noticed yet
        if self._state is State.STOPPED:
            return True
        if self._state is State.COMPETING:
            return self._lease.owner is not None and not self._lease.held()
        return self._state in (State.RUNNING, State.PAUSED)

    # --- the thread -----------------------------------------------------------------

    def _live(self) -> None:
        log_about(self.destination)
        try:
            if self._after is not None:
                # Two must never run at a time, whatever their settings are.
                self._after.wait_until_ended()
                self._after = None
            self._lease.open(self._lease_changed)
            try:
                self._wait(None)
                while not self._stop.requested():
                    if self._is_held:
                        self._wait_until_resumed()
                    else:
                        self._compete()
            finally:
                self._lease.close()
        except Exception:  # noqa: BLE001  # the outermost frame of this thread
            destination_messages.DESTINATION_CRASHED.log(
                log, self.destination, exc_info=True
            )
        finally:
            with self._changed:
                # The next life reads what is stored, which must be complete then.
                self._changed.wait_for(lambda: not self._is_moving)
            self._become(State.ENDED)

    def _lease_changed(self) -> None:
        """Wake the threads that wait for a change; called by any thread."""
        with self._changed:
            self._changed.notify_all()

    def _wait(self, seconds: float | None) -> None:
        """Wait until a run is requested, the time is up, or a stop."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._asked or self._is_held or self._stop.requested(), seconds
            )

    def _wait_until_resumed(self) -> None:
        with self._changed:
            self._failure, self._failing_since_ms = "", 0
            self._become(State.STOPPED)
            self._changed.wait_for(lambda: not self._is_held or self._stop.requested())

    def _compete(self) -> None:
        """Wait for the lease, then run while it is held."""
        with self._changed:
            self._asked = False
            self._error = None
            turn_stop = self._turn_stop = Stop()
            if self._stop.requested() or self._is_held:
                turn_stop.request()
            self._become(State.COMPETING)
        try:
            if self._lease.acquire(turn_stop):
                try:
                    self._become(State.STARTING)
                    self._lead(turn_stop)
                finally:
                    self._lease.release()
        except Exception as error:  # noqa: BLE001
            # A bug must be visible, and must not end the destination permanently.
            destination_messages.DESTINATION_FAILED.log(
                log, self.destination, exc_info=True
            )
            self._failed(repr(error))
            self._become(State.PAUSED)
        if self._state is State.PAUSED:
            self._wait(self._retry_s)
            self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)

    def _lead(self, turn_stop: Stop) -> None:
        """Run an instance while the lease is held; it has ended on return."""
        try:
            instance = self._started(turn_stop)
        except CanalError as error:
            if not (isinstance(error, ConnectionLost) and turn_stop.requested()):
                destination_messages.DESTINATION_START_FAILED.log(
                    log, self.destination, error
                )
                self._failed(f"{type(error).__name__}: {error}")
            # After a lost lease there is nothing to leave to others: compete again.
            lost = not self._lease.held()
            with self._changed:
                self._instance = None
                self._become(State.COMPETING if lost else State.PAUSED)
            return
        except BaseException:
            with self._changed:
                self._instance = None
            raise
        with self._changed:
            self._failure, self._failing_since_ms = "", 0
            if not turn_stop.requested():
                self._serving = instance
            self._become(State.RUNNING)
        reason = ""
        try:
            reason = self._lease.wait_until_lost(turn_stop)
            if reason:
                destination_messages.DESTINATION_STEPPED_DOWN.log(
                    log, self.destination, reason
                )
        finally:
            self._serving = None
            self._become(State.STOPPING)
            ended_with = self._end(instance)
            self._error = None if reason else ended_with
        self._retry_s = RETRY_MIN_S

    def _started(self, turn_stop: Stop) -> Instance:
        """Create an instance and start it. Raises CanalError."""
        # An instance starts once: each run but the first needs a new one.
        instance, self._next = self._next, None
        if instance is None:
            with STARTS.turn():
                instance = self._make_instance(self.config, held=self._lease.held)
        with self._changed:
            # Stored cursors are being moved; that has its own time limits.
            self._changed.wait_for(lambda: not self._is_moving)
            self._instance = instance
            stopping = turn_stop.requested()
        if stopping:  # requested before `request_stop` could see the instance
            instance.request_stop()
        with STARTS.turn():
            instance.start()
        return instance

    def _end(self, instance: Instance) -> CanalError | None:
        """Stop an instance and wait for its end, without limit.

        Returns the error with which it ended.
        """
        instance.request_stop()
        try:
            while not instance.join(Deadline(JOIN_S)):
                destination_messages.DESTINATION_STOP_DELAYED.log(log, self.destination)
        except CanalError as error:
            destination_messages.DESTINATION_STOP_FAILED.log(
                log, self.destination, error
            )
            return error
        else:
            return None
        finally:
            with self._changed:
                self._instance = None

    def _become(self, state: State) -> None:
        with self._changed:
            before, self._state = self._state, state
            self._changed.notify_all()
        assert state in TRANSITIONS[before] or state is State.ENDED, (before, state)
        log.debug("destination %s: %s, was %s", self.destination, state, before)
