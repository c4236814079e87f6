"""The lease of a server that shares its destinations with no other server."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.runtime.lifecycle import Stop


class SingleNode:
    """A `ports.Lease` that is always granted and never lost."""

    shared = False
    owner = None

    def status(self) -> None:
        """Return None: there is nothing to show."""

    def open(self, changed: Callable[[], None]) -> None:
        """Do nothing: there are no other servers."""

    def problem(self) -> None:
        """Return None: nobody is asked."""

    def acquire(self, stop: Stop) -> bool:
        """Grant it, unless a stop is requested."""
        return not stop.requested()

    def held(self) -> bool:
        """Return true."""
        return True

    def wait_until_lost(self, stop: Stop) -> str:
        """Wait for the stop."""
        stop.wait(None)
        return ""

    def wake(self) -> None:
        """Do nothing: the only wait is for the stop."""

    def release(self) -> None:
        """Do nothing: no other server waits for it."""

    def close(self) -> None:
        """Do nothing."""
