"""The messages of ranged reads, an extension of canal's packet protocol, as values.

A *subscription* is a named, durable cursor of a destination; a *range* contains the
changes after one position up to and including another. The server side is
`canal_server.server.range_service`; docs/reference/protocol.md describes the messages.
"""

# ruff: noqa: RUF009  # the functions that declare fields return dataclass fields

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from canal_server.core.gtid.mysql_sets import GtidSet, MariaGtidSet
from canal_server.errors import ClientError, ProtocolError
from canal_server.model.quoted import printable, quoted
from canal_server.protocol.framing import FRAME_BYTES_MAX, LENGTH_BYTES
from canal_server.protocol.packets import VERSION, Packet, PacketType
from canal_server.protocol.protobuf import (
    boolean,
    decode,
    encode,
    enum,
    int32,
    int64,
    message,
    repeated_message,
    string,
    varint,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# Error codes of Ack, in addition to those of `protocol.server_session`
UNKNOWN_SUBSCRIPTION: Final = 404
OTHER_EPOCH: Final = 409  # a position in a binlog that the source no longer has
PURGED: Final = 410  # the source no longer has the changes after a position
IN_USE: Final = 423  # another query reads the subscription
NOT_HERE: Final = 503  # this server does not run the destination, or is full

NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}", re.ASCII)
_BAD_NAMES: Final = (".", "..")  # as names of ZooKeeper nodes
PARTS_MAX: Final = 1024
FILTER_MAX: Final = 64 * 1024  # characters
JOURNAL_MAX: Final = 512  # characters; the limit of MySQL for file names
START_MAX: Final = 256 * 1024  # characters; a GTID set may be long
QUERY_MAX: Final = 200  # characters
ACKED: Final = "acked"  # as a start: the cursor of a subscription


class Wire(IntEnum):
    """The form in which a range is read."""

    ENTRY = 1
    BINLOG = 2


@dataclass(frozen=True, slots=True)
class RangePosition:
    """A boundary in the binlog of one server, between what is before and after it.

    `epoch` identifies the server and its binlog. `position` is the offset after a
    transaction or of the first event of a file; in a part of a range it may be after a
    row event inside a transaction, and `begin` is then the start of that transaction.
    `gtids` is the GTID set executed there, empty if unknown: it makes the position
    valid on other servers. Clients that receive it must send it back.
    """

    epoch: int = int32(1)
    journal: str = string(2)
    position: int = int64(3)
    begin: int = int64(4)
    gtids: str = string(5, compare=False)

    def __str__(self) -> str:
        return f"{self.journal}:{self.position} of epoch {self.epoch}"


@dataclass(frozen=True, slots=True)
class RangeSubscribe:
    """Create a subscription, or update the filter of an existing one.

    `start` is the position of a new one: `acked` or `latest`, `earliest`, `time:<ms>`,
    `file:<name>:<offset>`, `gtid:<set>`. A `temporary` one ends with the connection.
    """

    destination: str = string(1)
    name: str = string(2)
    filter: str = string(3)
    start: str = string(4)
    temporary: bool = boolean(5)


@dataclass(frozen=True, slots=True)
class RangeSubscribed:
    """The cursor of a subscription; `created` if it is new."""

    cursor: RangePosition = message(1, RangePosition)
    created: bool = boolean(2)
    filter: str = string(3)


@dataclass(frozen=True, slots=True)
class RangeHead:
    """Request where a batch after a position may end; a limit of 0 means no limit.

    `ack`: acknowledge the position first. `query` identifies the reader: it reserves
    the subscription until its connection ends; an empty one reserves nothing.
    """

    destination: str = string(1)
    name: str = string(2)
    start: RangePosition = message(3, RangePosition)
    max_rows: int = int64(4)
    max_bytes: int = int64(5)
    wait_ms: int = int32(6)
    ack: bool = boolean(7)
    query: str = string(8)


