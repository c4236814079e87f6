"""The client: one destination, one client id, one connection."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Literal, Self, TypeVar

from canal_server.client.change_reader import (
    ChangeReader,
    count_rows,
    entries_of,
    open_messages,
)
from canal_server.client.login import open_link, refusal
from canal_server.client.value_reader import ValueOptions
from canal_server.errors import ClientError, ProtocolError
from canal_server.protocol.entry_messages import Entry, decode_entry, encode
from canal_server.protocol.framing import EMPTY_BATCH_ID
from canal_server.protocol.packets import (
    Ack,
    ClientAck,
    ClientRollback,
    Get,
    Packet,
    PacketType,
    Sub,
    Unsub,
)
from canal_server.protocol.protobuf import decode, varint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import tzinfo

    from canal_server.client.change_reader import Change
    from canal_server.client.client_link import Link

T = TypeVar("T")

_MILLISECONDS = 2  # as Get.unit
_AT_ONCE, _WITHOUT_LIMIT = -1, 0  # as Get.timeout
_ALL_BATCHES = 0  # as ClientRollback.batch_id
_LAST_ACK_S = 1.0  # for the server to execute the last ack


class Message:
    """The result of a get: changes in the order of the binlog, often none.

    A message may start or end inside a transaction. Pass `id` to `ack`; it is -1 if
    there are no entries. What the message holds is decoded when it is looked at.
    """

    __slots__ = ("_body", "_entries", "_reader", "id")

    def __init__(self, message_id: int, body: memoryview, reader: ChangeReader) -> None:
        """Be made by `CanalClient.get` only."""
        self.id = message_id
        self._body = body
        self._reader = reader
        self._entries: tuple[Entry, ...] | None = None

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries as the protocol has them. Raises ProtocolError."""
        if self._entries is None:
            self._entries = tuple(map(decode_entry, entries_of(self._body)))
        return self._entries

    @property
    def rows(self) -> int:
        """How many rows the message has; their values are not decoded."""
        return count_rows(self._body)

    def changes(self) -> Iterator[Change]:
        """Iterate over the rows and statements, once.

        Raises ProtocolError, also while iterating, for malformed data.
        """
        return self._reader.read(self._body)

    @classmethod
    def of_entries(cls, message_id: int, entries: Iterable[Entry]) -> Self:
        """Return a message of entries, for the tests of a program."""
        fields = (encode(each) for each in entries)
        body = b"".join(b"\x12" + varint(len(each)) + each for each in fields)
        return cls(message_id, memoryview(body), ChangeReader(ValueOptions()))

    def __bool__(self) -> bool:
        return bool(self._body)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Message)
            and self.id == other.id
            and self._body == other._body
        )

    def __hash__(self) -> int:
        return hash((self.id, bytes(self._body)))

    def __repr__(self) -> str:
        return f"<message {self.id}, {len(self._body)} bytes>"


