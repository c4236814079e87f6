"""Where the sessions of one destination start, and the outcome of earlier sessions.

A session starts at a position chosen by `start_finder`. The source may no longer have
it, or it may lie inside a transaction; the start of the next session is then decided
here. Leaves out reading itself (`pump`).
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from canal_server.errors import (
    BinlogPurged,
    InsideTransaction,
    PositionError,
    SourceRefused,
)
from canal_server.messages import source_messages
from canal_server.model.positions import base_name
from canal_server.mysql.server_errors import is_refusal
from canal_server.source.archive.source_binlogs import readable_logs
from canal_server.source.begin.gtid_tracking import tracked
from canal_server.source.begin.position_loss import LostPosition, purged_set
from canal_server.source.begin.search import BinlogSearch
from canal_server.source.begin.start_finder import Start, StartFinder
from canal_server.source.read.available_positions import SourceFiles
from canal_server.source.read.binlog_scan import Scanner
from canal_server.source.schema.source_traits import source_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from canal_server.config.schema import InstanceConfig
    from canal_server.errors import CanalError
    from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
    from canal_server.mysql.control_connection import ControlConnection
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.mysql.source_settings import Access
    from canal_server.ports import LogPositionManager
    from canal_server.runtime.lifecycle import Stop
    from canal_server.source.begin.boundary_index import BoundaryIndex
    from canal_server.source.begin.source_servers import Source
    from canal_server.source.read.start_position import StartPosition

_log = logging.getLogger(__name__)

# Times in a row that the source may report a missing position before the end is used
# instead, if the operator chose that: a proxy may have asked a server that lags.
REFUSALS_TOLERATED: Final = 2
# Cursors that are checked before a session by GTID; clients with others receive some
# transactions again.
CURSORS_MAX: Final = 32


class SessionStart:
    """Finds where each session starts; for the pump's thread, except `skips`."""

    def __init__(
        self,
        config: InstanceConfig,
        access: Access,
        stop: Stop,
        index: BoundaryIndex | None = None,
    ) -> None:
        self.scanner = Scanner(config, access, stop)
        self._index = index
        self.files = SourceFiles(())  # of this session's source
        self.unlisted = ""  # why the source does not list them
        self._config = config
        self._position: StartPosition | None = None  # of the current session
        self._moved: StartPosition | None = None  # one that lies inside a transaction
        self._refusals = 0  # consecutive reports of a missing position
        self._to_end = False  # the next session starts at the end
        self.is_at_end = False  # this session started there: its position was lost
        self._set_refused = False  # the source does not resume after a set
        self._voids_stored = False  # stored files and offsets belong to another binlog
        self._sources: set[str] = set()  # read by this process
        # By GTID: whether the set of a cursor has everything up to its position.
        self._covered: dict[EntryPosition, bool] = {}

    def turn_to(self, access: Access, stop: Stop) -> None:
        """Use another server from now on; the last one's outcomes are dropped."""
        self.scanner = Scanner(self._config, access, stop)
        self._refusals = 0
        self._to_end = False
        self._set_refused = False
        self._moved = None

    # --- the outcome of a session -----------------------------------------------------

    def reads(self) -> None:
        """Record that the source serves the position; cheap."""
        self._refusals = 0

    def failed(self, error: CanalError, *, passed: bool) -> bool:
        """Record how a session ended; return whether the next may start elsewhere.

        `passed`: the session read transactions to their end.
        """
        if isinstance(error, InsideTransaction):
            position = self._position
            if (
                passed
                or position is None
                or position.by_gtid
                or self._moved is not None
            ):
                return False  # the position is not the cause
            self._moved = position
            return True
        if self._by_set and not passed and is_refusal(error):
            self._set_refused = True
            source_messages.GTID_SET_REFUSED.log(_log, self._config.destination, error)
            return True
        if not isinstance(error, BinlogPurged) or self.is_at_end:
            return False
        self._refusals += 1
        self._to_end = self.position_is_lost and self._config.source.auto_reset_latest
        # The position is certainly lost now: clients elsewhere can be served at once.
        return self._to_end or self._refusals == REFUSALS_TOLERATED + 1

    @property
    def _by_set(self) -> bool:
        """Whether this session starts by a set outside of GTID mode."""
        position = self._position
        return (
            position is not None
            and position.by_gtid
            and not self._config.source.gtid_on
        )

    @property
    def is_counting(self) -> bool:
        """Whether the next refusals decide if it starts elsewhere."""
        return 0 < self._refusals <= REFUSALS_TOLERATED

    @property
    def position_is_lost(self) -> bool:
        """Whether it was refused so often that the source does not have it."""
        return self._refusals > REFUSALS_TOLERATED

    @property
    def goes_to_end(self) -> bool:
        """Whether the next session starts at the end, whatever is stored."""
        return self._to_end

    # --- the next session -------------------------------------------------------------

    def list_files(self, control: ControlConnection) -> SourceFiles:
        """List the binlog files that the source has."""
        self.unlisted = ""
        try:
            self.files = SourceFiles(tuple(readable_logs(control)))
        except SourceRefused as error:
            # Reported when the session continues; otherwise its error says the same.
            self.unlisted = str(error)
            self.files = SourceFiles(())
        return self.files

    def stored(
        self,
        control: ControlConnection,
        info: ServerInfo,
        identity: LogIdentity,
        positions: LogPositionManager,
        on_lost: Callable[[LostPosition], bool],
    ) -> LogPosition | None:
        """Return the stored position, None without one.

        When the source does not have it, `on_lost` may store another one. Raises
        SourceError, PositionError.
        """
        stored = positions.latest(self._config.destination)
        if stored is None or not self.position_is_lost:
            return stored
        purged = purged_set(control, info, self._config.source)
        if not on_lost(LostPosition(stored, identity, self.files, purged)):
            return stored
        self._refusals = 0
        self._to_end = False
        return positions.latest(self._config.destination)

    def find(
        self,
        control: ControlConnection,
        info: ServerInfo,
        read: Source,
        stored: LogPosition | None,
        *,
        read_before: Sequence[str],
        cursors: Iterable[EntryPosition] = (),
    ) -> StartPosition:
        """Return where to start. Raises PositionError, SourceError.

        `read_before` are the ids of the servers read so far, the last one last;
        `cursors` are the positions of the clients.
        """
        source = self._config.source
        names = (source_of(info), str(info.server_id))
        search = BinlogSearch(
            self.scanner, mariadb=info.is_mariadb, source=names[0], index=self._index
        )
        finder = StartFinder(
            connection=control,
            info=info,
            identity=read.identity,
            configured=read.configured,
            gtid_on=source.gtid_on,
            fallback_interval_s=source.fallback_interval_s,
            files=self.files,
            search=search,
            last_source_is_other=bool(read_before) and read_before[-1] not in names,
            was_read=any(each in names for each in read_before),
            others_were_read=any(each not in names for each in read_before),
            follows_sets=info.has_gtids
            and source.gtid_sets
            and not source.gtid_on
            and not self._set_refused,
        )
        start = self._start(finder, stored)
        if source.gtid_sets and not source.gtid_on:
            start = replace(
                start, position=tracked(start.position, info, stored, search)
            )
        if stored is None:
            start = replace(start, position=self._with_time(start.position, finder))
        elif start.position.by_gtid:
            # The time of a set is known only to whoever stored it.
            time_ms = stored.position.timestamp or 0
            start = replace(start, position=replace(start.position, time_ms=time_ms))
        self._sources.add(names[0])
        self._covered = _covered(finder, start.position, cursors)
        self.is_at_end, self._to_end = self._to_end, False
        self._voids_stored = start.voids_stored
        self._position = start.position
        if self.is_at_end:
            source_messages.SOURCE_STARTS_AFTER_LOSS.log(
                _log, self._config.destination, start.position, start.why
            )
        else:
            _log.info(
                "destination %s starts at %s: %s",
                self._config.destination,
                start.position,
                start.why,
            )
        return start.position

    def _start(self, finder: StartFinder, stored: LogPosition | None) -> Start:
        if self._to_end:
            why = (
                f"the source reported {self._refusals} times that it lacks the position"
                f" {stored or 'configured'}, and canal.auto.reset.latest.pos.mode is"
                " true: starting at the current end; changes in between are lost"
            )
            self._refusals = 0
            return Start(finder.end(), why, voids_stored=True)
        start = finder.find(stored)
        position, moved = start.position, self._moved
        if moved is None or (position.file, position.position) != (
            moved.file,
            moved.position,
        ):
            self._moved = None
            return start
        found = finder.search.transaction_start(position.file, position.position)
        if found.offset >= position.position:
            return start  # it is a boundary: the error will say what is wrong
        back, _ = finder.at(position.file, found.offset)
        return replace(
            start,
            position=replace(back, time_ms=position.time_ms),
            why=f"{start.why}; {position} is inside a transaction, moved back to its"
            f" start by {found.means}",
        )

    def _with_time(self, position: StartPosition, finder: StartFinder) -> StartPosition:
        """Return a position with a time, by which another server may be searched.

        The Java server accepts no cursor without a time, by GTID or not.
        """
        if position.time_ms:
            return position
        if position.by_gtid:
            return replace(position, time_ms=self._time_after_set(position, finder))
        seen = finder.search.event_at(position.file, position.position)
        time_ms = finder.now_ms() if seen is None else min(seen.times) * 1000
        return replace(position, time_ms=time_ms)

    def _time_after_set(self, position: StartPosition, finder: StartFinder) -> int:
        """Return the time of what the source sends after a set, 0 when unknown."""
        if finder.configured.timestamp_ms:
            return finder.configured.timestamp_ms
        try:
            sent_ms = self.scanner.first_sent_ms(position.dump_start())
        except BinlogPurged:
            return 0  # the session will hit the same error
        return finder.now_ms() if sent_ms is None else sent_ms

    # --- cursors ----------------------------------------------------------------------

    def skips(
        self, position: EntryPosition, last_file: str, last: tuple[int, int] | None
    ) -> bool:
        """Return whether a client at a position needs nothing before it.

        Not so when the position belongs to another source, nor when the session starts
        there by GTID: everything sent then comes after it, whatever its offset. By
        GTID, the sets decide: where the cursor's set lacks something before its
        position, skipping would lose data. `last` is the last delivered offset, with
        its file's name. From any thread; true as long as no session has started.
        """
        start_position, moved = self._position, self._moved
        if start_position is None:
            return True
        if start_position.by_gtid and position in self._covered:
            return self._covered[position]
        # A cursor added since belongs to this server, unless others were read too.
        if (
            self._voids_stored
            or (start_position.by_gtid and len(self._sources) > 1)
            or (start_position.by_gtid and position.gtid == str(start_position.gtids))
        ):
            return False
        where = (position.journal_name, position.position)
        if moved is not None and where == (moved.file, moved.position):
            return False  # the whole transaction is sent
        if self.files.had(*where):
            return True
        # Acked since the session started, in a file that has grown or is new.
        return (
            last is not None
            and base_name(position.journal_name or "") == base_name(last_file)
            and position.order() <= last
        )


def _covered(
    finder: StartFinder, position: StartPosition, cursors: Iterable[EntryPosition]
) -> dict[EntryPosition, bool]:
    """Return for each cursor whether its set has everything before it."""
    found: dict[EntryPosition, bool] = {}
    if not position.by_gtid:
        return found
    for cursor in set(cursors):
        if not cursor.gtid or cursor.gtid == str(position.gtids):
            continue
        found[cursor] = False
        if len(found) > CURSORS_MAX or not cursor.journal_name:
            continue
        if finder.files.had(cursor.journal_name, cursor.position):
            with contextlib.suppress(PositionError):
                gtids = finder.by_gtid(cursor.gtid).gtids
                assert gtids is not None, "a position by GTID has a set"
                found[cursor] = finder.search.covers(
                    gtids, cursor.journal_name, cursor.position or 0
                )
    return found
