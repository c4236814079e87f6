"""How tests reach the servers through `canal_server.mysql`, and read raw dumps."""

from __future__ import annotations

import struct
import time
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.dump_connection import DumpOptions, DumpStream
from canal_server.mysql.replication import FileStart, replica_id
from canal_server.mysql.source_settings import Access, Address, Credentials
from canal_server.runtime.lifecycle import Stop
from canal_server.tls.source_tls import TlsOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from servers import Server

    from canal_server.mysql.replication import DumpStart
    from canal_server.passwords.password_source import Password

PATIENCE_S = 60.0  # until a test gives up; nothing waits for it to pass

HEADER = struct.Struct("<IBIIIH")  # time, type, server id, length, next offset, flags

QUERY, ROTATE, FORMAT, XID, HEARTBEAT, HEARTBEAT_2 = 2, 4, 15, 16, 27, 41
GTID, MARIADB_GTID, MARIADB_ANNOTATE = 33, 162, 160


@dataclass(frozen=True)
class RawEvent:
    """One event as the server sent it; `body` is without header and checksum."""

    type: int
    body: bytes
    next_offset: int
    checksum_is_right: bool


def access_of(
    server: Server,
    *,
    user: str | None = None,
    password: Password | None = None,
    tls: TlsOptions | None = None,
    io_timeout_s: float = PATIENCE_S,
) -> Access:
    """Return how to reach a server, by default with its account under test."""
    return Access(
        address=Address(server.host, server.port),
        credentials=Credentials(
            server.user if user is None else user,
            server.password if password is None else password,
        ),
        tls=tls or TlsOptions(),
        connect_timeout_s=PATIENCE_S,
        io_timeout_s=io_timeout_s,
    )


PIECE_MAX = 0xFFFFFF  # bytes of one packet; longer ones come in several


class RawDump:
    """A dump stream cut into packets, events and errors; knows no rows."""

    def __init__(self, stream: DumpStream, *, checksums: bool = True) -> None:
        self.stream = stream
        self.checksums = checksums
        self._bytes = bytearray()
        self._space = memoryview(bytearray(1 << 16))

    def packet(self) -> bytes | None:
        """Return the next packet without its headers, None at the stream's end."""
        packet = self._piece()
        while packet is not None and len(packet) % PIECE_MAX == 0 and packet:
            more = self._piece()
            assert more is not None, "the stream ends within a packet"
            packet += more
            if len(more) < PIECE_MAX:
                break
        return packet

    def _piece(self) -> bytes | None:
        """Return the next packet, or a part of one that is 16 MB long or more."""
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            size = int.from_bytes(self._bytes[:3], "little")
            if len(self._bytes) >= 4 + size and len(self._bytes) >= 4:
                packet = bytes(self._bytes[4 : 4 + size])
                del self._bytes[: 4 + size]
                return packet
            count = self.stream.receive_into(self._space, 1.0)
            if count == 0:
                assert not self._bytes, "the stream ends within a packet"
                return None
            self._bytes += self._space[: count or 0]
            assert time.monotonic() < give_up_at, "no packet arrived"

    def event(self) -> RawEvent:
        """Return the next event; anything else fails the test."""
        packet = self.packet()
        assert packet is not None, "the stream has ended"
        assert packet[0] == 0, f"not an event: {packet[:80]!r}"
        event = packet[1:]
        _, kind, _, length, next_offset, _ = HEADER.unpack_from(event)
        assert length == len(event)
        end, right = len(event), True
        if self.checksums:
            end -= 4
            right = zlib.crc32(event[:end]) == int.from_bytes(event[end:], "little")
        return RawEvent(kind, event[HEADER.size : end], next_offset, right)

    def until(self, expected: Callable[[RawEvent], bool]) -> list[RawEvent]:
        """Return the events up to and including the first requested one."""
        events = [self.event()]
        give_up_at = time.monotonic() + PATIENCE_S
        while not expected(events[-1]):
            events.append(self.event())
            assert time.monotonic() < give_up_at, "the expected event did not arrive"
        return events

    def until_text(self, text: str) -> list[RawEvent]:
        """Return the events up to the first one that holds a text."""
        return self.until(lambda event: text.encode() in event.body)


@pytest.fixture
def source(source_server: Server) -> Iterator[ControlConnection]:
    """Give an open control connection to the MySQL, then to the MariaDB."""
    with ControlConnection(access_of(source_server)) as connection:
        yield connection


@pytest.fixture
def dump() -> Iterator[Callable[..., RawDump]]:
    """Give `dump(server, start, …)`: an open stream, closed after the test.

    It starts at the end of the binlog by default.
    """
    opened: list[DumpStream] = []

    def open_dump(
        server: Server,
        start: DumpStart | None = None,
        *,
        options: DumpOptions | None = None,
        stop: Stop | None = None,
        destination: str = "test",
        access: Access | None = None,
    ) -> RawDump:
        stream = DumpStream(
            access or access_of(server),
            replica_id(f"{destination}{len(opened)}"),
            start or FileStart(*server.binlog_position()),
            stop or Stop(),
            options,
        )
        opened.append(stream)
        stream.open()
        return RawDump(stream)

    yield open_dump
    for stream in opened:
        stream.close()
