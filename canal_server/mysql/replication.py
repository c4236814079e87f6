"""The replication protocol's requests as bytes: replica id, start position.

Leaves out sockets (`canal_server.mysql.dump_connection`) and the events of the reply.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import struct
import uuid
from dataclasses import dataclass

from canal_server.errors import ConnectionLost, SourceRefused

COM_BINLOG_DUMP = 0x12
COM_REGISTER_SLAVE = 0x15
COM_BINLOG_DUMP_GTID = 0x1E

FIRST_EVENT = 4  # offset of the first event in every binlog file

_DUMP_NON_BLOCK = 0x01  # at the end of the binlog: EOF instead of waiting
# MariaDB: send annotate events. MySQL >= 8.0.26: heartbeats of version 2, which can
# carry offsets above 4 GiB. Older MySQL ignores it.
_DUMP_ANNOTATE_OR_HEARTBEAT_V2 = 0x02
_DUMP_THROUGH_GTID = 0x04

_OFFSET_LIMIT = 1 << 32  # COM_BINLOG_DUMP carries 32 bits

_HOST_NAME_MAX = 60  # bytes of a replica's name that MySQL shows

# Random part of every replica id of this process.
_CHANCE = secrets.token_bytes(16)
_IDS = 4  # ids that a pump rotates; after that many silences the first dump has ended


@dataclass(frozen=True, slots=True)
class ReplicaId:
    """The identity of a reader: unique among all replicas of the source."""

    server_id: int
    uuid: str


def replica_id(destination: str, slave_id: int = 0, *, reader: int = 0) -> ReplicaId:
    """Return the id of one reader of a destination, constant within the process.

    So a server that still serves the previous connection recognizes the same replica,
    and ends that connection. `slave_id` > 0 is the operator's choice, for reader 0, the
    pump; all other ids are derived from the destination and a random value, because
    addresses repeat behind NAT and in containers.
    """
    # Includes the process id, because a forked child shares its parent's random part.
    seed = f"{os.getpid()}/{reader}/{destination}".encode()
    digest = hashlib.sha256(_CHANCE + seed).digest()
    server_id = slave_id
    if slave_id <= 0 or reader != 0:
        head = hashlib.sha256(destination.encode()).digest()[0] & 0x3F | 0x40
        server_id = head << 24 | int.from_bytes(digest[:3], "big")
    return ReplicaId(server_id, str(uuid.UUID(bytes=digest[3:19], version=4)))


class PumpReplica:
    """The ids under which the pump of a destination registers; for its thread.

    A server ends the dump that has the same id as a new one. A MariaDB makes the new
    one wait until that is done, which on a silent link takes until TCP retransmits: up
    to a minute. Under another id there is no wait, and the old dump ends by itself.
    """

    def __init__(self, destination: str, slave_id: int = 0) -> None:
        """Use the id that the operator chose, which never changes; 0: no choice."""
        self._destination, self._slave_id = destination, slave_id
        self._silences = 0

    def lost(self, error: Exception) -> None:
        """Record why a session ended."""
        if isinstance(error, ConnectionLost) and error.errno is None:
            self._silences += error.heard_s is not None

    def id_at(self, *, is_mariadb: bool) -> ReplicaId:
        """Return the id for the next dump."""
        rotation = self._silences % _IDS if is_mariadb and self._slave_id <= 0 else 0
        return replica_id(self._destination, self._slave_id, reader=-rotation)


@dataclass(frozen=True, slots=True)
class FileStart:
    """From an offset of a binlog file on; an empty name means the oldest file."""

    file: str
    position: int = FIRST_EVENT

    def __str__(self) -> str:
        return f"{self.file}:{self.position}"


@dataclass(frozen=True, slots=True)
class GtidStart:
    """MySQL: all transactions except those in a set, in the protocol's encoding."""

    executed: bytes


@dataclass(frozen=True, slots=True)
class MariaGtidStart:
    """MariaDB: all transactions after `domain-server-sequence,…`."""

    executed: str


DumpStart = FileStart | GtidStart | MariaGtidStart

Statement = tuple[str, tuple[object, ...]]  # with its parameters

# MySQL (both vocabularies) and MariaDB in one: a server ignores user variables that it
# does not know. The checksum must be set, else a server that computes checksums refuses
# the dump or omits them. Capability 4 means knowing MariaDB's GTID events; with less
# they are replaced by other events.
_SETTINGS = """SET SESSION wait_timeout = 9999999,
    net_write_timeout = 7200, net_read_timeout = 7200,
    @source_binlog_checksum = @@global.binlog_checksum,
    @master_binlog_checksum = @@global.binlog_checksum,
    @replica_uuid = %s, @slave_uuid = %s,
    @source_heartbeat_period = %s, @master_heartbeat_period = %s,
    @mariadb_slave_capability = 4"""

_MARIADB_GTID_SETTINGS = """SET @slave_connect_state = %s,
    @slave_gtid_strict_mode = 0, @slave_gtid_ignore_duplicates = 0"""


def session_settings(
    replica: ReplicaId, heartbeat_s: float, start: DumpStart
) -> list[Statement]:
    """Return the statements, with parameters, that precede a dump."""
    heartbeat_ns = round(heartbeat_s * 1e9)
    values = (replica.uuid, replica.uuid, heartbeat_ns, heartbeat_ns)
    settings: list[Statement] = [(_SETTINGS, values)]
    if isinstance(start, MariaGtidStart):
        settings.append((_MARIADB_GTID_SETTINGS, (start.executed,)))
    return settings


def register_payload(replica: ReplicaId) -> bytes:
    """Return the payload of COM_REGISTER_SLAVE.

    Its layout::

        server id u32 | host name, user, password: each length u8 and bytes |
        port u16 | rank u32 | source's id u32

    The name is what SHOW REPLICAS prints. User and password are unused.
    """
    name = socket.gethostname().encode()[:_HOST_NAME_MAX]
    return (
        struct.pack("<I", replica.server_id)
        + bytes([len(name)])
        + name
        + b"\0\0"
        + struct.pack("<HII", 0, 0, 0)
    )


def dump_command(
    replica: ReplicaId, start: DumpStart, *, follow: bool = True
) -> tuple[int, bytes]:
    """Return number and payload of the command that starts the stream.

    Without `follow` the stream ends with an EOF packet at the end of the binlog.

    COM_BINLOG_DUMP::

        position u32 | flags u16 | server id u32 | file name up to the end

    COM_BINLOG_DUMP_GTID::

        flags u16 | server id u32 | name's length u32 | file name | position u64 |
        set's length u32 | set

    Raises SourceRefused for an offset above 4 GiB, which the protocol cannot carry.
    """
    flags = _DUMP_ANNOTATE_OR_HEARTBEAT_V2
    if not follow:
        flags |= _DUMP_NON_BLOCK

    if isinstance(start, GtidStart):
        flags |= _DUMP_THROUGH_GTID
        fixed = struct.pack("<HIIQ", flags, replica.server_id, 0, FIRST_EVENT)
        size = struct.pack("<I", len(start.executed))
        return COM_BINLOG_DUMP_GTID, fixed + size + start.executed

    file, position = "", FIRST_EVENT
    if isinstance(start, FileStart):
        file, position = start.file, max(start.position, FIRST_EVENT)
    if position >= _OFFSET_LIMIT:
        raise SourceRefused(
            f"the dump cannot start at {file}:{position}: the protocol carries offsets "
            f"below {_OFFSET_LIMIT} only; start at the next file or by GTID"
        )
    fixed = struct.pack("<IHI", position, flags, replica.server_id)
    return COM_BINLOG_DUMP, fixed + file.encode()
