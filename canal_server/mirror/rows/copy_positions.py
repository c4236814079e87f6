"""The binlog position from which changes are applied to a copy that begins now.

Everything before it must be visible to later reads. The end of the binlog does not
ensure that: a server writes a transaction there first and makes it visible afterwards,
which may take long, as with semi-synchronous replication.

    MySQL with GTIDs      a transaction in commit owns its GTID, which is awaited
    MariaDB               a snapshot knows its own position in the binlog
    MySQL without GTIDs   a position that is a minute old
    a replica             has executed the source's GTID set

Leaves out who waits for later changes (`table_sync`).
"""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING, Final

from canal_server.errors import ConnectionLost, SourceError, SourceRefused
from canal_server.messages.mirror import mirror_run_messages
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
PATIENCE_S: Final = 120.0  # for transactions in commit
SHORT_S: Final = 10.0  # the same, while the stream waits
POLL_S: Final = 0.02
WAIT_S: Final = 1  # of one query that waits in the server
OLD_S: Final = 60  # age of a position without GTIDs
_SHOWN_MAX: Final = 200  # characters of a set in a message

_XA_DENIED: Final = 1401  # MySQL's error for an account without XA_RECOVER_ADMIN
XA_UNSEEN: Final = (
    "this account cannot see the server's prepared XA transactions, and a copy "
    "that begins meanwhile could lack their rows: have an administrator run "
    "GRANT XA_RECOVER_ADMIN ON *.* TO {account}"
)
_SNAPSHOT: Final = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
_SNAPSHOT_POSITION: Final = "SHOW STATUS LIKE 'binlog_snapshot_%'"


def start_position(
    settings: MirrorSettings,
    channel: Channel,
    stop: Stop | None = None,
    *,
    patience_s: float = PATIENCE_S,
    has_xa: bool = False,
) -> RangePosition:
    """Return a position before which everything is visible to readers of the rows.

    `has_xa`: the source is known to have XA transactions, so they must be visible.
    Raises SourceError when that takes too long, ConnectionLost when a stop is
    requested, and what `channel` raises.
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
            position = latest(settings, channel)
        else:
            position = _old(control, channel, replica)
        if info.is_mariadb:
            _await_snapshot(wait, position)
        elif info.has_gtids:
            _await_owners(wait, position)
        _await_prepared(wait, has_xa=has_xa)
        if replica is not None:
            # Read after the position, so the set includes everything before it.
            executed = executed_gtids(control, info)
            _await_set(_Waiting(replica, stop, wait.deadline), executed, info)
    return position


def await_visible(
    settings: MirrorSettings, position: RangePosition, stop: Stop
) -> bool:
    """Wait until later reads see everything before a position.

    False if the server cannot know: MySQL without GTIDs. Raises SourceError when that
    takes too long, ConnectionLost when a stop is requested.
    """
    with ControlConnection(settings.source.access, stop) as control:
        wait = _Waiting(control, stop, Deadline(SHORT_S))
        info = read_server_info(control)
        if info.is_mariadb:
            _await_snapshot(wait, position)
        elif info.has_gtids:
            _await_owners(wait, position)
        else:
            return False
    return True


def latest(settings: MirrorSettings, channel: Channel) -> RangePosition:
    """Return the binlog's end with the GTID set executed there."""
    # Given a name, the reply includes the set, as a subscription's positions do.
    return channel.call(
        lambda c: c.locate(channel.destination, "latest", settings.name)
    )


class _Waiting:
    """Polls a server for a condition, until a deadline or a stop."""

    def __init__(
        self, control: ControlConnection, stop: Stop, deadline: Deadline
    ) -> None:
        self.control = control
        self.deadline = deadline
        self._stop = stop

    def until(self, done: Callable[[], bool], problem: str) -> None:
        """Wait before the next poll. Raises SourceError after the deadline."""
        while not done():
            if self.deadline.passed():
                raise SourceError(f"server {self.control.access.address}: {problem}")
            if self._stop.wait(POLL_S):
                raise ConnectionLost(
                    "the search for a position to copy from was interrupted by a stop "
                    "request"
                )


# --- MySQL with GTIDs -----------------------------------------------------------------