@dataclass(frozen=True, slots=True)
class RangeEnds:
    """The end of a batch and its content; an empty batch ends where it starts.

    `latest` is where the server has read to, `latest_ms` the time of the last event.
    """

    end: RangePosition = message(1, RangePosition)
    rows: int = int64(2)
    bytes: int = int64(3)
    latest: RangePosition = message(4, RangePosition)
    latest_ms: int = int64(5)


@dataclass(frozen=True, slots=True)
class RangePlan:
    """Request to split a range into at most `parts` parts; filtered as in RangeRead."""

    destination: str = string(1)
    name: str = string(2)
    start: RangePosition = message(3, RangePosition)
    end: RangePosition = message(4, RangePosition)
    parts: int = int32(5)
    filter: str = string(6)


@dataclass(frozen=True, slots=True)
class RangePart:
    """One part of a range.

    If it ends inside a transaction, `commit` is the end of that transaction, and
    `commit_ms` its time.
    """

    start: RangePosition = message(1, RangePosition)
    end: RangePosition = message(2, RangePosition)
    rows: int = int64(3)
    bytes: int = int64(4)
    commit: RangePosition = message(5, RangePosition)
    commit_ms: int = int64(6)


@dataclass(frozen=True, slots=True)
class RangeParts:
    """The parts of a range, in order."""

    parts: tuple[RangePart, ...] = repeated_message(1, RangePart)


@dataclass(frozen=True, slots=True)
class RangeRead:
    """Read a range, or a part of one, with a subscription's filter or its own."""

    destination: str = string(1)
    name: str = string(2)
    start: RangePosition = message(3, RangePosition)
    end: RangePosition = message(4, RangePosition)
    wire: Wire | int = enum(5, Wire)
    filter: str = string(6)


@dataclass(frozen=True, slots=True)
class RangeAck:
    """Acknowledge everything up to a position."""

    destination: str = string(1)
    name: str = string(2)
    position: RangePosition = message(3, RangePosition)


@dataclass(frozen=True, slots=True)
class RangeSchema:
    """Request the columns of a table at a position, by default its current ones."""

    destination: str = string(1)
    schema: str = string(2)
    table: str = string(3)
    at: RangePosition = message(4, RangePosition)


@dataclass(frozen=True, slots=True)
class RangeColumn:
    """One column; `mysql_type` is that of entries."""

    name: str = string(1)
    mysql_type: str = string(2)
    key: bool = boolean(3)
    nullable: bool = boolean(4)
    charset: str = string(5)
    generated: bool = boolean(6)


@dataclass(frozen=True, slots=True)
class RangeTable:
    """The columns of a table, if it exists.

    `zone` is the time zone in which entries contain columns of type TIMESTAMP, empty if
    it has no name. `left_out` describes the changes that the filters of the instance
    omit for all readers.
    """

    found: bool = boolean(1)
    columns: tuple[RangeColumn, ...] = repeated_message(2, RangeColumn)
    zone: str = string(3)
    left_out: str = string(4)


@dataclass(frozen=True, slots=True)
class RangeUnsubscribe:
    """Remove a subscription and its cursor."""

    destination: str = string(1)
    name: str = string(2)


@dataclass(frozen=True, slots=True)
class RangeLocate:
    """Request the position that a text selects; changes nothing.

    `position` has the format of `RangeSubscribe.start`; `acked` selects the cursor of
    the subscription `name`, `latest` the current end of the binlog of the source.
    """

    destination: str = string(1)
    name: str = string(2)
    position: str = string(3)


@dataclass(frozen=True, slots=True)
class RangeFound:
    """The requested position."""

    position: RangePosition = message(1, RangePosition)


@dataclass(frozen=True, slots=True)
class RangeStatus:
    """Request the state of a destination, wherever it runs."""

    destination: str = string(1)


@dataclass(frozen=True, slots=True)
class RangeState:
    """The state of a destination as JSON; keys are added, but never renamed."""

    json: str = string(1)


