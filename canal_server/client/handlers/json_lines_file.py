"""The handler `json-lines`: changes as lines of JSON in a file, which is rotated."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from canal_server.client.handlers.change_json import json_object, json_text
from canal_server.client.handlers.file_modes import mode_of
from canal_server.client.handlers.handler import RetryLater
from canal_server.client.handlers.line_file import LineFile, sync_folder
from canal_server.errors import CanalError
from canal_server.messages import client_messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.client.change_reader import Change

logger = logging.getLogger("canal_server.client")

_RETRY_S: Final = 10.0  # after a failed rotation


class JsonLines:
    """Appends each change to a file, as a line of JSON, and syncs it at each flush.

    A line is complete or absent, even after a crash. Changes that were written but not
    acked before the crash are written again. When the file was moved or deleted, as by
    logrotate, a new one is created after the next flush.

    Args:
        path: the file; a rotated file is `name.<UTC time>.suffix` in the same folder
        rotate_bytes: rotate after a flush when the file has so many bytes; 0: never
        rotate_s: rotate after a flush when the file has been open for so many seconds;
            0: never
        mode: the mode of a new file, in octal digits; only the owner may read it
            without this
        clock: returns the time in seconds since 1970

    """

    def __init__(
        self,
        path: str | Path,
        *,
        rotate_bytes: int = 0,
        rotate_s: float = 0.0,
        mode: str = "0600",
        clock: Callable[[], float] = time.time,
    ) -> None:
        if rotate_bytes < 0 or rotate_s < 0:
            raise ValueError("rotate_bytes and rotate_s must be 0 or more")
        self._path = Path(path)
        self._rotate_bytes = rotate_bytes
        self._rotate_s = rotate_s
        self._mode = mode_of(mode)
        self._clock = clock
        self._retry_at_s = 0.0  # when to rotate again after a failure

    def open(self) -> None:
        """Open the file. Raises OSError."""
        self._file = LineFile(self._path, self._mode)
        self._opened_s = self._clock()

    def handle(self, change: Change) -> None:
        """Append a change."""
        line = json_text(json_object(change))
        try:
            self._file.append(line)
        except OSError as error:  # such as a full disk
            raise RetryLater(f"{self._path}: {error.strerror}") from error

    def flush(self) -> None:
        """Write the lines to the disk, and rotate the file if that is due."""
        try:
            self._file.sync()
        except OSError as error:
            raise RetryLater(f"{self._path}: {error.strerror}") from error
        # What was flushed is durable, and must not be written again for this.
        if self._clock() >= self._retry_at_s:
            try:
                self._rotate_if_due()
            except (OSError, CanalError) as error:
                self._retry_at_s = self._clock() + _RETRY_S
                client_messages.ROTATION_FAILS.log(logger, self._path, error, _RETRY_S)

    def rollback(self) -> None:
        """Remove the lines since the last flush."""
        self._file.rollback()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _rotate_if_due(self) -> None:
        if not self._file.is_at(self._path):
            self._begin_file()
        elif self._is_due():
            self._path.rename(self._unused_name())
            self._begin_file()

    def _is_due(self) -> bool:
        size, age_s = self._file.size, self._clock() - self._opened_s
        return size > 0 and (
            0 < self._rotate_bytes <= size or 0 < self._rotate_s <= age_s
        )

    def _begin_file(self) -> None:
        """Open another file; the one before is locked and complete until then."""
        sync_folder(self._path.parent)
        finished = self._file
        self._file = LineFile(self._path, self._mode)
        finished.close()
        self._opened_s = self._clock()

    def _unused_name(self) -> Path:
        moment = datetime.fromtimestamp(self._clock(), UTC)
        number = 0
        while True:
            extra = f"-{number}" if number else ""
            name = f"{self._path.stem}.{moment:%Y%m%dT%H%M%SZ}{extra}"
            path = self._path.with_name(name + self._path.suffix)
            if not path.exists():
                return path
            number += 1
