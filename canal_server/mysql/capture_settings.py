"""Whether a server's settings and an account's privileges allow capture.

Each check is a function of what was read (`CaptureFacts`) and of what the settings ask
for (`CaptureNeeds`), and has a row in `REQUIREMENTS`. The start of a destination, the
choice of a standby and `canal-server check` use the same table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.errors import SourceRefused
from canal_server.model.check_results import Outcome, fail, ok, skip, warn
from canal_server.mysql.account_grants import Grants, read_grants
from canal_server.mysql.flavour import ServerInfo, read_server_info
from canal_server.mysql.server_answers import answer_about
from canal_server.mysql.server_errors import account_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from canal_server.config.schema import SourceConfig
    from canal_server.model.check_results import CheckResult
    from canal_server.mysql.control_connection import ControlConnection

_WHOLE_IMAGES: Final = ("FULL", "FULL_NODUP")
_MINIMAL: Final = "MINIMAL"
# The names by which accounts have them: MariaDB renamed one in 10.5.
_BINLOG_STATUS: Final = ("REPLICATION CLIENT", "BINLOG MONITOR", "SUPER")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureFacts:
    """A server as an account sees it; `account` is its name and host.

    `grants` is None if they are unknown, or do not matter.
    """

    info: ServerInfo
    account: tuple[str, str] = ("", "%")
    grants: Grants | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureNeeds:
    """What the settings ask of a server.

    `formats` and `images` are the allowed values of binlog_format and binlog_row_image,
    in upper case; empty: any. `slave_id` is the configured id of our replica, 0: none.
    """

    formats: Collection[str] = ()
    images: Collection[str] = ()
    gtid_on: bool = False
    slave_id: int = 0


def needs_of(source: SourceConfig) -> CaptureNeeds:
    """Return what the settings of a source ask of its server."""
    return CaptureNeeds(
        formats=source.binlog_formats,
        images=source.binlog_images,
        gtid_on=source.gtid_on,
        slave_id=source.slave_id,
    )


def _always(_: CaptureFacts, __: CaptureNeeds) -> bool:
    return True


def _never(_: CaptureFacts, __: CaptureNeeds) -> bool:
    return False


def _is_format_refused(facts: CaptureFacts, needs: CaptureNeeds) -> bool:
    return bool(needs.formats) and facts.info.binlog_format not in needs.formats


def _is_image_refused(facts: CaptureFacts, needs: CaptureNeeds) -> bool:
    return bool(needs.images) and facts.info.row_image not in needs.images


@dataclass(frozen=True, slots=True)
class Requirement:
    """A check; if it fails, reading is refused, or else that may be logged.

    `refuses` decides which, of a check that failed. What is not logged here is logged
    when the destination misses it.
    """

    check: Callable[[CaptureFacts, CaptureNeeds], CheckResult]
    refuses: Callable[[CaptureFacts, CaptureNeeds], bool] = _always
    is_logged: bool = True


def read_capture_facts(control: ControlConnection) -> CaptureFacts:
    """Query an open connection's server. Raises SourceError."""
    info = read_server_info(control)
    with answer_about("its account", control.access.address):
        account = control.account()
    return CaptureFacts(info=info, account=account, grants=read_grants(control))


def capture_results(facts: CaptureFacts, needs: CaptureNeeds) -> list[CheckResult]:
    """Return what each check of the table finds."""
    return [each.check(facts, needs) for each in REQUIREMENTS]


def check_capture(
    facts: CaptureFacts, needs: CaptureNeeds, *, address: object
) -> list[str]:
    """Return what an operator should know.

    Raises SourceRefused if capture is impossible or not allowed, with everything that
    fails and the remedy of each.
    """
    wrong = [
        (each, requirement)
        for each, requirement in zip(
            capture_results(facts, needs), REQUIREMENTS, strict=True
        )
        if each.outcome in (Outcome.FAIL, Outcome.WARN)
    ]
    failed = [pair for pair in wrong if pair[0].outcome is Outcome.FAIL]
    if any(requirement.refuses(facts, needs) for _, requirement in failed):
        listed = "; ".join(each.message for each, _ in failed)
        raise SourceRefused(f"server {address} ({facts.info}): {listed}")
    return [each.message for each, requirement in wrong if requirement.is_logged]


