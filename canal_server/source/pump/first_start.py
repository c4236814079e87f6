"""Where the first session with a source began: nothing after it must be missed.

A second session may start before anything was delivered, and find nothing stored, when
the binlog ends elsewhere. So the first start is stored, as a delivered position is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition

if TYPE_CHECKING:
    from canal_server.config.schema import InstanceConfig
    from canal_server.ports import LogPositionManager
    from canal_server.source.pump.pump_ports import PumpEvents
    from canal_server.source.read.start_position import StartPosition


class FirstStart:
    """Stores and reports the first start, once; for the pump's thread.

    Any thread may read `began_at`.
    """

    def __init__(
        self,
        config: InstanceConfig,
        positions: LogPositionManager,
        events: PumpEvents,
    ) -> None:
        self._destination = config.destination
        self._gtid_on = config.source.gtid_on
        self._positions = positions
        self._events = events
        self.began_at: EntryPosition | None = None
        # The start of this session, once it may read.
        self._session: tuple[StartPosition, int, LogIdentity] | None = None

    def forget_session(self) -> None:
        """Note that no session may read."""
        self._session = None

    def begin_session(
        self, position: StartPosition, server_id: int, identity: LogIdentity
    ) -> None:
        """Note that the source accepted the start of a session.

        It may still report that it lacks the position: its first event shows that it
        does not, and only then `note` is called.
        """
        self._session = position, server_id, identity

    def note(self) -> None:
        """Store where this session began, if it is the first one."""
        if self.began_at is not None or self._session is None:
            return
        start_position, server_id, identity = self._session
        stored = self._positions.latest(self._destination)
        if start_position.by_gtid and not self._gtid_on and stored is not None:
            # The set belongs to the stored position, which stays.
            self.began_at = replace(stored.position, source=stored.identity)
        else:
            self.began_at = start_position.as_position(server_id, identity)
            position = LogPosition(identity, self.began_at)
            self._positions.persist(self._destination, position)
        self._events.on_begin(self.began_at)
