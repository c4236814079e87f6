"""The raw stream from real servers: what arrives, and how its end is detected."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import struct
import threading
import time
import uuid

import pytest
from fix_source_access import (
    FORMAT,
    GTID,
    HEARTBEAT,
    HEARTBEAT_2,
    MARIADB_ANNOTATE,
    MARIADB_GTID,
    PATIENCE_S,
    ROTATE,
    XID,
    RawDump,
    access_of,
)

from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.errors import BinlogPurged, ConnectionLost, SourceRefused
from canal_server.mysql import sockets
from canal_server.mysql.dump_connection import DumpOptions, DumpStream
from canal_server.mysql.replication import (
    FileStart,
    GtidStart,
    MariaGtidStart,
    replica_id,
)
from canal_server.mysql.server_errors import error_of_packet
from canal_server.runtime.lifecycle import Stop
from canal_server.tls.source_tls import TlsMode, TlsOptions

SPACE = memoryview(bytearray(1 << 16))
BEATING = DumpOptions(heartbeat_s=0.1, allowance=100)


FLAVOURS = [
    pytest.param(name, marks=getattr(pytest.mark, name))
    for name in ("mysql", "mariadb")
]


def marks(count: int) -> list[str]:
    """Return texts that occur nowhere else."""
    return [uuid.uuid4().hex for _ in range(count)]


def insert(server, database: str, *values: str) -> None:
    """Commit one transaction per value."""
    server.execute(
        f"CREATE TABLE IF NOT EXISTS {database}.t (a VARCHAR(64))",
        *(f"INSERT INTO {database}.t VALUES ('{value}')" for value in values),
    )


def test_events_from_a_position(source_server, database, dump):
    """The stream is whole from its first byte: rotate, format, then all changes."""
    values = marks(20)
    file, position = source_server.binlog_position()
    raw = dump(source_server, FileStart(file, position))
    insert(source_server, database, *values)
    events = raw.until_text(values[-1])

    assert [event.type for event in events[:2]] == [ROTATE, FORMAT]
    assert events[0].body == struct.pack("<Q", position) + file.encode()
    assert all(event.checksum_is_right for event in events)
    found = [value for event in events for value in values if value in str(event.body)]
    # MariaDB has each value twice: in the annotation and in the row.
    assert list(dict.fromkeys(found)) == values
    annotated = {event.type for event in events} & {MARIADB_ANNOTATE}
    assert bool(annotated) == (source_server.flavour == "mariadb")
    assert raw.stream.checksum == "CRC32"
    assert raw.stream.received_bytes > sum(len(event.body) for event in events)
    assert raw.until(lambda event: event.type == XID)[-1].checksum_is_right


def test_events_follow_a_rotation(source_server, database, dump):
    """A rotation has the next file's name, and its events follow."""
    before, after = marks(2)
    raw = dump(source_server)
    insert(source_server, database, before)
    source_server.execute("FLUSH BINARY LOGS")
    file, _ = source_server.binlog_position()
    insert(source_server, database, after)

    raw.until_text(before)
    rotation = raw.until(lambda event: event.type == ROTATE)[-1]
    assert rotation.body == struct.pack("<Q", 4) + file.encode()
    assert raw.until_text(after)


def test_a_packet_of_many_mebibytes(source_server, database, dump):
    """A row that fills many receives arrives complete."""
    size = 5_000_000
    source_server.execute(f"CREATE TABLE {database}.big (a LONGTEXT)")
    raw = dump(source_server)
    source_server.execute(f"INSERT INTO {database}.big VALUES (REPEAT('x', {size}))")
    event = raw.until_text("x" * size)[-1]

    assert event.checksum_is_right


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_without_checksums(own_server, dump, flavour):
    """A server that computes no checksums sends none, and the stream says so."""
    server = own_server(flavour, ["--binlog-checksum=NONE"])
    server.execute("CREATE DATABASE d")
    raw = dump(server)
    raw.checksums = False
    (value,) = marks(1)
    insert(server, "d", value)

    assert raw.stream.checksum == "NONE"
    first = raw.event()
    assert first.body[8:].decode() == server.binlog_position()[0]
    assert raw.until_text(value)


