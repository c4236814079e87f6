"""From which place of the binlog on changes are applied to a copy that begins now.

Everything before it has to be visible to what is read from now on, which the end of the
binlog alone does not tell: a server writes a transaction there first and shows it
afterwards, which may take long, as with semi-synchronous replication.

    MySQL with GTIDs      who is on the way owns a GTID, which is waited for
    MariaDB               a snapshot tells its own place in the binlog
    MySQL without GTIDs   a place that is a minute old
    a replica             has executed the set of the source

Leaves out who waits for what comes behind the place (`work`).
"""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING, Final

from canal_server.errors import ConnectionLost, SourceError, SourceRefused
from canal_server.messages import mirror_run_messages
from canal_server.model.positions import binlog_file_number
from canal_server.mysql.binlogs import executed_gtids, server_time_s
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.flavour import read_server_info
from canal_server.mysql.server_errors import account_text
from canal_server.runtime.backoff import Backoff
from canal_server.runtime.lifecycle import Deadline, Stop

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.client.range_client import RangePosition
    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.mysql.source_settings import Access
    from canal_server.spark.options.servers import Channel

log = logging.getLogger(__name__)

RETRY_FIRST_S: Final = 1.0
RETRY_MAX_S: Final = 60.0
PATIENCE_S: Final = 120.0  # with transactions that are on the way
SHORT_S: Final = 10.0  # the same, where the stream waits
POLL_S: Final = 0.02
WAIT_S: Final = 1  # of one question that waits in the server
OLD_S: Final = 60  # without GTIDs
_SHOWN_MAX: Final = 200  # characters of a set in a message

_XA_DENIED: Final = 1401  # so MySQL says that an account lacks XA_RECOVER_ADMIN
XA_UNSEEN: Final = (
    "it has XA transactions, and this account cannot see which are prepared: their "
    "rows could be missing in a copy that begins meanwhile; let an administrator run: "
    "GRANT XA_RECOVER_ADMIN ON *.* TO {account}"
)
_SNAPSHOT: Final = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
_SNAPSHOT_PLACE: Final = "SHOW STATUS LIKE 'binlog_snapshot_%'"


def starting_place(
    settings: MirrorSettings,
    channel: Channel,
    stop: Stop | None = None,
    *,
    patience_s: float = PATIENCE_S,
    has_xa: bool = False,
) -> RangePosition:
    """Return a place before which everything is visible where rows are read from.

    `has_xa`: the source is known to have XA transactions, so they have to be seen.
    Raises SourceError when that does not come to be in time, ConnectionLost when a stop
    is asked for, and what `channel` raises.
    """
    stop = stop or Stop()
    source = settings.source
    with contextlib.ExitStack() as stack:
        control = stack.enter_context(ControlConnection(source.access, stop))
        replica = None
        if source.replica is not None:
            replica = stack.enter_context(ControlConnection(source.replica, stop))
        wait = _Waiting(control, stop, Deadline(patience_s))
        info = read_server_info(control)
        if info.has_gtids or info.is_mariadb:
            place = latest(settings, channel)
        else:
            place = _old(control, channel, replica)
        if info.is_mariadb:
            _await_snapshot(wait, place)
        elif info.has_gtids:
            _await_owners(wait, place)
        _await_prepared(wait, has_xa=has_xa)
        if replica is not None:
            # Whatever is at the place is in this set, which is read after it.
            executed = executed_gtids(control, info)
            _await_set(_Waiting(replica, stop, wait.deadline), executed, info)
    return place


def await_visible(settings: MirrorSettings, place: RangePosition, stop: Stop) -> bool:
    """Wait until what is read from now on sees all before a place.

    False where the server cannot tell: MySQL without GTIDs. Raises SourceError when
    that does not come to be in time, ConnectionLost when a stop is asked for.
    """
    with ControlConnection(settings.source.access, stop) as control:
        wait = _Waiting(control, stop, Deadline(SHORT_S))
        info = read_server_info(control)
        if info.is_mariadb:
            _await_snapshot(wait, place)
        elif info.has_gtids:
            _await_owners(wait, place)
        else:
            return False
    return True


def latest(settings: MirrorSettings, channel: Channel) -> RangePosition:
    """Return the binlog's end with the set that was executed there."""
    # With a name, the set comes with it, as it does with a subscription's places.
    return channel.call(
        lambda c: c.locate(channel.destination, "latest", settings.name)
    )


class _Waiting:
    """Asks a server until something is so, until a deadline or a stop."""

    def __init__(
        self, control: ControlConnection, stop: Stop, deadline: Deadline
    ) -> None:
        self.control = control
        self.deadline = deadline
        self._stop = stop

    def until(self, done: Callable[[], bool], problem: str) -> None:
        """Raise SourceError with the problem when the time is up."""
        while not done():
            if self.deadline.passed():
                raise SourceError(f"server {self.control.access.address}: {problem}")
            if self._stop.wait(POLL_S):
                raise ConnectionLost(
                    "looking for a place to copy from was given up: a stop was asked "
                    "for"
                )


# --- MySQL with GTIDs -----------------------------------------------------------------


