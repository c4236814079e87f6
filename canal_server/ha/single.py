"""The lease of a server that shares its destinations with nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.runtime.lifecycle import Stop


class SingleNode:
    """A `ports.Lease` that can always be had and is never lost."""

    shared = False
    owner = None

    def open(self, changed: Callable[[], None]) -> None:
        """Do nothing: there is nobody to tell."""

    def acquire(self, stop: Stop) -> bool:
        """Grant it, unless a stop is asked for."""
        return not stop.requested()

    def held(self) -> bool:
        """Tell that it is held."""
        return True

    def wait_until_lost(self, stop: Stop) -> str:
        """Wait for the stop."""
        stop.wait(None)
        return ""

    def wake(self) -> None:
        """Do nothing: whoever waits here waits for the stop."""

    def release(self) -> None:
        """Do nothing: nobody else wants it."""

    def close(self) -> None:
        """Do nothing."""
