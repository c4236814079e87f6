"""Checks whether the source answers, and switches to the other server if not.

::

    every interval: ask ── answers ──► failures = 0, now and then look at the other one
                     └─ fails ──► failures + 1 ── more than the threshold ──► the other
                                                  one is fit ──► the pump reads it

The thread has its own connections, so that it can distinguish a server that does not
answer from a dump that has nothing to send. What makes a server fit is decided in
`mysql.standby`; the switch itself is the pump's.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Protocol

from canal_server.errors import CanalError
from canal_server.messages import source_messages
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.standby import Requirements, Verdict, examine
from canal_server.runtime.lifecycle import Stop
from canal_server.runtime.log_context import log_about
from canal_server.runtime.log_throttle import LogThrottle

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.config.schema import InstanceConfig
    from canal_server.model.positions import LogPosition
    from canal_server.mysql.source_settings import Access
    from canal_server.runtime.lifecycle import Deadline
    from canal_server.source.begin.source_servers import Source, Sources

_log = logging.getLogger(__name__)

# A healthy server answers within the interval; a shorter interval allows this time.
ANSWER_S_MIN = 3.0
# How often the other server is checked while it is not needed.
LOOK_S = 60.0


class Switching(Protocol):
    """What the detector needs of a pump."""

    @property
    def sources(self) -> Sources:
        """Return the servers, and which one is read."""

    def switch_to(self, source: Source) -> None:
        """Read another server as soon as the session has ended; returns at once."""


@dataclass(slots=True)
class DetectingStatus:
    """For operators; written by the detector's thread."""

    failures: int = 0  # in a row
    threshold: int = 0
    error: str = ""  # the last failure, empty when it answered
    other: str = ""  # the server that is not read
    other_fit: bool | None = None  # None: not checked, or there is none
    other_refusal: str = ""  # why it may not take over


