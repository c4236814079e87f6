"""A clock for leases that tests set."""

from __future__ import annotations

from canal_server.ha.membership import boot_clock_s


class Clock:
    """The clock of the machine, put forward: as after a pause of the process."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return boot_clock_s() + self._ahead_s

    def put_forward(self, seconds: float) -> None:
        """Let so much time have passed, of which nobody knew."""
        self._ahead_s += seconds
