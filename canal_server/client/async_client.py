"""The client of asyncio; it says and understands the same as the one that blocks."""

from __future__ import annotations

from contextlib import aclosing
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from canal_server.client.client_base import ClientBase
from canal_server.client.connection.async_connection import AsyncConnection
from canal_server.client.connection.io_steps import run_async
from canal_server.client.connection.session import ALL_BATCHES
from canal_server.client.table_choice import TableChoice

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from canal_server.client.arrow_tables import ArrowBatch, Updates
    from canal_server.client.change_reader import Change
    from canal_server.client.received_message import Message
    from canal_server.client.row_mapping import MappedChange, RowMapper

T = TypeVar("T")


class AsyncCanalClient(ClientBase):
    """Receives the changes of one destination; for one task at a time.

    It has the arguments, methods and errors of `CanalClient`: iterate with `async for`,
    connect with `async with`, and await the requests. A task that is cancelled while it
    waits loses the connection; what it had not acked is delivered again.
    """

    _is_receiving = False  # a task waits for the next message

    @cached_property
    def _connection(self) -> AsyncConnection:
        return AsyncConnection(self._tls)

    def _wake(self) -> None:
        self._connection.wake()

    # ----------------------------------------------------------------------------
    # Iterating
    # ----------------------------------------------------------------------------

    def __aiter__(self) -> AsyncGenerator[Change]:
        """Iterate over all changes; see `changes`."""
        return self.changes()

    @overload
    def changes(self, table: str = "") -> AsyncGenerator[Change]: ...

    @overload
    def changes(
        self, table: str, into: type[T] | RowMapper[T]
    ) -> AsyncGenerator[MappedChange[T]]: ...

    async def changes(
        self, table: str = "", into: type[Any] | RowMapper[Any] | None = None
    ) -> AsyncGenerator[Any]:
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
        async with aclosing(self._iterate(choice)) as messages:
            async for message in messages:
                found = message.changes()
                if choice is not None:
                    found = filter(choice.accepts, found)
                for change in found:
                    yield change if mapper is None else mapper.mapped(change)

    async def arrow(
        self, table: str = "", updates: Updates = "postimage"
    ) -> AsyncGenerator[ArrowBatch]:
        """Yield the rows of each message as record batches, one or more for each table.

        Needs the extra `canal-server[arrow]`. Messages are acked as by `changes`.
        `Message.to_arrow` describes the columns and `updates`.

        Args:
            table: as for `changes`
            updates: "postimage", "both" or "envelope"

        """
        choice = TableChoice(table) if table else None
        async with aclosing(self._iterate(choice)) as messages:
            async for message in messages:
                for batch in message.arrow_batches(updates):
                    if choice is None or choice.accepts(batch):
                        yield batch

    async def messages(
        self,
        batch_size: int | None = None,
        timeout_s: float | None = None,
        *,
        empty: bool = False,
    ) -> AsyncGenerator[Message]:
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
        async with aclosing(self._messages()) as messages:
            async for message in messages:
                yield message

    def _iterate(self, choice: TableChoice | None) -> AsyncGenerator[Message]:
        """Begin an iteration over a table, or over all."""
        table_filter = "" if choice is None else choice.filter
        self._stream.begin(None, None, table_filter=table_filter)
        return self._messages()

    async def _messages(self) -> AsyncGenerator[Message]:
        stream = self._stream
        while (message := await self._next()) is not None:
            yield message
            await run_async(stream.done(message), self._connection)

    async def _next(self) -> Message | None:
        if self._is_receiving:
            raise RuntimeError(
                "another task is iterating over this client: use a client for each task"
            )
        self._is_receiving = True
        try:
            return await run_async(self._stream.next(), self._connection)
        finally:
            self._is_receiving = False

    # ----------------------------------------------------------------------------
    # The connection
    # ----------------------------------------------------------------------------

    async def connect(self) -> None:
        """Connect and log in, with several addresses to the first that accepts.

        Does nothing after `stop`. Raises ClientError if the login is refused.
        """
        await run_async(self._stream.connect(), self._connection)

    async def close(self) -> None:
        """Close the connection; the server keeps the subscription and unacked changes.

        Waits up to a second until the server has executed the last ack or rollback, so
        that the next client to connect sees its effect.
        """
        await run_async(self._stream.close(), self._connection)

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ----------------------------------------------------------------------------
    # The protocol's requests
    # ----------------------------------------------------------------------------

    async def subscribe(self, filter: str | None = None) -> None:  # noqa: A002  # the protocol's
        """Subscribe, and resume after the last ack.

        `filter` replaces the client's, also for reconnects, until the next call.
        """
        self._stream.filter = self._options.filter if filter is None else filter
        await run_async(self._stream.subscribe(), self._connection)

    async def unsubscribe(self) -> None:
        """Remove the subscription, so that the server retains no changes for it."""
        await run_async(self._stream.session.unsubscribe(), self._connection)

    async def get(
        self, batch_size: int | None = None, timeout_s: float | None = 0.0
    ) -> Message:
        """Return the next message, without acking it.

        Args:
            batch_size: as that of the client; None: the same
            timeout_s: how long to wait for a change; None: without limit

        """
        size = self._options.batch_size if batch_size is None else batch_size
        return await run_async(
            self._stream.session.get(size, timeout_s), self._connection
        )

    async def ack(self, message_id: int | None = None) -> None:
        """Acknowledge a message as processed; in an iteration also all before it.

        There is no answer: if the server refuses it, the next request raises
        ClientError and the connection is closed. Messages that were requested by `get`
        are acked one by one in their order; the server refuses another order.

        Args:
            message_id: the message's `id`; None: all messages before the current one,
                without an iteration all that were received

        """
        await run_async(self._stream.ack(message_id), self._connection)

    async def rollback(self, message_id: int = ALL_BATCHES) -> None:
        """Request the oldest message that is not acked, and all after it, again.

        `message_id` is the id of that message, or 0 to skip the check. There is no
        answer, as for `ack`.
        """
        await run_async(self._stream.rollback(message_id), self._connection)
