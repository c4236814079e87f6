"""Whether another server may be read instead of the one that fails.

A new source must log what it replicates, and must have, or be about to receive, what
clients were already given. Each reason against it names its remedy. Leaves out when to
check and how to react (`canal_server.source.pump.detecting`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.errors import SourceRefused
from canal_server.mysql.binlogs import executed_gtids
from canal_server.mysql.capture_settings import (
    CaptureNeeds,
    check_capture,
    read_capture_facts,
)
from canal_server.mysql.server_answers import reads_answers
from canal_server.mysql.server_errors import account_text

if TYPE_CHECKING:
    from collections.abc import Collection

    from canal_server.model.positions import Executed
    from canal_server.mysql.control_connection import ControlConnection
    from canal_server.mysql.flavour import ServerInfo

_SHOWN_MAX = 200  # characters of a GTID set in a message

# "SHOW REPLICA STATUS was added in MySQL 8.0.22" (MySQL manual); MariaDB: 10.5.1.
_REPLICA_SINCE = {True: (10, 5, 1), False: (8, 0, 22)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """One connection of a replica to its source, from SHOW REPLICA STATUS."""

    name: str
    receives: str  # Yes, Connecting, No
    applies: bool
    lag_s: int | None  # None: the server does not know
    applied_all: bool  # of what it has received


# A replica that replicates, when the account may not know more.
UNSEEN = Channel(name="?", receives="Yes", applies=True, lag_s=None, applied_all=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """The requirements for a server that is to become the source.

    `gtids` is the set that clients were given, empty outside GTID mode; there
    `executed` may hold it, for a switch by set where possible. `is_mariadb` is the kind
    of the other server, None as long as that is unknown.
    """

    gtid_on: bool
    gtids: str = ""
    executed: Executed | None = None
    is_mariadb: bool | None = None
    lag_max_s: int = 0  # 0: any
    formats: Collection[str] = ()
    images: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """`refusal` says why a server may not become the source, empty when it may.

    `warnings` are what an operator should know about a server that may.
    """

    server: str
    refusal: str = ""
    warnings: tuple[str, ...] = ()


def examine(control: ControlConnection, requirements: Requirements) -> Verdict:
    """Query an open connection's server. Raises SourceError when it does not answer."""
    facts = read_capture_facts(control)
    info = facts.info
    refusals, warnings = [], []
    needs = CaptureNeeds(formats=requirements.formats, images=requirements.images)
    try:
        check_capture(facts, needs, address=control.access.address)
    except SourceRefused as error:
        refusals.append(str(error))
    refusals += _kind_refusals(info, requirements)
    channels = replica_channels(control, info)
    if channels == (UNSEEN,):
        user = control.access.credentials.user
        warnings.append(
            "its lag is not visible: have an administrator run there: GRANT"
            f" REPLICA MONITOR ON *.* TO {account_text(user)}"
        )
    if channels and not logs_what_it_replicates(control):
        refusals.append(
            "it does not log what it replicates: set log_replica_updates"
            " (log_slave_updates) and restart it"
        )
    missing = ""
    executed = None if requirements.gtid_on else requirements.executed
    if channels and gtids_of(info, executed) is not None:
        assert executed is not None, "gtids_of found a set"
        if not missing_gtids(control, info, executed.gtids):
            # As by GTID: it has everything that was delivered.
            refusals.append(_lag_refusal(channels, requirements))
            channels = ()
    if requirements.gtid_on and requirements.gtids and not refusals:
        missing = missing_gtids(control, info, requirements.gtids)
    if channels:
        refusals.append(_channel_refusal(channels, requirements, missing=missing))
    elif missing:
        warnings.append(
            "it is not a replica and lacks transactions that were delivered:"
            f" {missing[:_SHOWN_MAX]}; they were lost with the other server"
        )
    return Verdict(str(info), "; ".join(filter(None, refusals)), tuple(warnings))


def _kind_refusals(info: ServerInfo, requirements: Requirements) -> list[str]:
    if not requirements.gtid_on:
        return []
    if requirements.is_mariadb not in (None, info.is_mariadb):
        return ["GTIDs of MySQL and MariaDB are incompatible: set gtidon=false"]
    if info.gtid_mode != "ON":
        return [f"its gtid_mode is {info.gtid_mode}: set it to ON"]
    return []


@reads_answers("its variables")
def logs_what_it_replicates(control: ControlConnection) -> bool:
    """Return whether a replica's binlog has what it replicates."""
    rows = control.query(
        "SHOW GLOBAL VARIABLES WHERE Variable_name IN"
        " ('log_replica_updates', 'log_slave_updates')"
    )
    return any(str(value).upper() in ("ON", "1") for _, value in rows)


