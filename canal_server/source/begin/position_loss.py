"""A stored place that the source no longer has, and which others it still has.

What becomes of the clients that need it is decided where their cursors are known
(`canal_server.position.data_loss`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.mysql.binlogs import purged_gtids
from canal_server.position.log_positions import same_server

if TYPE_CHECKING:
    from canal_server.config.schema import SourceConfig
    from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
    from canal_server.mysql.control_connection import ControlConnection
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.source.read.available_positions import SourceFiles


@dataclass(frozen=True, slots=True)
class LostPosition:
    """What the source refused again and again, and what it has instead.

    `purged` is the GTID set without which it lets nobody begin, None outside of GTID
    mode and where it does not tell one.
    """

    refused: LogPosition
    identity: LogIdentity
    files: SourceFiles
    purged: GtidSet | None = None

    def has(self, place: LogPosition) -> bool:
        """Tell whether the source may have a place; False where it is certain.

        Another server's place is not contradicted by files: only trying tells.
        """
        if place.position.gtid and self.purged is not None:
            try:
                return GtidSet.parse(place.position.gtid).contains(self.purged)
            except ValueError:
                return False
        if not same_server(place.identity, self.identity):
            return True
        return not self._is_older(place.position) and self.files.had(
            place.position.journal_name, place.position.position
        )

    def why(self, place: LogPosition) -> str:
        """Return what of a place is missing, for a person."""
        purged = self.files.purged_from(place.position.journal_name)
        if purged is None:
            return f"the source refused it; its binlog has {self.files}"
        return f"{purged} purged, the oldest file left is {self.files.files[0].name}"

    def _is_older(self, position: EntryPosition) -> bool:
        """Tell whether a place is in a file in front of all that are left."""
        return self.files.purged_from(position.journal_name) is not None


def purged_set(
    control: ControlConnection, info: ServerInfo, source: SourceConfig
) -> GtidSet | None:
    """Return the GTID set without which a source lets nobody begin.

    None where it is no matter of sets, or not told. Raises SourceError.
    """
    if not source.gtid_on or info.is_mariadb:
        return None
    return GtidSet.parse(purged_gtids(control, info))
