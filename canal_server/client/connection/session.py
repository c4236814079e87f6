"""A client's conversation over one connection: requests, answers, what is not acked.

Each method is a conversation (`io_steps`). Leaves out everything that outlives a
connection (`message_stream`).
"""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Final, TypeVar

from canal_server.client.client_options import check_positive, check_seconds
from canal_server.client.connection.interruption import never
from canal_server.client.connection.io_steps import (
    Close,
    Connect,
    Expect,
    Finish,
    Receive,
    Send,
)
from canal_server.client.connection.login import log_in, receive_packet, refusal
from canal_server.client.frame_reader import open_messages
from canal_server.client.received_message import Message
from canal_server.errors import ClientError, ProtocolError
from canal_server.protocol.framing import EMPTY_BATCH_ID, frame
from canal_server.protocol.packets import (
    Ack,
    ClientAck,
    ClientRollback,
    Get,
    Packet,
    PacketType,
    Sub,
    Unsub,
    encode_packet,
)
from canal_server.protocol.protobuf import decode
from canal_server.protocol.range_messages import RangeState, RangeStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.client.client_options import ClientOptions
    from canal_server.client.connection.io_steps import Steps
    from canal_server.client.connection.server_addresses import Address
    from canal_server.client.readers import Readers

T = TypeVar("T")

ALL_BATCHES: Final = 0  # as ClientRollback.batch_id
_MILLISECONDS: Final = 2  # as Get.unit
_AT_ONCE, _WITHOUT_LIMIT = -1, 0  # as Get.timeout
_LAST_ACK_S: Final = 1.0  # for the server to execute the last ack
_NOTHING: Final = memoryview(b"")


