"""How a pump waits at a source that has long been idle: without looking each time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from canal_server.source.pump.capture_checks import CaptureChecks
    from canal_server.source.pump.source_switch import SourceSwitch

# What may be due is looked at with each of the first heartbeats, then less and less
# often.
LOOKS: Final = 5
REST_S: Final = 60.0
REST_S_MAX: Final = 600.0


class IdleRest:
    """Counts how long nothing was delivered; for the pump's thread."""

    def __init__(self, checks: CaptureChecks, switch: SourceSwitch) -> None:
        """Store what may be due, and what has the stream that is read."""
        self._checks = checks
        self._switch = switch
        self._looks = 0  # since the last delivery

    def end(self) -> None:
        """Note that there was something to deliver."""
        self._looks = 0

    def wait(self) -> None:
        """Wait while the source only repeats its heartbeat, if nothing may be due."""
        self._looks += 1
        stream = self._switch.stream
        if stream is None or self._looks < LOOKS or self._checks.may_change:
            return
        stream.rest(min(REST_S * (self._looks - LOOKS + 1), REST_S_MAX))