def test_by_gtid_of_mysql(mysql_server, database, dump):
    """Transactions in the set are left out, all others are sent."""
    old, new = marks(2)
    insert(mysql_server, database, old)
    executed = GtidSet.parse(
        mysql_server.execute("SELECT @@global.gtid_executed")[0][0]
    )
    insert(mysql_server, database, new)
    raw = dump(mysql_server, GtidStart(executed.encode()))
    events = raw.until_text(new)

    assert not any(old.encode() in event.body for event in events)
    first = next(event for event in events if event.type == GTID)
    server, number = struct.unpack_from("<16sQ", first.body, 1)
    new_one = GtidSet.parse(f"{uuid.UUID(bytes=server)}:{number}")
    assert new_one.subtract(executed) == new_one


def test_by_gtid_of_mysql_from_the_beginning(mysql_server, database, dump):
    """An empty set requests everything that the server has."""
    (value,) = marks(1)
    insert(mysql_server, database, value)
    raw = dump(mysql_server, GtidStart(struct.pack("<Q", 0)))
    events = raw.until_text(value)

    first = next(event for event in events if event.type == GTID)
    assert struct.unpack_from("<Q", first.body, 17) == (1,)


def test_by_gtid_of_mariadb(mariadb_server, database, dump):
    """The dump starts after the transaction whose GTID is given."""
    old, new = marks(2)
    insert(mariadb_server, database, old)
    position = mariadb_server.execute("SELECT @@global.gtid_binlog_pos")[0][0]
    insert(mariadb_server, database, new)
    raw = dump(mariadb_server, MariaGtidStart(position))
    events = raw.until_text(new)

    assert not any(old.encode() in event.body for event in events)
    first = next(event for event in events if event.type == MARIADB_GTID)
    sequence = int(position.rpartition("-")[2])
    assert struct.unpack_from("<Q", first.body) == (sequence + 1,)


def test_heartbeats_break_the_silence(source_server, dump):
    """An idle server sends heartbeats as often as requested; MySQL's carry 64 bits."""
    raw = dump(source_server, options=BEATING)
    mariadb = source_server.flavour == "mariadb"
    expected = HEARTBEAT if mariadb else HEARTBEAT_2

    for _ in range(3):
        raw.until(lambda event: event.type == expected)
    assert raw.stream.silence_s() < PATIENCE_S


def test_rest_at_an_idle_server(source_server, database, dump):
    """Heartbeats that repeat are dropped and counted; what follows them is whole."""
    raw = dump(source_server, options=BEATING)
    raw.until(lambda event: event.type in {HEARTBEAT, HEARTBEAT_2})
    before, until_s = raw.stream.received_bytes, time.monotonic() + PATIENCE_S
    while raw.stream.received_bytes == before and time.monotonic() < until_s:
        raw.stream.rest(0.2)
        raw.until(lambda event: event.type in {HEARTBEAT, HEARTBEAT_2})
    assert raw.stream.received_bytes > before
    assert raw.stream.silence_s() < PATIENCE_S
    (value,) = marks(1)
    insert(source_server, database, value)
    raw.stream.rest(PATIENCE_S)
    assert all(event.checksum_is_right for event in raw.until_text(value))


def test_over_tls(mysql_server, database, dump):
    """The stream is the same over TLS, also what is larger than a TLS record."""
    access = access_of(mysql_server, tls=TlsOptions(TlsMode.REQUIRED))
    raw = dump(mysql_server, access=access)
    large, (last,) = "y" * 300_000, marks(1)
    mysql_server.execute(f"CREATE TABLE {database}.t (a MEDIUMTEXT)")
    insert(mysql_server, database, large, last)

    assert raw.until_text(large)[-1].checksum_is_right
    assert raw.until_text(last)[-1].checksum_is_right


def test_without_following_the_stream_ends(source_server, database, dump):
    """At the end of the binlog an EOF packet is sent instead of waiting."""
    (value,) = marks(1)
    start = FileStart(*source_server.binlog_position())
    insert(source_server, database, value)
    raw = dump(source_server, start, options=DumpOptions(follow=False))
    raw.until_text(value)
    packet = raw.packet()
    while packet is not None and packet[0] == 0:
        packet = raw.packet()

    assert packet is not None
    assert packet[0] == 0xFE


