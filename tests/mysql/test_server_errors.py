"""Which of our errors a server's error becomes."""

from __future__ import annotations

import struct

import pytest

from canal_server.errors import (
    BinlogPurged,
    ConnectionLost,
    SourceError,
    SourceRefused,
)
from canal_server.mysql.server_errors import (
    error_of_packet,
    parse_error_packet,
    source_error,
)

PURGED = [
    "Could not find first log file name in binary log index file",
    "Cannot replicate because the source purged required binary logs. GTID_MODE",
    "the master has purged binary logs containing GTIDs that the slave requires",
    "Client requested master to start replication from position > file size",
    "Client requested master to start replication from impossible position",
    "connecting slave requested to start from GTID 0-1-5, which is not in the master's",
    "Could not find GTID state requested by slave in any binlog files",
    "Requested slave GTID state not found in binlog",
    "Replica has more GTIDs than the source has, using the source's SERVER_UUID",
    "Slave has more GTIDs than the master has, using the master's SERVER_UUID",
]
# The position may well exist: resuming at the end would lose what lies between.
NOT_PURGED = [
    "binlog truncated in the middle of event; consider out of disk space on source",
    "bogus data in log event; the first event 'binlog.000001' at 163",
    "Could not find format_description_event in binlog file",
    "Could not open log file",
    "read error on log event",
    "memory allocation failed reading log event",
    "a text of a later version",
]


@pytest.mark.parametrize(
    ("errno", "text", "kind"),
    [
        *((1236, text, BinlogPurged) for text in PURGED),
        *((1236, text, SourceError) for text in NOT_PURGED),
        (1236, "log event entry exceeded max_allowed_packet", SourceRefused),
        (1236, "Binary log is not open", SourceRefused),
        (1236, "A replica with the same server_uuid/server_id as this", ConnectionLost),
        (
            4052,
            "A slave with the same server_uuid/server_id is already",
            ConnectionLost,
        ),
        (1227, "you need (at least one of) the REPLICATION SLAVE", SourceRefused),
        (1045, "Access denied for user 'canal'@'h'", SourceRefused),
        (1130, "Host 'h' is not allowed to connect", SourceRefused),
        (1053, "Server shutdown in progress", ConnectionLost),
        (2013, "Lost connection to MySQL server during query", ConnectionLost),
        (1040, "Too many connections", SourceError),
    ],
)
def test_the_kind_of_an_error(errno: int, text: str, kind: type[SourceError]):
    """The code, and for 1236 the text, decide whether a retry can help."""
    error = source_error(errno, text, address="db:3306", user="canal")

    assert type(error) is kind
    assert error.errno == errno
    assert "db:3306" in str(error)
    assert str(errno) in str(error)


def test_a_text_of_the_server_is_one_line():
    """A hostile server cannot write log lines of its own, or without end."""
    text = "Access denied\n2026 ERROR forged\x1b[31m\u202e" + "z" * 100_000
    error = str(source_error(1045, text, address="db:3306", logged_in=False))
    assert error.startswith(r"db:3306: Access denied\n2026 ERROR forged\x1b[31m\u202ez")
    assert len(error) < 2_000
    assert error.endswith("CREATE USER 'canal'@'%' IDENTIFIED BY 'its password'")


def test_missing_rights_come_with_the_grant():
    """The remedy for missing privileges is the statement to run, for that account."""
    error = source_error(1227, "Access denied.", address="db:3306", user="reader")

    assert (
        "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'reader'@'%'"
        in str(error)
    )


def test_access_denied_means_two_things():
    """At login the password may be wrong; after it only a privilege can be missing."""
    login, later = (
        source_error(1045, "Access denied", address="db", logged_in=logged_in)
        for logged_in in (False, True)
    )

    assert "GRANT" not in str(login)
    assert "password" in str(login)
    assert "GRANT" in str(later)


@pytest.mark.parametrize("state", [b"", b"#HY000"])
def test_an_error_packet(state: bytes):
    """Code and text are parsed with and without an SQL state."""
    packet = b"\xff" + struct.pack("<H", 1236) + state + "nö log".encode()

    assert parse_error_packet(memoryview(packet)) == (1236, "nö log")
    error = error_of_packet(packet, address="db:3306")
    assert type(error) is SourceError
    assert str(error) == "db:3306: nö log (error 1236)"


@pytest.mark.parametrize("packet", [b"", b"\xff", b"\xff\x01", b"\x00abcdef"])
def test_what_is_no_error_packet(packet: bytes):
    """Other bytes are distinguished, and mean that the stream cannot be trusted."""
    with pytest.raises(ValueError, match="not an error packet"):
        parse_error_packet(packet)
    assert type(error_of_packet(packet, address="db:3306")) is ConnectionLost


def test_an_id_in_use_twice_names_the_setting():
    """The code of a MySQL and that of a MariaDB lead to one remedy."""
    text = "A slave with the same server_uuid/server_id is already connected"
    for errno in (1236, 4052):
        error = source_error(errno, text, address="db:3306")
        assert str(error) == (
            f"db:3306: {text} (error {errno}); two replicas use one id: give each"
            " instance its own canal.instance.mysql.slaveId"
        )
