"""The head of a server's dump, which is compared with the end of an archive."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from binlog_bytes import GTID_LIST, PREVIOUS_GTIDS, ROTATE, Binlog, in_packets

from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.runtime.lifecycle import Stop
from canal_server.source.archive.live_head import LiveHead

UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"


@dataclass
class Dump:
    """The bytes of a dump, a few at a time."""

    stream: bytes
    checksum: str
    piece: int

    def receive_into(self, buffer: memoryview, timeout_s: float | None) -> int:
        """Return the next bytes, 0 at the end."""
        assert timeout_s is None
        part, self.stream = self.stream[: self.piece], self.stream[self.piece :]
        buffer[: len(part)] = part
        return len(part)


def head_of(log: Binlog, *, piece: int = 7) -> tuple[LiveHead, Dump]:
    """Return what is read of a dump with these events."""
    stream = b"".join(map(in_packets, log.events))
    dump = Dump(stream, "CRC32" if log.checksums else "NONE", piece)
    head = LiveHead(dump)
    head.receive(Stop())
    assert head.received + dump.stream == stream
    return head, dump


@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("piece", [1, 7, 4096])
def test_file_with_gtids(piece, *, checksums):
    """Time and GTIDs of the file are found; nothing that was received is lost."""
    log = Binlog(checksums=checksums)
    log.add(ROTATE, bytes(8) + b"bin.000009", placed=False)
    log.start()
    log.add(PREVIOUS_GTIDS, GtidSet.parse(f"{UUID}:1-9").encode())
    log.begin()
    head, _ = head_of(log, piece=piece)
    assert head.has_format
    assert head.time_s == log.time
    assert str(head.gtids) == f"{UUID}:1-9"


def test_mariadb():
    """The positions of its domains are read in the same way."""
    log = Binlog()
    log.add(ROTATE, bytes(8) + b"bin.000009", placed=False)
    log.start()
    listed = b"\1\0\0\0" + bytes(4) + b"\1\0\0\0" + (7).to_bytes(8, "little")
    log.add(GTID_LIST, listed)
    assert str(head_of(log)[0].gtids) == "0-1-7"


def test_an_error():
    """An error packet ends the search, and is left to the reader."""
    dump = Dump(b"\x03\0\0\x01\xff\xd4\x04", "CRC32", 5)
    head = LiveHead(dump)
    head.receive(Stop())
    assert head.received == b"\x03\0\0\x01\xff"
    assert not head.has_format


def test_a_stop():
    """A stop ends the search."""
    stop = Stop()
    stop.request()
    head = LiveHead(Dump(b"1234", "CRC32", 5))
    head.receive(stop)
    assert head.received == b""