RangeRequest = (
    RangeSubscribe
    | RangeHead
    | RangePlan
    | RangeRead
    | RangeAck
    | RangeSchema
    | RangeUnsubscribe
    | RangeLocate
    | RangeStatus
)

_REQUESTS: Final[dict[int, type[RangeRequest]]] = {
    PacketType.RANGE_SUBSCRIBE: RangeSubscribe,
    PacketType.RANGE_HEAD: RangeHead,
    PacketType.RANGE_PLAN: RangePlan,
    PacketType.RANGE_READ: RangeRead,
    PacketType.RANGE_ACK: RangeAck,
    PacketType.RANGE_SCHEMA: RangeSchema,
    PacketType.RANGE_UNSUBSCRIBE: RangeUnsubscribe,
    PacketType.RANGE_LOCATE: RangeLocate,
    PacketType.RANGE_STATUS: RangeStatus,
}

REQUEST_TYPES: Final[dict[type[RangeRequest], PacketType]] = {
    kind: PacketType(number) for number, kind in _REQUESTS.items()
}


def is_ranged(packet: Packet) -> bool:
    """Return whether a packet is a request of this module."""
    return packet.type in _REQUESTS


def read_request(packet: Packet) -> RangeRequest:
    """Return the request of a packet. Raises ClientError if it breaks a rule."""
    try:
        request = decode(_REQUESTS[packet.type], packet.body)
    except ProtocolError as error:
        raise ClientError(str(error)) from error
    if not request.destination:
        raise ClientError("the destination is missing", code=401)
    _CHECKS[type(request)](request)
    return request


# --------------------------------------------------------------------------------
# Rules of the requests
# --------------------------------------------------------------------------------


def check_name(name: str) -> None:
    """Raise ClientError unless a subscription may have this name."""
    if not NAME.fullmatch(name) or name in _BAD_NAMES:
        raise ClientError(
            f"invalid subscription name {name[:100]!r}: "
            "use 1 to 100 characters of A-Z a-z 0-9 _ . -"
        )


def _check_position(position: RangePosition, what: str) -> None:
    if not position.journal:
        raise ClientError(f"the {what} of the range is missing")
    if len(position.journal) > JOURNAL_MAX or not position.journal.isprintable():
        raise ClientError(
            f"the {what} has an invalid binlog file name {quoted(position.journal)}:"
            f" use 1 to {JOURNAL_MAX} printable characters"
        )
    if position.position < 4 or position.epoch < 0 or position.begin < 0:  # noqa: PLR2004
        raise ClientError(f"{what} {position} is not a binlog position")
    _check_length(position.gtids, START_MAX, f"GTID set of the {what}")
    _check_set(position.gtids, what)


def _check_set(gtids: str, what: str) -> None:
    """Raise ClientError for a text that is not a GTID set of any kind of server."""
    try:
        GtidSet.parse(gtids)
    except ValueError as error:
        try:
            MariaGtidSet.parse(gtids)
        except ValueError:
            raise ClientError(
                f"invalid GTID set of the {what}, {quoted(gtids)}:"
                f" {printable(str(error))}; send it unchanged as received from the"
                " server"
            ) from error


def _check_subscribe(request: RangeSubscribe) -> None:
    check_name(request.name)
    _check_length(request.filter, FILTER_MAX, "filter")
    _check_length(request.start, START_MAX, "start")


def _check_length(text: str, limit: int, what: str) -> None:
    if len(text) > limit:
        raise ClientError(
            f"the {what} has {len(text)} characters, the limit is {limit}"
        )


def _check_head(request: RangeHead) -> None:
    check_name(request.name)
    _check_position(request.start, "start")
    _check_length(request.query, QUERY_MAX, "query")
    for what in ("max_rows", "max_bytes", "wait_ms"):
        if getattr(request, what) < 0:
            raise ClientError(f"{what} = {getattr(request, what)} is negative")


