"""Where a destination begins that has delivered nothing, however late brokers answer.

If they answered at once, it would begin at the end of the binlog as that was when it
started: what is committed until they answer is to be delivered, too. The end is noted
as the source shows it, so that clocks do not matter.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from canal_server.capture.source_parts import access_of
from canal_server.errors import CanalError
from canal_server.model.positions import LogPosition
from canal_server.source.begin.source_lag import SourceView
from canal_server.source.check.source_check import impatient

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.config.schema import InstanceConfig
    from canal_server.runtime.lifecycle import Stop

log = logging.getLogger(__name__)

NO_SOURCE: Final = "the source did not answer, either"
PURGED: Final = "the source no longer has the binlog from then on"
LOOK_S: Final = 0.05  # between looks at a stop while the source is asked


class FirstDelivery:
    """The end of a source's binlog when the destination started; for one thread.

    The source is asked in a thread of its own: one that is silent delays nothing else.
    `why_not` says why the position that was noted cannot be used.
    """

    def __init__(self, config: InstanceConfig) -> None:
        self._config = config
        self._noted: LogPosition | None = None
        self._failure: Exception | None = None  # an internal error of those threads
        self._asking: threading.Thread | None = None
        self.why_not = NO_SOURCE

    @property
    def is_configured(self) -> bool:
        """Return whether the settings say where to begin, whenever that is."""
        source = self._config.source
        configured = source.master
        return bool(
            configured.journal_name
            or configured.timestamp_ms
            or (source.gtid_on and configured.gtid)
        )

    @property
    def conf_option(self) -> str:
        """Return the option of commands that names the conf folder, with a blank."""
        return self._config.conf_option

    def note(self) -> None:
        """Have it noted where the binlog ends; returns at once.

        A source that did not answer is asked again.
        """
        if self._noted is not None or self.is_configured:
            return
        if self._asking is None or not self._asking.is_alive():
            self._asking = self._begun(self._note)

    def _begun(self, work: Callable[[], None]) -> threading.Thread:
        name = f"first-{self._config.destination}"

        def run() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001  # `position` raises it
                self._failure = error
            else:
                self._failure = None

        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    def _note(self) -> None:
        try:
            with self._view() as view:
                self._noted = LogPosition(view.identity, view.end_position)
        except CanalError as error:
            log.debug(
                "destination %s: the end of the binlog is not known yet: %s",
                self._config.destination,
                error,
            )

    def position(self, stop: Stop) -> LogPosition | None:
        """Return the position that was noted, if the source has what follows it.

        A source that cannot be asked now, or before a stop, is asked when reading
        begins. Raises internal errors of the threads that asked.
        """
        self._await(self._asking, stop)
        noted = self._noted
        if noted is None:
            self._raise_failure()
            return None
        purged: list[LogPosition] = []

        def check() -> None:
            if not self._has_all_from(noted):
                purged.append(noted)

        self._await(self._begun(check), stop)
        self._raise_failure()
        if purged:
            self.why_not = PURGED
            return None
        return noted

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    @staticmethod
    def _await(thread: threading.Thread | None, stop: Stop) -> None:
        """Wait for an answer or a stop; an answer takes no longer than its limits."""
        while thread is not None and thread.is_alive() and not stop.requested():
            thread.join(LOOK_S)

    def _has_all_from(self, noted: LogPosition) -> bool:
        try:
            with self._view() as view:
                files, position = view.files, noted.position
                return files.had(position.journal_name, position.position) and (
                    files.purged_from(position.journal_name) is None
                )
        except CanalError:
            return True

    def _view(self) -> SourceView:
        config = self._config
        access = access_of(config.source, config.destination)
        return SourceView(config, impatient(access))