class Session:
    """One client id at one destination, over one connection at a time."""

    def __init__(
        self,
        options: ClientOptions,
        readers: Readers,
        gives_up: Callable[[], bool] = never,
    ) -> None:
        """Connect and subscribe until `gives_up`."""
        self._gives_up = gives_up
        self.options = options
        self.client_id = options.client_id
        self.readers = readers
        self.address: Address | None = None  # while connected
        self.subscribed_filter: str | None = None  # None: not subscribed
        # Ids of messages that were received and not acked, in their order.
        self.open_ids: deque[int] = deque()
        # Acks and rollbacks are answered only if they are refused. Until a later
        # request has succeeded, a refusal may belong to one of them.
        self._sent = 0  # requests over this connection
        self._unanswered = 0  # the number of the last ack or rollback; 0: succeeded
        # A server executes acks at once, but stores them later: one that is killed, and
        # whoever takes over from it, delivers again what was acked last.
        self._has_acked = False  # over this connection
        self.has_lost_ack = False  # maybe; until who reads it resets it
        self._asked = 0  # the number of the get whose answer is outstanding; 0: none
        self._answer_s: float | None = None  # how long to wait for it
        self._ahead: Message | None = None  # received while another answer was due

    # ----------------------------------------------------------------------------
    # The connection
    # ----------------------------------------------------------------------------

    def connect(self, address: Address) -> Steps[None]:
        """Connect to a server and log in. Raises InterruptedError when given up."""
        yield from self.close()
        options = self.options
        yield Connect(address, options.timeout_s, self._gives_up)
        try:
            yield from log_in(
                str(address),
                options.user,
                options.password,
                options.timeout_s,
                self._gives_up,
            )
        except BaseException:
            yield Close()
            raise
        self.address = address

    def close(self) -> Steps[None]:
        """Close, after the server has executed the last ack or rollback."""
        if self.address is not None:
            if self._unanswered:
                yield Finish(_LAST_ACK_S)
            self._has_acked = False
        yield from self.drop()

    def drop(self) -> Steps[None]:
        """Close at once."""
        self.address = None
        self.subscribed_filter = None
        self._forget_open()
        self.has_lost_ack |= self._has_acked
        self._has_acked = False
        self._sent = self._unanswered = self._asked = 0
        yield Close()

    def _forget_open(self) -> None:
        """Expect what is not acked again."""
        self.open_ids.clear()
        self._ahead = None
        self.readers.reset()

    # ----------------------------------------------------------------------------
    # Subscriptions
    # ----------------------------------------------------------------------------

    def subscribe(self, filter: str) -> Steps[None]:  # noqa: A002  # the protocol's term
        """Subscribe, and roll back what an earlier connection left open."""
        options = self.options
        request = Sub(options.destination, str(self.client_id), filter)
        yield from self._exchange(PacketType.SUBSCRIPTION, request)
        yield from self.rollback()
        self.subscribed_filter = filter

    def unsubscribe(self) -> Steps[None]:
        """Remove the subscription."""
        options = self.options
        request = Unsub(options.destination, str(self.client_id))
        yield from self._exchange(PacketType.UNSUBSCRIPTION, request)
        self._forget_open()
        self.subscribed_filter = None

    def blocking_clients(self) -> Steps[tuple[int, ...] | None]:
        """Return for whose acks the full ring of the destination waits; None: unknown.

        Only this server knows; a Java server refuses the question.
        """
        request = RangeStatus(self.options.destination)
        try:
            packet = yield from self._exchange(
                PacketType.RANGE_STATUS, request, PacketType.RANGE_STATE
            )
        except ClientError:
            return None
        try:
            state = json.loads(decode(RangeState, packet.body).json)
            blocked = state.get("blocked")
            return tuple(blocked["clients"]) if blocked else ()
        except (ValueError, LookupError, AttributeError, TypeError) as error:
            raise ProtocolError(
                f"{self.address} answered with an invalid state: {error}"
            ) from error

    # ----------------------------------------------------------------------------
    # Messages
    # ----------------------------------------------------------------------------

    def get(self, batch_size: int, timeout_s: float | None) -> Steps[Message]:
        """Return the next message; it may have been requested before.

        Raises ValueError for a size or a time that is none.
        """
        check_positive("batch_size", batch_size)
        if timeout_s is not None:
            check_seconds("timeout_s", timeout_s, zero=True)
        message = yield from self._outstanding()
        if message:
            return message
        found = yield from self._get(batch_size, timeout_s, wakeable=False)
        assert found is not None
        return found

    def wait(self, batch_size: int, timeout_s: float) -> Steps[Message | None]:
        """Return the next message, as `get` does; None if interrupted.

        After an interruption the answer is outstanding, and returned by the next call.
        """
        message = yield from self._outstanding(wakeable=True)
        if message is None or message:
            return message
        return (yield from self._get(batch_size, timeout_s, wakeable=True))

    def ask(self, batch_size: int) -> Steps[None]:
        """Request the next message without waiting for it.

        The server answers at once, also if there is none, so that an ack that follows
        is not delayed.
        """
        if self._asked or self._ahead is not None:
            return
        yield from self._send(self._get_frame(batch_size, _AT_ONCE))
        self._asked, self._answer_s = self._sent, self.options.timeout_s
        yield Expect()

    def ack_to(self, message_id: int) -> Steps[None]:
        """Acknowledge an open message and all before it; there is no answer."""
        found = None
        while found != message_id:
            found = self.open_ids[0]
            yield from self.ack(found)

    def ack(self, message_id: int) -> Steps[None]:
        """Acknowledge one message; there is no answer, the server knows the order."""
        if message_id in self.open_ids:
            self.open_ids.remove(message_id)
        options = self.options
        yield from self._send_unanswered(
            PacketType.CLIENTACK,
            ClientAck(options.destination, str(self.client_id), message_id),
        )
        self._has_acked = True

    def rollback(self, message_id: int = ALL_BATCHES) -> Steps[None]:
        """Expect all messages again that are not acked; there is no answer."""
        yield from self._outstanding()  # would be delivered twice
        options = self.options
        yield from self._send_unanswered(
            PacketType.CLIENTROLLBACK,
            ClientRollback(options.destination, str(self.client_id), message_id),
        )
        self._forget_open()

    # ----------------------------------------------------------------------------
    # Requests and answers
    # ----------------------------------------------------------------------------

    def _get_frame(self, batch_size: int, timeout_ms: int) -> bytes:
        options = self.options
        request = Get(
            options.destination,
            str(self.client_id),
            batch_size,
            timeout_ms,
            _MILLISECONDS,
            auto_ack=False,
        )
        return frame(encode_packet(PacketType.GET, request))

    def _get(
        self, batch_size: int, timeout_s: float | None, *, wakeable: bool
    ) -> Steps[Message | None]:
        if timeout_s is None:
            timeout_ms = _WITHOUT_LIMIT
        else:
            timeout_ms = max(1, round(timeout_s * 1000)) if timeout_s > 0 else _AT_ONCE
        yield from self._send(self._get_frame(batch_size, timeout_ms))
        self._asked = self._sent
        self._answer_s = (
            None if timeout_s is None else timeout_s + self.options.timeout_s
        )
        return (yield from self._outstanding(wakeable=wakeable))

    def _outstanding(self, *, wakeable: bool = False) -> Steps[Message | None]:
        """Return the message that was requested; an empty one if none was.

        None if the wait was interrupted.
        """
        if self._ahead is not None:
            message, self._ahead = self._ahead, None
            return message
        if not self._asked:
            return Message(EMPTY_BATCH_ID, _NOTHING, self.readers)
        try:
            found = yield Receive(self._answer_s, wakeable=wakeable)
            if found is None:
                return None
            asked, self._asked = self._asked, 0
            return self._message_in(found, asked)
        except ClientError:
            yield from self._refused()
            raise
        except BaseException:  # also Ctrl-C: a later request would get this answer
            yield from self.drop()
            raise

    def _message_in(self, data: memoryview, asked: int) -> Message:
        """Return the message in the answer to the get with a number."""
        found = open_messages(data)
        if found is None:
            packet = decode(Packet, bytes(data))
            self._check(packet, PacketType.MESSAGES)
            raise ProtocolError(
                f"{self.address} sent messages with compression"
                f" {packet.compression!r}, which no client asks for"
            )
        self._note_success(asked)
        batch_id, start, stop = found
        if batch_id == EMPTY_BATCH_ID:
            return Message(batch_id, _NOTHING, self.readers)
        self.open_ids.append(batch_id)
        return Message(batch_id, data[start:stop], self.readers)

    def _exchange(
        self, kind: PacketType, content: object, expected: PacketType = PacketType.ACK
    ) -> Steps[Packet]:
        """Send a request and return its answer, usually an ack."""
        message = yield from self._outstanding()
        if message:
            self._ahead = message
        yield from self._send(frame(encode_packet(kind, content)))
        try:
            timeout_s, gives_up = self.options.timeout_s, self._gives_up
            packet = yield from receive_packet(timeout_s, gives_up=gives_up)
            self._check(packet, expected)
        except ClientError:
            yield from self._refused()
            raise
        except BaseException:  # as above
            yield from self.drop()
            raise
        self._note_success(self._sent)
        return packet

    def _send_unanswered(self, kind: PacketType, content: object) -> Steps[None]:
        """Send a request that is answered only if it is refused."""
        yield from self._send(frame(encode_packet(kind, content)))
        self._unanswered = self._sent

    def _send(self, data: bytes) -> Steps[None]:
        """Send one request."""
        if self.address is None:
            options = self.options
            where = options.host if options.zookeeper else options.addresses()[0]
            raise ConnectionError(f"not connected to {where}; call connect")
        try:
            yield Send(data)
        except BaseException:  # the stream may end inside a frame
            yield from self.drop()
            raise
        self._sent += 1

    def _note_success(self, number: int) -> None:
        """Note that a request succeeded, and so did all before it."""
        if number > self._unanswered:
            self._unanswered = 0

    def _refused(self) -> Steps[None]:
        """Close the connection if a later request could get the wrong answer."""
        if self._unanswered:
            # This may refuse an earlier ack: then the answer to this request, and to
            # all later ones, is still outstanding.
            yield from self.drop()

    def _check(self, packet: Packet, expected: PacketType) -> None:
        """Raise an error unless the packet is the expected answer."""
        if packet.type == PacketType.ACK:
            ack = decode(Ack, packet.body)
            if ack.error_code:
                raise refusal(ack)
        if packet.type != expected:
            raise ProtocolError(
                f"{self.address} answered with packet type {packet.type!r}, "
                f"expected {expected.name}"
            )
