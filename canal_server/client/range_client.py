"""A client of ranged reads: named cursors, and ranges of changes that can be repeated.

::

    with RangedClient("127.0.0.1", 11111) as client:
        at = client.subscribe("example", "lake").cursor
        ends = client.head("example", "lake", at, max_rows=100_000, wait_ms=500)
        for piece in client.read("example", "lake", at, ends.end):
            ...  # bytes: entries as field 2 of Messages, 0x12 length Entry
        client.ack("example", "lake", ends.end)

Leaves out what to do with entries (`canal_server.protocol.entry_messages`), and
clusters: it talks to one address.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from canal_server.client.login import open_link, refusal
from canal_server.errors import ClientError, ProtocolError
from canal_server.protocol.packets import Ack, Packet, PacketType
from canal_server.protocol.protobuf import decode
from canal_server.protocol.range_messages import (
    IN_USE,
    LAST_PIECE,
    NOT_HERE,
    OTHER_EPOCH,
    PARTS_MAX,
    PURGED,
    REQUEST_TYPES,
    UNKNOWN_SUBSCRIPTION,
    RangeAck,
    RangeColumn,
    RangeEnds,
    RangeFound,
    RangeHead,
    RangeLocate,
    RangePart,
    RangeParts,
    RangePlan,
    RangePosition,
    RangeRead,
    RangeRequest,
    RangeSchema,
    RangeState,
    RangeStatus,
    RangeSubscribe,
    RangeSubscribed,
    RangeTable,
    RangeUnsubscribe,
    Wire,
    open_piece,
)
from canal_server.protocol.server_session import REFUSED

if TYPE_CHECKING:
    from collections.abc import Generator

    from canal_server.client.client_link import Link

__all__ = [
    "IN_USE",
    "NOT_HERE",
    "OTHER_EPOCH",
    "PARTS_MAX",
    "PURGED",
    "REFUSED",
    "UNKNOWN_SUBSCRIPTION",
    "RangeColumn",
    "RangeEnds",
    "RangePart",
    "RangePosition",
    "RangeSubscribed",
    "RangeTable",
    "RangedClient",
    "Wire",
]

T = TypeVar("T")

_NOWHERE: Final = RangePosition()


class RangedClient:
    """Asks one server; for one thread at a time.

    Connects when the first request is made, and again after the connection was lost:
    every request may be repeated. A read that is not consumed to its end closes the
    connection, and so does every error but ClientError.

    Args:
        host: the server's name or address
        port: the server's port
        user: empty when the server asks for none
        password: in clear; what is sent proves it without showing it
        connect_timeout_s: how long connecting and logging in may take
        timeout_s: how long to wait for an answer, beyond what a head may wait

    Raises:
        ClientError: the server refused a request; `code` and text are the server's:
            404 no such subscription, 409 a position of another epoch (a plan may tell
            what a range is now), 410 what lies behind it is purged, 423 another query
            reads the subscription, 503 try again, or another server
        ProtocolError: the other side speaks something else
        OSError: the network failed or took too long (ConnectionError, TimeoutError)

    """

    def __init__(  # noqa: PLR0917  # host, port is a known order
        self,
        host: str = "127.0.0.1",
        port: int = 11111,
        user: str = "",
        password: str = "",
        connect_timeout_s: float = 30.0,
        timeout_s: float = 300.0,
    ) -> None:
        self.host = host
        self.port = port
        self._user = user
        self._password = password
        self._connect_timeout_s = connect_timeout_s
        self._timeout_s = timeout_s
        self._link: Link | None = None

    def connect(self) -> None:
        """Connect and log in, unless that is done."""
        if self._link is None:
            self._link = open_link(
                self.host,
                self.port,
                self._user,
                self._password,
                self._connect_timeout_s,
            )

    def close(self) -> None:
        """Close the connection; cursors stay."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ----------------------------------------------------------------------------
    # Requests
    # ----------------------------------------------------------------------------

    def subscribe(
        self,
        destination: str,
        name: str,
        filter: str = "",  # noqa: A002  # the protocol's word
        start: str = "latest",
        *,
        temporary: bool = False,
    ) -> RangeSubscribed:
        """Give a subscription a cursor, or return the one that it has.

        Args:
            destination: name of the instance
            name: of the subscription: letters, digits, `_ . -`
            filter: regular expressions for `schema.table`; empty: the server's own
            start: where a new one begins: `latest`, `earliest`, `time:<ms>`,
                `file:<name>:<offset>` or `gtid:<set>`; later calls ignore it
            temporary: it ends with this connection, however that ends

        """
        request = RangeSubscribe(destination, name, filter, start, temporary)
        return self._ask(request, PacketType.RANGE_SUBSCRIBED, RangeSubscribed)

    def head(  # all but the first three have defaults
        self,
        destination: str,
        name: str,
        start: RangePosition,
        *,
        max_rows: int = 0,
        max_bytes: int = 0,
        wait_ms: int = 0,
        ack: bool = False,
        query: str = "",
    ) -> RangeEnds:
        """Return how far a batch may go that begins behind a position.

        It ends with a transaction, within the limits if there are some, but has one
        transaction at least. Without anything that the filter wants it ends where it
        starts, after `wait_ms`. `ack` acks the position first. With a `query` the
        subscription is this connection's: others with another one are refused.
        """
        request = RangeHead(
            destination, name, start, max_rows, max_bytes, wait_ms, ack, query
        )
        return self._ask(
            request, PacketType.RANGE_ENDS, RangeEnds, self._timeout_s + wait_ms / 1000
        )

    def plan(
        self,
        destination: str,
        name: str,
        start: RangePosition,
        end: RangePosition,
        parts: int,
        *,
        filter: str = "",  # noqa: A002  # the protocol's word
    ) -> tuple[RangePart, ...]:
        """Return the range cut into parts, so many at most; `filter` as for `read`."""
        request = RangePlan(destination, name, start, end, parts, filter)
        return self._ask(request, PacketType.RANGE_PARTS, RangeParts).parts

    def read(
        self,
        destination: str,
        name: str,
        start: RangePosition,
        end: RangePosition,
        *,
        filter: str = "",  # noqa: A002  # the protocol's word
        wire: Wire = Wire.ENTRY,
    ) -> Generator[memoryview]:
        """Yield the entries of a range or a part of one, the same each time.

        Each piece is bytes of whole entries, as field 2 of Messages. `filter` is that
        of a read without a subscription: `name` is empty then. With `wire` BINLOG rows
        may come as the binlog has them (`canal_server.decoder.rows.relayed_rows`).
        """
        request = RangeRead(destination, name, start, end, wire, filter)
        link = self._send(request)
        number = 0
        is_over = False
        try:
            while True:
                frame = link.receive_frame(self._timeout_s)
                piece = open_piece(frame)
                if piece is None:  # a refusal, or nothing that we know
                    packet = decode(Packet, bytes(frame))
                    is_over = packet.type == PacketType.ACK
                    raise self._refusal(packet, PacketType.RANGE_DATA)
                if piece[0] == LAST_PIECE:
                    is_over = True
                    return
                number += 1
                if piece[0] != number:
                    raise ProtocolError(
                        f"{self.host}:{self.port} sent piece {piece[0]} of a range"
                        f" where {number} was to come"
                    )
                yield piece[1]
        finally:
            if not is_over:
                self.close()  # the rest of the answer would be taken for another's

    def ack(self, destination: str, name: str, position: RangePosition) -> None:
        """Say that all up to a position was dealt with; smaller ones are no matter."""
        self._ask(RangeAck(destination, name, position), PacketType.ACK, Ack)

    def schema(
        self,
        destination: str,
        schema: str,
        table: str,
        at: RangePosition = _NOWHERE,
    ) -> RangeTable:
        """Return the columns of a table at a position, or as they are now."""
        request = RangeSchema(destination, schema, table, at)
        return self._ask(request, PacketType.RANGE_TABLE, RangeTable)

    def locate(self, destination: str, place: str, name: str = "") -> RangePosition:
        """Return the boundary that a text means, as `start` of `subscribe`.

        `acked` means the cursor of the subscription `name`; `latest` is where the
        source's binlog ends, although the server may not have read it yet.
        """
        request = RangeLocate(destination, name, place)
        return self._ask(request, PacketType.RANGE_PLACE, RangeFound).position

    def state(self, destination: str) -> dict[str, Any]:
        """Return what a destination does, wherever it runs: keys as of `status`."""
        request = RangeStatus(destination)
        found = self._ask(request, PacketType.RANGE_STATE, RangeState)
        try:
            state = json.loads(found.json)
        except ValueError as error:
            raise ProtocolError(f"a state that is not JSON: {error}") from error
        if not isinstance(state, dict):
            raise ProtocolError("a state that is not an object of JSON")
        return state

    def unsubscribe(self, destination: str, name: str) -> None:
        """Forget a subscription and its cursor."""
        self._ask(RangeUnsubscribe(destination, name), PacketType.ACK, Ack)

    # ----------------------------------------------------------------------------
    # Requests and answers
    # ----------------------------------------------------------------------------

    def _send(self, request: RangeRequest) -> Link:
        self.connect()
        link = self._link
        assert link is not None
        try:
            link.send(REQUEST_TYPES[type(request)], request)
        except BaseException:
            self.close()
            raise
        return link

    def _ask(
        self,
        request: RangeRequest,
        answer: PacketType,
        of: type[T],
        timeout_s: float | None = None,
    ) -> T:
        link = self._send(request)
        try:
            packet = link.receive(timeout_s or self._timeout_s)
            self._check(packet, answer)
            return decode(of, packet.body)
        except ClientError:
            raise
        except BaseException:  # also Ctrl-C: the answer would be taken for another's
            self.close()
            raise

    def _check(self, packet: Packet, expected: PacketType) -> None:
        """Raise unless the packet is what was asked for."""
        refused = packet.type == PacketType.ACK and decode(Ack, packet.body).error_code
        if refused or packet.type != expected:
            raise self._refusal(packet, expected)

    def _refusal(self, packet: Packet, expected: PacketType) -> Exception:
        """Return the error that a packet is which was not asked for."""
        if packet.type == PacketType.ACK:
            ack = decode(Ack, packet.body)
            if ack.error_code:
                return refusal(ack)
        return ProtocolError(
            f"{self.host}:{self.port} answered with packet type {packet.type!r}, "
            f"expected {expected.name}"
        )
