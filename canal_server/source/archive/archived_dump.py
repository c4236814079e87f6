"""A dump that begins in the archive and continues on the server.

It sends what the server would send if it still had the files: packets with events, each
file opened by a ROTATE event. Where the archive ends, the dump of the server follows:
by file and position, as the files have one sequence; by GTID, as soon as the server has
everything that is still missing. Leaves out what the events mean.
"""

from __future__ import annotations

import struct
import threading
from typing import TYPE_CHECKING, Final

from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.errors import ArchiveError, BinlogPurged, DecodeError
from canal_server.model.positions import binlog_file_number
from canal_server.mysql.binlogs import binary_logs
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.dump_connection import DumpStream
from canal_server.mysql.replication import (
    FIRST_EVENT,
    FileStart,
    GtidStart,
    MariaGtidStart,
)
from canal_server.mysql.server_errors import READING_BINLOG_FAILED
from canal_server.source.archive.archive_files import (
    READ_BYTES,
    BinlogArchive,
    format_amid,
)
from canal_server.source.archive.event_packets import EventPackets
from canal_server.source.archive.file_order import FileEnd, check_follows
from canal_server.source.archive.live_head import LiveHead
from canal_server.source.archive.source_binlogs import (
    archive_of,
    archived_before,
    other_writer,
    purged_set_of,
    unread_in_archive,
)

if TYPE_CHECKING:
    from datetime import datetime

    from canal_server.mysql.dump_connection import DumpOptions
    from canal_server.mysql.replication import DumpStart, ReplicaId
    from canal_server.mysql.source_settings import Access
    from canal_server.runtime.lifecycle import Stop
    from canal_server.source.archive.archive_files import ArchivedFile, FileBytes, Gtids

_ROTATE: Final = 4
_ARTIFICIAL_FLAG: Final = 0x20
_PACKET_MAX: Final = 0xFFFFFF


def dump_of(
    access: Access,
    replica: ReplicaId,
    start: DumpStart,
    stop: Stop,
    options: DumpOptions | None = None,
) -> DumpStream | ArchivedDump:
    """Return a dump of a source, from its archive where it has one; not open yet."""
    archive = archive_of(access)
    if archive is None:
        return DumpStream(access, replica, start, stop, options)
    return ArchivedDump(archive, access, replica, start, stop, options)