def read_nevertheless(facts: CaptureFacts, needs: CaptureNeeds) -> set[str]:
    """Return the names of failing checks of which the settings allow the value."""
    return {
        name
        for name, is_refused in (
            ("binlog_format", _is_format_refused(facts, needs)),
            ("binlog_row_image", _is_image_refused(facts, needs)),
        )
        if not is_refused
    }


# --- the checks -----------------------------------------------------------------------


def check_log_bin(facts: CaptureFacts, _: CaptureNeeds) -> CheckResult:
    """Check that there is something to read, and that it has positions."""
    if not facts.info.log_bin:
        return fail(
            "log_bin",
            "log_bin is OFF: binary logging is off",
            "set log_bin in the server's configuration file and restart it",
        )
    engine = facts.info.binlog_engine
    if engine:
        return fail(
            "log_bin",
            f"binlog_storage_engine is {engine}: the server does not report files and"
            " offsets of its binlog, which cursors are made of",
            "remove binlog_storage_engine from the server's configuration file and"
            " restart it",
        )
    return ok("log_bin", "log_bin is ON")


def check_server_id(facts: CaptureFacts, _: CaptureNeeds) -> CheckResult:
    """Check that the server accepts replicas."""
    if facts.info.server_id:
        return ok("server_id", f"server_id is {facts.info.server_id}")
    return fail(
        "server_id",
        "server_id is 0, which allows no replicas",
        "run SET GLOBAL server_id = 1, or another id that no other server has",
    )


def check_binlog_format(facts: CaptureFacts, needs: CaptureNeeds) -> CheckResult:
    """Check for ROW, which alone logs the rows of every change.

    Where the settings allow another format, as those of the Java server do, it is read
    nevertheless. Clients lose changes, so that it fails all the same.
    """
    value = facts.info.binlog_format
    if _is_format_refused(facts, needs):
        return fail(
            "binlog_format",
            f"binlog_format is {value}, allowed by canal.instance.binlog.format:"
            f" {_listed(needs.formats)}",
            _remedy("binlog_format", value, "ROW", needs.formats),
        )
    if value != "ROW":
        return fail(
            "binlog_format",
            f"binlog_format is {value}: changes that the source logs as statements"
            " arrive without rows, so clients lose them",
            _set_global("binlog_format", "ROW"),
        )
    return ok("binlog_format", "binlog_format is ROW")


def check_row_image(facts: CaptureFacts, needs: CaptureNeeds) -> CheckResult:
    """Check the image, which decides which columns a row has.

    MINIMAL fails: a constant default of a new row is in no event, and nobody can put a
    changed row together. NOBLOB omits nothing but BLOB and TEXT values that did not
    change.
    """
    value = facts.info.row_image
    if _is_image_refused(facts, needs):
        return fail(
            "binlog_row_image",
            f"binlog_row_image is {value}, allowed by canal.instance.binlog.image:"
            f" {_listed(needs.images)}",
            _remedy("binlog_row_image", value, "FULL", needs.images),
        )
    if value not in _WHOLE_IMAGES:
        remedy = _set_global("binlog_row_image", "FULL")
        text = (
            f"binlog_row_image is {value}: rows have only the columns that the source"
            " logs"
        )
        if value == _MINIMAL:
            text += ", so clients lose constant defaults and unchanged values"
            return fail("binlog_row_image", text, remedy)
        text += ", without BLOB and TEXT values that did not change"
        return warn("binlog_row_image", text, remedy)
    return ok("binlog_row_image", f"binlog_row_image is {value}")