class Detector:
    """Watches the server that is read; a Stage.

    `stored` returns the position after which reading would continue.
    """

    def __init__(
        self,
        config: InstanceConfig,
        pump: Switching,
        stored: Callable[[], LogPosition | None],
    ) -> None:
        self._destination = config.destination
        self._subject = config.subject
        self._source = config.source
        self._settings = config.source.detecting
        self._pump = pump
        self._stored = stored
        self._stop = Stop()
        self._watched: Source | None = None
        self._switching_to: Source | None = None  # until the pump reads it
        self._control: ControlConnection | None = None
        self._is_mariadb: bool | None = None
        self._look_at_s = 0.0  # when to look at the other server next
        self._logged = LogThrottle()
        self._state = DetectingStatus(threshold=self._settings.retry_threshold)
        self._thread = threading.Thread(
            target=self._run, name=f"detect-{config.destination}", daemon=True
        )

    # --- Stage ----------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread, if it is configured."""
        if self._settings.enable:
            self._thread.start()

    def request_stop(self) -> None:
        """Request the stop, and cut the connection on which the thread may wait."""
        self._stop.request()
        control = self._control
        if control is not None:
            control.abort()

    def join(self, deadline: Deadline) -> bool:
        """Wait until the thread has ended."""
        if self._thread.ident is None:
            return True
        self._thread.join(deadline.remaining_s())
        return not self._thread.is_alive()

    def status(self) -> dict[str, object] | None:
        """Return what an operator asks, None when nothing is watched."""
        return asdict(self._state) if self._settings.enable else None

    # --- the thread -----------------------------------------------------------------

    def _run(self) -> None:
        log_about(*self._subject)
        try:
            while not self._stop.wait(self._settings.interval_s):
                try:
                    self.check()
                except Exception:  # noqa: BLE001
                    # The outermost frame: a fault of ours must be logged, and must not
                    # end the watch.
                    source_messages.SOURCE_CHECK_FAILED.log(
                        _log, self._destination, exc_info=True
                    )
        finally:
            self.close()

    def check(self) -> None:
        """Check once, and act on the answer; for one thread, `start` begins it."""
        source = self._pump.sources.current
        if source is not self._watched:
            self._watch(source)
        try:
            self._ask(source)
        except CanalError as error:
            self.close()
            if not self._stop.requested():
                self._failed(source, error)
            return
        if self._state.failures:
            _log.info("destination %s: %s answers again", self._destination, source)
            self._logged.forget()
        self._state.failures, self._state.error = 0, ""
        if time.monotonic() >= self._look_at_s:
            self._other_is_fit()

    def _watch(self, source: Source) -> None:
        """Watch the server that is read now; reset what was known of the other one."""
        self.close()
        self._watched, self._switching_to = source, None
        self._state.failures, self._state.error = 0, ""
        self._state.other_fit, self._state.other_refusal = None, ""
        other = self._pump.sources.other
        self._state.other = "" if other is None else str(other)
        self._look_at_s = 0.0

    def _ask(self, source: Source) -> None:
        """Run the configured statement, or without one a ping."""
        if self._control is None:
            self._control = ControlConnection(self._quick(source.access), self._stop)
        self._control.open()
        self._is_mariadb = self._control.is_mariadb
        if self._settings.sql.strip():
            self._control.query(self._settings.sql)
        else:
            self._control.ping()

    def _quick(self, access: Access) -> Access:
        limit_s = min(
            self._source.so_timeout_s, max(self._settings.interval_s, ANSWER_S_MIN)
        )
        return replace(access, connect_timeout_s=limit_s, io_timeout_s=limit_s)

    def _failed(self, source: Source, error: CanalError) -> None:
        state = self._state
        state.failures, state.error = state.failures + 1, str(error)
        self._warn(f"checking {source} failed: {type(error).__name__}: {error}")
        other = self._pump.sources.other
        if state.failures <= state.threshold:
            return
        if other is not None and other is self._switching_to:
            return  # the pump first delivers what it has, which may wait
        if not self._settings.switch_to_standby:
            self._warn(
                f"{source} failed more than {state.threshold} times: not"
                " switching, as canal.instance.detecting.heartbeatHaEnable is not true"
            )
        elif other is None:
            self._warn(
                f"{source} failed more than {state.threshold} times: not"
                " switching, as canal.instance.standby.address is not set"
            )
        elif self._other_is_fit() and not self._stop.requested():
            source_messages.SOURCE_SWITCHED.log(
                _log,
                self._destination,
                source,
                state.failures,
                state.threshold,
                other,
                error,
            )
            self._logged.forget()
            self._switching_to = other
            self._pump.switch_to(other)

    def _other_is_fit(self) -> bool:
        """Check the server that is not read; return whether it may take over."""
        other = self._pump.sources.other
        if other is None or not self._settings.switch_to_standby:
            return False
        self._look_at_s = time.monotonic() + LOOK_S
        try:
            verdict = self._examined(other)
        except CanalError as error:
            verdict = Verdict("", f"{type(error).__name__}: {error}")
        current = self._pump.sources.current.configured
        if (
            self._stored() is None
            and current.has_start
            and (not other.configured.has_start)
        ):
            verdict = replace(
                verdict,
                refusal=f"nothing is stored yet: set its start position in"
                f" canal.instance.{other.role}.…, as for the other server",
            )
        if self._stop.requested():
            return False
        for warning in verdict.warnings:
            self._warn(f"{other}: {warning}")
        if verdict.refusal:
            self._warn(f"{other} cannot take over: {verdict.refusal}")
        self._state.other_fit = not verdict.refusal
        self._state.other_refusal = verdict.refusal
        return not verdict.refusal

    def _examined(self, other: Source) -> Verdict:
        source, stored = self._source, self._stored()
        # A replica may lag while it is not needed.
        needed = self._state.failures > 0 and stored is not None
        requirements = Requirements(
            gtid_on=source.gtid_on,
            gtids=(stored.position.gtid or "") if stored and needed else "",
            executed=stored.executed if stored and needed else None,
            is_mariadb=self._is_mariadb,
            lag_max_s=source.standby_lag_max_s,
            formats=source.binlog_formats,
            images=source.binlog_images,
        )
        # The connection to the server that is read stays open.
        watching = self._control
        control = ControlConnection(self._quick(other.access), self._stop)
        self._control = control
        try:
            with control:
                return examine(control, requirements)
        finally:
            self._control = watching

    def close(self) -> None:
        """Close the connection; the next check opens another."""
        control, self._control = self._control, None
        if control is not None:
            control.close()

    def _warn(self, text: str) -> None:
        """Log a warning, only now and then if each check repeats it."""
        if self._logged.is_news(text, time.monotonic()):
            source_messages.SOURCE_CHECK_WARNING.log(_log, self._destination, text)