class CanalClient:
    """Receives the changes of one destination; for one thread at a time.

    Call `connect` (or use `with`), then `subscribe`, then `get` and `ack` in turn, or
    `messages`. Changes that are not acked are delivered again after the next
    `subscribe`, so every change arrives at least once.

    Args:
        host: the server's name or address
        port: the server's port
        destination: name of the instance
        client_id: identifies this client, -32768 to 32767; the server stores a
            position for each
        user: empty if the server requires no login
        password: in clear text; it is sent only in scrambled form
        timeout_s: how long to wait for the connection and for each answer, in addition
            to the timeout of a get
        values: what the values of changes are: "typed" for Python's types, "text" for
            the texts of the protocol
        time_zone: the zone in which the server decodes TIMESTAMP columns, which is that
            of its process; None: UTC
        load_json: makes values of JSON columns, such as `json.loads`; None: texts

    Raises:
        ClientError: the server refused a request, with its `code` and text
        ProtocolError: the other side does not speak this protocol
        OSError: the network failed or timed out (ConnectionError, TimeoutError)

    After an error other than ClientError the connection is closed; call `connect` and
    `subscribe` again.

    """

    def __init__(  # noqa: PLR0917  # host, port, destination is a familiar order
        self,
        host: str = "127.0.0.1",
        port: int = 11111,
        destination: str = "example",
        client_id: int = 1001,
        user: str = "",
        password: str = "",
        timeout_s: float = 30.0,
        *,
        values: Literal["typed", "text"] = "typed",
        time_zone: tzinfo | None = None,
        load_json: Callable[[str], object] | None = None,
    ) -> None:
        if values not in {"typed", "text"}:
            raise ValueError(f'values = {values!r}: expected "typed" or "text"')
        options = ValueOptions(
            as_texts=values == "text", zone=time_zone, load_json=load_json
        )
        self._reader = ChangeReader(options)
        self.host = host
        self.port = port
        self.destination = destination
        self.client_id = client_id
        self._user = user
        self._password = password
        self._timeout_s = timeout_s
        self._link: Link | None = None
        # Acks and rollbacks are answered only if they are refused. Until another
        # request has succeeded, a refusal may belong to one of them.
        self._unanswered = False

    # ----------------------------------------------------------------------------
    # The connection
    # ----------------------------------------------------------------------------

    def connect(self) -> None:
        """Connect and log in. Raises ClientError if the login is refused."""
        self.close()
        self._link = open_link(
            self.host, self.port, self._user, self._password, self._timeout_s
        )
        self._unanswered = False

    def close(self) -> None:
        """Close the connection; the subscription and unacked changes are kept.

        Waits up to a second until the server has executed the last ack or rollback, so
        that the next client to connect sees its effect.
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

    def subscribe(self, filter: str = "") -> None:  # noqa: A002  # the protocol's term
        r"""Subscribe, and resume after the last ack.

        Args:
            filter: regular expressions for `schema.table`, separated by commas
                (`shop\..*,crm\.person`); empty: the filter configured on the server

        """
        self._exchange(
            PacketType.SUBSCRIPTION,
            Sub(self.destination, str(self.client_id), filter),
        )
        # Batches left open by an earlier connection are delivered again.
        self.rollback()

    def unsubscribe(self) -> None:
        """Remove the subscription, so that the server retains no changes for it."""
        self._exchange(
            PacketType.UNSUBSCRIPTION, Unsub(self.destination, str(self.client_id))
        )

    # ----------------------------------------------------------------------------
    # Messages
    # ----------------------------------------------------------------------------

    def get(self, batch_size: int = 1000, timeout_s: float | None = 0.0) -> Message:
        """Return the next message, without acking it.

        Args:
            batch_size: maximum size, in units of 1 KiB or in entries, depending on the
                server setting `canal.instance.memory.batch.mode`
            timeout_s: how long to wait for a change; None: without limit

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
        answer_s = None if timeout_s is None else timeout_s + self._timeout_s
        return self._ask_messages(request, answer_s)

    def ack(self, message_id: int) -> None:
        """Acknowledge a message as processed; messages are acked in order.

        There is no answer: if the server refuses it, the next request raises
        ClientError and the connection is closed.
        """
        self._send_unanswered(
            PacketType.CLIENTACK,
            ClientAck(self.destination, str(self.client_id), message_id),
        )

    def rollback(self, message_id: int = _ALL_BATCHES) -> None:
        """Request the oldest message that is not acked, and all after it, again.

        `message_id` is the id of that message, or 0 to skip the check. There is no
        answer, as for `ack`.
        """
        self._send_unanswered(
            PacketType.CLIENTROLLBACK,
            ClientRollback(self.destination, str(self.client_id), message_id),
        )
        self._reader.reset()

    def messages(
        self, batch_size: int = 1000, timeout_s: float = 1.0
    ) -> Iterator[Message]:
        """Yield messages forever, and ack each one when the next is requested.

        If the loop ends with an error or a break, the current message is not acked and
        is delivered again. The arguments are those of `get`; empty messages are not
        yielded.
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
        """Send a request whose answer is an ack."""
        self._ask(kind, content, PacketType.ACK, Ack, self._timeout_s)

    def _send_unanswered(self, kind: PacketType, content: object) -> None:
        """Send a request that is answered only if it is refused."""
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
        """Send a request and return its answer, a message of type `of`."""
        with self._answering() as link:
            link.send(kind, content)
            packet = link.receive(timeout_s)
            self._check(packet, answer)
            return decode(of, packet.body)

    def _ask_messages(self, request: Get, timeout_s: float | None) -> Message:
        """Send a get and return its answer."""
        with self._answering() as link:
            link.send(PacketType.GET, request)
            frame = link.receive_frame(timeout_s)
            found = open_messages(frame)
            if found is None:
                packet = decode(Packet, bytes(frame))
                self._check(packet, PacketType.MESSAGES)
                raise ProtocolError(
                    f"{self.host}:{self.port} sent messages with compression"
                    f" {packet.compression!r}, which no client asks for"
                )
            self._unanswered = False
            batch_id, start, stop = found
            body = memoryview(b"") if batch_id == EMPTY_BATCH_ID else frame[start:stop]
            return Message(batch_id, body, self._reader)

    @contextlib.contextmanager
    def _answering(self) -> Iterator[Link]:
        """Close the connection when a later request could get the wrong answer."""
        link = self._connected()
        try:
            yield link
        except ClientError:
            if self._unanswered:
                # This may refuse an earlier ack: then the answer to this request, and
                # to all later ones, is still outstanding.
                self._drop()
            raise
        except BaseException:  # also Ctrl-C: a later request would get this answer
            self._drop()
            raise

    def _check(self, packet: Packet, expected: PacketType) -> None:
        """Raise an error unless the packet is the expected answer."""
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
