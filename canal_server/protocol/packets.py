"""The messages of canal's packet protocol (CanalProtocol.proto), as values.

Every packet contains one serialized message in `Packet.body`. HeartBeat and Dump, which
are never sent, are omitted; frames are in `framing`.
"""

# ruff: noqa: RUF009  # the functions that declare fields return dataclass fields

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from canal_server.protocol.protobuf import (
    boolean,
    encode,
    enum,
    int32,
    int64,
    octets,
    repeated_octets,
    string,
)

VERSION = 1  # clients refuse other versions in a handshake


class PacketType(IntEnum):
    """The type of the body of a packet."""

    HANDSHAKE = 1
    CLIENTAUTHENTICATION = 2
    ACK = 3
    SUBSCRIPTION = 4
    UNSUBSCRIPTION = 5
    GET = 6
    MESSAGES = 7
    CLIENTACK = 8
    SHUTDOWN = 9
    DUMP = 10
    HEARTBEAT = 11
    CLIENTROLLBACK = 12
    # Ranged reads (`protocol.range_messages`): requests, then answers
    RANGE_SUBSCRIBE = 64
    RANGE_HEAD = 65
    RANGE_PLAN = 66
    RANGE_READ = 67
    RANGE_ACK = 68
    RANGE_SCHEMA = 69
    RANGE_UNSUBSCRIBE = 70
    RANGE_LOCATE = 71
    RANGE_SUBSCRIBED = 72
    RANGE_ENDS = 73
    RANGE_PARTS = 74
    RANGE_DATA = 75
    RANGE_TABLE = 76
    RANGE_POSITION = 77
    # The state of a destination: the request, then its answer
    RANGE_STATUS = 78
    RANGE_STATE = 79


class Compression(IntEnum):
    """The compression of a body; clients accept only NONE or no value."""

    NONE = 1
    ZLIB = 2
    GZIP = 3
    LZF = 4


@dataclass(frozen=True, slots=True)
class Packet:
    """The envelope; the content of every frame."""

    magic_number: int | None = int32(1, explicit=True)
    version: int | None = int32(2, explicit=True)
    type: PacketType | int = enum(3, PacketType)
    compression: Compression | int | None = enum(4, Compression, explicit=True)
    body: bytes = octets(5)


@dataclass(frozen=True, slots=True)
class Handshake:
    """The first message of the server: the seed to scramble the password with."""

    seeds: bytes = octets(2)
    supported_compressions: Compression | int | None = enum(
        3, Compression, explicit=True
    )


@dataclass(frozen=True, slots=True)
class ClientAuth:
    """A client logs in; with destination and client id it also subscribes.

    `password` is the scrambled token as hexadecimal text. The timeouts are in ms.
    """

    username: str = string(1)
    password: bytes = octets(2)
    net_read_timeout: int | None = int32(3, explicit=True)
    net_write_timeout: int | None = int32(4, explicit=True)
    destination: str = string(5)
    client_id: str = string(6)
    filter: str = string(7)


@dataclass(frozen=True, slots=True)
class Ack:
    """The answer to a request; an error when the code is above 0."""

    error_code: int | None = int32(1, explicit=True)
    error_message: str = string(2)


@dataclass(frozen=True, slots=True)
class Sub:
    """A client subscribes to a destination."""

    destination: str = string(1)
    client_id: str = string(2)
    filter: str = string(7)


@dataclass(frozen=True, slots=True)
class Unsub:
    """A client ends its subscription."""

    destination: str = string(1)
    client_id: str = string(2)
    filter: str = string(7)


@dataclass(frozen=True, slots=True)
class Get:
    """A client requests the next batch; `unit` is an ordinal of Java's TimeUnit."""

    destination: str = string(1)
    client_id: str = string(2)
    fetch_size: int = int32(3)
    timeout: int | None = int64(4, explicit=True)
    unit: int | None = int32(5, explicit=True)
    auto_ack: bool | None = boolean(6, explicit=True)


@dataclass(frozen=True, slots=True)
class Messages:
    """A batch: serialized entries; the id is -1 if there are none."""

    batch_id: int = int64(1)
    messages: tuple[bytes, ...] = repeated_octets(2)


@dataclass(frozen=True, slots=True)
class ClientAck:
    """A client has processed a batch; answered only on error."""

    destination: str = string(1)
    client_id: str = string(2)
    batch_id: int = int64(3)


@dataclass(frozen=True, slots=True)
class ClientRollback:
    """A client requests a batch (0: all open ones) again; answered only on error."""

    destination: str = string(1)
    client_id: str = string(2)
    batch_id: int = int64(3)


# Messages of a server contain the version, those of a client do not.
_SERVERS = (PacketType.HANDSHAKE, PacketType.ACK, PacketType.MESSAGES)


def encode_packet(kind: PacketType, content: object) -> bytes:
    """Return the bytes of a packet that contains a message of this module."""
    version = VERSION if kind in _SERVERS else None
    return encode(Packet(version=version, type=kind, body=encode(content)))