class ArchivedDump:
    """One dump, from its start to its last byte; cannot be reopened.

    Has the methods of a `DumpStream`, with the same rules for threads.
    """

    def __init__(  # noqa: PLR0917  # as those of the server's dump
        self,
        archive: BinlogArchive,
        access: Access,
        replica: ReplicaId,
        start: DumpStart,
        stop: Stop,
        options: DumpOptions | None = None,
    ) -> None:
        """Store the request; `open` finds out who serves it."""
        self._archive = archive
        self._access = access
        self._replica = replica
        self._start = start
        self._stop = stop
        self._options = options
        self._files: list[ArchivedFile] = []  # still to be read, the next one last
        self._live_file = ""  # the server's oldest file when the dump began
        # By GTID: what was executed before the current file, and what the server lacks.
        self._executed: Gtids | None = None
        self._purged: Gtids | None = None
        self._file: ArchivedFile | None = None  # the one that is read
        self._bytes: FileBytes | None = None
        self._packets = EventPackets(FIRST_EVENT)
        self._begins_at = FIRST_EVENT  # in the current file
        self._unread = memoryview(b"")  # of the current file, not packed yet
        self._space = memoryview(bytearray(0))
        self._ready = b""  # packets to be sent before anything else
        self._packed_bytes = 0
        # Guards what `close` ends from another thread.
        self._lock = threading.Lock()
        self._reading = threading.Lock()  # held while the current file is read
        self._is_closed = False
        self._control: ControlConnection | None = None
        self._live: DumpStream | None = None

    # --- as a server's dump ---------------------------------------------------------

    @property
    def received_bytes(self) -> int:
        """Return how many bytes were sent so far, from files and from the server."""
        live = self._live
        return self._packed_bytes + (0 if live is None else live.received_bytes)

    @property
    def certificate_expires_at(self) -> datetime | None:
        """Return when the server's certificate expires; None before it is reached."""
        live = self._live
        return None if live is None else live.certificate_expires_at

    def open(self) -> None:
        """Connect, and find where the dump starts: in the archive or on the server.

        Raises the subclasses of SourceError: BinlogPurged when neither has the start,
        ArchiveError when the archive cannot be read.
        """
        control = ControlConnection(self._access, self._stop)
        with self._lock:
            self._control = control
        with control:
            found = self._archived_start(control)
        if not found:
            self._go_live(self._start)
            return
        position = self._start.position if isinstance(self._start, FileStart) else 0
        self._enter_file(max(position, FIRST_EVENT))

    def receive_into(self, buffer: memoryview, timeout_s: float | None) -> int | None:
        """Return how many bytes were received; as those of a server's dump."""
        with self._reading:
            count = self._archived_into(buffer)
        if count is not None or self._live is None:
            return count
        return self._live.receive_into(buffer, timeout_s)

    def try_receive_into(self, buffer: memoryview) -> int | None:
        """Receive the available bytes; a file's are always available."""
        with self._reading:
            count = self._archived_into(buffer)
        if count is not None or self._live is None:
            return count
        return self._live.try_receive_into(buffer)

    def rest(self, limit_s: float) -> None:
        """Wait while the server only repeats its last heartbeat; not in the archive."""
        if self._live is not None:
            self._live.rest(limit_s)

    def close(self) -> None:
        """End the dump at once; idempotent, any thread."""
        with self._lock:
            self._is_closed = True
            live, control = self._live, self._control
        if control is not None:
            control.abort()
        if live is not None:
            live.close()
        # A thread that reads finds the dump closed, and calls this as well.
        if self._reading.acquire(blocking=False):
            if self._bytes is not None:
                self._bytes.close()
            self._reading.release()

    # --- where it starts ------------------------------------------------------------

    def _archived_start(self, control: ControlConnection) -> bool:
        """Find the files to read first; false when the server has all of it."""
        names = [each.name for each in binary_logs(control)]
        if not names:
            return False
        self._live_file = names[0]
        if isinstance(self._start, FileStart):
            return self._files_from(control, self._start.file, names)
        executed: Gtids
        if isinstance(self._start, GtidStart):
            executed = GtidSet.decode_previous_gtids(self._start.executed)
        else:
            assert isinstance(self._start, MariaGtidStart)
            executed = MariaGtidSet.parse(self._start.executed)
        self._purged = purged_set_of(control, names[0])
        if _contains(executed, self._purged):
            return False
        self._executed = executed
        return self._files_after(control, executed)

    def _files_from(
        self, control: ControlConnection, file: str, names: list[str]
    ) -> bool:
        """Find the files from one on."""
        if not file or file in names:
            return False
        run = archived_before(control, self._archive, names[0])
        if file not in [each.name for each in run]:
            if why := unread_in_archive(control, file):
                raise BinlogPurged(why, errno=READING_BINLOG_FAILED)
            return False  # the server says what is wrong
        self._files = [each for each in reversed(run) if _not_before(each, file)]
        return True

    def _files_after(self, control: ControlConnection, executed: Gtids) -> bool:
        """Find the files from the newest one on that omits nothing after a set."""
        run = archived_before(control, self._archive, self._live_file)
        for number in range(len(run) - 1, -1, -1):
            before = run[number].head().gtids
            if before is not None and _contains(executed, before):
                self._files = list(reversed(run[number:]))
                return True
        has = f"which has {run[0].name} to {run[-1].name}" if run else ""
        has = (
            has
            or other_writer(control, self._archive, self._live_file)
            or "which has no file before that"
        )
        raise BinlogPurged(
            f"{self._access.address}: the source has purged transactions after the GTID"
            f" set {str(executed)[:200]!r}, and so has the archive"
            f" {self._archive.directory}, {has}",
            errno=READING_BINLOG_FAILED,
        )

    # --- the files ------------------------------------------------------------------

    def _archived_into(self, buffer: memoryview) -> int | None:
        """Return how many bytes of the archive are in the buffer.

        None when a stop is requested, and when the server's dump is to be asked.
        """
        while True:
            if self._ready:
                return self._take_ready(buffer)
            if self._is_closed:
                return 0
            if self._live is not None or self._stop.requested():
                return None
            count = self._pack(buffer)
            if count:
                self._packed_bytes += count
                return count

    def _take_ready(self, buffer: memoryview) -> int:
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _enter_file(self, position: int = FIRST_EVENT) -> None:
        """Begin to read the next file, as a server begins to send one."""
        file = self._file = self._files.pop()
        self._begins_at = position
        head = file.head()
        self._bytes = file.open()
        self._packets = EventPackets(position)
        self._unread = memoryview(b"")
        if not self._space:
            self._space = memoryview(bytearray(READ_BYTES))
        self._ready = _packet(_rotate_event(file.name, position, head.format))
        if position > FIRST_EVENT:
            skipped = self._bytes.skip(position - FIRST_EVENT)
            if skipped < position - FIRST_EVENT:
                raise BinlogPurged(
                    f"{file.path}: the requested position {position} is after its end,"
                    f" {FIRST_EVENT + skipped}",
                    errno=READING_BINLOG_FAILED,
                )
            self._ready += _packet(format_amid(head.format))
        elif head.gtids is not None:
            # A copy: it grows.
            self._packets.seen = head.gtids.union(head.gtids)  # type: ignore[arg-type]
        executed = self._executed
        if executed is not None and not _contains(head.gtids, executed):
            self._packets.excluded = executed

    def _pack(self, buffer: memoryview) -> int:
        """Pack what follows of the current file, or go on to what comes after it."""
        assert self._file is not None
        assert self._bytes is not None
        try:
            used, made = self._packets.pack(self._unread, buffer)
        except (DecodeError, ValueError) as error:
            raise self._damaged(str(error)) from error
        self._unread = self._unread[used:]
        if used or made:
            return made
        waiting = len(self._unread)
        self._space[:waiting] = self._unread
        count = self._bytes.read_into(self._space[waiting:])
        self._unread = self._space[: waiting + count]
        if not count:
            self._end_file(waiting)
        return 0

    def _damaged(self, why: str) -> ArchiveError:
        assert self._file is not None
        at = self._packets.position
        error = self._file.damaged(why, at)
        if at == self._begins_at > FIRST_EVENT:
            # As a server reports it: perhaps no event begins there.
            error.errno = READING_BINLOG_FAILED
        return error

    def _end_file(self, left: int) -> None:
        """Go on to what comes after the current file. Raises ArchiveError."""
        assert self._file is not None
        assert self._bytes is not None
        if left or not self._packets.is_between:
            raise self._damaged("is truncated: it ends inside of this event")
        self._bytes.close()
        end = FileEnd(
            self._file,
            self._packets.position,
            self._packets.last_type,
            self._packets.last_time,
            self._packets.seen,
        )
        if self._executed is not None and self._packets.seen is not None:
            self._leave_by_gtid(end)
        elif self._files:
            head = self._files[-1].head()
            check_follows(end, self._files[-1].name, head.time_s, head.gtids)
            self._enter_file()
        else:
            self._go_live(FileStart(self._live_file), end)

    def _leave_by_gtid(self, end: FileEnd) -> None:
        """Go on with the server if it has all that is missing, else with a file."""
        assert self._executed is not None
        assert self._purged is not None
        reached = self._executed.union(end.gtids)  # type: ignore[arg-type]
        # A file that is not known to be complete may lack the end of a transaction.
        if _contains(reached, self._purged) and end.is_closed:
            self._executed = None
            self._go_live(_start_after(reached))
            return
        if not self._files:
            end.check_closed()
            raise BinlogPurged(
                f"{self._access.address}: the source has purged transactions after"
                f" {end.file.path}, the last file of the archive: add the files that"
                " follow it",
                errno=READING_BINLOG_FAILED,
            )
        head = self._files[-1].head()
        check_follows(end, self._files[-1].name, head.time_s, head.gtids)
        self._executed = reached
        self._enter_file()

    # --- the server -----------------------------------------------------------------

    def _go_live(self, start: DumpStart, end: FileEnd | None = None) -> None:
        """Open the server's dump; it has to follow the end of a file, if given."""
        live = DumpStream(self._access, self._replica, start, self._stop, self._options)
        with self._lock:
            if self._is_closed:
                return
            self._live = live
        live.open()
        if end is None:
            return
        head = LiveHead(live)
        head.receive(self._stop)
        self._ready = head.received
        if head.has_format:
            check_follows(end, self._live_file, head.time_s, head.gtids)


