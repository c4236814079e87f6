"""Log files as the Java server has them: one of the server, one of each destination."""

from __future__ import annotations

import logging
import os
import re
import threading
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Final

from canal_server.errors import ConfigError
from canal_server.runtime.log_context import logged_subject
from canal_server.runtime.private_files import (
    make_private_folder,
    open_private,
    reason_of,
)

if TYPE_CHECKING:
    from io import TextIOWrapper

FILE_BYTES_MAX: Final = 100_000_000
FILES_MAX: Final = 10
_SERVER: Final = "canal"
_IS_NAME: Final = re.compile(r"[\w-][\w.-]*").fullmatch  # of a file in the folder


class _PrivateFile(RotatingFileHandler):
    """A rotating file for its owner only: lines have names of tables, and filters."""

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        descriptor = open_private(Path(self.baseFilename), flags)
        return os.fdopen(descriptor, "a", encoding=self.encoding, errors=self.errors)


class LogFolder(logging.Handler):
    """Writes `canal/canal.log`, and `<destination>/<destination>.log` for each.

    A file that is full becomes `….log.1`, an older one `….log.2`, and so on.
    """

    def __init__(
        self,
        folder: Path,
        *,
        file_bytes: int = FILE_BYTES_MAX,
        files: int = FILES_MAX,
    ) -> None:
        """Open the server's log. Raises ConfigError if it cannot be written.

        A file has up to `file_bytes`; `files` are kept of each log, the current one
        included. A single one is emptied when it is full.
        """
        super().__init__()
        self._folder = folder
        self._file_bytes, self._files = file_bytes, files
        self._handlers: dict[str, logging.Handler] = {}
        self._opening = threading.Lock()
        try:
            self._handlers[_SERVER] = self._open(_SERVER)
        except OSError as error:
            raise ConfigError(
                [f"--log-dir {folder}: cannot write there: {reason_of(error)}"]
            ) from error

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line to the file of its destination, or to the server's."""
        name = logged_subject().destination
        if not _IS_NAME(name):
            name = _SERVER
        try:
            with self._opening:
                handler = self._handlers.get(name)
                if handler is None:
                    handler = self._handlers[name] = self._open(name)
        except OSError:
            handler = self._handlers[_SERVER]
        handler.handle(record)

    def setFormatter(self, fmt: logging.Formatter | None) -> None:  # noqa: N802  # logging's
        """Set the format of all files."""
        super().setFormatter(fmt)
        for handler in self._handlers.values():
            handler.setFormatter(fmt)

    def close(self) -> None:
        """Close all files."""
        for handler in self._handlers.values():
            handler.close()
        super().close()

    def _open(self, name: str) -> logging.Handler:
        folder = self._folder / name
        make_private_folder(folder)
        handler = _PrivateFile(
            folder / f"{name}.log",
            maxBytes=self._file_bytes,
            backupCount=self._files - 1,
            encoding="utf-8",
            errors="backslashreplace",
        )
        handler.setFormatter(self.formatter)
        return handler
