"""Adds, changes and removes destinations while the server runs.

The conf folder is checked once per interval: a new folder with an `instance.properties`
is a new destination, a changed file changes one, and when the file or folder is
deleted, the destination is removed. A change is checked again a moment later, and
counts once the file stays the same, because an editor may write in two steps. An
invalid file is logged once and leaves the destination unchanged. `canal.properties` is
not read again.

Leaves out how a destination starts and ends (`canal_server.daemon.destinations`).
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from canal_server.errors import CanalError, ConfigError
from canal_server.messages import daemon_messages
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from canal_server.config.load import InstanceLoader
    from canal_server.daemon.destinations import Destinations
    from canal_server.runtime.lifecycle import Deadline

log = logging.getLogger(__name__)

SETTLE_S: Final = 0.5  # for which a file must stay the same
LOG_AGAIN_S: Final = 600.0  # what fails at every check

# The identity of a file's content: its times, size and inode. None: no file.
_Print = tuple[int, ...] | None


class ConfWatch:
    """A stage: keeps the destinations in line with the conf folder."""

    def __init__(
        self,
        loader: InstanceLoader,
        destinations: Destinations,
        *,
        interval_s: float,
        settle_s: float = SETTLE_S,
    ) -> None:
        self._loader = loader
        self._destinations = destinations
        self._interval_s = interval_s
        self._settle_s = min(settle_s, interval_s)
        self._stop = Stop()
        # The file of each destination when it was last applied, and when it was last
        # seen to differ from that.
        self._known: dict[str, _Print] = {}
        self._unsettled: dict[str, _Print] = {}
        self._logged_s: dict[str, float] = {}  # by text, when it was logged
        # The errors of invalid files; replaced, not changed.
        self._refused: Mapping[str, str] = {}
        self._thread = threading.Thread(
            target=self._watch, name="canal-watch", daemon=True
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def request_stop(self) -> None:
        """Ask to stop."""
        self._stop.request()

    def join(self, deadline: Deadline) -> bool:
        """Wait for the thread's end."""
        if self._thread.ident is None:
            return True
        self._thread.join(deadline.remaining_s())
        return not self._thread.is_alive()

    @property
    def is_unsettled(self) -> bool:
        """Return whether a change has to be checked again before it counts."""
        return bool(self._unsettled)

    def refused(self) -> dict[str, str]:
        """Return the errors of files that are not used; by any thread."""
        return dict(self._refused)

    def _watch(self) -> None:
        wait_s = 0.0  # changes since the settings were read are found at once
        while not self._stop.wait(wait_s):
            try:
                self.look()
            except Exception:  # noqa: BLE001  # the outermost frame of this thread
                daemon_messages.CONF_FOLDER_CHECK_FAILED.log(log, exc_info=True)
            wait_s = self._settle_s if self._unsettled else self._interval_s

    def look(self) -> None:
        """Check the folder once, and apply what has settled."""
        try:
            names = self._loader.scanned()
        except OSError as error:
            self._log_unreadable(
                f"{self._loader.conf_dir}: {error.strerror or error}; all destinations"
                " are unchanged"
            )
            return
        for name in dict.fromkeys((*names, *self._destinations.names())):
            if self._stop.requested():
                return
            self._look_at(name)
        for name in self._known.keys() - set(names) - set(self._destinations.names()):
            del self._known[name]
            self._note(name)

    def _look_at(self, name: str) -> None:
        path = self._loader.path_of(name)
        try:
            seen = _print_of(path)
        except OSError as error:
            self._log_unreadable(f"{path}: {error.strerror}; {name} is unchanged")
            return
        if name in self._known and seen == self._known[name]:
            self._unsettled.pop(name, None)
        elif name in self._unsettled and seen == self._unsettled[name]:
            del self._unsettled[name]
            before = self._known.get(name)
            self._known[name] = seen
            if seen is not None:
                self._use(name, path)
            elif before is not None:
                self._remove(name, path)
        else:
            self._unsettled[name] = seen

    def _use(self, name: str, path: Path) -> None:
        """Apply a destination's file, if it is valid."""
        before = self._destinations.config_of(name)
        effect = (
            "it does not start" if before is None else "it keeps its previous settings"
        )
        try:
            config, warnings = self._loader.load(name, self._destinations.configs())
            if config == before:
                self._note(name)
                return
            for warning in warnings:
                daemon_messages.CONFIGURATION_WARNING.log(log, warning)
            self._destinations.put(config)
        except ConfigError as error:
            for warning in error.warnings:
                daemon_messages.CONFIGURATION_WARNING.log(log, warning)
            for problem in error.problems:
                daemon_messages.DESTINATION_SETTINGS_REFUSED.log(
                    log, name, problem, effect
                )
            self._note(name, f"{'; '.join(error.problems)}; {effect}")
        except CanalError as error:
            daemon_messages.DESTINATION_SETTINGS_REFUSED.log(log, name, error, effect)
            self._note(name, f"{error}; {effect}")
        else:
            self._note(name)
            log.info(
                "destination %s was %s: %s",
                name,
                "added" if before is None else "changed",
                path,
            )

    def _note(self, name: str, problem: str = "") -> None:
        """Keep the error of a file, until the file is repaired."""
        others = {each: why for each, why in self._refused.items() if each != name}
        self._refused = others | ({name: problem} if problem else {})

    def _remove(self, name: str, path: Path) -> None:
        self._note(name)
        if self._destinations.config_of(name) is None:
            return
        self._destinations.remove(name)
        log.info(
            "destination %s was removed: %s was deleted; its stored data is kept",
            name,
            path,
        )

    def _log_unreadable(self, text: str) -> None:
        now_s = time.monotonic()
        logged_s = self._logged_s.get(text)
        if logged_s is None or now_s - logged_s >= LOG_AGAIN_S:
            self._logged_s = {
                each: when_s
                for each, when_s in self._logged_s.items()
                if now_s - when_s < LOG_AGAIN_S
            } | {text: now_s}
            daemon_messages.CONF_FOLDER_UNREADABLE.log(log, text)


def _print_of(path: Path) -> _Print:
    """Return the identity of a file's content. Raises OSError."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