def _check_plan(request: RangePlan) -> None:
    if request.name:
        check_name(request.name)
    _check_ends(request)
    _check_length(request.filter, FILTER_MAX, "filter")
    if not 1 <= request.parts <= PARTS_MAX:
        raise ClientError(
            f"parts = {request.parts} is out of range: use 1 to {PARTS_MAX}"
        )


def _check_read(request: RangeRead) -> None:
    if request.name:
        check_name(request.name)
    _check_ends(request)
    _check_length(request.filter, FILTER_MAX, "filter")
    if request.wire not in (0, *Wire):
        raise ClientError(
            f"unsupported wire form {request.wire!r}; request entries (1)"
        )


def _check_ends(request: RangePlan | RangeRead) -> None:
    _check_position(request.start, "start")
    _check_position(request.end, "end")
    if request.start.epoch > request.end.epoch:
        raise ClientError(
            f"invalid range from {request.start} to {request.end}: the end is in an"
            " earlier epoch"
        )


def _check_ack(request: RangeAck) -> None:
    check_name(request.name)
    _check_position(request.position, "position")


def _check_schema(request: RangeSchema) -> None:
    if not request.schema or not request.table:
        raise ClientError("schema or table is missing")
    if request.at.journal:
        _check_position(request.at, "position")


def _check_unsubscribe(request: RangeUnsubscribe) -> None:
    check_name(request.name)


def _check_locate(request: RangeLocate) -> None:
    if request.name or request.position == ACKED:
        check_name(request.name)
    _check_length(request.position, START_MAX, "position")


_CHECKS: Final[dict[type[RangeRequest], Callable[[Any], None]]] = {
    RangeSubscribe: _check_subscribe,
    RangeHead: _check_head,
    RangePlan: _check_plan,
    RangeRead: _check_read,
    RangeAck: _check_ack,
    RangeSchema: _check_schema,
    RangeUnsubscribe: _check_unsubscribe,
    RangeLocate: _check_locate,
    RangeStatus: lambda _: None,
}


# --------------------------------------------------------------------------------
# Pieces of an answer to RANGE_READ
# --------------------------------------------------------------------------------
#
#   length | 10 01 18 4b 2a <size of body> 08 <number of the piece> | entries …
#            version type  body                                       `- slices -'

_PIECE_HEAD: Final = bytes((2 << 3, VERSION, 3 << 3, PacketType.RANGE_DATA, 5 << 3 | 2))
LAST_PIECE: Final = 0  # the number of the last piece, which has no entries


def piece_header(number: int, size: int) -> bytes:
    """Return the part of a piece before its `size` bytes of entries.

    Raises ValueError if the frame would exceed the maximum length.
    """
    inner = b"\x08" + varint(number)
    head = _PIECE_HEAD + varint(len(inner) + size) + inner
    if len(head) + size > FRAME_BYTES_MAX:
        raise ValueError(
            f"a piece of {size} bytes exceeds the maximum length of a frame"
        )
    return (len(head) + size).to_bytes(LENGTH_BYTES, "big") + head


def answer(kind: PacketType, content: object) -> bytes:
    """Return an answer as a frame."""
    body = encode(Packet(version=VERSION, type=kind, body=encode(content)))
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


LAST_FRAME: Final = piece_header(LAST_PIECE, 0)


def open_piece(frame: memoryview) -> tuple[int, memoryview] | None:
    """Return the number and the entries of a frame if it is a piece, else None.

    The entries are a slice of the frame, not a copy. Raises ProtocolError if the piece
    is malformed.
    """
    if bytes(frame[: len(_PIECE_HEAD)]) != _PIECE_HEAD:
        return None
    size, at = _varint_at(frame, len(_PIECE_HEAD))
    if at + size != len(frame) or not size or frame[at] != 8:  # noqa: PLR2004
        raise ProtocolError("malformed piece of a range")
    number, at = _varint_at(frame, at + 1)
    return number, frame[at:]


def _varint_at(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:  # noqa: PLR2004
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:  # noqa: PLR2004
            return value, at
    raise ProtocolError("malformed piece of a range")
