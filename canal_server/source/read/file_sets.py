"""The executed set of one reader, from the sets at the starts of binlog files.

Leaves out the GTIDs of single transactions, which the decoder adds (`gtid_tracker`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.model.positions import binlog_file_number

if TYPE_CHECKING:
    from canal_server.decoder.events.engine import Decoder
    from canal_server.source.read.gtid_sets import Gtids

# Types of the events with the set that was executed before a file.
_PREVIOUS_GTIDS: Final = 35
_GTID_LIST: Final = 163  # MariaDB
SETS_OF_GTIDS: Final = (_PREVIOUS_GTIDS, _GTID_LIST)


class FileSets:
    """What was executed up to the current event; for the thread of the reader."""

    def __init__(self, decoder: Decoder, gtids: Gtids | None) -> None:
        """Begin with the set in GTID mode, None outside of it."""
        self._decoder = decoder
        self.gtids = gtids  # the executed set as of the last event, in GTID mode
        self._tracks = False
        # The executed set at the start of the file.
        self._tracked: Gtids | None = None
        # Number of the first file at whose start `gtids` is exactly the executed set.
        self.exact_from: int | None = None
        # The same for a file that is read from its beginning. MariaDB starts a dump by
        # GTID in the middle of a file, with a GTID list built for that position.
        self.whole_from: int | None = None

    def track(self, known: Gtids | None) -> None:
        """Follow the executed set outside of GTID mode; call before reading.

        Starts from `known`, else from the first set that the source sends.
        """
        self._tracks, self._tracked = True, known
        self._decoder.followed.follow(known)

    def enter_file(self, kind: int) -> None:
        """Read the current event: the set that was executed before a file.

        Raises ValueError if it is not valid.
        """
        body = self._decoder.body
        if isinstance(self.gtids, GtidSet) and kind == _PREVIOUS_GTIDS:
            known = GtidSet.decode_previous_gtids(body)
            self._note_exact(str(known) == str(self.gtids))
            self.gtids = self.gtids.union(known)
        elif isinstance(self.gtids, MariaGtidSet) and kind == _GTID_LIST:
            listed = MariaGtidSet.decode_gtid_list(body)
            self._note_exact(str(listed) == str(self.gtids))
            self.gtids = self.gtids.union(listed)
        elif self._tracks:
            self._track_file(body, kind)
            return
        self._decoder.set_gtids(self.gtids)

    def _track_file(self, body: bytes, kind: int) -> None:
        """Follow the set from the one at the start of a file."""
        self._decoder.followed.executed(whole=True)  # of the previous file
        known: Gtids
        if kind == _PREVIOUS_GTIDS:
            known = GtidSet.decode_previous_gtids(body)
        else:
            known = MariaGtidSet.decode_gtid_list(body)
        before, self._tracked = self._tracked, known
        if before is not None:
            # A dump by GTID may start with a file that was executed in part.
            self._note_exact(known == before)
            self._tracked = before.union(known)  # type: ignore[arg-type]  # one kind
        self._decoder.followed.follow(self._tracked)

    def _note_exact(self, is_exact: bool) -> None:
        if not is_exact:
            return
        number = binlog_file_number(self._decoder.file)
        if self.exact_from is None:
            self.exact_from = number
        if self.whole_from is None and not self._decoder.event_is_artificial:
            self.whole_from = number