def error_in(raw):
    """Return the error for the error packet that ends a dump."""
    packet = raw.packet()
    while packet is not None and packet[0] == 0:
        packet = raw.packet()  # MySQL first sends where it would have started
    assert packet is not None
    return error_of_packet(packet, address="db")


def test_purged_positions(source_server, dump):
    """A file or an offset that the server does not have is reported as purged."""
    file, _ = source_server.binlog_position()
    for start in (FileStart("binlog.777777"), FileStart(file, 2**32 - 1)):
        error = error_in(dump(source_server, start))
        assert type(error) is BinlogPurged
        assert error.errno == 1236


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_offsets_inside_an_event(own_server, dump, flavour):
    """An offset inside an event is not purged; the error names the likely cause."""
    source = own_server(flavour)
    file, offset = source.binlog_position()
    source.execute("CREATE DATABASE shop")
    _, end = source.binlog_position()
    # Inside a header, where lengths are nonsense, and too near the end for one.
    for position in (offset + 1, offset + 5, offset + 13, end - 1):
        error = error_in(dump(source, FileStart(file, position)))
        assert not isinstance(error, BinlogPurged)
        assert error.errno == 1236
        assert "may be inside an event" in str(error)


def test_the_same_id_twice(mysql_server):
    """The server ends the older of two replicas with one id, which may reconnect."""
    start = FileStart(*mysql_server.binlog_position())
    replica = replica_id("twice")
    first, second = (
        DumpStream(access_of(mysql_server), replica, start, Stop()) for _ in range(2)
    )
    with first, second:
        text = b""
        while count := first.receive_into(SPACE, PATIENCE_S):
            text += SPACE[:count]

    assert count == 0
    error = error_of_packet(text[text.index(b"\xff\xd4\x04") :], address="db")
    assert type(error) is ConnectionLost
    assert "canal.instance.mysql.slaveId" in str(error)


def test_an_account_without_rights(source_server, database):
    """Opening is refused with the grant when the account must not replicate."""
    name = f"u{database[-8:]}"
    source_server.execute(f"CREATE USER '{name}'@'%' IDENTIFIED BY 'x'")
    access = access_of(source_server, user=name, password="x")
    stream = DumpStream(access, replica_id("poor"), FileStart(""), Stop())
    try:
        with pytest.raises(SourceRefused, match=r"GRANT .*REPLICATION SLAVE"):
            stream.open()
    finally:
        stream.close()
        source_server.execute(f"DROP USER '{name}'@'%'")


def test_a_killed_dump_ends(source_server, dump):
    """After KILL the stream ends, or breaks with an error of ours."""
    raw = dump(source_server)
    raw.until(lambda event: event.type == FORMAT)
    source_server.execute(f"KILL {raw.stream.connection_id}")
    try:
        while (count := raw.stream.receive_into(SPACE, PATIENCE_S)) != 0:
            assert count is not None, "nothing arrived after KILL"
    except ConnectionLost as error:
        assert "broke" in str(error)  # noqa: PT017  # ending is as good


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_silence_is_noticed(own_server, dump, flavour):
    """A server that hangs is disconnected, and the error has both numbers."""
    server = own_server(flavour, [])
    options = DumpOptions(heartbeat_s=0.5, allowance=4)
    raw = dump(server, options=options)
    raw.until(lambda event: event.type == FORMAT)
    os.kill(server.pid, signal.SIGSTOP)
    try:
        expected = r"sent nothing for more than 2\.0 s, though .* every 0\.5 s: it h"
        with pytest.raises(ConnectionLost, match=expected):
            drain(raw.stream, PATIENCE_S)
    finally:
        os.kill(server.pid, signal.SIGCONT)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_first_silence_may_be_longer(own_server, dump, flavour):
    """Until it received data for longer than that, a dump has its first limit."""
    server = own_server(flavour, [])
    options = DumpOptions(heartbeat_s=0.2, allowance=3, silence_first_s=2.0)
    limits = []
    for heard_s in (0.0, 2.5):
        raw = dump(server, options=options)
        raw.until(lambda event: event.type == FORMAT)
        stream, opened_s = raw.stream, time.monotonic()
        while time.monotonic() - opened_s < heard_s:
            stream.receive_into(SPACE, PATIENCE_S)
        os.kill(server.pid, signal.SIGSTOP)
        try:
            with pytest.raises(ConnectionLost, match="sent nothing for") as error:
                drain(stream, PATIENCE_S)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        limits.append(re.findall(r"more than ([\d.]+) s", str(error.value)))
        assert error.value.heard_s is not None
        assert (error.value.heard_s > 2.0) == (heard_s > 2.0)
    assert limits == [["2.0"], ["0.6"]]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_dead_server_ends_the_stream(own_server, dump, flavour):
    """When the server's process has ended the stream ends at once."""
    server = own_server(flavour, [])
    raw = dump(server)
    raw.until(lambda event: event.type == FORMAT)
    server.kill()
    try:
        while (count := raw.stream.receive_into(SPACE, PATIENCE_S)) != 0:
            assert count is not None, "the end was not noticed"
    except ConnectionLost as error:
        assert "broke" in str(error)  # noqa: PT017  # ending is as good


