"""The levels of the log, which an operator changes while the server runs."""

from __future__ import annotations

import logging
from typing import Final

from canal_server.errors import ConfigError
from canal_server.runtime.log_context import logged_subject

LEVELS: Final = ("debug", "info", "warning", "error")


class LogLevels(logging.Filter):
    """A minimum level, and others for some destinations; a filter of handlers.

    The root logger gets the lowest of them, so that lines below it cost nothing.
    """

    def __init__(self, level: str) -> None:
        """Raise ConfigError for an unknown level."""
        super().__init__()
        self._default = _number_of(level)
        self._of_destination: dict[str, int] = {}
        self._apply()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is logged."""
        found = self._of_destination
        if not found:
            return record.levelno >= self._default
        destination = logged_subject().destination
        return record.levelno >= found.get(destination, self._default)

    def set(self, level: str | None, destination: str = "") -> None:
        """Set the level of a destination, or the default if none is named.

        None: the destination has the default again. Raises ConfigError for an unknown
        level.
        """
        if level is None:
            # Replaced, not changed: other threads read it without a lock.
            others = {k: v for k, v in self._of_destination.items() if k != destination}
            self._of_destination = others
        elif destination:
            number = _number_of(level)
            self._of_destination = {**self._of_destination, destination: number}
        else:
            self._default = _number_of(level)
        self._apply()

    def as_json(self) -> dict[str, object]:
        """Return the levels by their names."""
        return {
            "level": _name_of(self._default),
            "destinations": {
                name: _name_of(level) for name, level in self._of_destination.items()
            },
        }

    def _apply(self) -> None:
        lowest = min((self._default, *self._of_destination.values()))
        logging.getLogger().setLevel(lowest)


def _number_of(level: str) -> int:
    if level not in LEVELS:
        raise ConfigError([f"log level {level!r}: expected {', '.join(LEVELS)}"])
    return logging.getLevelNamesMapping()[level.upper()]


def _name_of(level: int) -> str:
    return logging.getLevelName(level).lower()
