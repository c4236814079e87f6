"""A start by GTID on a MariaDB that is a replica, or was one.

A MariaDB refuses a dump that starts after a transaction which it does not have. A
lagging replica will receive it: wait for it. A promoted replica never will: what was
lost with the other server is removed from the set. A MySQL sends what a set lacks,
whatever else the set contains, and needs neither.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from canal_server.errors import ConnectionLost
from canal_server.messages import source_messages
from canal_server.mysql.standby import missing_gtids, replica_channels, without_lost

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.model.positions import LogPosition
    from canal_server.mysql.control_connection import ControlConnection
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.runtime.lifecycle import Stop

_log = logging.getLogger(__name__)

LOOK_S = 0.5  # interval of checks while waiting for a replica


def reachable(
    control: ControlConnection,
    info: ServerInfo,
    stored: LogPosition,
    stop: Stop,
    report: Callable[[str], None],
) -> LogPosition:
    """Return a stored position whose GTIDs the server has; waits for a replica's.

    `report` receives the reason for waiting. There is no limit: the operator of the
    replica decides whether it continues. Raises SourceError, ConnectionLost when
    stopped.
    """
    gtids = stored.position.gtid
    if not info.is_mariadb or not gtids:
        return stored
    while missing := missing_gtids(control, info, gtids):
        if not replica_channels(control, info):
            break
        report(
            f"{control.access.address}: waiting until this replica has {missing[:200]},"
            " which was delivered; if it is the source now, run RESET REPLICA ALL"
        )
        if stop.wait(LOOK_S):
            raise ConnectionLost("stopped while waiting for a replica")
    if replica_channels(control, info):
        return stored
    reachable_gtids = without_lost(control, gtids)
    if reachable_gtids == gtids:
        return stored
    source_messages.SOURCE_DIVERGED.log(
        _log, control.access.address, reachable_gtids[:200], gtids[:200]
    )
    return replace(stored, position=replace(stored.position, gtid=reachable_gtids))
