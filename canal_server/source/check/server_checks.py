"""Checks of a server that a destination starts without: advice, clocks, replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal_server.errors import CanalError, SourceError
from canal_server.model.check_results import fail, ok, skip, warn
from canal_server.mysql.server_errors import account_text, is_missing_privilege

if TYPE_CHECKING:
    from canal_server.model.check_results import CheckResult
    from canal_server.source.check.checked_source import CheckedSource
    from canal_server.source.check.source_facts import SourceFacts

SKEW_S_MAX: Final = 5.0  # between the clocks of two machines


def check_row_metadata(facts: SourceFacts, _: CheckedSource) -> CheckResult:
    """Check whether events have the names of columns."""
    name, value = "binlog_row_metadata", facts.info.row_metadata
    if not value:
        return ok(name, f"{facts.info} has no binlog_row_metadata")
    if value == "FULL":
        return ok(name, "binlog_row_metadata is FULL")
    return warn(
        name,
        f"binlog_row_metadata is {value}: the names of columns come from the table"
        " history only",
        "run SET GLOBAL binlog_row_metadata = 'FULL'",
    )


def check_row_value_options(facts: SourceFacts, _: CheckedSource) -> CheckResult:
    """Check whether updates of JSON columns are logged as whole documents."""
    name, value = "binlog_row_value_options", facts.info.row_value_options
    if "PARTIAL_JSON" not in value:
        return ok(name, "JSON columns are logged as whole documents")
    return warn(
        name,
        f"binlog_row_value_options is {value}: the new value of a JSON column may"
        " arrive as an expression such as JSON_REPLACE(…)",
        "run SET GLOBAL binlog_row_value_options = '' and reconnect all writers",
    )


def check_clock(facts: SourceFacts, _: CheckedSource) -> CheckResult:
    """Check that the clocks of the source and of this machine agree."""
    name, clock = "clock", facts.clock
    if isinstance(clock, CanalError):
        return skip(name, "the clock of the source", str(clock))
    ahead_s = clock.ahead_s
    if abs(ahead_s) <= SKEW_S_MAX:
        return ok(name, "the clock of the source agrees with that of this machine")
    how = "ahead of" if ahead_s > 0 else "behind"
    return warn(
        name,
        f"the clock of the source is {abs(ahead_s):.0f} s {how} that of this machine:"
        " lag and searches by time are off by as much",
        "synchronize both clocks by NTP",
    )


def check_other_replicas(facts: SourceFacts, checked: CheckedSource) -> CheckResult:
    """Check that no other replica has the configured id."""
    name, own, replicas = (
        "other_replicas",
        checked.config.source.slave_id,
        facts.replicas,
    )
    key = "canal.instance.mysql.slaveId"
    if not own:
        return ok(name, "no replica can have an id that is chosen at the start")
    if isinstance(replicas, CanalError):
        return skip(name, f"{key} = {own}", _why_not_shown(facts, replicas))
    hosts = [each.host for each in replicas if each.server_id == own]
    elsewhere = [host for host in hosts if host != checked.host_name]
    remedy = f"set {key} = 0, or another id"
    if elsewhere:
        return fail(
            name,
            f"{key} is {own}, which a replica at {elsewhere[0] or 'an unknown host'}"
            " has: the source disconnects one of them again and again",
            remedy,
        )
    if hosts and not checked.is_running:
        return warn(
            name,
            f"{key} is {own}, which a replica on this machine has: another server, or"
            " one that has just ended",
            remedy,
        )
    return ok(name, f"no other replica of the source has the id {own}")


def _why_not_shown(facts: SourceFacts, error: CanalError) -> str:
    """Return why the replicas are not known.

    A MariaDB wants a privilege for it that reading its binlog does not need.
    """
    denied = isinstance(error, SourceError) and is_missing_privilege(error.errno or 0)
    if not denied or not facts.info.is_mariadb:
        return str(error)
    return (
        "only accounts with REPLICATION MASTER ADMIN see the replicas; it is optional,"
        " for this check alone: GRANT REPLICATION MASTER ADMIN ON *.* TO"
        f" {account_text(*facts.capture.account)}"
    )