def _channel_refusal(
    channels: Collection[Channel], requirements: Requirements, *, missing: str
) -> str:
    """Return the objection to a replica, from any of its channels."""
    if not missing and requirements.gtid_on and requirements.gtids:
        # It has everything that was delivered; how it receives more does not matter.
        return _lag_refusal(channels, requirements)
    lacking = missing[:_SHOWN_MAX]
    for channel in channels:
        if channel.receives == "No" or not channel.applies:
            why = f" and it lacks {lacking}" if missing else ""
            return (
                f"its replication is stopped{_named(channel)}{why}: run START REPLICA,"
                " or RESET REPLICA ALL if it is the source now"
            )
    severed = [channel for channel in channels if channel.receives != "Yes"]
    if not all(channel.applied_all for channel in severed):
        return "it is still applying what it received from its source"
    if missing and len(severed) == len(channels):
        return (
            f"it lacks {lacking}, which was delivered, and its source does not answer:"
            " run RESET REPLICA ALL if it is the source now"
        )
    if missing:
        return f"it has not yet received {lacking}, which was delivered"
    return _lag_refusal(channels, requirements)


def _lag_refusal(channels: Collection[Channel], requirements: Requirements) -> str:
    for channel in channels:
        if requirements.lag_max_s and (channel.lag_s or 0) > requirements.lag_max_s:
            return (
                f"it lags {channel.lag_s} s behind its source{_named(channel)}, allowed"
                f" by canal.instance.standby.lag.max.seconds: {requirements.lag_max_s}"
            )
    return ""


def _named(channel: Channel) -> str:
    return f" (channel {channel.name})" if channel.name else ""


@reads_answers("GTIDs")
def without_lost(control: ControlConnection, gtids: str) -> str:
    """Return a set of MariaDB without what was lost with the server that had it.

    A dump cannot start after a transaction that this server never had. The server still
    knows the last sequence number it had for the same domain and server id when it was
    promoted. Only for a server that replicates nothing; MySQL does not need it.

    What the server lacks of its own transactions was not lost with another server: its
    binlog was reset, or it was restored. That stays in the set, for the server to
    refuse.
    """
    (row,) = control.query(
        "SELECT @@global.gtid_binlog_state, CAST(@@global.server_id AS CHAR)"
    )
    own = str(row[1])
    last_logged = {}
    for item in "".join(str(row[0] or "").split()).split(","):
        domain, _, rest = item.partition("-")
        server, _, sequence = rest.partition("-")
        if sequence.isdecimal():
            last_logged[domain, server] = int(sequence)
    found = []
    for item in str(MariaGtidSet.parse(gtids)).split(","):
        domain, server, sequence = item.split("-") if item else ("", "", "0")
        last = last_logged.get((domain, server), int(sequence))
        if server == own:
            last = int(sequence)
        found.append(f"{domain}-{server}-{min(last, int(sequence))}" if item else "")
    return ",".join(found)


def gtids_of(
    info: ServerInfo, executed: Executed | None
) -> GtidSet | MariaGtidSet | None:
    """Parse a set as the server's kind, None when it has no such GTIDs."""
    if executed is None or not info.has_gtids:
        return None
    try:
        kind = MariaGtidSet if info.is_mariadb else GtidSet
        return kind.parse(executed.gtids)
    except ValueError:
        return None  # from a server of the other kind


def missing_gtids(control: ControlConnection, info: ServerInfo, gtids: str) -> str:
    """Return what the server has not executed of a set, empty when it has all.

    Empty also for a set that cannot be parsed: the start by it reports the error.
    """
    try:
        if info.is_mariadb:
            known = MariaGtidSet.parse(executed_gtids(control, info))
            return str(MariaGtidSet.parse(gtids).subtract(known))
        executed = GtidSet.parse(executed_gtids(control, info))
        return str(GtidSet.parse(gtids).subtract(executed))
    except ValueError:
        return ""


@reads_answers("its replication")
def replica_channels(
    control: ControlConnection, info: ServerInfo
) -> tuple[Channel, ...]:
    """Return the channels of a replica; empty for a server that replicates nothing.

    A MariaDB shows any account at least whether it is a replica. Raises SourceRefused
    when the account of a MySQL lacks the privilege.
    """
    word = "REPLICA" if info.version >= _REPLICA_SINCE[info.is_mariadb] else "SLAVE"
    every = "ALL " if info.is_mariadb else ""
    plural = "S" if info.is_mariadb else ""
    try:
        rows = control.query_named(f"SHOW {every}{word}{plural} STATUS")
    except SourceRefused:
        if not info.is_mariadb:
            raise
        ((_, running),) = control.query("SHOW GLOBAL STATUS LIKE 'Slaves_running'")
        return (UNSEEN,) if int(running) else ()
    return tuple(_channel(row) for row in rows)


def _channel(row: dict[str, object]) -> Channel:
    """Parse a row in the vocabulary of any version."""

    def text(*names: str) -> str:
        found = next((row[name] for name in names if name in row), None)
        return "" if found is None else str(found)

    lag = text("Seconds_Behind_Source", "Seconds_Behind_Master")
    read = (
        text("Source_Log_File", "Master_Log_File"),
        text("Read_Source_Log_Pos", "Read_Master_Log_Pos"),
    )
    executed = (
        text("Relay_Source_Log_File", "Relay_Master_Log_File"),
        text("Exec_Source_Log_Pos", "Exec_Master_Log_Pos"),
    )
    return Channel(
        name=text("Channel_Name", "Connection_name"),
        receives=text("Replica_IO_Running", "Slave_IO_Running"),
        applies=text("Replica_SQL_Running", "Slave_SQL_Running") == "Yes",
        lag_s=int(lag) if lag.isdigit() else None,
        applied_all=read == executed,
    )
