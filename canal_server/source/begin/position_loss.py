"""A stored position that the source no longer has, and the positions it still has.

What happens to the affected clients is decided where their cursors are known
(`canal_server.position.data_loss`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.position.log_position_managers import same_server
from canal_server.source.archive.source_binlogs import unreadable_gtids

if TYPE_CHECKING:
    from canal_server.config.schema import SourceConfig
    from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
    from canal_server.mysql.control_connection import ControlConnection
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.source.read.available_positions import SourceFiles


@dataclass(frozen=True, slots=True)
class LostPosition:
    """What the source refused repeatedly, and what it has instead.

    `purged` is the GTID set that every start must contain, None outside of GTID mode
    and where the source does not report one.
    """

    refused: LogPosition
    identity: LogIdentity
    files: SourceFiles
    purged: GtidSet | None = None

    def has(self, position: LogPosition) -> bool:
        """Return whether the source may have a position; False only when certain.

        Files prove nothing about another server's position: only trying does.
        """
        if position.position.gtid and self.purged is not None:
            try:
                return GtidSet.parse(position.position.gtid).contains(self.purged)
            except ValueError:
                return False
        if not same_server(position.identity, self.identity):
            return True
        return not self._is_older(position.position) and self.files.had(
            position.position.journal_name, position.position.position
        )

    def why(self, position: LogPosition) -> str:
        """Return what of a position is missing, for an operator."""
        purged = self.files.purged_from(position.position.journal_name)
        if purged is None:
            return f"the source refused it; its binlog has {self.files}"
        return f"{purged} purged, the oldest file is now {self.files.files[0].name}"

    def _is_older(self, position: EntryPosition) -> bool:
        """Return whether a position is in a file older than all that remain."""
        return self.files.purged_from(position.journal_name) is not None


def purged_set(
    control: ControlConnection, info: ServerInfo, source: SourceConfig
) -> GtidSet | None:
    """Return the GTID set that every start from a source must contain.

    None when sets do not matter, or the source reports none. Raises SourceError.
    """
    if not source.gtid_on or info.is_mariadb:
        return None
    return GtidSet.parse(unreadable_gtids(control, info))
