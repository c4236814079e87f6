"""Follows the settings that canal-admin hands out, while the server runs.

Changed destinations are applied by the watch of their folder. A changed
`canal.properties` restarts all stages in this process, as in the Java server.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from canal_server.admin.settings_client import SettingsError
from canal_server.messages import daemon_messages
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.admin.managed_settings import ManagedSettings
    from canal_server.daemon.conf_watch import ConfWatch
    from canal_server.runtime.lifecycle import Deadline

log = logging.getLogger(__name__)


class SettingsWatch:
    """A stage: asks canal-admin once per interval."""

    def __init__(
        self,
        settings: ManagedSettings,
        restart: Callable[[], None],
        conf_watch: ConfWatch | None,
        *,
        interval_s: float,
    ) -> None:
        """Create it; `conf_watch` applies destinations, and is not started itself."""
        self._settings = settings
        self._restart = restart
        self._conf_watch = conf_watch
        self._interval_s = interval_s
        self._stop = Stop()
        self._thread = threading.Thread(
            target=self._watch, name="canal-settings", daemon=True
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

    def _watch(self) -> None:
        wait_s = 0.0
        while not self._stop.wait(wait_s):
            try:
                self._look()
            except Exception:  # noqa: BLE001  # the outermost frame of this thread
                daemon_messages.CONF_FOLDER_CHECK_FAILED.log(log, exc_info=True)
            wait_s = self._interval_s

    def _look(self) -> None:
        failure = self._settings.failure  # that was logged, perhaps at the start
        try:
            changes = self._settings.fetch(self._stop.requested)
        except SettingsError as error:
            if str(error) != failure:
                daemon_messages.ADMIN_SETTINGS_UNAVAILABLE.log(log, error)
        else:
            if failure:
                log.info("canal-admin provides settings again")
            if changes.refused:
                daemon_messages.ADMIN_SETTINGS_REFUSED.log(log, changes.refused)
            if changes.server:
                log.info("canal-admin changed canal.properties, restarting")
                self._restart()
                return
        if self._conf_watch is not None:
            self._conf_watch.look()
            if self._conf_watch.is_unsettled:  # each file is replaced all at once
                self._conf_watch.look()
