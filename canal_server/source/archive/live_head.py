"""The first packets of a server's dump, to compare them with where an archive ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet

if TYPE_CHECKING:
    from canal_server.runtime.lifecycle import Stop
    from canal_server.source.archive.archive_files import Gtids

_FORMAT_DESCRIPTION: Final = 15
_PREVIOUS_GTIDS: Final = 35
_GTID_LIST: Final = 163  # MariaDB
_PACKET_HEADER: Final = 4
_HEADER_BYTES: Final = 19
_PACKETS: Final = 3  # ROTATE, format description, GTIDs
_SPACE_BYTES: Final = 64 * 1024


class LiveDump(Protocol):
    """A server's dump; `checksum` names that of its events."""

    checksum: str

    def receive_into(self, buffer: memoryview, timeout_s: float | None) -> int | None:
        """Wait for bytes; 0 at the end, None when stopped."""


class LiveHead:
    """Receives until the first event of a file, and the next one, are there.

    `received` is all that was received; it is to be read before anything else.
    """

    def __init__(self, dump: LiveDump) -> None:
        self._dump = dump
        self.received = b""
        self.has_format = False
        self.time_s = 0  # when the file was created
        self.gtids: Gtids | None = None  # executed before the file

    def receive(self, stop: Stop) -> None:
        """Receive; ends early with the dump, with an error packet, and with a stop."""
        space = memoryview(bytearray(_SPACE_BYTES))
        while not self._is_enough() and not stop.requested():
            count = self._dump.receive_into(space, None)
            if not count:
                return
            self.received += space[:count]

    def _is_enough(self) -> bool:
        """Read the packets so far; return whether no more are needed."""
        at = 0
        for _ in range(_PACKETS):
            if len(self.received) < at + _PACKET_HEADER + 1:
                return False
            size = int.from_bytes(self.received[at : at + 3], "little")
            payload = self.received[at + _PACKET_HEADER : at + _PACKET_HEADER + size]
            if payload[0] != 0:
                return True  # an error, or the end
            if len(payload) < size:
                return False
            self._note(payload[1:])
            at += _PACKET_HEADER + size
        return True

    def _note(self, event: bytes) -> None:
        kind, body = event[4], event[_HEADER_BYTES:]
        if kind == _FORMAT_DESCRIPTION:
            self.has_format = True
            self.time_s = int.from_bytes(event[:4], "little")
        if self._dump.checksum == "CRC32":
            body = body[:-4]
        if kind == _PREVIOUS_GTIDS:
            self.gtids = GtidSet.decode_previous_gtids(body)
        elif kind == _GTID_LIST:
            self.gtids = MariaGtidSet.decode_gtid_list(body)
