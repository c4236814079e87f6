"""A client of ranged reads: named cursors, and repeatable reads of ranges of changes.

::

    with RangedClient("127.0.0.1", 11111) as client:
        at = client.subscribe("example", "lake").cursor
        ends = client.head("example", "lake", at, max_rows=100_000, wait_ms=500)
        for piece in client.read("example", "lake", at, ends.end):
            ...  # bytes: entries as field 2 of Messages, 0x12 length Entry
        client.ack("example", "lake", ends.end)

Decoding the entries is left to `canal_server.protocol.entry_messages`. The client
connects to one address; clusters are not supported.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from canal_server.client.connection.login import open_link, refusal
from canal_server.client.connection.server_addresses import Address
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
from canal_server.tls.client_tls import ClientTls

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path
    from ssl import SSLContext

    from canal_server.client.connection.client_link import Link

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
    """Sends requests to one server; for one thread at a time.

    Connects with the first request, and again after the connection was lost: every
    request may be repeated. A read that is not consumed completely closes the
    connection, and so does every error except ClientError.

    Args:
        host: the server's name or address
        port: the server's port
        user: empty if the server requires no login
        password: in clear text; it is sent only in scrambled form
        connect_timeout_s: timeout to connect and log in
        timeout_s: how long to wait for an answer, in addition to `wait_ms` of a head
        tls, tls_ca_file, tls_cert_file, tls_key_file: as of `CanalClient`

    Raises:
        ClientError: the server refused a request, with its `code` and text:
            404 no such subscription, 409 a position of another epoch (`plan` may
            translate its range), 410 the changes after it are purged, 423 another query
            reads the subscription, 503 retry here or on another server
        ProtocolError: the other side does not speak this protocol
        OSError: the network failed or timed out (ConnectionError, TimeoutError)

    """

    def __init__(  # noqa: PLR0917  # host, port is a familiar order
        self,
        host: str = "127.0.0.1",
        port: int = 11111,
        user: str = "",
        password: str = "",
        connect_timeout_s: float = 30.0,
        timeout_s: float = 300.0,
        *,
        tls: bool | SSLContext = False,
        tls_ca_file: str | Path = "",
        tls_cert_file: str | Path = "",
        tls_key_file: str | Path = "",
    ) -> None:
        self._tls = ClientTls(tls, tls_ca_file, tls_cert_file, tls_key_file).context()
        self.host = host
        self.port = port
        self._user = user
        self._password = password
        self._connect_timeout_s = connect_timeout_s
        self._timeout_s = timeout_s
        self._link: Link | None = None

    def connect(self) -> None:
        """Connect and log in, unless connected."""
        if self._link is None:
            self._link = open_link(
                Address(self.host, self.port),
                self._user,
                self._password,
                self._connect_timeout_s,
                self._tls,
            )

    def close(self) -> None:
        """Close the connection; the cursors are kept."""
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
        filter: str = "",  # noqa: A002  # the protocol's term
        start: str = "latest",
        *,
        temporary: bool = False,
    ) -> RangeSubscribed:
        """Create a subscription with a cursor, or return its existing one.

        Args:
            destination: name of the instance
            name: of the subscription: letters, digits, `_ . -`
            filter: regular expressions for `schema.table`; empty: that of the server
            start: where a new one starts: `latest`, `earliest`, `time:<ms>`,
                `file:<name>:<offset>` or `gtid:<set>`; ignored by later calls
            temporary: remove it when this connection ends

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
        """Return where a batch that starts after a position may end.

        It ends with a transaction, within the limits if possible, but contains at least
        one transaction. Without changes that match the filter, it ends where it starts,
        after `wait_ms`. `ack` acks the position first. A `query` reserves the
        subscription for this connection: requests of other queries are refused.
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
        filter: str = "",  # noqa: A002  # the protocol's term
    ) -> tuple[RangePart, ...]:
        """Return a range split into at most `parts` parts; `filter` as for `read`."""
        request = RangePlan(destination, name, start, end, parts, filter)
        return self._ask(request, PacketType.RANGE_PARTS, RangeParts).parts

    def read(
        self,
        destination: str,
        name: str,
        start: RangePosition,
        end: RangePosition,
        *,
        filter: str = "",  # noqa: A002  # the protocol's term
        wire: Wire = Wire.ENTRY,
    ) -> Generator[memoryview]:
        """Yield the entries of a range or a part of one, identical each time.

        Each piece is the bytes of complete entries, as field 2 of Messages. `filter` is
        for a read without a subscription, with an empty `name`. With `wire` BINLOG,
        rows may arrive in binlog format (`canal_server.decoder.rows.relayed_rows`).
        """
        request = RangeRead(destination, name, start, end, wire, filter)
        link = self._send(request)
        number = 0
        is_over = False
        try:
            while True:
                frame = link.receive_frame(self._timeout_s)
                piece = open_piece(frame)
                if piece is None:  # an error, or an unknown packet
                    packet = decode(Packet, bytes(frame))
                    is_over = packet.type == PacketType.ACK
                    raise self._refusal(packet, PacketType.RANGE_DATA)
                if piece[0] == LAST_PIECE:
                    is_over = True
                    return
                number += 1
                if piece[0] != number:
                    raise ProtocolError(
                        f"{self.host}:{self.port} sent piece {piece[0]} of a range,"
                        f" expected {number}"
                    )
                yield piece[1]
        finally:
            if not is_over:
                self.close()  # a later request would get the rest of this answer

    def ack(self, destination: str, name: str, position: RangePosition) -> None:
        """Acknowledge everything up to a position; earlier positions are ignored."""
        self._ask(RangeAck(destination, name, position), PacketType.ACK, Ack)

    def schema(
        self,
        destination: str,
        schema: str,
        table: str,
        at: RangePosition = _NOWHERE,
    ) -> RangeTable:
        """Return the columns of a table at a position, or its current columns."""
        request = RangeSchema(destination, schema, table, at)
        return self._ask(request, PacketType.RANGE_TABLE, RangeTable)

    def locate(self, destination: str, position: str, name: str = "") -> RangePosition:
        """Return the position that a text selects, written as `start` of `subscribe`.

        `acked` selects the cursor of the subscription `name`; `latest` the end of the
        binlog of the source, even if the server has not read it yet.
        """
        request = RangeLocate(destination, name, position)
        return self._ask(request, PacketType.RANGE_POSITION, RangeFound).position

    def state(self, destination: str) -> dict[str, Any]:
        """Return the state of a destination, wherever it runs; keys as in `status`."""
        request = RangeStatus(destination)
        found = self._ask(request, PacketType.RANGE_STATE, RangeState)
        try:
            state = json.loads(found.json)
        except ValueError as error:
            raise ProtocolError(
                f"the state of the destination is not valid JSON: {error}"
            ) from error
        if not isinstance(state, dict):
            raise ProtocolError("the state of the destination is not a JSON object")
        return state

    def unsubscribe(self, destination: str, name: str) -> None:
        """Remove a subscription and its cursor."""
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
        except BaseException:  # also Ctrl-C: a later request would get this answer
            self.close()
            raise

    def _check(self, packet: Packet, expected: PacketType) -> None:
        """Raise an error unless the packet is the expected answer."""
        refused = packet.type == PacketType.ACK and decode(Ack, packet.body).error_code
        if refused or packet.type != expected:
            raise self._refusal(packet, expected)

    def _refusal(self, packet: Packet, expected: PacketType) -> Exception:
        """Return the error for an unexpected packet."""
        if packet.type == PacketType.ACK:
            ack = decode(Ack, packet.body)
            if ack.error_code:
                return refusal(ack)
        return ProtocolError(
            f"{self.host}:{self.port} answered with packet type {packet.type!r}, "
            f"expected {expected.name}"
        )
