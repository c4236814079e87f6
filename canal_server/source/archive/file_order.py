"""Whether one binlog file is complete, and whether another one follows it.

Nothing of a binlog may be missing between two files without an error. A server closes
a file with an event; a crash or a copy that was made too early leaves it without.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.errors import ArchiveError, DecodeError
from canal_server.model.moments import time_text
from canal_server.mysql.replication import FIRST_EVENT
from canal_server.source.archive.archive_files import COMPLETE, READ_BYTES
from canal_server.source.archive.event_packets import EventPackets

if TYPE_CHECKING:
    from canal_server.source.archive.archive_files import ArchivedFile, Gtids

STOP: Final = 3
ROTATE: Final = 4
# A server creates the next file right after it closed one by ROTATE. Its clock may be
# set in between, and a statement that rotates may have waited for a lock.
ROTATION_S_MAX: Final = 3600


@dataclass(frozen=True, slots=True)
class FileEnd:
    """The end of a file that was read to its last byte.

    `last_type` and `last_time` are those of its last event, 0 when none was read.
    `gtids` is what was executed up to its end, None where that was not followed.
    """

    file: ArchivedFile
    offset: int
    last_type: int
    last_time: int
    gtids: Gtids | None

    @property
    def is_closed(self) -> bool:
        """Whether its last event says that the file ends there, or the operator."""
        return self.last_type in (STOP, ROTATE) or self.file.is_declared_complete

    def check_closed(self) -> None:
        """Raise ArchiveError unless it is."""
        if not self.is_closed:
            raise self._unclosed()

    def _unclosed(self) -> ArchiveError:
        return ArchiveError(
            f"archived binlog file {self.file.path} ends at offset {self.offset}"
            " without the event that closes a file: it was copied before the server"
            " had finished it, or the server crashed; replace it with a complete copy,"
            " or confirm that the server had no more by an empty file"
            f" {self.file.name}{COMPLETE} beside it"
        )

    def check_complete(self, following: Gtids | None) -> None:
        """Raise ArchiveError unless the file is complete.

        `following` is what was executed before the next file: a file without a closing
        event is complete when that equals its own end.
        """
        if self.is_closed:
            return
        if self.gtids is None or not str(self.gtids) or following is None:
            raise self._unclosed()
        if str(self.gtids) != str(following):
            raise self._unclosed()


def read_end(file: ArchivedFile) -> FileEnd:
    """Read a file from its first event to its end. Raises ArchiveError."""
    packets = EventPackets(FIRST_EVENT)
    known = file.head().gtids
    if known is not None:
        packets.seen = known.union(known)  # type: ignore[arg-type]
    space = memoryview(bytearray(READ_BYTES))
    dropped = memoryview(bytearray(READ_BYTES))
    unread = space[:0]
    with file.open() as source:
        while True:
            try:
                used, made = packets.pack(unread, dropped)
            except (DecodeError, ValueError) as error:
                raise file.damaged(str(error), packets.position) from error
            unread = unread[used:]
            if used or made:
                continue
            waiting = len(unread)
            space[:waiting] = unread
            count = source.read_into(space[waiting:])
            unread = space[: waiting + count]
            if not count:
                break
    if waiting or not packets.is_between:
        raise file.damaged(
            "is truncated: it ends inside of this event", packets.position
        )
    return FileEnd(
        file, packets.position, packets.last_type, packets.last_time, packets.seen
    )


def check_follows(end: FileEnd, name: str, time_s: int, before: Gtids | None) -> None:
    """Raise ArchiveError unless a file follows the end of another one.

    `time_s` is when it was created, `before` what was executed before it.
    """
    is_known = end.is_closed or end.gtids is not None
    if not end.last_type or not is_known:
        # Reading began at its end, or amid it: what closes it, and its set, are not
        # known yet.
        end = read_end(end.file)
    end.check_complete(before)
    if end.last_type == ROTATE and abs(time_s - end.last_time) > ROTATION_S_MAX:
        raise _unrelated(
            end,
            name,
            f"it was closed at {time_text(end.last_time * 1000)}, and {name} was"
            f" created at {time_text(time_s * 1000)}",
        )
    if end.gtids is None or before is None or type(end.gtids) is not type(before):
        return
    if not before.contains(end.gtids):  # type: ignore[arg-type]
        raise _unrelated(
            end,
            name,
            f"it ends with the GTID set {str(end.gtids)[:200]!r}, and {name} begins"
            f" after {str(before)[:200]!r}",
        )


def _unrelated(end: FileEnd, name: str, why: str) -> ArchiveError:
    return ArchiveError(
        f"archived binlog file {end.file.path} is not the one before {name}: {why}; the"
        " binlog was reset, or the file is of another server: remove the files that are"
        " not of this binlog from the archive"
    )