def _await_owners(wait: _Waiting, place: RangePosition) -> None:
    """Wait for what is in the binlog before the place and not visible yet.

    Such a transaction owns its GTID from when it is written until it is visible, so
    those that own one now are all of them.
    """
    owned = _owned(wait.control)
    wait.until(
        lambda: owned.isdisjoint(_owned(wait.control) if owned else ()),
        "transactions in the binlog are not committed yet, "
        f"{_shown(','.join(sorted(owned)))}: end what holds them up (SHOW PROCESSLIST) "
        "or semi-synchronous replication without a replica that answers",
    )
    if place.gtids:
        _await_set(wait, place.gtids, None)


def _owned(control: ControlConnection) -> set[str]:
    """Return the GTIDs that transactions own: `uuid:number#thread`."""
    told = str(control.query("SELECT @@global.gtid_owned")[0][0] or "")
    found: set[str] = set()
    for item in "".join(told.split()).split(","):
        uuid, *owners = item.split(":")
        found.update(f"{uuid}:{owner.partition('#')[0]}" for owner in owners)
    return found


# --- MariaDB --------------------------------------------------------------------------


def _await_snapshot(wait: _Waiting, place: RangePosition) -> None:
    """Wait until a snapshot has everything that is in the binlog before the place."""
    wanted = binlog_file_number(place.journal), place.position
    wait.until(
        lambda: _snapshot_place(wait.control) >= wanted,
        f"no snapshot has what is in its binlog before {place}: see that source.host "
        "is the server from which canal-server reads, and end what holds commits up "
        "(SHOW PROCESSLIST)",
    )


def _snapshot_place(control: ControlConnection) -> tuple[int, int]:
    control.query(_SNAPSHOT)
    try:
        told = {str(n).lower(): v for n, v in control.query(_SNAPSHOT_PLACE)}
    finally:
        control.query("ROLLBACK")
    file = str(told.get("binlog_snapshot_file") or "")
    if not file:
        raise SourceRefused(
            f"server {control.access.address} writes no binary log: set source.host to "
            "the server from which canal-server reads"
        )
    return binlog_file_number(file), int(told["binlog_snapshot_position"])


# --- MySQL without GTIDs --------------------------------------------------------------


def _old(
    control: ControlConnection, channel: Channel, replica: ControlConnection | None
) -> RangePosition:
    """Return a place so old that what is before it has become visible."""
    if replica is not None:
        raise SourceRefused(
            f"server {replica.access.address} cannot tell what it has of its source, "
            "which has no GTIDs: set gtid_mode = ON, or leave source.replica out"
        )
    time_ms = (server_time_s(control) - OLD_S) * 1000
    log.info(
        "server %s has no GTIDs: a copy begins with changes of %d s ago",
        control.access.address,
        OLD_S,
    )
    return channel.call(lambda c: c.locate(channel.destination, f"time:{time_ms}"))


# --- both -----------------------------------------------------------------------------


def _unseen_xa(access: Access) -> str:
    return XA_UNSEEN.format(account=account_text(access.credentials.user))


def _await_prepared(wait: _Waiting, *, has_xa: bool) -> None:
    """Wait for XA transactions, which are in the binlog before they are committed."""
    prepared = prepared_xa(wait.control)
    if prepared is None:
        if has_xa:
            access = wait.control.access
            raise SourceRefused(f"server {access.address}: {_unseen_xa(access)}")
        return
    wait.until(
        lambda: prepared.isdisjoint(prepared_xa(wait.control) or ()),
        f"{len(prepared)} XA transactions are prepared and not ended: see XA RECOVER, "
        "then XA COMMIT or XA ROLLBACK",
    )


def prepared_xa(control: ControlConnection) -> set[object] | None:
    """Return the XA transactions that are prepared; None: the account may not know."""
    try:
        return {tuple(row) for row in control.query("XA RECOVER")}
    except SourceError as error:
        if error.errno != _XA_DENIED:
            raise
        return None


def warn_of_unseen_xa(access: Access, stop: Stop) -> None:
    """Warn of copies that may lack rows, once the server has told what it shows."""
    backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S)
    while not stop.requested():
        try:
            with ControlConnection(access, stop) as control:
                if prepared_xa(control) is None:
                    mirror_run_messages.MIRROR_PREPARED_XA_UNSEEN.log(
                        log, access.address, _unseen_xa(access)
                    )
        except SourceError as error:
            log.debug("asking for XA transactions: %s", error)
            stop.wait(backoff.delay_s(time.monotonic()))
        else:
            return


def _await_set(wait: _Waiting, gtids: str, info: ServerInfo | None) -> None:
    """Wait until a server has executed a set."""
    if not gtids:
        return
    is_mariadb = info is not None and info.is_mariadb
    sql = (
        "SELECT MASTER_GTID_WAIT(%s, %s)"
        if is_mariadb
        else "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)"
    )
    wait.until(
        lambda: wait.control.query(sql, (gtids, WAIT_S))[0][0] == 0,
        f"it has not executed {_shown(gtids)}: see that it replicates (SHOW REPLICA "
        "STATUS), or that source.host is the server from which canal-server reads",
    )


def _shown(gtids: str) -> str:
    return gtids if len(gtids) <= _SHOWN_MAX else f"{gtids[:_SHOWN_MAX]}…"