def _start_after(gtids: Gtids) -> DumpStart:
    if isinstance(gtids, GtidSet):
        return GtidStart(gtids.encode())
    return MariaGtidStart(str(gtids))


def _contains(gtids: Gtids | None, other: Gtids) -> bool:
    """Return whether a set has another one; one of another kind only if empty."""
    if type(gtids) is not type(other):
        return not str(other)
    return gtids.contains(other)  # type: ignore[arg-type]


def _not_before(file: ArchivedFile, name: str) -> bool:
    """Return whether a file is one of this name or comes after it."""
    return file.number >= binlog_file_number(name)


def _packet(event: bytes) -> bytes:
    """Return the packet of an event that is shorter than one packet."""
    assert len(event) < _PACKET_MAX
    return struct.pack("<I", len(event) + 1) + b"\0" + event


def _rotate_event(file: str, position: int, format_event: bytes) -> bytes:
    """Return the event with which a server begins to send a file.

    Its layout: the header without time and position, u64 position, the file's name.
    """
    body = struct.pack("<Q", position) + file.encode()
    server_id = format_event[5:9]
    return (
        struct.pack("<IB", 0, _ROTATE)
        + server_id
        + struct.pack("<IIH", 19 + len(body), 0, _ARTIFICIAL_FLAG)
        + body
    )
