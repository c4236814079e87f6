"""The destinations of this process, also those added or removed while it runs.

Leaves out the life of each (`canal_server.daemon.destination_life`).
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from canal_server.daemon.destination_life import DestinationLife
from canal_server.errors import CanalError, ClientError, ConfigError, UnknownDestination
from canal_server.filters.client_filters import client_filter
from canal_server.messages import destination_messages
from canal_server.runtime.lifecycle import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from canal_server.config.schema import InstanceConfig
    from canal_server.daemon.destination_life import MakeInstance
    from canal_server.instance.change_tap import ChangeTap
    from canal_server.instance.instance_metrics import InstanceMetrics, Received
    from canal_server.model.cursors import DestinationCursors
    from canal_server.model.positions import LogPosition
    from canal_server.ports import Lease, RunningInstance

log = logging.getLogger(__name__)

SETTLE_S: Final = 5.0  # that a server waits for its destinations before it serves any


class Destinations:
    """The destinations of this process; implements the port `Instances`.

    It is also a stage. The table of lives is replaced, not changed, because each
    request reads it without a lock. A thread that replaces it holds the lock.
    """

    def __init__(
        self,
        configs: Sequence[InstanceConfig],
        make_instance: MakeInstance,
        make_lease: Callable[[InstanceConfig], Lease],
    ) -> None:
        """Raise ConfigError with the problems of all instances, if there are any."""
        self._make_instance = make_instance
        self._make_lease = make_lease
        self._changing = threading.Lock()
        self._stopping = False
        self._on_change: list[Callable[[], None]] = []
        self._on_resume: list[Callable[[str], None]] = []
        self._ending: list[DestinationLife] = []  # those removed or replaced
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

        An instance that waits for ZooKeeper or for other servers does not, either. One
        that takes longer than `SETTLE_S`, as with very large stored filters, continues
        to start when this returns.
        """
        for life in self._lives.values():
            life.start()
        deadline = Deadline(SETTLE_S)
        for life in self._lives.values():
            life.settle(deadline)

    def request_stop(self) -> None:
        """Ask all instances to stop; from now on none starts."""
        with self._changing:
            self._stopping = True
        for life in reversed(list(self._lives.values())):
            life.request_stop()

    def join(self, deadline: Deadline) -> bool:
        """Wait for all instances, the last one first.

        Raises the first error of an instance, after waiting for all of them.
        """
        ended = True
        first_error: CanalError | None = None
        for life in reversed([*self._ending, *self._lives.values()]):
            try:
                if not life.join(deadline):
                    destination_messages.DESTINATION_STOP_TIMED_OUT.log(
                        log, life.destination
                    )
                    ended = False
            except CanalError as error:  # the others must still write their cursors
                first_error = first_error or error
        if first_error is not None:
            raise first_error
        return ended

    # --- while it runs ----------------------------------------------------------------

    def on_change(self, call: Callable[[], None]) -> None:
        """Call a function after each change of what is configured; it must not block.

        Called before `start`, or by one thread.
        """
        self._on_change.append(call)

    def on_resume(self, call: Callable[[str], None]) -> None:
        """Call a function with each destination that `resume` starts or retries.

        Called before `start`; the function must not block.
        """
        self._on_resume.append(call)

    def _changed(self) -> None:
        for call in self._on_change:
            call()

    def names(self) -> list[str]:
        """Return the names of the destinations."""
        return list(self._lives)

    def configs(self) -> list[InstanceConfig]:
        """Return the settings of all destinations."""
        return [life.config for life in self._lives.values()]

    def config_of(self, destination: str) -> InstanceConfig | None:
        """Return the settings with which a destination runs, None: unknown."""
        life = self._lives.get(destination)
        return None if life is None else life.config

    def require(self, destination: str) -> InstanceConfig:
        """Return the settings with which a destination runs. Raises ClientError."""
        return self._life(destination).config

    def put(self, config: InstanceConfig) -> None:
        """Add a destination, or replace its settings; returns at once.

        A running one is stopped, and starts with the new settings when it has ended.
        Raises ConfigError, and changes nothing then.
        """
        name = config.destination
        with self._changing:
            if self._stopping:
                return
            before = self._lives.get(name)
            life = DestinationLife(
                config,
                self._make_instance,
                self._make_lease(config),
                after=before or self._ending_one(name),
            )
            self._lives = {**self._lives, name: life}
            if before is not None:
                # Its clients wait for it.
                is_used = not before.is_idle
                self._end(before)
                if before.is_held:
                    life.hold()
                elif is_used:
                    life.request_run()
            life.start()
        self._changed()

    def remove(self, destination: str) -> None:
        """End a destination; returns at once. What is stored of it is kept."""
        with self._changing:
            lives = dict(self._lives)
            life = lives.pop(destination, None)
            self._lives = lives
            if life is not None:
                self._end(life)
        self._changed()

    def stop(self, destination: str) -> None:
        """Stop a destination until `resume`, as an operator asks; returns at once.

        Neither clients nor changes of its settings start it; a restart of this server
        does. Raises ClientError when it is not configured.
        """
        with self._changing:
            self._life(destination).hold()
        log.info("destination %s was stopped by an operator", destination)

    def request_run(self, destination: str) -> None:
        """Let a lazy destination run, for what needs no client; returns at once."""
        life = self._lives.get(destination)
        if life is not None:
            life.request_run()

    def restart(self, destination: str, instance: RunningInstance) -> None:
        """End an instance of a destination, if it is still that, and start another."""
        life = self._lives.get(destination)
        if life is not None:
            life.restart(instance)

    def resume(self, destination: str) -> None:
        """Start a destination after `stop`, a failure, or if it is lazy, or retry it.

        Returns at once. Retried is one that runs but cannot read its source, or deliver
        what it has read.

        Raises ClientError when it is not configured.
        """
        with self._changing:
            self._life(destination).resume()
        for call in self._on_resume:
            call(destination)
        log.info("destination %s was started by an operator", destination)

    def _end(self, life: DestinationLife) -> None:
        assert self._changing.locked()
        self._ending = [each for each in self._ending if not each.has_ended]
        self._ending.append(life)
        life.request_stop()

    def _ending_one(self, name: str) -> DestinationLife | None:
        """Return the last life of a removed destination."""
        of_name = (each for each in self._ending if each.destination == name)
        return next(reversed(list(of_name)), None)

    # --- what others ask --------------------------------------------------------------

    def is_configured(self, destination: str) -> bool:
        """Return whether the destination is configured on this server."""
        return destination in self._lives

    def is_held(self, destination: str) -> bool:
        """Return whether an operator stopped the destination."""
        life = self._lives.get(destination)
        return life is not None and life.is_held

    def is_shared(self, destination: str) -> bool:
        """Return whether another server of a cluster can run the destination."""
        life = self._lives.get(destination)
        return life is not None and life.is_shared

    def running(self, destination: str) -> RunningInstance | None:
        """Return the instance if it runs here."""
        life = self._lives.get(destination)
        return None if life is None else life.running()

    def start_lazy(self, destination: str) -> RunningInstance | None:
        """Start a configured instance that does not run yet.

        Blocks while it starts. Returns None when it cannot start now.
        """
        life = self._lives.get(destination)
        return None if life is None else life.start_now()

    def reading(
        self, destination: str
    ) -> tuple[dict[str, object], InstanceMetrics | None]:
        """Return a destination's status, and its numbers while it runs here.

        Raises ClientError when it is not configured.
        """
        return self._life(destination).reading()

    def readings(self) -> list[tuple[dict[str, object], InstanceMetrics | None]]:
        """Return status and numbers of each destination, in configured order."""
        return [life.reading() for life in self._lives.values()]

    def received(self) -> dict[str, Received]:
        """Return how much came from the sources of each destination that runs here."""
        running = [(life.destination, life.running()) for life in self._lives.values()]
        return {name: each.received() for name, each in running if each is not None}

    def cursors(self, destination: str) -> DestinationCursors | None:
        """Return the cursors of a destination's clients, None: it does not run here.

        Raises ClientError when it is not configured.
        """
        instance = self._life(destination).running()
        return None if instance is None else instance.cursors()

    def tap(
        self, destination: str, expression: str, on_news: Callable[[], None]
    ) -> ChangeTap | None:
        """Return what follows a destination's changes, None: it does not run here.

        `expression` is a filter as that of a client. Raises ClientError when the
        destination is not configured, ConfigError for a filter that cannot be used.
        """
        life = self._life(destination)
        try:
            table_filter = client_filter(expression, life.config.filter)
        except ClientError as error:
            raise ConfigError([str(error)]) from error
        instance = life.running()
        return None if instance is None else instance.tap(table_filter.accepts, on_news)

    def seek(
        self, destination: str, clients: Collection[int], *positions: LogPosition
    ) -> None:
        """Move clients' cursors; blocks while it does. Raises CanalError."""
        self._life(destination).seek(clients, *positions)

    def change_stored(self, destination: str, change: Callable[[], None]) -> None:
        """Change what is stored of a destination that does not run here.

        Raises CanalError, also if it does.
        """
        self._life(destination).change_stored(change)

    def _life(self, destination: str) -> DestinationLife:
        life = self._lives.get(destination)
        if life is None:
            raise UnknownDestination(f"can't find destination:{destination[:200]}")
        return life

    def status_of(self, destination: str) -> Mapping[str, object] | None:
        """Return the status of one destination, None: not configured."""
        life = self._lives.get(destination)
        return None if life is None else life.status()

    def status(self) -> list[dict[str, object]]:
        """Return the status of each destination, in the order of configuration."""
        return [life.status() for life in self._lives.values()]
