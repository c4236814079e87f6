"""The bytes and statements with which a dump starts."""

from __future__ import annotations

import os
import struct
import uuid

import pytest

from canal_server.errors import ConnectionLost, SourceRefused
from canal_server.mysql.replication import (
    COM_BINLOG_DUMP,
    COM_BINLOG_DUMP_GTID,
    FileStart,
    GtidStart,
    MariaGtidStart,
    PumpReplica,
    ReplicaId,
    dump_command,
    register_payload,
    replica_id,
    session_settings,
)

REPLICA = ReplicaId(0x01020304, "6a2e1c1e-0000-4000-8000-000000000001")


def test_a_replica_id_stays_while_the_process_lives():
    """The same reader of the same destination is the same replica on each call."""
    assert replica_id("orders") == replica_id("orders")
    assert replica_id("orders", 77) == replica_id("orders", 77)


def test_replica_ids_differ():
    """Other destinations and other readers of one destination are other replicas."""
    ids = [replica_id(name, reader=n) for name in ("a", "b") for n in range(3)]

    assert len({one.server_id for one in ids}) == 6
    assert len({one.uuid for one in ids}) == 6
    assert all(0 < one.server_id < 1 << 32 for one in ids)
    assert all(str(uuid.UUID(one.uuid)) == one.uuid for one in ids)


def test_another_id_after_a_silence():
    """A MariaDB's dump on a silent link is not waited for; else the id stays."""
    silent = ConnectionLost("silent", heard_s=20.0)
    others = ConnectionLost("timed out", errno=2013, heard_s=0.0), ConnectionLost("cut")
    for slave_id in (0, 77):
        replica = PumpReplica("orders", slave_id)
        first = replica.id_at(is_mariadb=True)
        assert first == replica_id("orders", slave_id)
        for error in others:
            replica.lost(error)
        assert replica.id_at(is_mariadb=True) == first
        replica.lost(silent)
        assert (replica.id_at(is_mariadb=True) == first) == (slave_id == 77)
        assert replica.id_at(is_mariadb=False) == first
    aside = [replica_id("orders", reader=n).server_id for n in range(1, 5)]
    assert PumpReplica("orders").id_at(is_mariadb=True).server_id not in aside


def test_a_configured_slave_id_is_the_pumps():
    """The operator's id is used for reader 0 and for no other."""
    assert replica_id("orders", 77).server_id == 77
    assert replica_id("orders", 77, reader=1).server_id != 77


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_is_another_replica():
    """Two processes with a common parent do not share replica ids."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, str(replica_id("orders").server_id).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as of_child:
        assert int(of_child.read()) != replica_id("orders").server_id


def test_registering():
    """The payload holds id, a host name of limited length, and zeros."""
    payload = register_payload(REPLICA)

    assert payload[:4] == b"\x04\x03\x02\x01"
    assert payload[4] <= 60
    assert payload[5 + payload[4] :] == bytes(12)


def test_dump_by_file():
    """COM_BINLOG_DUMP carries offset, flags, id and file name."""
    assert dump_command(REPLICA, FileStart("binlog.000007", 1234)) == (
        COM_BINLOG_DUMP,
        struct.pack("<IHI", 1234, 0x02, 0x01020304) + b"binlog.000007",
    )


def test_dump_by_file_never_starts_before_the_first_event():
    """An offset of 0 means the start of the file, where its magic number is."""
    _, payload = dump_command(REPLICA, FileStart("binlog.000007", 0))

    assert struct.unpack_from("<I", payload) == (4,)


def test_an_offset_beyond_the_protocol_is_refused():
    """An offset of 4 GiB would become another one, so it is not requested."""
    dump_command(REPLICA, FileStart("binlog.000007", (1 << 32) - 1))
    with pytest.raises(SourceRefused, match=r"binlog\.000007:4294967296.*next file"):
        dump_command(REPLICA, FileStart("binlog.000007", 1 << 32))


def test_dump_by_gtid():
    """COM_BINLOG_DUMP_GTID carries an empty file name and the encoded set."""
    assert dump_command(REPLICA, GtidStart(b"\x00" * 8)) == (
        COM_BINLOG_DUMP_GTID,
        struct.pack("<HIIQI", 0x06, 0x01020304, 0, 4, 8) + bytes(8),
    )


def test_dump_by_gtid_of_mariadb():
    """MariaDB's GTIDs go into a session variable, and the file name is empty."""
    start = MariaGtidStart("0-1-5,1-2-9")

    assert dump_command(REPLICA, start) == (
        COM_BINLOG_DUMP,
        struct.pack("<IHI", 4, 0x02, 0x01020304),
    )
    statement, parameters = session_settings(REPLICA, 15, start)[-1]
    assert "@slave_connect_state" in statement
    assert parameters == ("0-1-5,1-2-9",)


def test_without_following_the_server_does_not_wait():
    """The non-blocking flag is set when the stream ends with the binlog."""
    _, payload = dump_command(REPLICA, FileStart("b.1"), follow=False)

    assert struct.unpack_from("<IH", payload) == (4, 0x03)


def test_session_settings():
    """The heartbeat period is sent in nanoseconds, in both vocabularies."""
    ((statement, parameters),) = session_settings(REPLICA, 1.5, FileStart("b.1"))

    assert statement.count("%s") == len(parameters)
    assert parameters == (REPLICA.uuid, REPLICA.uuid, 1_500_000_000, 1_500_000_000)
