"""Upkeep of the lake's tables: small files put together, old versions removed.

On a schedule of its own, one table at a time, between two batches of the stream: both
would write the same files.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from canal_server.errors import LakeError
from canal_server.mirror.lake import open_table

if TYPE_CHECKING:
    from canal_server.mirror.model import TableName
    from canal_server.mirror.settings import MirrorSettings
    from canal_server.mirror.stream import ChangeStream

log = logging.getLogger(__name__)

VACUUM_EVERY_S: Final = 3600.0


class Upkeep:
    """Does what is due; for one thread."""

    def __init__(self, settings: MirrorSettings, stream: ChangeStream) -> None:
        self._settings = settings
        self._stream = stream
        self._compacted: dict[TableName, float] = {}  # when, or when it was first seen
        self._vacuumed: dict[TableName, float] = {}

    def turn(self) -> None:
        """Do the upkeep of one table at most, if it is due."""
        lake = self._settings.lake
        every = (
            (self._compacted, lake.compact_every_s, self._compact),
            (
                self._vacuumed,
                VACUUM_EVERY_S if lake.vacuum_after_s else 0.0,
                self._vacuum,
            ),
        )
        now = time.monotonic()
        for done, period_s, do in every:
            for name in self._stream.tables if period_s else ():
                if now - done.setdefault(name, now) >= period_s:
                    done[name] = now
                    try:
                        do(name)
                    except LakeError as error:
                        log.warning("%s: upkeep failed: %s", name, error)
                    return

    def _compact(self, name: TableName) -> None:
        with self._stream.joining:
            follower = self._stream.follower(name)
            if follower is not None:
                open_table(self._settings, follower.table).compact()

    def _vacuum(self, name: TableName) -> None:
        with self._stream.joining:
            follower = self._stream.follower(name)
            if follower is not None:
                hours = self._settings.lake.vacuum_after_s / 3600
                open_table(self._settings, follower.table).vacuum(hours)
