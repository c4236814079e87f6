"""Follows the executed GTID set outside of GTID mode, for a switch to another server.

Entries and cursors have no set then. Compiled code adds each transaction to one, and
its text is rendered occasionally: after a number of binlog bytes, and whenever the
source has nothing to read. Leaves out who uses it (`position.gtid_cache`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from canal_server.errors import SourceError
from canal_server.model.positions import Executed, LogPosition
from canal_server.mysql.server_errors import is_refusal
from canal_server.mysql.standby import (
    gtids_of,
    missing_gtids,
    replica_channels,
    without_lost,
)
from canal_server.position.gtid_cache import is_at_or_before

if TYPE_CHECKING:
    from canal_server.decoder.events.engine import Decoder
    from canal_server.model.positions import EntryPosition, LogIdentity
    from canal_server.mysql.control_connection import ControlConnection
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.ports import Span
    from canal_server.position.gtid_cache import ExecutedSets
    from canal_server.source.begin.start_finder import Search
    from canal_server.source.read.binlog_reader import Reader
    from canal_server.source.read.start_position import StartPosition

SET_INTERVAL_BYTES: Final = 1024 * 1024  # of binlog between two sets, while catching up
FIRST_EVENT: Final = 4
CHUNK_ENDS_MAX: Final = 64  # chunk ends with their sets
# Read of a file to find its set, once; beyond that it is known from the next file on.
READ_BYTES_MAX: Final = 64 * 1024 * 1024


class SetFollower:
    """Records the sets that one destination executes; for the pump's thread.

    Except `completed`, for any thread. Without `sets` nothing is followed.
    """

    def __init__(self, sets: ExecutedSets | None) -> None:
        self._sets = sets
        self._identity: LogIdentity | None = None  # in this session's positions
        self._decoder: Decoder | None = None  # of this session, None: not followed
        self._file = ""  # of the last recorded set, and its offset
        self._stop = 0
        # The last boundary: file, event that a cursor there may have been given, end.
        self._last: tuple[str, int, int] | None = None
        self.records_chunk_ends = False  # with their sets, for range readers
        # The chunk ends of this session: file, offset, set. Readable from any thread.
        self.chunk_ends: deque[tuple[str, int, str]] = deque(maxlen=CHUNK_ENDS_MAX)

    def completed(self, position: LogPosition) -> LogPosition:
        """Return a position with the set executed there, as far as it is known."""
        if self._sets is None:
            return replace(position, executed=None)
        return self._sets.completed(position)

    def marked(self, position: EntryPosition) -> EntryPosition:
        """Return a position of this session with the set executed there, if known."""
        if self._decoder is None or self._identity is None:
            return position
        executed = self.completed(LogPosition(self._identity, position)).executed
        return position if executed is None else replace(position, gtid=executed.gtids)

    def begin(
        self,
        reader: Reader,
        identity: LogIdentity,
        position: StartPosition,
        info: ServerInfo,
    ) -> None:
        """Start a session at a position; its positions share the identity object."""
        self._decoder, self._last, self._file = None, None, ""
        self.chunk_ends = deque(maxlen=CHUNK_ENDS_MAX)
        if self._sets is None or not info.has_gtids:
            return
        self._identity, self._decoder = identity, reader.decoder
        self._sets.begin(identity)
        reader.sets.track(position.gtids if position.by_gtid else position.tracked)
        if position.tracked is not None and position.file:
            at = position.tracked_at or position.position
            self._note(Executed(position.file, at, at, str(position.tracked)))

    def note(self, spans: list[Span]) -> None:
        """Process a chunk's records."""
        decoder = self._decoder
        if decoder is None:
            return
        block, _, stop = spans[-1]
        self._last = None
        if block.last_boundary(stop - 1, stop) >= 0:
            event, ordinal = block.key(stop - 1)
            end = block.end_offset(stop - 1)
            # A cursor at a compressed transaction may have received a part of it.
            self._last = (block.file, end if ordinal else event, end)
        # Its transaction is not in the set yet.
        at = decoder.gtid_offset
        if at and (decoder.file != self._file or at >= self._stop + SET_INTERVAL_BYTES):
            text = decoder.followed.executed(whole=False)
            self._note(Executed(decoder.file, at, at, text))
        if self.records_chunk_ends and at:
            self._record_chunk_end(decoder, at)

    def _record_chunk_end(self, decoder: Decoder, at: int) -> None:
        """Record the set at the last boundary of a chunk, which is its end or `at`."""
        is_whole = False
        if self._last is not None:
            file, _, end = self._last
            is_whole = file == decoder.file and end == decoder.position > at
        position = decoder.position if is_whole else at
        text = decoder.followed.executed(whole=is_whole)
        if text:
            self.chunk_ends.append((decoder.file, position, text))

    def idle(self) -> None:
        """Handle a source that has nothing to read."""
        decoder = self._decoder
        if decoder is None or self._last is None:
            return
        file, event, end = self._last
        if (
            file == decoder.file
            and end == decoder.position > decoder.gtid_offset > 0
            and (file, end) != (self._file, self._stop)
        ):
            self._note(
                Executed(file, event, end, decoder.followed.executed(whole=True))
            )

    def settled(self, position: EntryPosition) -> None:
        """Record the position and set up to which everything was read."""
        file, offset = position.journal_name or "", position.position or 0
        if self._decoder is not None and (file, offset) != (self._file, self._stop):
            self._note(Executed(file, offset, offset, position.gtid or ""))

    def _note(self, executed: Executed) -> None:
        assert self._sets is not None, "sets are followed"
        if executed.gtids:
            self._file, self._stop = executed.file, executed.stop
            self._sets.note(executed)


