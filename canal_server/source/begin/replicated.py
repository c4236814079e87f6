"""What a start by GTID meets on a MariaDB that replicates, or did.

A MariaDB refuses a dump that begins behind a transaction which it does not have. A
replica that lags will have it: it is waited for. One that took over will never: what
was lost with the other server is left out. A MySQL sends what a set lacks, whatever
else is in it, and needs neither.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from canal_server.errors import ConnectionLost
from canal_server.mysql.standby import missing_gtids, replica_channels, without_lost

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.model.positions import LogPosition
    from canal_server.mysql.control_connection import ControlConnection
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.runtime.lifecycle import Stop

_log = logging.getLogger(__name__)

LOOK_S = 0.5  # between two looks at a replica that is waited for


def reachable(
    control: ControlConnection,
    info: ServerInfo,
    stored: LogPosition,
    stop: Stop,
    tell: Callable[[str], None],
) -> LogPosition:
    """Return a stored position whose GTIDs the server has; waits for a replica's.

    `tell` is told what is waited for. Without a limit: it is for who runs the replica
    to say whether it goes on. Raises SourceError, ConnectionLost when stopped.
    """
    gtids = stored.position.gtid
    if not info.is_mariadb or not gtids:
        return stored
    while missing := missing_gtids(control, info, gtids):
        if not replica_channels(control, info):
            break
        tell(
            f"{control.access.address}: waits until this replica has {missing[:200]},"
            " which was delivered; if it is the source now, run RESET REPLICA ALL"
        )
        if stop.wait(LOOK_S):
            raise ConnectionLost("the wait for a replica was ended")
    if replica_channels(control, info):
        return stored
    left = without_lost(control, gtids)
    if left == gtids:
        return stored
    _log.warning(
        "%s lacks transactions that were delivered, and replicates nothing: goes on"
        " behind GTID %s instead of %s; those between died with the other server, or"
        " come again",
        control.access.address,
        left[:200],
        gtids[:200],
    )
    return replace(stored, position=replace(stored.position, gtid=left))
