"""The target of `position seek`: an operator's text becomes a start position.

The position lies between two transactions of a source that is queried. Leaves out who
is moved there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from canal_server.config.schema import HostConfig
from canal_server.errors import PositionError
from canal_server.model.moments import is_relative, moment_ms
from canal_server.model.positions import EntryPosition
from canal_server.model.quoted import quoted
from canal_server.mysql.replication import FIRST_EVENT
from canal_server.runtime.lifecycle import Stop
from canal_server.source.begin.search import BinlogSearch
from canal_server.source.begin.start_finder import StartFinder
from canal_server.source.begin.whole_binlog import is_first_of_all
from canal_server.source.read.ddl_scan import DdlScanner
from canal_server.source.read.gtid_sets import parse, subtract
from canal_server.source.read.start_position import StartPosition

if TYPE_CHECKING:
    from canal_server.source.begin.source_lag import SourceView
    from canal_server.source.read.gtid_sets import Gtids

_UUID: Final = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_GTIDS: Final = re.compile(rf"\s*(?:{_UUID}\s*:|\d+-\d+-\d+\s*(?:,|$)).*", re.DOTALL)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[T ].*")
_POSITION: Final = re.compile(r"(?P<file>[^\s:]+):(?P<offset>\d+)")
_SHOWN: Final = 200  # characters of a GTID set in an error


class Kind(Enum):
    """The form in which a target is written."""

    POSITION = "position"
    GTIDS = "GTID set"
    TIME = "time"
    OLDEST = "oldest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class TargetText:
    """A target as it was written."""

    kind: Kind
    text: str
    time_ms: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """A position between transactions; `inside`: the requested one, if not such.

    `is_before`: a time before the first transaction was requested.
    """

    position: EntryPosition
    inside: EntryPosition | None = None
    is_before: bool = False


def parse_target(text: str) -> TargetText:
    """Parse a target. Raises ValueError with the accepted forms."""
    text = text.strip()
    for kind in (Kind.OLDEST, Kind.LATEST):
        if text.lower() == kind.value:
            return TargetText(kind, text)
    if (text.isascii() and text.isdecimal()) or is_relative(text):
        return TargetText(Kind.TIME, text, moment_ms(text))
    if _TIME.fullmatch(text):
        return TargetText(Kind.TIME, text, moment_ms(text, needs_zone=True))
    if _GTIDS.fullmatch(text):
        return TargetText(Kind.GTIDS, text)
    if _POSITION.fullmatch(text):
        return TargetText(Kind.POSITION, text)
    raise ValueError(
        f"{quoted(text[:_SHOWN])} is not a position; write FILE:POSITION like"
        " binlog.000003:4711, a GTID set, a time like 2026-11-21T10:00:00+00:00, in"
        " milliseconds since 1970 or relative to now like -1h, oldest or latest"
    )


def inside_text(asked: str, found: str) -> str:
    """Describe a position inside a transaction; empty when it is a boundary."""
    if asked == found:
        return ""
    return f"{asked} is inside a transaction: starting before it, at {found}"


def before_text(asked: str, file: str) -> str:
    """Describe a time before the first transaction of a whole binlog."""
    return (
        f"{asked} is before the first transaction in the binlog of the source: starting"
        f" with its oldest file, {file}"
    )


class TargetFinder:
    """Finds targets in one source's binlog."""

    def __init__(self, view: SourceView, option: str = "--to") -> None:
        """Search this view; `option` is the option that remedies name."""
        self._view = view
        self._option = option
        self._gtid_on = view.config.source.gtid_on

    def find(self, target: TargetText) -> Target:
        """Return the position of a target. Raises PositionError, SourceError."""
        if not self._view.files.files:
            raise PositionError(f"{self._view.access.address} lists no binlog files")
        match target.kind:
            case Kind.POSITION:
                return self._at_position(target.text)
            case Kind.GTIDS:
                return Target(self._after_set(target.text))
            case Kind.TIME:
                return self._at_time(target)
            case Kind.OLDEST:
                return Target(self._oldest())
            case Kind.LATEST:
                return Target(self._view.end_position)

    # --- each kind --------------------------------------------------------------------

    def _at_position(self, text: str) -> Target:
        found = _POSITION.fullmatch(text)
        assert found is not None, "parse_target accepted it"
        file, offset = found["file"], max(FIRST_EVENT, int(found["offset"]))
        self._view.files.check(file, offset, f"`{self._option} oldest`")
        asked = EntryPosition(file, offset)
        position = self._view.surveyor.boundary_before(asked)
        if position.timestamp is None:
            position = self._at_beginning(file)
        inside = asked if position.position != offset else None
        return Target(self._with_gtids(position), inside)

    def _oldest(self) -> EntryPosition:
        return self._with_gtids(self._at_beginning(self._view.files.files[0].name))

    def _at_beginning(self, file: str) -> EntryPosition:
        return EntryPosition(
            file,
            FIRST_EVENT,
            self._view.scanner.first_event_ms(file),
            self._view.info.server_id,
            included=True,
        )

    def _at_time(self, target: TargetText) -> Target:
        view = self._view
        if target.time_ms > view.now_ms:
            raise PositionError(
                f"{target.text} is in the future by the clock of"
                f" {view.access.address}; `{self._option} latest` skips all that"
                " exists"
            )
        oldest = view.files.files[0].name
        if view.scanner.first_event_ms(oldest) > target.time_ms:
            if is_first_of_all(oldest, view.info, view.scanner, lambda: view.purged):
                return Target(self._oldest(), is_before=True)
            raise PositionError(
                f"{target.text} is before the oldest binlog file, {oldest};"
                f" `{self._option} oldest` starts at the oldest file"
            )
        position = self._start(HostConfig(timestamp_ms=target.time_ms))
        found = EntryPosition(
            position.file,
            position.position,
            target.time_ms,
            view.info.server_id,
            None if position.gtids is None else str(position.gtids),
            included=True,
        )
        return Target(found)

    def _start(self, configured: HostConfig) -> StartPosition:
        view = self._view
        return (
            StartFinder(
                connection=view.connection,
                info=view.info,
                identity=view.identity,
                configured=configured,
                gtid_on=self._gtid_on,
                fallback_interval_s=0,
                files=view.files,
                search=BinlogSearch(view.scanner, mariadb=view.info.is_mariadb),
            )
            .find(None)
            .position
        )

    def _after_set(self, text: str) -> EntryPosition:
        view = self._view
        if not view.has_gtids:
            raise PositionError(f"{view.access.address} has no GTIDs: gtid_mode is off")
        gtids = self._executed_set(text)
        start = StartPosition("", FIRST_EVENT, gtids, by_gtid=True).dump_start()
        first = DdlScanner(view.config, view.access, Stop()).first_position(start)
        if first is None:
            position = view.end_position
        else:
            position = view.surveyor.boundary_before(first)
            if position.timestamp is None:
                position = self._at_beginning(first.journal_name or "")
        return replace(position, gtid=str(gtids) if self._gtid_on else None)

    def _executed_set(self, text: str) -> Gtids:
        """Parse a set that the source has executed, with nothing after it purged."""
        view = self._view
        shown = text[:_SHOWN]
        try:
            gtids = parse(text, view.info)
        except ValueError as error:
            raise PositionError(f"GTID set {shown}: {error}") from error
        lacking = subtract(gtids, parse(view.end.gtids, view.info))
        if lacking:
            raise PositionError(
                f"GTID set {shown} was not fully executed by {view.access.address}:"
                f" it lacks {str(lacking)[:_SHOWN]}"
            )
        lost = str(subtract(parse(view.purged, view.info), gtids))[:_SHOWN]
        if lost:
            raise PositionError(
                f"transactions after GTID set {shown} were purged: {lost};"
                f" `{self._option} oldest` starts at the oldest file"
            )
        return gtids

    # --- GTID mode --------------------------------------------------------------------

    def _with_gtids(self, position: EntryPosition) -> EntryPosition:
        if not self._gtid_on:
            return position
        gtids = self._gtids_at(
            position.journal_name or "", position.position or FIRST_EVENT
        )
        return replace(position, gtid=str(gtids))

    def _gtids_at(self, file: str, offset: int) -> Gtids:
        return self._view.scanner.gtids_at(
            file, offset, mariadb=self._view.info.is_mariadb
        )
