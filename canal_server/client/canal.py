"""The client itself: one destination, one client id, one connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeVar

from canal_server.client.login import open_link, refusal
from canal_server.errors import ClientError, ProtocolError
from canal_server.protocol.entry_messages import Entry, decode_entry
from canal_server.protocol.framing import EMPTY_BATCH_ID
from canal_server.protocol.packets import (
    Ack,
    ClientAck,
    ClientRollback,
    Get,
    Messages,
    Packet,
    PacketType,
    Sub,
    Unsub,
)
from canal_server.protocol.protobuf import decode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canal_server.client.client_link import Link

T = TypeVar("T")

_MILLISECONDS = 2  # as Get.unit
_AT_ONCE, _WITHOUT_LIMIT = -1, 0  # as Get.timeout
_ALL_BATCHES = 0  # as ClientRollback.batch_id
_LAST_ACK_S = 1.0  # for a server to carry out the last ack


@dataclass(frozen=True, slots=True)
class Message:
    """What a get brought: entries in the order of the binlog, often none.

    A message may begin or end amid a transaction. `id` is what `ack` wants; -1 when
    there are no entries.
    """

    id: int
    entries: tuple[Entry, ...]

    def __bool__(self) -> bool:
        return bool(self.entries)


class CanalClient:
    """Takes the changes of one destination; for one thread at a time.

    The order of calls is `connect` (or `with`), `subscribe`, then `get` and `ack` in
    turn, or `messages`. What was not acked comes again after the next `subscribe`,
    so every change comes at least once.

    Args:
        host: the server's name or address
        port: the server's port
        destination: name of the instance
        client_id: who this client is, -32768 to 32767; the server keeps a position
            for each
        user: empty when the server asks for none
        password: in clear; what is sent proves it without showing it
        timeout_s: how long to wait for the connection and for each answer, beyond
            what a get itself may wait

    Raises:
        ClientError: the server refused a request; `code` and text are the server's
        ProtocolError: the other side speaks something else
        OSError: the network failed or took too long (ConnectionError, TimeoutError)

    After an error other than ClientError the connection is closed; `connect` and
    `subscribe` begin anew.

    """

    def __init__(  # noqa: PLR0917  # host, port, destination is a known order
        self,
        host: str = "127.0.0.1",
        port: int = 11111,
        destination: str = "example",
        client_id: int = 1001,
        user: str = "",
        password: str = "",
        timeout_s: float = 30.0,
    ) -> None:
        self.host = host
        self.port = port
        self.destination = destination
        self.client_id = client_id
        self._user = user
        self._password = password
        self._timeout_s = timeout_s
        self._link: Link | None = None
        # Acks and rollbacks are answered only when they are refused. Until another
        # request was answered well, a refusal may be theirs.
        self._unanswered = False

    # ----------------------------------------------------------------------------
    # The connection
    # ----------------------------------------------------------------------------

    def connect(self) -> None:
        """Connect and log in. Raises ClientError when the log-in is refused."""
        self.close()
        self._link = open_link(
            self.host, self.port, self._user, self._password, self._timeout_s
        )
        self._unanswered = False

    def close(self) -> None:
        """Close the connection; the subscription stays, also what was not acked.

        Waits up to a second until the server has carried out the last ack or
        rollback, so that whoever connects next sees its effect.
        """
        if self._link is not None and self._unanswered:
            self._link.finish(_LAST_ACK_S)
        self._drop()

    def _drop(self) -> None:
        """Close the connection at once."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ----------------------------------------------------------------------------
    # Subscriptions
    # ----------------------------------------------------------------------------

    def subscribe(self, filter: str = "") -> None:  # noqa: A002  # the protocol's word
        r"""Subscribe, and go on behind the last ack.

        Args:
            filter: regular expressions for `schema.table`, separated by commas
                (`shop\..*,crm\.person`); empty: what the server has configured

        """
        self._exchange(
            PacketType.SUBSCRIPTION,
            Sub(self.destination, str(self.client_id), filter),
        )
        # Batches that an earlier connection left open come again.
        self.rollback()

    def unsubscribe(self) -> None:
        """End the subscription: the server holds nothing for this client any more."""
        self._exchange(
            PacketType.UNSUBSCRIPTION, Unsub(self.destination, str(self.client_id))
        )

    # ----------------------------------------------------------------------------
    # Messages
    # ----------------------------------------------------------------------------

    def get(self, batch_size: int = 1000, timeout_s: float | None = 0.0) -> Message:
        """Take the next message; it is not acked by that.

        Args:
            batch_size: how much to take at most: units of 1 KiB or entries, as the
                server is configured (`canal.instance.memory.batch.mode`)
            timeout_s: how long to wait when there is nothing; None: without limit

        """
        if timeout_s is None:
            timeout_ms = _WITHOUT_LIMIT
        else:
            timeout_ms = max(1, round(timeout_s * 1000)) if timeout_s > 0 else _AT_ONCE
        request = Get(
            self.destination,
            str(self.client_id),
            batch_size,
            timeout_ms,
            _MILLISECONDS,
            auto_ack=False,
        )
        messages = self._ask(
            PacketType.GET,
            request,
            PacketType.MESSAGES,
            Messages,
            None if timeout_s is None else timeout_s + self._timeout_s,
        )
        if messages.batch_id == EMPTY_BATCH_ID:
            return Message(EMPTY_BATCH_ID, ())
        return Message(messages.batch_id, tuple(map(decode_entry, messages.messages)))

    def ack(self, message_id: int) -> None:
        """Say that a message was dealt with; messages are acked in their order.

        Not answered: when the server refuses it, the next request raises ClientError
        and the connection is closed.
        """
        self._tell(
            PacketType.CLIENTACK,
            ClientAck(self.destination, str(self.client_id), message_id),
        )

    def rollback(self, message_id: int = _ALL_BATCHES) -> None:
        """Ask for the oldest message that is not acked, and all after it, again.

        `message_id` is that message's or 0, which is the same without a check. Not
        answered, as an ack.
        """
        self._tell(
            PacketType.CLIENTROLLBACK,
            ClientRollback(self.destination, str(self.client_id), message_id),
        )

    def messages(
        self, batch_size: int = 1000, timeout_s: float = 1.0
    ) -> Iterator[Message]:
        """Yield messages without end, each acked when the next one is asked for.

        When the loop is left by an error or a break, the message in hand is not acked
        and comes again. Arguments as for `get`; empty messages are not yielded.
        """
        while True:
            message = self.get(batch_size, timeout_s)
            if message:
                yield message
                self.ack(message.id)

    # ----------------------------------------------------------------------------
    # Requests and answers
    # ----------------------------------------------------------------------------

    def _exchange(self, kind: PacketType, content: object) -> None:
        """Send a request that is answered by an ack."""
        self._ask(kind, content, PacketType.ACK, Ack, self._timeout_s)

    def _tell(self, kind: PacketType, content: object) -> None:
        """Send a request that is answered only when it is refused."""
        link = self._connected()
        try:
            link.send(kind, content)
        except BaseException:
            self._drop()
            raise
        self._unanswered = True

    def _ask(
        self,
        kind: PacketType,
        content: object,
        answer: PacketType,
        of: type[T],
        timeout_s: float | None,
    ) -> T:
        """Send a request and return its answer, a message of the class `of`."""
        link = self._connected()
        try:
            link.send(kind, content)
            packet = link.receive(timeout_s)
            self._check(packet, answer)
            return decode(of, packet.body)
        except ClientError:
            if self._unanswered:
                # Perhaps it was an earlier ack that is refused here: then the answer
                # to this request is still to come, and all later ones are too.
                self._drop()
            raise
        except BaseException:  # also Ctrl-C: the answer would be taken for another's
            self._drop()
            raise

    def _check(self, packet: Packet, expected: PacketType) -> None:
        """Raise unless the packet is what was asked for."""
        if packet.type == PacketType.ACK:
            ack = decode(Ack, packet.body)
            if ack.error_code:
                raise refusal(ack)
        if packet.type != expected:
            raise ProtocolError(
                f"{self.host}:{self.port} answered with packet type {packet.type!r}, "
                f"expected {expected.name}"
            )
        self._unanswered = False

    def _connected(self) -> Link:
        if self._link is None:
            raise ConnectionError(
                f"not connected to {self.host}:{self.port}; call connect"
            )
        return self._link
