"""Where the sessions of one destination begin, and what came of those before.

A session begins at a place that `start` decides on. It may turn out that the source
no longer has it, or that it lies inside of a transaction; what then becomes of the next
session is decided here. Leaves out reading itself (`pump`).
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
from canal_server.mysql.binlogs import binary_logs
from canal_server.mysql.server_errors import is_refusal
from canal_server.source.begin.gtid_tracking import tracked
from canal_server.source.begin.position_loss import LostPosition, purged_set
from canal_server.source.begin.search import BinlogSearch
from canal_server.source.begin.start_finder import Start, StartFinder
from canal_server.source.read.available_positions import SourceFiles, base_name
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
    from canal_server.source.read.start_position import Place

_log = logging.getLogger(__name__)

# Times in a row that the source may say it lacks the place before the end is taken
# instead, if the operator wants that: a proxy may have asked a server that lags.
REFUSALS_BORNE: Final = 2
# Cursors that are looked at before a session by GTID; clients with others get some
# transactions again.
CURSORS_MAX: Final = 32


class SessionStart:
    """Finds where each session begins; for the pump's thread, but for `skips`."""

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
        self._place: Place | None = None  # of the session that runs
        self._moved: Place | None = None  # one that lies inside of a transaction
        self._refusals = 0  # that said the place is gone, in a row
        self._to_end = False  # the next session begins at the end
        self.is_at_end = False  # this session began there, its place was gone
        self._set_refused = False  # the source does not go on behind a set
        self._voids_stored = False  # stored files and offsets are not of this binlog
        self._sources: set[str] = set()  # that were read in this process
        # By GTID: whether all up to a cursor's place is in its set.
        self._covered: dict[EntryPosition, bool] = {}

    def turn_to(self, access: Access, stop: Stop) -> None:
        """Look at another server from now on; what the last one said is forgotten."""
        self.scanner = Scanner(self._config, access, stop)
        self._refusals = 0
        self._to_end = False
        self._set_refused = False
        self._moved = None

    # --- what came of a session -------------------------------------------------------

    def reads(self) -> None:
        """Note that the source serves the place; cheap."""
        self._refusals = 0

    def failed(self, error: CanalError, *, passed: bool) -> bool:
        """Note how a session ended; returns whether the next one may begin elsewhere.

        `passed`: transactions were read to their end in it.
        """
        if isinstance(error, InsideTransaction):
            place = self._place
            if passed or place is None or place.by_gtid or self._moved is not None:
                return False  # not the place is to blame
            self._moved = place
            return True
        if self._by_set and not passed and is_refusal(error):
            self._set_refused = True
            _log.warning(
                "destination %s: goes on by time, as the source refuses the GTID set"
                " beside the position: %s",
                self._config.destination,
                error,
            )
            return True
        if not isinstance(error, BinlogPurged) or self.is_at_end:
            return False
        self._refusals += 1
        self._to_end = self.place_is_gone and self._config.source.auto_reset_latest
        # Just now it is gone for certain: clients elsewhere can be served at once.
        return self._to_end or self._refusals == REFUSALS_BORNE + 1

    @property
    def _by_set(self) -> bool:
        """Whether this session begins by a set outside of GTID mode."""
        place = self._place
        return place is not None and place.by_gtid and not self._config.source.gtid_on

    @property
    def is_counting(self) -> bool:
        """Whether the next refusals decide if it begins elsewhere."""
        return 0 < self._refusals <= REFUSALS_BORNE

    @property
    def place_is_gone(self) -> bool:
        """Whether it was refused so often that the source does not have it."""
        return self._refusals > REFUSALS_BORNE

    @property
    def goes_to_end(self) -> bool:
        """Whether the next session begins at the end, whatever is stored."""
        return self._to_end

    # --- the next session -------------------------------------------------------------

    def list_files(self, control: ControlConnection) -> SourceFiles:
        """Ask for the binlog files that the source has."""
        self.unlisted = ""
        try:
            self.files = SourceFiles(tuple(binary_logs(control)))
        except SourceRefused as error:
            # Told when the session goes on; else its error says the same.
            self.unlisted = str(error)
            self.files = SourceFiles(())
        return self.files

    def stored(
        self,
        control: ControlConnection,
        info: ServerInfo,
        identity: LogIdentity,
        positions: LogPositionManager,
        gone: Callable[[LostPosition], bool],
    ) -> LogPosition | None:
        """Return the stored place, None without any. Raises SourceError, PositionError.

        When the source does not have it, `gone` may have another one stored.
        """
        stored = positions.latest(self._config.destination)
        if stored is None or not self.place_is_gone:
            return stored
        purged = purged_set(control, info, self._config.source)
        if not gone(LostPosition(stored, identity, self.files, purged)):
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
    ) -> Place:
        """Return where to begin. Raises PositionError, SourceError.

        `read_before` tells the servers that were, the last one last; `cursors` are the
        places of the clients.
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
            start = replace(start, place=tracked(start.place, info, stored, search))
        if stored is None:
            start = replace(start, place=self._with_time(start.place, finder))
        elif start.place.by_gtid:
            # Of a set, only who stored it knows the time.
            time_ms = stored.position.timestamp or 0
            start = replace(start, place=replace(start.place, time_ms=time_ms))
        self._sources.add(names[0])
        self._covered = _covered(finder, start.place, cursors)
        self.is_at_end, self._to_end = self._to_end, False
        self._voids_stored = start.voids_stored
        self._place = start.place
        _log.log(
            logging.WARNING if self.is_at_end else logging.INFO,  # some is lost
            "destination %s begins at %s: %s",
            self._config.destination,
            start.place,
            start.why,
        )
        return start.place

    def _start(self, finder: StartFinder, stored: LogPosition | None) -> Start:
        if self._to_end:
            why = (
                f"the source said {self._refusals} times that it lacks the place"
                f" {stored or 'configured'}, and canal.auto.reset.latest.pos.mode is"
                " true: the current end; what lies between is lost"
            )
            self._refusals = 0
            return Start(finder.end(), why, voids_stored=True)
        start = finder.find(stored)
        place, moved = start.place, self._moved
        if moved is None or (place.file, place.position) != (
            moved.file,
            moved.position,
        ):
            self._moved = None
            return start
        found = finder.search.transaction_start(place.file, place.position)
        if found.offset >= place.position:
            return start  # it is between two: the error will say what is wrong
        back, _ = finder.at(place.file, found.offset)
        return replace(
            start,
            place=replace(back, time_ms=place.time_ms),
            why=f"{start.why}; {place} is inside of a transaction, back to its"
            f" beginning by {found.means}",
        )

    def _with_time(self, place: Place, finder: StartFinder) -> Place:
        """Return a place with a time, by which another server may be searched.

        The original begins at none that lacks it, whether by GTID or not.
        """
        if place.time_ms:
            return place
        if place.by_gtid:
            return replace(place, time_ms=self._time_behind_set(place, finder))
        seen = finder.search.event_at(place.file, place.position)
        time_ms = finder.now_ms() if seen is None else min(seen.times) * 1000
        return replace(place, time_ms=time_ms)

    def _time_behind_set(self, place: Place, finder: StartFinder) -> int:
        """Return when was written what the source sends behind a set, 0: not known."""
        if finder.configured.timestamp_ms:
            return finder.configured.timestamp_ms
        try:
            sent_ms = self.scanner.first_sent_ms(place.dump_start())
        except BinlogPurged:
            return 0  # the session will meet it, too
        return finder.now_ms() if sent_ms is None else sent_ms

    # --- cursors ----------------------------------------------------------------------

    def skips(
        self, position: EntryPosition, last_file: str, last: tuple[int, int] | None
    ) -> bool:
        """Tell whether a client that stands at a place wants nothing before it.

        Not so when the place is none of this source, nor when the session begins
        there by GTID: all that then comes is behind it, whatever its offset. By GTID
        sets tell: with what the cursor's set lacks in front of its place, something
        would be lost. `last`
        is what was delivered last, with its file's name. From any thread; true as
        long as no session has begun.
        """
        place, moved = self._place, self._moved
        if place is None:
            return True
        if place.by_gtid and position in self._covered:
            return self._covered[position]
        # One that came since is of this server, unless others were read as well.
        if (
            self._voids_stored
            or (place.by_gtid and len(self._sources) > 1)
            or (place.by_gtid and position.gtid == str(place.gtids))
        ):
            return False
        where = (position.journal_name, position.position)
        if moved is not None and where == (moved.file, moved.position):
            return False  # the whole transaction comes
        if self.files.had(*where):
            return True
        # Acked since the session began, in a file that has grown or is new.
        return (
            last is not None
            and base_name(position.journal_name or "") == base_name(last_file)
            and position.order() <= last
        )


def _covered(
    finder: StartFinder, place: Place, cursors: Iterable[EntryPosition]
) -> dict[EntryPosition, bool]:
    """Tell of cursors whether their sets have all that lies in front of them."""
    found: dict[EntryPosition, bool] = {}
    if not place.by_gtid:
        return found
    for cursor in set(cursors):
        if not cursor.gtid or cursor.gtid == str(place.gtids):
            continue
        found[cursor] = False
        if len(found) > CURSORS_MAX or not cursor.journal_name:
            continue
        if finder.files.had(cursor.journal_name, cursor.position):
            with contextlib.suppress(PositionError):
                gtids = finder.by_gtid(cursor.gtid).gtids
                assert gtids is not None, "a place by GTID has a set"
                found[cursor] = finder.search.covers(
                    gtids, cursor.journal_name, cursor.position or 0
                )
    return found
