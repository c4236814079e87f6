"""Where a destination begins that has delivered nothing, after a wait for the brokers.

Without the wait it would begin at the end of the binlog as that was when it started:
what is committed while the brokers are away is to be delivered, too. The end is noted
as the source shows it, so that clocks do not matter.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from canal_server.capture.source_parts import access_of
from canal_server.errors import CanalError
from canal_server.model.positions import LogPosition
from canal_server.source.begin.source_lag import SourceView
from canal_server.source.check.source_check import impatient

if TYPE_CHECKING:
    from canal_server.config.schema import InstanceConfig

log = logging.getLogger(__name__)

NO_SOURCE: Final = "the source did not answer, either"
_PURGED: Final = "the source no longer has the binlog from then on"


class FirstDelivery:
    """The end of a source's binlog before the wait; of one thread.

    `why_not` says why the position that was noted cannot be used.
    """

    def __init__(self, config: InstanceConfig) -> None:
        self._config = config
        self._noted: LogPosition | None = None
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

    def note(self) -> None:
        """Note where the binlog ends; a source that does not answer is asked again."""
        if self._noted is not None or self.is_configured:
            return
        try:
            with self._view() as view:
                self._noted = LogPosition(view.identity, view.end_position)
        except CanalError as error:
            log.debug(
                "destination %s: the end of the binlog is not known yet: %s",
                self._config.destination,
                error,
            )

    def position(self) -> LogPosition | None:
        """Return the position that was noted, if the source has what follows it.

        A source that cannot be asked now is asked when reading begins.
        """
        noted = self._noted
        if noted is None:
            return None
        try:
            with self._view() as view:
                files, position = view.files, noted.position
                has_all = files.had(position.journal_name, position.position) and (
                    files.purged_from(position.journal_name) is None
                )
        except CanalError:
            return noted
        if has_all:
            return noted
        self.why_not = _PURGED
        return None

    def _view(self) -> SourceView:
        config = self._config
        access = access_of(config.source, config.destination)
        return SourceView(config, impatient(access))