def reachable_set(
    control: ControlConnection, info: ServerInfo, stored: LogPosition
) -> LogPosition:
    """Return a stored position with a set from which a MariaDB can resume.

    A MariaDB refuses a set with transactions that it lacks. Those that its source has
    not sent yet may never arrive, so reading then starts by time; those lost with
    another server are removed from the set.
    """
    executed = stored.executed
    if executed is None or not info.is_mariadb or gtids_of(info, executed) is None:
        return stored
    if not missing_gtids(control, info, executed.gtids):
        return stored
    if replica_channels(control, info):
        return replace(stored, executed=None)
    reachable_gtids = without_lost(control, executed.gtids)
    return replace(stored, executed=replace(executed, gtids=reachable_gtids))


def tracked(
    position: StartPosition,
    info: ServerInfo,
    stored: LogPosition | None,
    search: Search,
) -> StartPosition:
    """Return a position of a file with the set executed there, if that is known.

    A set stored with the position is used as it is; from an earlier one, reading
    continues. Nothing may be missing: what a set lacks is sent again, and then without
    the statements that followed it.
    """
    executed = stored.executed if stored is not None else None
    if position.tracked is not None or position.by_gtid or not info.has_gtids:
        return position
    if position.position == FIRST_EVENT:
        return position  # the file starts with its set
    known = gtids_of(info, executed)
    since: Executed | None = None
    if (
        stored is not None
        and executed is not None
        and known is not None
        and executed.file == position.file == stored.position.journal_name
        and position.position == stored.position.position
        and is_at_or_before(executed, stored.position)
    ):
        if position.position in (executed.event, executed.stop):
            return replace(position, tracked=known)
        since = executed
    elif position.position > READ_BYTES_MAX:
        return position
    try:
        return _learned(position, since, search)
    except SourceError as error:
        if not is_refusal(error):
            raise
        return position


def _learned(
    position: StartPosition, since: Executed | None, search: Search
) -> StartPosition:
    """Return a position with the set found by reading. Raises SourceError."""
    found, gtids = search.executed_at(position.file, position.position, since)
    if found.offset != position.position:
        return position  # inside a transaction, whose end is not in the set
    # A compressed transaction there is in the set, but some clients still need it.
    seen = search.event_at(position.file, position.position)
    return replace(position, tracked=gtids, tracked_at=seen.packed_to if seen else 0)