def _await_owners(wait: _Waiting, position: RangePosition) -> None:
    """Wait for transactions that are before a position but not visible yet.

    Such a transaction owns its GTID from its write to the binlog until it is visible,
    so the current owners are all of them.
    """
    owned = _owned(wait.control)
    wait.until(
        lambda: owned.isdisjoint(_owned(wait.control) if owned else ()),
        "transactions in the binlog are not committed yet, "
        f"{_shown(','.join(sorted(owned)))}: check for sessions that block them "
        "(SHOW PROCESSLIST), and for semi-synchronous replication without a replica",
    )
    if position.gtids:
        _await_set(wait, position.gtids, None)


def _owned(control: ControlConnection) -> set[str]:
    """Return the GTIDs that transactions own: `uuid:number#thread`."""
    values = str(control.query("SELECT @@global.gtid_owned")[0][0] or "")
    found: set[str] = set()
    for item in "".join(values.split()).split(","):
        uuid, *owners = item.split(":")
        found.update(f"{uuid}:{owner.partition('#')[0]}" for owner in owners)
    return found


# --- MariaDB --------------------------------------------------------------------------


def _await_snapshot(wait: _Waiting, position: RangePosition) -> None:
    """Wait until a snapshot has everything before a position of the binlog."""
    expected = binlog_file_number(position.journal), position.position
    wait.until(
        lambda: _snapshot_position(wait.control) >= expected,
        f"no snapshot reaches {position} in the server's binlog: check that "
        "source.host is the server that canal-server reads, and end what blocks "
        "commits (SHOW PROCESSLIST)",
    )


def _snapshot_position(control: ControlConnection) -> tuple[int, int]:
    control.query(_SNAPSHOT)
    try:
        values = {str(n).lower(): v for n, v in control.query(_SNAPSHOT_POSITION)}
    finally:
        control.query("ROLLBACK")
    file = str(values.get("binlog_snapshot_file") or "")
    if not file:
        raise SourceRefused(
            f"server {control.access.address} writes no binary log: set source.host to "
            "the server that canal-server reads"
        )
    return binlog_file_number(file), int(values["binlog_snapshot_position"])


# --- MySQL without GTIDs --------------------------------------------------------------


def _old(
    control: ControlConnection, channel: Channel, replica: ControlConnection | None
) -> RangePosition:
    """Return a position that is old enough for earlier changes to be visible."""
    if replica is not None:
        raise SourceRefused(
            f"server {replica.access.address} cannot report its progress, as its "
            "source has no GTIDs: set gtid_mode = ON, or remove source.replica"
        )
    time_ms = (server_time_s(control) - OLD_S) * 1000
    log.info(
        "server %s has no GTIDs: a copy starts %d s in the past",
        control.access.address,
        OLD_S,
    )
    return channel.call(lambda c: c.locate(channel.destination, f"time:{time_ms}"))


# --- both -----------------------------------------------------------------------------


def _unseen_xa(access: Access) -> str:
    return XA_UNSEEN.format(account=account_text(access.credentials.user))


def _await_prepared(wait: _Waiting, *, has_xa: bool) -> None:
    """Wait for XA transactions, which the binlog has before their commit."""
    prepared = prepared_xa(wait.control)
    if prepared is None:
        if has_xa:
            access = wait.control.access
            raise SourceRefused(f"server {access.address}: {_unseen_xa(access)}")
        return
    wait.until(
        lambda: prepared.isdisjoint(prepared_xa(wait.control) or ()),
        f"{len(prepared)} XA transactions are prepared but not ended: list them with "
        "XA RECOVER, then XA COMMIT or XA ROLLBACK them",
    )


def prepared_xa(control: ControlConnection) -> set[object] | None:
    """Return the prepared XA transactions; None if the account may not see them."""
    try:
        return {tuple(row) for row in control.query("XA RECOVER")}
    except SourceError as error:
        if error.errno != _XA_DENIED:
            raise
        return None


def warn_of_unseen_xa(access: Access, stop: Stop) -> None:
    """Warn of copies that may lack rows, if the account cannot see XA transactions."""
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
    """Wait until a server has executed a GTID set."""
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
        f"it has not executed {_shown(gtids)}: check that it replicates (SHOW REPLICA "
        "STATUS), or that source.host is the server that canal-server reads",
    )


def _shown(gtids: str) -> str:
    return gtids if len(gtids) <= _SHOWN_MAX else f"{gtids[:_SHOWN_MAX]}…"
