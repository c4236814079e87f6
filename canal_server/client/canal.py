"""The client that blocks."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from canal_server.client.client_base import ClientBase
from canal_server.client.connection.blocking_connection import BlockingConnection
from canal_server.client.connection.io_steps import run
from canal_server.client.connection.session import ALL_BATCHES
from canal_server.client.received_message import Message
from canal_server.client.table_choice import TableChoice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canal_server.client.arrow_tables import ArrowBatch, Updates
    from canal_server.client.change_reader import Change
    from canal_server.client.row_mapping import MappedChange, RowMapper

__all__ = ["CanalClient", "Message"]

T = TypeVar("T")


class CanalClient(ClientBase):
    r"""Receives the changes of one destination; for one thread at a time.

    Iterate over it, or over `changes` or `messages`. It connects and subscribes by
    itself, reconnects after failures, and continues after the last ack. Changes that
    are not acked are delivered again, so every change arrives at least once.

    `connect`, `subscribe`, `get`, `ack`, `rollback` and `unsubscribe` are the requests
    of the protocol one by one; they never reconnect.

    Args:
        host: the server's name or address; or several, separated by commas, each with
            `:port` if it has another one; or `zk://host:2181,…` with the ZooKeeper of
            the cluster, which names the server that runs the destination
        port: the server's port
        destination: name of the destination
        client_id: identifies this client, -32768 to 32767; the server stores a
            position for each
        user: empty if the server requires no login
        password: in clear text; it is sent only in scrambled form
        timeout_s: how long to wait for the connection and for each answer, in addition
            to the timeout of a get
        filter: regular expressions for `schema.table`, separated by commas
            (`shop\..*,crm\.person`); empty: the filter configured on the server
        batch_size: maximum size of a message, in units of 1 KiB or in entries,
            depending on the server setting `canal.instance.memory.batch.mode`
        values: what the values of changes are: "typed" for Python's types, "text" for
            the texts of the protocol
        time_zone: the zone in which the server decodes TIMESTAMP columns, which is that
            of its process; None: UTC
        load_json: makes values of JSON columns, such as `json.loads`; None: texts
        ack: when an iteration acks a message: "message": when the next one is
            requested; "transaction": the same, but only up to the last transaction
            that was handled to its end; a number: what was handled, every so many
            seconds; "manual": when the program calls `ack`
        whole_transactions: whether each message ends where a transaction ends, however
            the server divides them
        transaction_bytes_max: how much of one transaction `whole_transactions` holds,
            in bytes; the server's ring, 16 MiB by default, has to hold it as well
        over_limit: what happens beyond either of that: "error" raises
            TransactionTooLarge, "part" yields the transaction in several messages, of
            which all but the last have a false `ends_transaction`
        reconnect_for_s: for how long an iteration tries to connect before it raises
            the error; 0: not at all; None: without limit
        tls: whether to connect with TLS; the server's certificate must be valid for the
            name or address in `host`. Or an `ssl.SSLContext`, which decides that and
            replaces the other options
        tls_ca_file: certificates of the authorities that are trusted, a PEM file;
            empty: those of the system
        tls_cert_file: the client's certificate, for servers that ask for one
        tls_key_file: its private key, without a pass phrase; empty: in `tls_cert_file`
        on_connect: called with the server's address after each login
        on_disconnect: called with the error when a connection is lost
        on_redelivery: called without arguments before changes may be delivered again:
            what was not acked, and after a lost connection also what was acked last, as
            a server that is killed has not stored every ack

    Raises:
        ClientError: the server refused a request, with its `code` and text
        ProtocolError: the other side does not speak this protocol
        TransactionTooLarge: see `over_limit`
        OSError: the network failed or timed out (ConnectionError, TimeoutError)
        ValueError: an option has no such value

    """

    @cached_property
    def _connection(self) -> BlockingConnection:
        return BlockingConnection(tls=self._tls)

    def _wake(self) -> None:
        self._connection.wake()

    # ----------------------------------------------------------------------------
    # Iterating
    # ----------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Change]:
        """Iterate over all changes; see `changes`."""
        return self.changes()

    @overload
    def changes(self, table: str = "") -> Iterator[Change]: ...

    @overload
    def changes(
        self, table: str, into: type[T] | RowMapper[T]
    ) -> Iterator[MappedChange[T]]: ...

    def changes(
        self, table: str = "", into: type[Any] | RowMapper[Any] | None = None
    ) -> Iterator[Any]:
        """Yield changes until `stop`, and ack their messages by the policy.

        A message is handled when the change after its last one is requested. If the
        loop ends with an error or a break, the current message is not acked and is
        delivered again.

        Args:
            table: `schema.table`; yields only the changes of this table. If the client
                has no filter, it subscribes to this table alone
            into: a dataclass, TypedDict, pydantic model or msgspec Struct for the rows
                of `table`, or a RowMapper with one; yields a MappedChange for each
                change. A row that does not fit raises RowMappingError

        """
        choice = TableChoice(table) if table else None
        mapper = None if into is None else self._mapper(table, into)
        for message in self._iterate(choice):
            found = message.changes()
            if choice is not None:
                found = filter(choice.accepts, found)
            yield from found if mapper is None else map(mapper.mapped, found)

    def arrow(
        self, table: str = "", updates: Updates = "postimage"
    ) -> Iterator[ArrowBatch]:
        """Yield the rows of each message as record batches, one or more for each table.

        Needs the extra `canal-server[arrow]`. Messages are acked as by `changes`.
        `Message.to_arrow` describes the columns and `updates`.

        Args:
            table: as for `changes`
            updates: "postimage", "both" or "envelope"

        """
        choice = TableChoice(table) if table else None
        for message in self._iterate(choice):
            for batch in message.arrow_batches(updates):
                if choice is None or choice.accepts(batch):
                    yield batch

    def messages(
        self,
        batch_size: int | None = None,
        timeout_s: float | None = None,
        *,
        empty: bool = False,
    ) -> Iterator[Message]:
        """Yield messages until `stop`, and ack each by the policy.

        The next message is requested while the program handles this one. If the loop
        ends with an error or a break, the current message is not acked and is delivered
        again.

        Args:
            batch_size: as that of the client; None: the same
            timeout_s: how long a request may wait for changes (default: 1 s)
            empty: yield an empty message when no changes arrived within that time

        """
        self._stream.begin(batch_size, timeout_s, empty=empty)
        yield from self._messages()

    def _iterate(self, choice: TableChoice | None) -> Iterator[Message]:
        """Begin an iteration over a table, or over all."""
        table_filter = "" if choice is None else choice.filter
        self._stream.begin(None, None, table_filter=table_filter)
        return self._messages()

    def _messages(self) -> Iterator[Message]:
        stream = self._stream
        while (message := run(stream.next(), self._connection)) is not None:
            yield message
            run(stream.done(message), self._connection)

    # ----------------------------------------------------------------------------
    # The connection
    # ----------------------------------------------------------------------------

    def connect(self) -> None:
        """Connect and log in, with several addresses to the first that accepts.

        Does nothing after `stop`. Raises ClientError if the login is refused.
        """
        run(self._stream.connect(), self._connection)

    def close(self) -> None:
        """Close the connection; the server keeps the subscription and unacked changes.

        Waits up to a second until the server has executed the last ack or rollback, so
        that the next client to connect sees its effect.
        """
        run(self._stream.close(), self._connection)

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ----------------------------------------------------------------------------
    # The protocol's requests
    # ----------------------------------------------------------------------------

    def subscribe(self, filter: str | None = None) -> None:  # noqa: A002  # the protocol's
        """Subscribe, and resume after the last ack.

        `filter` replaces the client's, also for reconnects, until the next call.
        """
        self._stream.filter = self._options.filter if filter is None else filter
        run(self._stream.subscribe(), self._connection)

    def unsubscribe(self) -> None:
        """Remove the subscription, so that the server retains no changes for it."""
        run(self._stream.session.unsubscribe(), self._connection)

    def get(
        self, batch_size: int | None = None, timeout_s: float | None = 0.0
    ) -> Message:
        """Return the next message, without acking it.

        Args:
            batch_size: as that of the client; None: the same
            timeout_s: how long to wait for a change; None: without limit

        """
        size = self._options.batch_size if batch_size is None else batch_size
        return run(self._stream.session.get(size, timeout_s), self._connection)

    def ack(self, message_id: int | None = None) -> None:
        """Acknowledge a message as processed; in an iteration also all before it.

        There is no answer: if the server refuses it, the next request raises
        ClientError and the connection is closed. Messages that were requested by `get`
        are acked one by one in their order; the server refuses another order.

        Args:
            message_id: the message's `id`; None: all messages before the current one,
                without an iteration all that were received

        """
        run(self._stream.ack(message_id), self._connection)

    def rollback(self, message_id: int = ALL_BATCHES) -> None:
        """Request the oldest message that is not acked, and all after it, again.

        `message_id` is the id of that message, or 0 to skip the check. There is no
        answer, as for `ack`.
        """
        run(self._stream.rollback(message_id), self._connection)
