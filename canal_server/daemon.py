"""The process: what runs in it, in which order it starts and ends, and its signals.

::

    control socket ── started first: it holds the lock of the data folder
    destinations   ── the instances, lazy ones when their first client comes
    server         ── started last: clients find what they ask for

They end in the reverse order. Leaves out what an instance consists of
(`canal_server.instance`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING, Protocol

from canal_server import __version__
from canal_server.config.schema import Wiring
from canal_server.control import ControlServer
from canal_server.errors import CanalError, ConfigError
from canal_server.lifecycle import Deadline, Stage, Stop
from canal_server.ports import RunningInstance
from canal_server.server.listener import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from canal_server.config.schema import DaemonConfig, InstanceConfig

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 10.0  # for all stages together; then the process ends without them
SIGNALS = (signal.SIGTERM, signal.SIGINT)
# Some send one signal twice: to the process, and to its group.
SAME_SIGNAL_S = 0.2


class Instance(RunningInstance, Stage, Protocol):
    """The pipeline of one destination, as the process sees it.

    `start` returns when clients can be served; it does not wait for the source, whose
    failures the instance logs and mends by itself. An instance starts once.
    """

    def status(self) -> dict[str, object]:
        """Return what a person wants to know, as values of JSON; never blocks."""


class Destinations:
    """The instances of this process; implements the port `Instances`.

    A stage too. One lock guards the table of started instances; an instance starts
    under the lock of its own destination, so that two first clients start it once and
    nobody else waits for it.
    """

    def __init__(
        self,
        configs: Sequence[InstanceConfig],
        make_instance: Callable[[InstanceConfig], Instance],
    ) -> None:
        """Raise ConfigError with the problems of all instances, if there are any."""
        self._configs = {config.destination: config for config in configs}
        self._make_instance = make_instance
        self._lock = threading.Lock()
        self._starting = {name: threading.Lock() for name in self._configs}
        self._running: dict[str, Instance] = {}  # in the order of their start
        self._ending: list[Instance] = []  # those that were asked to stop
        self._stopping = False
        self._made: dict[str, Instance] = {}  # not started yet
        self._waiting: dict[str, Instance] = {}  # in the midst of their start
        self._starters: list[threading.Thread] = []
        self._make_all()

    def start(self) -> None:
        """Start every instance that is not lazy; a failing one does not stop others.

        Nor does one that waits for ZooKeeper: it starts by a thread of its own.
        """
        for name, config in self._configs.items():
            if config.lazy:
                log.info("destination %s waits for its first client", name)
            elif config.position.wiring is Wiring.ZOOKEEPER:
                starter = threading.Thread(
                    target=self._start_apart,
                    args=(name,),
                    name=f"{name} start",
                    daemon=True,
                )
                self._starters.append(starter)
                starter.start()
            else:
                self._start_one(name)

    def request_stop(self) -> None:
        """Ask all instances to stop; from now on none starts."""
        with self._lock:
            self._stopping = True
            self._ending += self._running.values()
            self._running.clear()
            ending = [*self._ending, *self._waiting.values()]
        for instance in reversed(ending):
            instance.request_stop()

    def join(self, deadline: Deadline) -> bool:
        """Wait for all instances, the last started first.

        Raises the first error with which one ended, when all have been waited for.
        """
        ended = True
        for starter in self._starters:
            starter.join(deadline.remaining_s())
            ended = ended and not starter.is_alive()
        with self._lock:
            ending = list(self._ending)
        first_error: CanalError | None = None
        for instance in reversed(ending):
            try:
                if not instance.join(deadline):
                    log.error("destination %s does not stop", instance.destination)
                    ended = False
            except CanalError as error:
                # The others must still write their cursors.
                log.error(  # noqa: TRY400  # told in words
                    "destination %s ended badly: %s", instance.destination, error
                )
                first_error = first_error or error
        if first_error is not None:
            raise first_error
        return ended

    def is_configured(self, destination: str) -> bool:
        """Tell whether the destination is one of ours."""
        return destination in self._configs

    def running(self, destination: str) -> RunningInstance | None:
        """Return the instance when it runs here."""
        with self._lock:
            return self._running.get(destination)

    def start_lazy(self, destination: str) -> RunningInstance | None:
        """Start a configured instance that does not run yet.

        Blocks while it starts. Returns None when it cannot start now.
        """
        if destination not in self._configs:
            return None
        return self._start_one(destination)

    def status(self) -> list[dict[str, object]]:
        """Return the state of each destination, in the order they are configured."""
        with self._lock:
            running = dict(self._running)
        return [
            {
                "destination": name,
                "running": name in running,
                "lazy": config.lazy,
                **(running[name].status() if name in running else {}),
            }
            for name, config in self._configs.items()
        ]

    def _make_all(self) -> None:
        problems: list[str] = []
        for name, config in self._configs.items():
            try:
                self._made[name] = self._make_instance(config)
            except ConfigError as error:
                problems += error.problems
        if problems:
            raise ConfigError(problems)

    def _start_apart(self, name: str) -> None:
        try:
            self._start_one(name)
        except Exception:  # the outermost frame of this thread
            log.exception("destination %s cannot start", name)

    def _start_one(self, name: str) -> Instance | None:
        """Start an instance unless it runs; None when it cannot start now."""
        with self._starting[name]:
            with self._lock:
                if name in self._running:
                    return self._running[name]
                if self._stopping:
                    return None
            # An instance starts once: after a failure the next try needs a new one.
            instance = self._made.pop(name, None)
            try:
                instance = instance or self._make_instance(self._configs[name])
                if self._configs[name].position.wiring is Wiring.ZOOKEEPER:
                    self._expect(name, instance)
                instance.start()
            except CanalError as error:
                log.error("destination %s cannot start: %s", name, error)  # noqa: TRY400  # told in words
                return None
            finally:
                with self._lock:
                    self._waiting.pop(name, None)
            return self._admit(name, instance)

    def _expect(self, name: str, instance: Instance) -> None:
        """Let a stop reach an instance that may wait in its start."""
        with self._lock:
            self._waiting[name] = instance
            stopping = self._stopping
        if stopping:  # it came before the instance was in the table
            instance.request_stop()

    def _admit(self, name: str, instance: Instance) -> Instance | None:
        """Enter a started instance into the table; end it if we are stopping."""
        with self._lock:
            if not self._stopping:
                self._running[name] = instance
                return instance
            # `request_stop` came while it started, and could not know of it.
            self._ending.append(instance)
        instance.request_stop()
        return None


class Daemon:
    """Everything one process runs. A stage; `run` drives it."""

    def __init__(
        self,
        config: DaemonConfig,
        make_instance: Callable[[InstanceConfig], Instance],
    ) -> None:
        """Build without starting. Raises ConfigError."""
        self._config = config
        self._born_s = time.monotonic()
        self.stop = Stop()  # what the control socket and `run` wait on
        self._destinations = Destinations(config.instances, make_instance)
        self._server = Server(config.server, self._destinations)
        self._control = ControlServer(
            config.data_dir, {"status": self.status, "stop": self._stop_asked_for}
        )
        self._started: list[tuple[str, Stage]] = []

    @property
    def port(self) -> int:
        """Return the port for clients, the real one once started."""
        return self._server.port

    def start(self) -> None:
        """Start all stages in their order.

        Raises CanalError when one cannot start; those before it were ended again.
        """
        for line in self._config.warnings:
            log.warning("%s", line)
        stages: list[tuple[str, Stage]] = [
            ("control socket", self._control),
            ("instances", self._destinations),
        ]
        if self._config.server.listen:
            stages.append(("server", self._server))
        try:
            for name, stage in stages:
                stage.start()
                self._started.append((name, stage))
        except BaseException:
            self.request_stop()
            self.join(Deadline(STOP_TIMEOUT_S))
            raise
        log.info(
            "canal-server %s started with %s, data in %s",
            __version__,
            self._config.conf_dir,
            self._config.data_dir,
        )

    def request_stop(self) -> None:
        """Ask all stages to stop, but for the control socket, which ends last."""
        self.stop.request()
        for _, stage in reversed(self._started):
            if stage is not self._control:
                stage.request_stop()

    def join(self, deadline: Deadline) -> bool:
        """Wait for all stages in reverse order; tell in the log which do not end well.

        After `request_stop`. Until the others have ended, the control socket answers.
        """
        ended = True
        for name, stage in reversed(self._started):
            if stage is self._control:
                stage.request_stop()
            try:
                if stage.join(deadline):
                    continue
                log.error("the %s did not stop in time", name)
            except CanalError as error:
                # The stages before it must still end.
                log.error("the %s did not end well: %s", name, error)  # noqa: TRY400  # told in words
            ended = False
        return ended

    def status(self) -> dict[str, object]:
        """Return what the control socket tells of this process."""
        return {
            "pid": os.getpid(),
            "version": __version__,
            "uptime_s": round(time.monotonic() - self._born_s, 3),
            "port": self._server.port if self._config.server.listen else None,
            "stopping": self.stop.requested(),
            "instances": self._destinations.status(),
        }

    def _stop_asked_for(self) -> dict[str, object]:
        log.info("stop asked for on the control socket")
        self.stop.request()
        return {"pid": os.getpid()}


def run(
    config: DaemonConfig, make_instance: Callable[[InstanceConfig], Instance]
) -> bool:
    """Run until a signal or the control socket ends it; main thread only.

    Returns false when some stage did not end in time, and its threads may still run,
    or did not end well.
    Raises CanalError when the start fails.
    """
    daemon = Daemon(config, make_instance)
    with _signals() as wait:
        daemon.start()
        name = wait(daemon.stop)
        if name:
            log.info("%s came, stopping; once more to end at once", name)
        daemon.request_stop()
        ended = daemon.join(Deadline(STOP_TIMEOUT_S))
    log.info("stopped")
    return ended


@contextlib.contextmanager
def _signals() -> Iterator[Callable[[Stop], str | None]]:
    """Take the signals that end a process; a second one ends it at once.

    Yields a function that waits for a signal or a stop; it returns the signal's name
    or None. The handlers take no lock: they may interrupt any line of this thread,
    also one inside a lock.
    """
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    came: list[int] = []
    came_at_s = 0.0

    def on_signal(number: int, _: FrameType | None) -> None:
        nonlocal came_at_s
        now_s = time.monotonic()
        came.append(number)
        if len(came) == 1:
            came_at_s = now_s
        elif now_s - came_at_s >= SAME_SIGNAL_S:
            os.write(2, b"canal-server: ended by a second signal\n")
            os._exit(128 + number)

    def wait(stop: Stop) -> str | None:
        poll = select.poll()
        poll.register(reader, select.POLLIN)
        poll.register(stop, select.POLLIN)
        while not came and not stop.requested():
            poll.poll()
            with contextlib.suppress(BlockingIOError):
                reader.recv(4096)
        return signal.Signals(came[0]).name if came else None

    before = {number: signal.signal(number, on_signal) for number in SIGNALS}
    wakeup_before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield wait
    finally:
        signal.set_wakeup_fd(wakeup_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        reader.close()
        writer.close()
