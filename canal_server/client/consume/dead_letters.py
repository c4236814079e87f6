"""Changes that a handler could not process, with the reason, in a file."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from canal_server.client.handlers.change_json import json_object, json_text
from canal_server.client.handlers.line_file import LineFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from canal_server.client.change_reader import Change


def utc_now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


class DeadLetters:
    """A file to which changes are appended, one JSON object per line.

    An object has what `json_object` writes of the change, and with it `error` (`type`
    and `message`), `attempts` and `failed_at`.
    """

    def __init__(self, path: Path, clock: Callable[[], datetime] = utc_now) -> None:
        """Open the file. Raises OSError, and CanalError while another process does."""
        self.path = path
        self._file = LineFile(path)
        self._clock = clock

    def write(self, changes: Iterable[Change], error: Exception, attempts: int) -> None:
        """Append changes that failed; they are on the disk when this returns.

        Raises OSError.
        """
        why: dict[str, Any] = {
            "error": {"type": type(error).__name__, "message": str(error)},
            "attempts": attempts,
            "failed_at": self._clock(),
        }
        for change in changes:
            self._file.append(json_text(json_object(change) | why))
        self._file.sync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
