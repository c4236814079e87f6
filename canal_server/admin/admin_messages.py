"""The messages of canal-admin's protocol (AdminProtocol.proto), as values.

Frames are those of the port for clients (`protocol.framing`); the envelope is another.
"""

# ruff: noqa: RUF009  # the functions that declare fields return dataclass fields

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from canal_server.protocol.framing import frame
from canal_server.protocol.protobuf import encode, enum, int32, octets, string

VERSION: Final = 1
REFUSED: Final = 300  # wrong login, unknown packet
UNKNOWN_ACTION: Final = 301
INVALID: Final = 400


class AdminPacketType(IntEnum):
    """The type of the body of a packet."""

    HANDSHAKE = 1
    CLIENTAUTHENTICATION = 2
    ACK = 3
    SERVER = 4
    INSTANCE = 5
    LOG = 6


@dataclass(frozen=True, slots=True)
class AdminPacket:
    """The envelope; the content of every frame."""

    magic_number: int | None = int32(1, explicit=True)
    version: int | None = int32(2, explicit=True)
    type: AdminPacketType | int = enum(3, AdminPacketType)
    body: bytes = octets(4)


@dataclass(frozen=True, slots=True)
class AdminHandshake:
    """The first message of the server: the seed to scramble the password with."""

    seeds: bytes = octets(2)


@dataclass(frozen=True, slots=True)
class AdminAuth:
    """A login; `password` is the scrambled token as text, the timeouts are in ms."""

    username: str = string(1)
    password: bytes = octets(2)
    net_read_timeout: int | None = int32(3, explicit=True)
    net_write_timeout: int | None = int32(4, explicit=True)


@dataclass(frozen=True, slots=True)
class AdminAck:
    """Every answer; an error when the code is above 0."""

    code: int | None = int32(1, explicit=True)
    message: str = string(2)


@dataclass(frozen=True, slots=True)
class ServerAdmin:
    """A request about the server."""

    action: str = string(1)


@dataclass(frozen=True, slots=True)
class InstanceAdmin:
    """A request about one destination."""

    destination: str = string(1)
    action: str = string(2)


@dataclass(frozen=True, slots=True)
class LogAdmin:
    """A request for the names of log files, or for the last lines of one."""

    type: str = string(1)
    action: str = string(2)
    destination: str = string(3)
    file: str = string(4)
    count: int | None = int32(5, explicit=True)


def packet(kind: AdminPacketType, content: object) -> bytes:
    """Return a frame with one message."""
    return frame(encode(AdminPacket(version=VERSION, type=kind, body=encode(content))))


def ack(message: str = "", code: int = 0) -> bytes:
    """Return the frame of an answer."""
    return packet(AdminPacketType.ACK, AdminAck(code=code, message=message))
