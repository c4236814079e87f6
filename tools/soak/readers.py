"""What reads the destinations beside clients: a Spark stream, and a mirror."""

from __future__ import annotations

from typing import Protocol


class Reader(Protocol):
    """A process that reads a destination and can be ended in all ways."""

    @property
    def pid(self) -> int | None:
        """The process while it runs."""

    def launch(self) -> None:
        """Start it."""

    def kill(self) -> None:
        """End it and all that it started, as a machine that goes away does."""

    def stop(self) -> int:
        """End it as an operator does; returns its exit status."""

    def close(self) -> None:
        """End all that it has."""

    def ended(self) -> int | None:
        """Return the exit status of a process that ended without being asked to."""

    def log_end(self) -> str:
        """Return the last lines of its log."""
