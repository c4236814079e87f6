"""Checks of positions: whether the source still has what is to be read first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal_server.errors import CanalError, PositionError
from canal_server.model.check_results import fail, ok, skip, warn
from canal_server.model.moments import time_text
from canal_server.position.log_position_managers import same_server
from canal_server.source.begin.start_finder import OLDEST
from canal_server.source.read.gtid_sets import parse, parsed, subtract
from canal_server.source.read.start_position import FIRST_EVENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canal_server.model.check_results import CheckResult
    from canal_server.model.cursors import ClientCursor
    from canal_server.model.positions import LogPosition
    from canal_server.source.check.checked_source import CheckedSource
    from canal_server.source.check.source_facts import SourceFacts
    from canal_server.source.read.available_positions import SourceFiles

SHOWN_MAX: Final = 200  # characters of a GTID set
EXPIRY_SHARE: Final = 0.75  # of the time after which files are purged
_Lost = tuple[int, str]  # client id, and why it cannot continue


def check_cursors(facts: SourceFacts, checked: CheckedSource) -> CheckResult:
    """Check that the source has what each client reads next."""
    name, what = "cursors", "the positions of clients"
    stored = _stored(checked.cursors)
    if not stored:
        return ok(name, "no client has a stored position")
    if not facts.info.log_bin:
        return skip(name, what, "log_bin is OFF")
    unread = facts.purged if checked.config.source.gtid_on else facts.files
    for part in (facts.files, unread):
        if isinstance(part, CanalError):
            return skip(name, what, str(part))
    assert not isinstance(facts.files, CanalError), "it was read"
    lost = [
        (client, why)
        for client, position in stored
        if (why := _why_lost(position, facts, checked, facts.files))
    ]
    if lost:
        return _lost_result(checked, lost, facts.files)
    return ok(name, _found_text(stored, checked, facts.files))


def _why_lost(
    position: LogPosition,
    facts: SourceFacts,
    checked: CheckedSource,
    files: SourceFiles,
) -> str:
    """Return why a client cannot continue; in GTID mode its set decides."""
    if checked.config.source.gtid_on and position.position.gtid:
        return _set_lost(position.position.gtid, facts)
    return _file_lost(position, checked, files)


def _found_text(
    stored: Sequence[tuple[int, LogPosition]],
    checked: CheckedSource,
    files: SourceFiles,
) -> str:
    client, position = oldest_of(stored)
    where = f"client {client} is at {position.position}"
    if not same_server(position.identity, checked.identity):
        return f"{where}, a position of another server, found by time or GTID"
    if not files.had(position.position.journal_name, position.position.position):
        return (
            f"{where}, a position of the server that had this address before; the"
            " running server has found where it continues"
        )
    return f"{where}, which the source has; its oldest file is {_oldest(files)}"


def _stored(cursors: Sequence[ClientCursor]) -> list[tuple[int, LogPosition]]:
    """Return the position after which each client reads, where one is stored."""
    return [
        (each.identity.client_id, position)
        for each in cursors
        if (position := each.furthest()) is not None
    ]


def oldest_of(stored: Sequence[tuple[int, LogPosition]]) -> tuple[int, LogPosition]:
    """Return the client whose position is the earliest, and the position."""
    return min(stored, key=lambda each: each[1].position.order())


def _file_lost(
    position: LogPosition, checked: CheckedSource, files: SourceFiles
) -> str:
    """Return why the binlog lacks a position, empty if it has it or may have it."""
    start_position = position.position
    if (
        not same_server(position.identity, checked.identity)
        or not start_position.journal_name
    ):
        return ""
    purged = files.purged_from(start_position.journal_name)
    if purged is not None:
        return f"at {start_position}, but {purged} was purged"
    # A server that reads has started from this position or from an earlier one: by the
    # time or the GTID set stored with it, as the address has another server now.
    is_there = files.had(start_position.journal_name, start_position.position)
    if not is_there and not checked.is_reading:
        return f"at {start_position}, which is not in the binlog, which has {files}"
    return ""


def _set_lost(text: str, facts: SourceFacts) -> str:
    """Return which transactions after a GTID set were purged, empty if none was."""
    gtids = parsed(text, facts.info)
    if isinstance(facts.purged, CanalError) or gtids is None:
        return ""
    purged = parsed(facts.purged, facts.info)
    lost = "" if purged is None else str(subtract(purged, gtids))
    return f"at a GTID set after which {lost[:SHOWN_MAX]} was purged" if lost else ""


def _lost_result(
    checked: CheckedSource, lost: Sequence[_Lost], files: SourceFiles
) -> CheckResult:
    client, why = lost[0]
    others = ", ".join(str(each) for each, _ in lost[1:])
    return fail(
        "cursors",
        f"client {client} is {why}; the oldest file is {_oldest(files)}"
        + (f" (also lost: the positions of client {others})" if others else ""),
        "put the files back, or reload the tables and run"
        f" {checked.seek} --client-id {client} --to oldest",
    )


def _oldest(files: SourceFiles) -> str:
    return files.files[0].name if files.files else "unknown"


def check_expiry(facts: SourceFacts, checked: CheckedSource) -> CheckResult:
    """Check that the source keeps its files for longer than clients are behind."""
    name, expire_s = "binlog_expiry", facts.info.binlog_expire_s
    if not facts.info.log_bin:
        return skip(name, "the expiry of binlog files", "log_bin is OFF")
    if not expire_s:
        return ok(name, "the source never purges its binlog by itself")
    kept = f"the source purges binlog files after {expire_s / 3600:g} hours"
    stored = [
        each
        for each in _stored(checked.cursors)
        if same_server(each[1].identity, checked.identity)
    ]
    if not stored or isinstance(facts.clock, CanalError):
        return ok(name, kept)
    client, position = oldest_of(stored)
    start_position = position.position
    # Files are purged whole, and never the last one.
    if not start_position.timestamp or start_position.journal_name == facts.end_file:
        return ok(name, f"{kept}; the oldest position is in the newest file")
    age_s = facts.clock.now_s - start_position.timestamp / 1000
    if age_s < EXPIRY_SHARE * expire_s:
        return ok(name, f"{kept}; the oldest position is {age_s / 3600:.1f} hours old")
    return warn(
        name,
        f"{kept}, and the position of client {client} is {age_s / 3600:.1f} hours old"
        f" ({start_position})",
        "let the client ack, or run SET GLOBAL binlog_expire_logs_seconds ="
        f" {2 * expire_s}",
    )


def check_start(facts: SourceFacts, checked: CheckedSource) -> CheckResult:
    """Check that the source has the configured start, if that is where to start."""
    name, host = "start_position", checked.host
    if not checked.starts_as_configured:
        return ok(name, "starts at the stored positions of the clients")
    if not facts.info.log_bin:
        return skip(name, "where to start", "log_bin is OFF")
    if checked.config.source.gtid_on and host.gtid:
        return _check_start_set(facts, checked, host.gtid)
    if host.journal_name:
        return _check_start_file(facts, checked, host.journal_name)
    if host.timestamp_ms:
        return _check_start_time(facts, checked, host.timestamp_ms)
    return ok(name, "nothing is stored or configured: starts at the end of the binlog")


def _check_start_file(
    facts: SourceFacts, checked: CheckedSource, file: str
) -> CheckResult:
    name, files, key = "start_position", facts.files, f"{checked.key}.journal.name"
    if file.lower() == OLDEST:
        return ok(name, "starts at the oldest file of the source")
    if isinstance(files, CanalError):
        return skip(name, key, str(files))
    offset = checked.host.position or FIRST_EVENT
    if not files.files:
        return fail(name, f"{key} = {file}: {facts.address} lists no binlog files")
    try:
        files.check(file, offset, f"{key} = {OLDEST}")
    except PositionError as error:
        return fail(name, f"{key} = {file}: {error}", f"correct {key}, or set {OLDEST}")
    return ok(name, f"starts at {file}:{offset}, which the source has")


def _check_start_time(
    facts: SourceFacts, checked: CheckedSource, when_ms: int
) -> CheckResult:
    name, key = "start_position", f"{checked.key}.timestamp"
    oldest_ms = facts.oldest_ms
    if oldest_ms is None or isinstance(oldest_ms, CanalError):
        return skip(name, key, str(oldest_ms or "the binlog was not read"))
    what = f"{key} = {when_ms} ({time_text(when_ms)})"
    if when_ms < oldest_ms:
        return fail(
            name,
            f"{what} is before the oldest binlog file, of {time_text(oldest_ms)}",
            f"set a later time, in ms, or {checked.key}.journal.name = {OLDEST}",
        )
    clock = facts.clock
    if not isinstance(clock, CanalError) and when_ms > clock.now_s * 1000:
        return warn(name, f"{what} is in the future", "set an earlier time")
    return ok(name, f"starts at {time_text(when_ms)}, which the source has")


def _check_start_set(
    facts: SourceFacts, checked: CheckedSource, text: str
) -> CheckResult:
    name, key = "start_position", f"{checked.key}.gtid"
    shown = f"{key} = {text[:SHOWN_MAX]}"
    try:
        parse(text, facts.info)
    except ValueError as error:
        return fail(name, f"{shown}: {error}", f"correct {key}")
    why = _set_lost(text, facts)
    if why:
        return fail(
            name,
            f"{shown} is {why}",
            f"correct it, or set {checked.key}.journal.name = {OLDEST} instead",
        )
    return ok(name, "starts after the configured GTID set")
