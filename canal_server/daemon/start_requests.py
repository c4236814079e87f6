"""Starts of destinations that an operator requests.

Somebody who has repaired a file of settings, and presses a button, means these
settings: they are read again, whether the conf folder is watched or not. Leaves out the
start itself (`canal_server.daemon.destination_life`).
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from canal_server.config.load import InstanceLoader
from canal_server.delivery.delivery_status import State
from canal_server.errors import ConfigError
from canal_server.messages import daemon_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from canal_server.config.schema import DaemonConfig, InstanceConfig
    from canal_server.daemon.destinations import Destinations
    from canal_server.daemon.loaded_files import LoadedFiles

log = logging.getLogger(__name__)


class StartRequests:
    """Starts destinations, with the settings of their files as they are now.

    `delivered` returns the status of a destination with that of its delivery.
    """

    def __init__(
        self,
        config: DaemonConfig,
        destinations: Destinations,
        files: LoadedFiles,
        delivered: Callable[[Mapping[str, object]], Mapping[str, Any]],
    ) -> None:
        self._destinations = destinations
        self._files = files
        self._delivered = delivered
        self._loader = _loader_of(config)

    def start(self, destination: str) -> None:
        """Start a stopped, failed or lazy destination, or retry source and delivery.

        Raises ClientError, and ConfigError if its file cannot be used: it stays as it
        is then.
        """
        config = self._destinations.require(destination)
        if self._needs_start(destination):
            self._load(config)
        self._destinations.resume(destination)

    def _needs_start(self, destination: str) -> bool:
        """Return whether a destination, or its delivery, does nothing now."""
        status = self._destinations.status_of(destination)
        if status is None or not status.get("running") or status.get("error"):
            return True
        delivery = self._delivered(status).get("delivery") or {}
        return delivery.get("state") == State.STOPPED

    def _load(self, before: InstanceConfig) -> None:
        """Use the file of a destination, if it has changed."""
        name, file = before.destination, before.file
        if self._loader is None or file is None:
            return
        config, warnings = self._loader.load(name, self._destinations.configs())
        if config == before:
            return
        for warning in warnings:
            daemon_messages.CONFIGURATION_WARNING.log(log, warning)
        self._destinations.put(config)
        self._files.note_loaded(file)
        log.info("destination %s was changed: %s", name, file)


def _loader_of(config: DaemonConfig) -> InstanceLoader | None:
    """Return what reads the files; None if canal-admin hands the settings out."""
    if config.instances_managed:
        return None
    try:
        return InstanceLoader(config.conf_dir, os.environ)
    except ConfigError:  # the folder is not there any more
        return None