def check_gtid_mode(facts: CaptureFacts, needs: CaptureNeeds) -> CheckResult:
    """Check that the server sends transactions after a GTID set.

    It does so only while all of them must have a GTID.
    """
    info = facts.info
    if not needs.gtid_on:
        return ok("gtid_mode", "GTIDs are not required (canal.instance.gtidon = false)")
    if info.is_mariadb:
        return ok("gtid_mode", "MariaDB always has GTIDs")
    if info.gtid_mode == "ON":
        return ok("gtid_mode", "gtid_mode is ON")
    return fail(
        "gtid_mode",
        f"gtid_mode is {info.gtid_mode}, but canal.instance.gtidon is true",
        "run SET GLOBAL gtid_mode = 'ON' (step by step, with"
        " enforce_gtid_consistency = 'ON'), or set canal.instance.gtidon = false",
    )


def check_replica_privilege(facts: CaptureFacts, _: CaptureNeeds) -> CheckResult:
    """Check the privilege without which the server does not send its binlog."""
    name = "REPLICATION SLAVE"
    return _check_privilege("replication_slave", facts, name, (name,))


def check_binlog_privilege(facts: CaptureFacts, _: CaptureNeeds) -> CheckResult:
    """Check the privilege to ask for the files of the binlog and for its end."""
    is_renamed = facts.info.is_mariadb and facts.info.version >= (10, 5, 2)
    name = "BINLOG MONITOR" if is_renamed else "REPLICATION CLIENT"
    return _check_privilege("replication_client", facts, name, _BINLOG_STATUS)


def _check_privilege(
    check: str, facts: CaptureFacts, name: str, accepted: Collection[str]
) -> CheckResult:
    """Check that an account has one of the accepted privileges, globally."""
    grants = facts.grants
    if grants is None:
        return skip(check, name, "the server does not show the grants")
    if grants.has_global(*accepted):
        return ok(check, f"account {facts.account[0]} has {name}")
    if not grants.is_whole:
        return skip(check, name, "some grants cannot be read")
    text = f"account {facts.account[0]} lacks {name}"
    return fail(check, text, _grant(name, facts.account))


def check_replica_id(facts: CaptureFacts, needs: CaptureNeeds) -> CheckResult:
    """Check that the replica has another id than its source."""
    key = "canal.instance.mysql.slaveId"
    if not needs.slave_id:
        return ok("replica_id", f"the replica id is chosen automatically ({key} = 0)")
    if needs.slave_id != facts.info.server_id:
        return ok("replica_id", f"{key} is {needs.slave_id}, not that of the source")
    return fail(
        "replica_id",
        f"{key} is {needs.slave_id}, the server_id of the source itself",
        f"set {key} = 0, or another id that no other replica has",
    )


# Not refused is what a destination can read in some way: by file instead of by GTID,
# or by GTID without knowing the files, or with less in the rows.
REQUIREMENTS: Final[Sequence[Requirement]] = (
    Requirement(check_log_bin),
    Requirement(check_server_id),
    Requirement(check_binlog_format, _is_format_refused),
    Requirement(check_row_image, _is_image_refused),
    Requirement(check_gtid_mode, _never),
    Requirement(check_replica_privilege),
    Requirement(check_binlog_privilege, _never, is_logged=False),
    Requirement(check_replica_id, _never),
)


def _listed(allowed: Collection[str]) -> str:
    return ", ".join(sorted(allowed))


def _remedy(name: str, value: str, best: str, allowed: Collection[str]) -> str:
    """Return the remedy for a variable whose value is not allowed."""
    if value == best:
        # The server already has the best value.
        return f"allow {value} there"
    proposed = best if best in allowed else min(allowed)
    return f"{_set_global(name, proposed)}, or allow {value} there"


def _set_global(name: str, value: str) -> str:
    """Return a statement; open sessions keep the old value."""
    return f"run SET GLOBAL {name} = '{value}' and reconnect all writers"


def _grant(name: str, account: tuple[str, str]) -> str:
    return f"have an administrator run: GRANT {name} ON *.* TO {account_text(*account)}"
