"""How many transactions of the source the lake lacks, looked up at intervals.

The stream knows its own position only. While it fails, this shows how much it has to
catch up with.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from canal_server.core.gtid.transaction_count import transactions_between
from canal_server.errors import CanalError
from canal_server.mirror.session.spark_session import source_options
from canal_server.spark.options.offsets import version_of
from canal_server.spark.options.servers import Channel
from canal_server.spark.options.source_options import read_options

if TYPE_CHECKING:
    from canal_server.client.range_client import RangePosition
    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.runtime.lifecycle import Deadline, Stop

log = logging.getLogger(__name__)

EVERY_S: Final = 10.0
HOLDS_S: Final = 60.0  # how long an answer is shown when there is no newer one


class SourceEnd:
    """A stage with a thread that asks canal-server for the end of the source's binlog.

    `reached` and `lacking` are for other threads.
    """

    def __init__(self, settings: MirrorSettings, stop: Stop) -> None:
        self._stop = stop
        self._mirror = settings.name
        destination = settings.canal.destination
        options = read_options(source_options(settings))
        self._channel = Channel(options, destination, stop=stop)
        self._lock = threading.Lock()
        self._end: tuple[float, RangePosition] | None = None  # and when it was there
        self._reached: RangePosition | None = None
        self._thread = threading.Thread(target=self._run, name="end", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self, deadline: Deadline) -> bool:
        """Wait until the thread has ended, after a stop was requested."""
        self._thread.join(deadline.remaining_s())
        return not self._thread.is_alive()

    def caught_up(self) -> None:
        """Record that a poll of the stream brought nothing new.

        The stream's position is older then, as it does not move past transactions of
        other tables.
        """
        with self._lock:
            if self._end is not None:
                self._reached = self._end[1]

    def lacking(self, applied: RangePosition | None) -> int | None:
        """Return how many transactions the lake lacks; None if that is unknown.

        `applied` is the stream's position.
        """
        with self._lock:
            end, reached = self._end, self._reached
        if end is None or applied is None or time.monotonic() - end[0] > HOLDS_S:
            return None
        if reached is not None and version_of(reached) > version_of(applied):
            applied = reached
        if version_of(applied) >= version_of(end[1]):
            return 0
        return transactions_between(applied.gtids, end[1].gtids)

    def _run(self) -> None:
        try:
            while not self._stop.wait(EVERY_S):
                self.look()
        finally:
            self._channel.close()

    def look(self) -> None:
        """Ask once."""
        name = self._channel.destination
        try:
            end = self._channel.call(lambda c: c.locate(name, "latest", self._mirror))
        except (CanalError, OSError) as error:
            # The stream meets the same problem, and reports it.
            log.debug("the end of the source's binlog is not known: %s", error)
            return
        with self._lock:
            self._end = time.monotonic(), end