def drain(stream: DumpStream, timeout_s: float) -> None:
    """Receive until the first wait that is too long."""
    while stream.receive_into(SPACE, timeout_s):
        pass


def quiet(raw: RawDump, server, database: str) -> DumpStream:
    """Read up to the end of a transaction that nothing follows."""
    (value,) = marks(1)
    insert(server, database, value)
    raw.until_text(value)
    raw.until(lambda event: event.type == XID)
    return raw.stream


def test_nothing_at_hand(source_server, database, dump):
    """Without waiting, None means no data; available bytes are returned."""
    stream = quiet(dump(source_server), source_server, database)
    assert stream.try_receive_into(SPACE) is None
    assert stream.receive_into(SPACE, 0) is None
    assert stream.receive_into(SPACE, 0.01) is None

    insert(source_server, database, *marks(1))
    readable, _, _ = select.select([stream], [], [], PATIENCE_S)
    assert readable == [stream]
    assert stream.try_receive_into(SPACE)


def test_little_after_much(source_server, database, dump, monkeypatch):
    """While a backlog is read in large pieces, and after it, nothing stays unread."""
    monkeypatch.setattr(sockets, "BULK_BYTES", 1)
    monkeypatch.setattr(sockets, "BULK_WINDOW_S", 60.0)
    table, values = f"{database}.much", marks(5)
    source_server.execute(f"CREATE TABLE {table} (a LONGTEXT)")
    stream = quiet(dump(source_server), source_server, database)
    with socket.socket(fileno=os.dup(stream.fileno())) as sock:
        for value in values:
            source_server.execute(
                f"INSERT INTO {table} VALUES (REPEAT('x', 300000))",
                f"INSERT INTO {table} VALUES ('{value}')",
            )
            found, least = bytearray(), set()
            while value.encode() not in found:
                count = stream.try_receive_into(SPACE)
                if count is None:
                    count = stream.receive_into(SPACE, PATIENCE_S)
                assert count, "nothing more arrives"
                found += SPACE[:count]
                least.add(sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT))
            assert sockets.BULK_PIECE in least


def test_a_stop_ends_the_wait(source_server, database, dump):
    """A receive without a limit returns None once a stop is requested."""
    stop = Stop()
    stream = quiet(dump(source_server, stop=stop), source_server, database)
    asker = threading.Timer(0.05, stop.request)
    asker.start()

    assert stream.receive_into(SPACE, None) is None
    asker.join()
    assert stream.receive_into(SPACE, None) is None


@pytest.mark.parametrize("mode", [TlsMode.DISABLED, TlsMode.REQUIRED])
def test_closing_ends_a_receive(mysql_server, database, dump, mode):
    """Closed by another thread, a receive that waits sees the end of the stream."""
    access = access_of(mysql_server, tls=TlsOptions(mode))
    stream = quiet(dump(mysql_server, access=access), mysql_server, database)
    closer = threading.Timer(0.05, stream.close)
    closer.start()

    assert stream.receive_into(SPACE, None) == 0
    closer.join()
    assert stream.fileno() == -1
    assert stream.receive_into(SPACE, None) == 0
    assert stream.try_receive_into(SPACE) == 0
    stream.close()


def test_closing_before_opening(mysql_server):
    """A stream that was closed first cannot be opened."""
    stream = DumpStream(
        access_of(mysql_server), replica_id("closed"), FileStart(""), Stop()
    )
    stream.close()

    with pytest.raises(ConnectionLost, match="closed meanwhile"):
        stream.open()
